"""What is for robots, each with a memory, several agents, self-play, devices, the host, in a sweep and when resumed.

Every option acts in each of these: a run with the option differs from one without.
"""

import copy
import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config

QUIET = ppax.Log(console=False)
SMALL = {"network": {"hidden": [4]}, "minibatch": {"num_minibatches": 2}, "num_epochs": 1, "normalize_obs": True}
SMALL |= {"normalize_reward": False}  # V of two teachers are compared
OWN = {  # options of [agent]; `run_of` puts the paths in
    "statistics": {"normalization": {"skip": ["0"], "freeze_obs": 30}},
    "caps": {"extensions": {"caps": {}}},
    "l2c2": {"extensions": {"l2c2": {"value_coef": 0.1}}},
    "action_rate": {"extensions": {"action_rate": {}}},
    "teacher": {"extensions": {"distillation": {"teacher": "", "coef": 0.5}}},
    "teachers": {"extensions": {"distillation": {"teachers": [], "select": {"part": "value"}}}},
    "motions": {"extensions": {"motion_prior": {"demonstrations": "", "hidden": [4], "num_minibatches": 2}}},
    "warmup": {"optimizer": {"part": "actor_critic"}, "extensions": {"critic_warmup": {"steps": 40.0}}},
    "simba": {"network": {"hidden": [4, 4], "layers": "simba"}},
}
OF_ENV = {"stagger": {"stagger": 5}, "filter": {"env_params": {"action_filter": 0.5}}}
ITEMS = [*OWN, *OF_ENV]
ONE = {"env": "Pendulum-v1", "preset": "none", "num_envs": 4, "num_steps": 8}
GAME = ONE | {"env": "Pursuit-2", "num_envs": 2}  # of two agents each
WAYS = {
    "alone": ONE,
    "memory": ONE | {"agent": {"network": {"memory": {"part": "gru", "width": 4}}, "seq_len": 4}},
    "shared": GAME,
    "independent": GAME | {"agents": "independent"},
    "groups": GAME | {"groups": {"prey": {"players": [0]}, "hunters": {"players": [1]}}},
    "self_play": GAME
    | {
        "num_envs": 4,
        "num_steps": 4,
        "groups": {"prey": {"players": [0]}, "hunters": {"players": [1]}},
        "self_play": {"every": 1, "size": 2, "opponents": 1},
    },
    "devices": ONE | {"agent": {"program": {"devices": 2}}},
    "host": ONE | {"env": "gymnasium/Pendulum-v1"},
}


def over(config, other):
    """Return the nested tables `config` with the values of `other` over them."""
    merged = dict(config)
    for name, value in other.items():
        merged[name] = over(merged.get(name, {}), value) if isinstance(value, dict) else value
    return merged


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("folder")


@functools.cache
def teacher(name, way, folder):
    """Return the run directory of a teacher with the spaces of `way`, trained for one iteration."""
    plan = over(over(WAYS[way], {"agent": SMALL}), {"agent": {"network": {"hidden": [5]}}, "total_steps": 32})
    return str(ppax.build(plan).fit(folder / way / name).run_dir)


@functools.cache
def motions(way, folder):
    """Return the path of random motions of an agent of `way`."""
    obs = np.random.default_rng(0).normal(size=(30, *ppax.make(WAYS[way]["env"], 4).observation_space.shape))
    ends = np.arange(1, 31) % 10 == 0
    np.savez(folder / f"{way}.npz", observations=obs, terminations=ends, truncations=np.zeros(30, bool))
    return str(folder / f"{way}.npz")


def run_of(item, way, folder):
    """Return the configuration of a run of `way` with the option `item`, or without one."""
    plan = over(WAYS[way], {"agent": SMALL})
    if item in OF_ENV:
        return over(plan, OF_ENV[item])
    own = copy.deepcopy(OWN[item]) if item else {}
    kind = "shared" if plan["env"] == "Pursuit-2" else "alone"
    for table in own.get("extensions", {}).values():
        if "demonstrations" in table:
            table["demonstrations"] = motions(kind, folder)
        elif "teacher" in table:
            table["teacher"] = teacher("one", kind, folder)
        elif "teachers" in table:
            table["teachers"] = [teacher(name, kind, folder) for name in ("one", "two")]
    return over(plan, {"groups": {"hunters": {"agent": own}}} if "groups" in plan else {"agent": own})


@functools.cache
def fitted(item, way, folder):
    """Return the run of two iterations; one per process, whoever asks."""
    agent, env, run = config.build(run_of(item, way, folder))
    return ppax.fit(agent, env, 64, num_steps=run.num_steps, seed=0, log=QUIET)


def numbers(learner):
    """Return all numbers of the parameters of a learner, or of several."""
    learners = jax.tree.leaves(learner, is_leaf=lambda x: hasattr(x, "params"))  # beside a pool of past ones
    params = [x.params for x in learners if hasattr(x, "params")]
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


def same(one, other, atol=0.0):
    """Return the share of parameters that differ by at most `atol`."""
    return np.mean(np.abs(numbers(one.state.learner) - numbers(other.state.learner)) <= atol)


CASES = list(itertools.product(ITEMS, WAYS))


@pytest.mark.parametrize(
    ("item", "way"),
    [pytest.param(*case, marks=() if i % 19 == 0 else pytest.mark.nightly) for i, case in enumerate(CASES)],
)
def test_the_option_acts(item, way, folder, vmapped_keys):
    ppax.trust(str(folder))
    done, without = fitted(item, way, folder), fitted(None, way, folder)
    mine, others = numbers(done.state.learner), numbers(without.state.learner)
    assert np.isfinite(mine).all()
    assert set(done.history[-1]) > set(without.history[-1]) or mine.shape != others.shape or (mine != others).any()


@pytest.mark.nightly
@pytest.mark.parametrize("item", ITEMS)
def test_two_devices_learn_what_one_learns(item, folder):
    """Except for rounding, which Adam's first steps enlarge where a gradient is almost 0."""
    ppax.trust(str(folder))
    assert same(fitted(item, "alone", folder), fitted(item, "devices", folder), 1e-4) > 0.98


@pytest.mark.nightly
@pytest.mark.parametrize("item", ITEMS)
def test_a_member_of_a_sweep_learns_as_a_run_of_its_own(item, folder, vmapped_keys):
    ppax.trust(str(folder))
    agent, env, run = config.build(run_of(item, "memory", folder))
    swept = dataclasses.replace(agent, learning_rate=jnp.array([1e-3, 1e-2]))
    states = ppax.start_sweep(swept, env, run.num_steps, jnp.stack([jax.random.key(0)] * 2))
    states, _ = jax.jit(ppax.sweep, static_argnums=3)(swept, env, states, 2)
    params = jax.device_get(states.learner.params)
    for i, rate in enumerate((1e-3, 1e-2)):
        alone = dataclasses.replace(agent, learning_rate=rate)
        state = ppax.start(alone, env, run.num_steps, jax.random.key(0))
        state, _ = jax.jit(ppax.train, static_argnums=3)(alone, env, state, 2)
        pairs = zip(*map(jax.tree.leaves, (params, state.learner.params)), strict=True)
        assert np.mean(np.concatenate([np.ravel(abs(x[i] - y)) for x, y in pairs]) <= 1e-4) > 0.98


@pytest.mark.nightly
@pytest.mark.parametrize("item", ITEMS)
def test_a_resumed_run_goes_on_bit_for_bit(item, folder, tmp_path):
    ppax.trust(str(folder))
    agent, env, run = config.build(run_of(item, "memory", folder))
    options = {"num_steps": run.num_steps, "seed": 3, "log": QUIET}
    whole = ppax.fit(agent, env, 96, run_dir=tmp_path / "whole", **options)
    ppax.fit(agent, env, 32, run_dir=tmp_path / "parts", **options)
    resumed = ppax.resume(tmp_path / "parts", total_steps=96)
    np.testing.assert_array_equal(numbers(whole.state.learner), numbers(resumed.state.learner))
