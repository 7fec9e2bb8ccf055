"""Actions have the types of `action_space.sample()`, and environments may write into them."""

import copy
import sys
import threading
from functools import partial

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import ppax
from ppax.envs import EnvError, host
from ppax.envs.hosting.arrays import Layout
from ppax.envs.hosting.domain_randomisation import DomainRandomisation
from ppax.envs.hosting.faults import Failure
from ppax.envs.hosting.workers import pickled
from ppax.networks import mlp
from ppax.training.backends import backend_of
from support.host_worlds import LIMIT, Maze
from support.team_worlds import Squad

# Worker processes cannot import this file
cloudpickle.register_pickle_by_value(sys.modules[__name__])

QUIET = ppax.config.Log(console=False)
ACTIONS = {
    "discrete": spaces.Discrete(3, start=2),
    "int32": spaces.Discrete(3, dtype=np.int32),
    "several": spaces.MultiDiscrete([2, 3]),
    "int8": spaces.MultiDiscrete([[2, 3], [3, 2]], dtype=np.int8),
    "bits": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(-1.0, 1.0, (2,)),
    "box of float64": spaces.Box(-1.0, 1.0, (2, 1), np.float64),
    "dict": spaces.Dict(a=spaces.Discrete(3, dtype=np.int32), b=spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1)))),
}


def kinds(x):
    """Return the types of an action, and dtypes and shapes of its arrays."""
    if isinstance(x, dict):
        return {name: kinds(one) for name, one in x.items()}
    return tuple(map(kinds, x)) if isinstance(x, tuple) else (type(x), x.dtype, x.shape)


class Strict(Maze):
    """Maze that takes actions like those of `action_space.sample()` only, and writes into them."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, action_space, render_mode=None):
        self.action_space, self.render_mode = action_space, render_mode

    def step(self, action):
        assert kinds(action) == kinds(self.action_space.sample()), kinds(action)
        assert self.action_space.contains(action)
        for x in jax.tree.leaves(action):
            if x.shape:
                x[...] = 0
        return super().step(0)

    def render(self):
        return np.zeros((4, 4, 3), np.uint8)


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_have_the_types_of_samples_everywhere(name):
    """Training in this process, with repeated actions, in a vector, in workers; evaluation, films, check_env."""
    make = partial(Strict, ACTIONS[name])
    stepped = [host(make, 2), host(make, 2, action_repeat=3)]
    stepped += [host(make, 2, vectorization="async", workers=1)] if name in ("int32", "dict") else []
    stepped += [host(SyncVectorEnv([make] * 2))] if name not in ("int32", "dict") else []  # Gymnasium's own conversion
    for env in stepped:
        with env:
            env.host.reset([0, 1])
            for number, rows in enumerate(env.host.batches):
                for _ in range(4):
                    env.host.send(number, zeros(env, rows.stop - rows.start))
                    env.host.receive(number)
    assert ppax.check_env(make)["interface"].passed, ppax.check_env(make)


def zeros(env, rows):
    """Return the leaves of a batch of actions in 32 bits, as policies give them."""
    like = [jax.tree.leaves(copy.deepcopy(env.action_space).sample()) for _ in range(rows)]
    return [np.stack(x).astype(x[0].dtype.name.replace("64", "32")) for x in zip(*like, strict=True)]


def test_whole_runs_evaluations_and_films_give_numpy_integers():
    env = host(partial(Strict, ACTIONS["discrete"]), 2)
    run = ppax.fit(ppax.PPO(mlp(env, hidden=(8,)), num_epochs=1), env, 64, num_steps=16, log=QUIET)
    assert run.evaluate(2).finished.all()
    with backend_of(env).scene(run.agent, run.state.learner, jax.random.key(0), True) as scene:
        scene.move(0)
    env.close()
    assert type(run.policy().act(np.zeros(5))) is np.int64


class Asking(Squad):
    def step(self, actions):
        assert {type(action) for action in actions.values()} == {np.int64}
        return super().step(actions)


def test_agents_get_numpy_integers():
    for options in ({}, {"action_repeat": 2}):
        with host(Asking, 1, **options) as env:
            env.host.reset([0])
            env.host.send(0, [np.ones(4, np.int32)])
    assert ppax.check_env(Asking)["interface"].passed


class Rescaling(Maze):
    """Maze that rescales its action in place, and whose reward is the action."""

    action_space = spaces.Box(-1.0, 1.0, (2,))

    def step(self, action):
        obs = super().step(0)[0]
        reward = float(action.sum())
        action *= 100.0
        return obs, reward, False, self.time >= LIMIT, {}


def test_each_repetition_gets_the_same_action():
    """In every backend; the array that was sent is unchanged."""
    for env, repeats in (
        (host(Rescaling, 2, action_repeat=3), 3),
        (host(Rescaling, 2, vectorization="async", workers=1, action_repeat=3), 3),
        (host(SyncVectorEnv([Rescaling] * 2)), 1),
    ):
        with env:
            env.host.reset([0, 1])
            for number, rows in enumerate(env.host.batches):
                action = np.full((rows.stop - rows.start, 2), 0.25, np.float32)
                env.host.send(number, [action])
                assert (action == 0.25).all()
                np.testing.assert_array_equal(env.host.receive(number).reward, 0.5 * repeats)


def test_check_env_gives_the_same_actions_again():
    """An environment that writes into its actions is repeatable all the same."""
    assert ppax.check_env(Rescaling)["seeds"].passed


def test_errors_have_plain_numbers():
    action = {"a": np.int64(4), "b": (np.float32(0.5), [np.int64(2)]), "c": np.zeros(1)}
    assert Failure(0, "step", action, "").report["action"] == "{'a': 4, 'b': (0.5, [2]), 'c': array([0.])}"


# ---------------------------------------------------------------- what cannot be sent to processes


class Holding(Maze):
    def __init__(self, held=None, gravity=1.0):
        self.held = held


LOCK = threading.Lock()
HELD = {
    "closure": (lambda lock: lambda: Holding(lock), "lock, of type lock,"),
    "default": (lambda lock: lambda given=lock: Holding(given), "given, of type lock,"),
    "partial": (lambda lock: partial(Holding, held=lock), "held, of type lock,"),
    "position": (lambda lock: partial(Holding, lock), "argument 0, of type lock,"),
    "inside": (lambda lock: partial(Holding, {"a": Holding(lock)}["a"]), "held, of type lock,"),
    "drawn": (lambda lock: partial(DomainRandomisation, partial(Holding, lock), {}), "argument 0, of type lock,"),
    "global": (lambda lock: lambda: Holding(LOCK), "LOCK, of type lock,"),
    "generator": (lambda lock: partial(Holding, (i for i in range(3))), "argument 0, of type generator,"),
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("vectorization", ["async", "ray"])
def test_what_cannot_be_pickled_is_named(name, vectorization):
    """Both kinds of workers use one function."""
    make, said = HELD[name]
    layout = Layout(2, 1, 1, host(Maze, 1).host.spec)
    factory = make(threading.Lock())
    if name == "global":
        factory.__module__ = "__main__"  # functions of modules are sent by name
    with pytest.raises(
        ppax.ConfigError, match=rf'vectorization = "{vectorization}": .*{said} cannot be sent \(cannot pic'
    ):
        pickled(layout, 0, [(slice(0, 2), [Maze, factory])], vectorization)


def test_training_with_it_is_refused_and_no_worker_remains():
    env = host(partial(Holding, threading.Lock()), 2, vectorization="async", workers=2)
    with pytest.raises(ppax.ConfigError, match="argument 0, of type lock, cannot be sent"):
        env.host.reset([0, 1])
    with host(partial(Holding, threading.Lock()), 2) as env:  # in this process nothing is sent
        env.host.reset([0, 1])


def test_ids_that_a_script_registers_are_explained_in_workers():
    gymnasium.register("corp/Mine-v0", Maze, disable_env_checker=True)
    try:
        with pytest.raises(EnvError, match=r"corp.*: an id that a script registers .*lambda spec=gymnasium.spec\(ID\)"):
            host(lambda: gymnasium.make("corp/Mine-v0"), 2, vectorization="async", workers=1).host.reset([0, 1])
        spec = gymnasium.spec("corp/Mine-v0")
        for env in (
            host(lambda: gymnasium.make(spec), 2, vectorization="async", workers=1),
            ppax.make("gymnasium/corp/Mine-v0", 2, vectorization="async"),
        ):
            with env:
                env.host.reset([0, 1])
    finally:
        del gymnasium.registry["corp/Mine-v0"]
