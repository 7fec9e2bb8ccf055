"""Rollouts that are not finite: the iteration is rejected and the first fault is located."""

import dataclasses
import json
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jax import Array

import ppax
from ppax import envs
from ppax.agents import precision
from ppax.config import Log
from ppax.core.types import EnvReset, EnvStep, part, static
from ppax.envs.settings import EnvSettings
from ppax.networks import network
from ppax.run.faults import check_line

pytestmark = pytest.mark.usefixtures("cached_programs", "quick_programs")
LATE, STEPS, ENVS = 70, 8, 4


class Count(NamedTuple):
    steps: Array  # [], starts at a random number


@part
class Poisoned:
    """Environment without ends; when its step count reaches `LATE`, one field is `value`."""

    field: str = static(default="reward")
    value: str = static(default="nan")  # NaN itself is not equal to itself
    num_agents: int | None = static(default=None)

    action_space = spaces.Discrete(2)

    @property
    def observation_space(self):
        return spaces.Dict(a=spaces.Box(-1.0, 1.0, (2,)), b=spaces.Box(-1.0, 1.0, (3,)))

    def _obs(self, bad):
        agents = () if self.num_agents is None else (self.num_agents,)
        b = jnp.zeros((*agents, 3))
        last = b.at[-1, 1] if agents else b.at[1]  # of the last agent
        spoilt = bad & (self.field == "observation")
        return {"a": jnp.zeros((*agents, 2)), "b": jnp.where(spoilt, last.set(float(self.value)), b)}

    def reset(self, key):
        count = Count(jax.random.randint(key, (), 0, LATE - 2 * STEPS))
        return EnvReset(count, self._obs(False))

    def step(self, count, action, key):
        count = Count(count.steps + 1)
        bad = count.steps == LATE
        agents = () if self.num_agents is None else (self.num_agents,)
        paid = jnp.where(bad & (self.field == "reward"), float(self.value), 1.0)
        reward = jnp.ones(agents).at[-1].set(paid) if agents else paid
        never = jnp.zeros(agents, bool)
        return EnvStep(count, self._obs(bad), reward, never, never)


def set_up(field="reward", value="nan", num_agents=None, **options):
    env = envs.VectorEnv(Poisoned(field, value, num_agents), ENVS, "poisoned")
    agent = ppax.PPO(network(env, hidden=(4,)), num_epochs=1, compute_dtype="float32", **options)
    return agent, env


def expected(env, state, field):
    """Environment, iteration and step of the first fault, from the initial counts of the environments."""
    counts = np.asarray(state.actor.env_state.env.steps)
    step = LATE - counts.max() - 1 + (field == "observation")  # an observation is checked in the step that acts on it
    return int(counts.argmax()), *divmod(int(step), STEPS)


CASES = [
    ("reward", "nan", None, {}),
    ("observation", "-inf", 3, {"normalize_obs": True}),
    *(
        pytest.param(*case, marks=pytest.mark.nightly)
        for case in (
            ("reward", "inf", 3, {}),
            ("observation", "nan", None, {}),
            ("reward", "nan", None, {"minibatch": ppax.minibatches.Prioritised(), "seq_len": STEPS}),
            ("reward", "inf", None, {"normalize_reward": True}),
        )
    ),
]


@pytest.mark.parametrize(("field", "value", "num_agents", "options"), CASES)
def test_a_fault_is_located_and_the_state_before_it_is_kept(field, value, num_agents, options, tmp_path):
    agent, env = set_up(field, value, num_agents, **options)
    log, total = Log(every=40, console=False), 40 * STEPS * env.num_streams
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ppax.training.compiled.CompiledTraining, "__call__", _keeping(made))
        with pytest.raises(ppax.NumericalError) as raised:
            ppax.fit(agent, env, total, num_steps=STEPS, log=log, run_dir=tmp_path)
    (program, state), *_ = made
    where, iteration, step = expected(env, state, field)
    name = "observation\\['b'\\]" if field == "observation" else "reward"
    agent_of = f", agent {num_agents - 1}" if num_agents else ""
    said = f"iteration {iteration + 1} is not finite: environment {where}{agent_of}, step {step}: its {name} is {value}"
    raised.match(rf"{said}; `ppax\.check_env\(env\)` in Python checks the environment; the newest checkpoint is")
    # the rows and the checkpoint are those of the iterations before
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [iteration]
    assert np.isfinite(rows[0]["reward_mean"])
    assert rows[0]["grad_norm"] is None
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [f"{iteration:010d}"]
    end = json.loads((tmp_path / "stopped.json").read_text())
    assert end["kind"] == "fault"
    raised.match(re.escape(end["error"]))
    if num_agents or options:
        return
    # bit-identical to a shorter run
    shorter = program(agent, env, jax.tree.map(jnp.copy, state), iteration, 40)
    longer = program(agent, env, state, iteration + 3, 40)
    assert int(longer.state.iteration) == iteration
    for one, other in zip(jax.tree.leaves(shorter), jax.tree.leaves(longer), strict=True):
        if one.shape != shorter.metrics.means.shape:
            np.testing.assert_array_equal(_data(one), _data(other))
    assert np.isnan(longer.metrics["grad_norm"])
    rest = [name for name in shorter.metrics if name != "grad_norm"]
    np.testing.assert_array_equal(*([x.metrics[name] for name in rest] for x in (shorter, longer)))


def _data(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def _keeping(made):
    """Call of the program that appends it to `made`, with a copy of the state: its buffers are donated."""
    original = ppax.training.compiled.CompiledTraining.__call__

    def call(self, agent, env, state, *counts):
        made.append((self, jax.tree.map(jnp.copy, state)))
        return original(self, agent, env, state, *counts)

    return call


def test_the_command_that_checks_the_environment_has_what_it_needs():
    def settings(env, **env_params):
        return envs.VectorEnv(Poisoned(), 2, env, made=EnvSettings(env_params=env_params, by_name=True))

    assert check_line(settings("CartPole-v1")) == "`ppax check-env CartPole-v1` checks the environment"
    own = check_line(settings("broken:NanReward", max_steps=200, wind_speed=0.5, map="a b"))
    options = "--env-params.max-steps 200 --env-params.wind-speed 0.5 --env-params.map 'a b'"
    assert own == f"`ppax check-env broken:NanReward {options} --trust broken` checks the environment"


def test_a_fault_of_the_network_is_distinguished_from_one_of_the_environment(tmp_path):
    agent, env = set_up()
    wild = dataclasses.replace(agent, learning_rate=1e38)
    with pytest.raises(
        ppax.NumericalError, match="its observations and rewards are finite, so it comes from the network"
    ):
        ppax.fit(wild, env, 40 * STEPS * ENVS, num_steps=STEPS, log=Log(console=False), run_dir=tmp_path)
    kept = ppax.run.checkpoint.newest_valid(tmp_path / "checkpoints")[0]
    from safetensors.numpy import load_file

    arrays = load_file(kept / "state.safetensors")
    assert all(np.isfinite(x).all() for x in arrays.values() if x.dtype.kind == "f")


@part
class Chaos:
    """Chaotic map, pushed by the action, whose reward is NaN in a narrow interval."""

    num_agents = None
    observation_space = spaces.Box(-np.inf, np.inf, (4,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def _obs(self, x):
        return jnp.stack([x, x * x, jnp.sin(9 * x), jnp.cos(5 * x)])

    def reset(self, key):
        x = jax.random.uniform(key)
        return EnvReset(x, self._obs(x))

    def step(self, x, action, key):
        x = jnp.abs(3.99 * x * (1 - x) + 0.05 * action[0]) % 1.0
        reward = jnp.where((x > 0.7) & (x < 0.7 + 2e-4), jnp.nan, x)
        return EnvStep(x, self._obs(x), reward, jnp.bool_(False), jnp.bool_(False))


def test_a_fault_is_located_with_the_products_of_training(monkeypatch):
    """Where `compute_dtype = "auto"` is bfloat16: in float32 the actions, and so the steps, would be others."""
    monkeypatch.setattr(precision, "bfloat16_unit", lambda: True)
    env = envs.VectorEnv(Chaos(), 4, "chaos")
    agent = ppax.PPO(network(env, hidden=(32, 32), log_std_init=-1.0))
    with pytest.raises(ppax.NumericalError, match=r"environment \d, step \d+: its reward is nan"):
        ppax.fit(agent, env, 200_000, num_steps=64)
