"""`env_params`: set by name, sampled at every reset, recorded with the run, separate for evaluation."""

import dataclasses
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli import options
from ppax.core.types import EnvReset, EnvStep
from ppax.envs import TimeLimit, builtin, other_params
from ppax.envs.wrappers import params
from ppax.envs.wrappers.wrapper import render
from ppax.run.fit import fit_run
from support.worlds import QUICK

DRAWN = {"low": 0.25, "high": 1.0}
BAD = {
    "env_params.gravty'; did you mean 'gravity'": {"gravty": 9.8},
    "env_params.action_filters'; did you mean 'action_filter'": {"action_filters": 0.5},
    "gravity = 'strong': must be of type float": {"gravity": "strong"},
    "half_length = -1.0: must be above 0": {"half_length": -1.0},
    "half_length.low = 2.0: must be at most env_params.half_length.high = 1.0": {"half_length": {"low": 2, "high": 1}},
    "half_length.low = -2.0: must be above 0": {"half_length": {"low": -2, "high": 1}},
    "max_x: cannot be drawn at a reset": {"max_x": {"low": 1, "high": 2}},
    "must be a number, or have low and high": {"half_length": {"low": 1}},
    "max_steps = 0: must be at least 1; nearest valid value: 1": {"max_steps": 0},
    'half_length = (0.3, 0.7): must be one number; a range is {"low": 0.3, "high": 0.7}': {"half_length": (0.3, 0.7)},
    "--env-params.half_length.low 0.3 --env-params.half_length.high 0.7": {"half_length": [0.3, 0.7]},
    "half_length = [1, 2, 3]: must be one number": {"half_length": [1, 2, 3]},
}


@pytest.mark.parametrize("message", BAD)
def test_invalid_options_are_refused(message):
    with pytest.raises(ppax.ConfigError, match=re.escape(message)):
        ppax.make("CartPole-v1", 4, env_params=BAD[message])


def test_env_params_set_the_numbers_of_the_part():
    env = ppax.make("CartPole-v1", 4, action_repeat=2, env_params={"gravity": 12, "max_x": 1.0, "max_steps": 30})
    assert env.env.env.env == builtin.CartPole(gravity=12.0, max_x=1.0)
    assert env.env.env.max_steps == 30
    assert env.settings.env_params == {"gravity": 12.0, "max_x": 1.0, "max_steps": 30}
    assert ppax.make("CartPole-v1").settings.env_params == {}


def test_sampled_numbers_change_at_every_reset_and_stay_for_the_episode():
    env = ppax.make("CartPole-v1", 1, env_params={"half_length": DRAWN, "gravity": 5.0}).env

    @jax.jit
    @jax.vmap
    def episode(key):
        start = env.reset(key)
        step = env.step(start.state, jnp.int32(1), key)
        plain = dataclasses.replace(env.env.env, half_length=start.state.numbers["half_length"])
        alone = plain.step(start.state.inner.inner, jnp.int32(1), key)
        return start.state.numbers["half_length"], step.state.numbers["half_length"], step.obs, alone.obs

    first, later, obs, alone = map(np.asarray, episode(jax.random.split(jax.random.key(0), 4000)))
    np.testing.assert_array_equal(first, later)
    np.testing.assert_allclose(obs, alone, rtol=1e-6)
    assert first.min() >= 0.25
    assert first.max() <= 1.0
    # uniform: no decile is more than five standard errors off
    counts = np.histogram(first, 10, (0.25, 1.0))[0]
    assert np.abs(counts - 400).max() < 5 * np.sqrt(400)
    assert ppax.make("CartPole-v1", env_params={"half_length": DRAWN}).settings.env_params == {"half_length": DRAWN}


def corridors(num_envs=4000, **given):
    return ppax.make("CueCorridor-10", num_envs, env_params={"length": {"low": 3, "high": 6.0}}, **given)


def test_whole_numbers_are_drawn_whole_with_equal_shares():
    env = corridors()
    state, _, _ = env.reset(jax.random.key(0))
    lengths = np.asarray(state.env.numbers["length"])
    values, counts = np.unique(lengths, return_counts=True)
    assert values.tolist() == [3, 4, 5, 6]
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000 * 0.75)
    assert env.env.with_numbers({"length": jnp.float32(4)}).length.dtype == jnp.int32
    assert ppax.envs.ended(env).env == env.env  # and other wrappers find its parameters

    def walk(state, key):
        out = env.step(state, jnp.zeros(4000, jnp.int32), key)
        return out.state, (out.obs[:, 1] > 0, out.terminated)

    _, (fork, over) = jax.jit(lambda state: jax.lax.scan(walk, state, jax.random.split(jax.random.key(1), 7)))(state)
    np.testing.assert_array_equal(np.argmax(fork, axis=0) + 1, lengths)  # the fork is seen after `length` steps
    np.testing.assert_array_equal(np.argmax(over, axis=0), lengths)
    np.testing.assert_array_equal(fork.sum(axis=0), 1)


def test_a_drawn_time_limit_has_equal_shares():
    env = ppax.make("Pendulum-v1", 1000, env_params={"max_steps": {"low": 2, "high": 3}}).env
    start = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 1000))
    counts = [(np.asarray(start.state.numbers["max_steps"]) == steps).sum() for steps in (2, 3)]
    assert sum(counts) == 1000
    assert min(counts) > 500 - 5 * np.sqrt(250)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        ({"low": 3.5, "high": 6}, "length.low = 3.5: must be a whole number; nearest valid value: 4"),
        ({"low": 3, "high": 2**25}, f"length.high = {2.0**25}: must be at most {2**24}; nearest valid value: {2**24}"),
        ({"low": 0, "high": 6}, "length.low = 0.0: must be at least 1; nearest valid value: 1"),
    ],
)
def test_ends_of_whole_numbers_are_whole(length, message):
    with pytest.raises(ppax.ConfigError, match=re.escape(message)):
        ppax.make("CueCorridor-10", 4, env_params={"length": length})


def test_a_scheduled_end_of_whole_numbers_is_rounded():
    env = corridors(4, schedule=ppax.schedules.Linear(("env.length.high",), end=1.4))  # to 8.4
    last = ppax.envs.ended(env).env
    assert (last.low, last.high) == ({"length": 3.0}, {"length": 8.0})


def test_rendering_shows_the_sampled_numbers():
    short, long = (
        ppax.make("CartPole-v1", 1, env_params={"half_length": {"low": x, "high": x}}).env for x in (0.3, 0.9)
    )
    pictures = [render(env, env.reset(jax.random.key(0)).state) for env in (short, long)]
    assert (pictures[0] != pictures[1]).any()


def test_a_run_records_env_params_and_evaluation_has_its_own(tmp_path):
    plan = {
        "env": "CartPole-v1",
        "num_envs": 4,
        "num_steps": 16,
        "total_steps": 64,
        "env_params": {"max_steps": 5, "half_length": DRAWN},
        "eval": {"episodes": 8, "env_params": {"max_steps": 7, "half_length": 0.5}},
        "log": {"console": False},
    }
    agent, env, run = config.build(plan)
    trained = fit_run(agent, env, run, tmp_path / "run")
    assert trained.history[-1]["episode_length"] <= 5
    assert trained.evaluate(8).lengths.max() == 7
    again = config.read(tmp_path / "run" / "run.toml")
    assert again["env_params"] == plan["env_params"]
    assert again["eval"]["env_params"] == plan["eval"]["env_params"]
    assert ppax.resume(tmp_path / "run", console=False).evaluate(8).lengths.max() == 7


def test_env_params_on_the_command_line():
    words = (
        "CartPole-v1 --env-params.half-length.low 0.25 --env_params.half_length.high=1 --eval.env-params.max-steps 9"
    )
    plan = options.parse_run("train", words.split(), options.add_train)[1]
    assert plan["env_params"] == {"half_length": {"low": 0.25, "high": 1}}
    assert plan["eval"]["env_params"] == {"max_steps": 9}
    with pytest.raises(ppax.ConfigError, match="needs a value"):
        options.parse_run("train", ["CartPole-v1", "--env-params.gravity"], options.add_train)


def test_env_params_that_are_no_numbers_are_passed_to_the_suite():
    env = ppax.make("gymnasium/CartPole-v1", 2, env_params={"sutton_barto_reward": True})
    assert env.settings.env_params == {"sutton_barto_reward": True}
    assert env.recreate(3).settings.env_params == {"sutton_barto_reward": True}
    for name, value in {"gravty": 1.0, "sutton_barto_reward": {"low": 0, "high": 1}}.items():
        with pytest.raises(ppax.ConfigError, match=name):
            ppax.make("gymnasium/CartPole-v1", 2, env_params={name: value})


def test_env_params_of_gymnax():
    pytest.importorskip("gymnax")
    env = ppax.make("gymnax/CartPole-v1", 2, env_params={"gravity": 12, "max_steps": 50, "force_mag": DRAWN})
    assert env.settings.env_params == {"gravity": 12.0, "max_steps": 50, "force_mag": DRAWN}
    start = jax.jit(env.reset, compiler_options=QUICK)(jax.random.key(0))[0]
    forces = np.asarray(start.env.numbers["force_mag"])
    assert len(set(forces)) == 2
    assert ((forces >= 0.25) & (forces <= 1.0)).all()
    with pytest.raises(ppax.ConfigError, match="max_steps_in_episode'; did you mean 'max_steps'"):
        ppax.make("gymnax/CartPole-v1", 2, env_params={"max_steps_in_episode": 50})


@pytest.mark.parametrize("limit", ["max_steps_in_episode", "max_timesteps"])
def test_a_suites_own_time_limit_is_no_option(limit):
    """gymnax and Craftax have time limits among their parameters; `TimeLimit` replaces them, as `max_steps`."""
    numbers = dataclasses.make_dataclass("Numbers", [(limit, int, 100), ("speed", float, 1.0)], frozen=True)

    @ppax.part
    class Suite:
        params: object

    assert set(params.parameters(TimeLimit(Suite(numbers()), 100))) == {"max_steps", "speed"}


class Limits(NamedTuple):
    """Structure of a user's environment that is no part."""

    wind: float = 0.5
    bounds: tuple[float, float] = (-1.0, 1.0)


@ppax.part
class Wheel:
    """Part inside a part; two of them have the same names."""

    mass: float = ppax.number("mass of the wheel", default=2.0, above=0.0)
    size: int = ppax.static("size", default=3)


@ppax.part
class Truck:
    """Environment whose numbers lie in parts, NamedTuples, dicts and tuples; its observation is the list of them."""

    left: Wheel = Wheel()
    right: Wheel = Wheel(mass=3.0)
    weather: Limits = Limits()
    table: dict[str, float] = dataclasses.field(default_factory=lambda: {"friction": 0.1})
    load: float = 7.0
    num_agents = None

    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = spaces.Discrete(2)

    def _numbers(self):
        every = (self.left.mass, self.right.mass, self.weather.wind, self.weather.bounds[1])
        return jnp.stack([jnp.float32(x) for x in (*every, self.table["friction"], self.load)])

    def reset(self, key):
        return EnvReset(jnp.zeros(()), self._numbers())

    def step(self, state, action, key):
        return EnvStep(state, self._numbers(), jnp.float32(1.0), jnp.bool_(False), jnp.bool_(False))


NAMES = {"left.mass", "left.size", "right.mass", "right.size", "wind", "0", "1", "friction", "load", "max_steps"}


@pytest.mark.parametrize(
    ("given", "entry", "value"),
    [
        ({"left": {"mass": 5.0}}, 0, 5.0),
        ({"right.mass": 5.0}, 1, 5.0),
        ({"wind": 5.0}, 2, 5.0),
        ({"weather.wind": 5.0}, 2, 5.0),
        ({"weather": {"bounds": {"1": 5.0}}}, 3, 5.0),
        ({"table": {"friction": 5.0}}, 4, 5.0),
        ({"load": 5.0}, 5, 5.0),
        ({"left": {"mass": {"low": 5.0, "high": 5.0}}}, 0, 5.0),
    ],
)
def test_nested_numbers_are_reached_by_name_and_by_dotted_path(given, entry, value):
    plain = np.array([2.0, 3.0, 0.5, 1.0, 0.1, 7.0], np.float32)
    env = other_params(ppax.envs.VectorEnv(TimeLimit(Truck(), 9), 2), given)
    plain[entry] = value
    np.testing.assert_array_equal(env.reset(jax.random.key(0))[1], [plain, plain])
    assert set(params.parameters(env.env)) == NAMES
    assert other_params(env, {"load": 1.0}).reset(jax.random.key(0))[1][0, 5] == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mass": 1.0}, r"'env_params.mass'; did you mean '(left|right).mass'"),
        ({"left": {"mas": 1.0}}, "'env_params.left.mas'; did you mean 'left.mass'"),
        ({"left": {"mass": 0.0}}, "env_params.left.mass = 0.0: must be above 0"),
        ({"left": {"size": {"low": 1, "high": 2}}}, "env_params.left.size: cannot be drawn"),
        ({"left": 3.0}, "'env_params.left'"),
    ],
)
def test_wrong_nested_names_and_values_are_refused(given, message):
    with pytest.raises(ppax.ConfigError, match=message):
        other_params(ppax.envs.VectorEnv(Truck(), 2), given)


@pytest.mark.parametrize("name", ["rl8/CartPole", "rl8/MountainCar", "MountainCar-v0", "MountainCarContinuous-v0"])
def test_gravity_of_every_built_in_environment_changes_its_steps(name):
    def after(**env_params):
        env = ppax.make(name, 1, env_params=env_params).env
        action = jnp.zeros(env.action_space.shape, jnp.float32)
        return env.step(env.reset(jax.random.key(0)).state, action, jax.random.key(1)).obs

    assert (after() != after(gravity=2.0)).any()
    inner = "cart" if "CartPole" in name else "valley"
    np.testing.assert_array_equal(after(gravity=2.0), after(**{inner: {"gravity": 2.0}}))


def test_numbers_that_a_variant_does_not_read_are_refused():
    with pytest.raises(ppax.ConfigError, match=r"unknown option 'env_params\.max_theta'"):
        ppax.make("rl8/CartPole", 1, env_params={"max_theta": 0.1})
    assert ppax.make("rl8/CartPole", 1, env_params={"force": 3.0}).env.env.force == 3.0


def test_a_run_with_nested_numbers_is_recorded_and_resumed(tmp_path):
    words = ["rl8/CartPole", "--env-params.cart.gravity", "3.5", "--env-params.cart_mass.low", "1", "--num-envs", "2"]
    words += ["--env-params.cart_mass.high=2", "--num-steps", "8", "--total-steps", "32", "--no-log.console"]
    plan = options.parse_run("train", words, options.add_train)[1]
    built = config.build(plan)
    trained = fit_run(*built, tmp_path / "run")
    again = config.read(tmp_path / "run" / "run.toml")
    assert again["env_params"] == {"gravity": 3.5, "cart_mass": {"low": 1.0, "high": 2.0}}
    assert "objects" not in again
    resumed = ppax.resume(tmp_path / "run", console=False)
    assert resumed.env == trained.env
    assert resumed.env.env.env.env.cart.gravity == 3.5
