"""Each environment is one of its own: a function that returns one twice is refused, in every place that makes them."""

from functools import partial

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import ppax
from ppax.envs import EnvError, host
from ppax.envs.hosting.domain_randomisation import DomainRandomisation
from ppax.networks import mlp
from ppax.training.backends import backend_of
from support.host_worlds import DrawnMaze, Maze
from support.team_worlds import Squad

SAID = "had returned before, and streams would share its state: pass a function that makes a new one at each call, as "


def agent_for(env):
    return ppax.PPO(mlp(env, hidden=(8,)), num_epochs=1)


def fit(env, **options):
    return ppax.fit(agent_for(env), env, 64, num_steps=8, log=ppax.config.Log(console=False), **options)


def shared(world):
    """Return a function that returns one environment always."""
    one = world()
    return lambda: one


def around_one(world):
    """Return a function that returns new wrappers of one environment."""
    one = world()
    return lambda: gymnasium.wrappers.TimeLimit(one, 4)


@pytest.mark.parametrize("how", ["sync", "async", "ray"])
@pytest.mark.parametrize("source", [shared(Maze), around_one(Maze), shared(partial(Squad, masks=True))])
def test_one_environment_for_all_streams_is_refused_before_anything_compiles(source, how, monkeypatch):
    monkeypatch.setattr("ppax.training.backends.compile", lambda *_: pytest.fail("it compiled"))
    for num_envs in (1, 8):
        with pytest.raises(ppax.ConfigError, match=rf"{SAID}ppax.envs.host\((Maze|Squad), num_envs=8\)"):
            fit(host(source, num_envs, vectorization=how))


def test_check_env_reports_it():
    for env in (shared(Maze), host(shared(Maze), 3)):
        report = ppax.check_env(env)
        assert not report.passed
        assert SAID in report["interface"].text


def same_from(call, world):
    """Return a function that makes new environments, and from a call on always returns that of this call."""
    made = []

    def make(**options):
        if len(made) < call:
            made.append(world(**options))
        return made[-1]

    return make


def test_evaluation_during_training_refuses_the_environment_of_training():
    """Calls: of `host`, of the checks before training, of training, of the evaluation."""
    settings = ppax.EvalSettings(every=1, episodes=2)
    fit(host(same_from(4, Maze), 1), evaluation=settings)
    with pytest.raises(EnvError, match=SAID):
        fit(host(same_from(3, Maze), 1), evaluation=settings)


def test_films_refuse_the_environment_of_training():
    env = host(same_from(2, partial(DrawnMaze, "rgb_array")), 1)
    env.host.reset([0])
    env.host.factories = (lambda **_: env.host.stepper._batch.envs[0],)
    with pytest.raises(EnvError, match=SAID):
        backend_of(env).first_picture(jax.random.key(0))


def test_worker_processes_compare_all_of_their_environments():
    """Those of both batches; environments of different workers are copies."""
    env = host(shared(Maze), 2, vectorization="async", workers=1)
    with pytest.raises(EnvError, match=rf"(?s)environment \d failed in its constructor\n.*{SAID}"):
        env.host.reset([0, 1])


def test_environments_inside_of_a_vector_are_compared():
    with pytest.raises(ppax.ConfigError, match=SAID):
        host(SyncVectorEnv([shared(Maze)] * 2))
    vector = SyncVectorEnv([Maze] * 2)
    for _ in range(2):  # the same vector may be given again
        host(vector)


def test_a_function_may_make_environments_again_and_again():
    env = host(Maze, 2)
    run = fit(env)
    run.evaluate(2)
    assert ppax.check_env(env)["interface"].passed
    fit(env)


GENERATOR = np.random.default_rng(0)


class OfTheClass(Maze):
    rng = np.random.default_rng(0)


class Given(Maze):
    def reset(self, *, seed=None, options=None):
        obs = super().reset(seed=seed)
        self.draws = GENERATOR
        return obs


def limited(world):
    return lambda: gymnasium.wrappers.TimeLimit(world(), 3)


@pytest.mark.parametrize(("world", "name"), [(OfTheClass, "rng"), (Given, "draws"), (limited(Given), "draws")])
def test_check_env_names_a_generator_of_several_environments(world, name):
    check = ppax.check_env(world)["seeds"]
    assert check.passed is False
    assert f"environments 0 and 1 draw from one generator, {name}" in check.text
    assert ppax.check_env(Maze)["seeds"].passed


# ---------------------------------------------------------------- one at a time


class Robot(Maze):
    """Maze of which one may exist at a time."""

    alive = made = 0

    def __init__(self, gravity=1.0):
        if Robot.alive:
            raise RuntimeError("port 5005 is in use")
        Robot.alive, Robot.made = 1, Robot.made + 1

    def close(self):
        Robot.alive = 0


@pytest.fixture
def robot():
    Robot.alive = Robot.made = 0


def test_one_robot_is_checked_and_trained_twice(robot):
    env = host(Robot, 1)
    assert ppax.check_env(env)["interface"].passed
    with env:
        for _ in range(2):
            assert fit(env).env_steps > 40
    assert Robot.alive == 0
    assert fit(env).evaluate  # made again after `close`
    env.close()


def test_a_robot_with_drawn_parameters_is_closed_before_the_next_one_is_made(robot):
    env = DomainRandomisation(Robot, {"gravity": (0.5, 2.0)})
    for seed in range(3):
        env.reset(seed=seed)
    assert (Robot.made, Robot.alive) == (4, 1)


def test_a_pool_that_is_read_for_its_spaces_is_closed():
    from ppax.envs.hosting.host_env import host_vector

    made = []

    def make(num_envs):
        made.append(SyncVectorEnv([Maze] * num_envs))
        return made[-1]

    env = host_vector(make, make(2), "mazes")
    assert made[0].closed
    env.host.reset([0, 1])
    assert not made[-1].closed
    env.close()
    assert made[-1].closed


# ---------------------------------------------------------------- arrays that an environment uses again


class Reusing(Maze):
    """Maze whose observations and masks are one array each, which every step overwrites."""

    observation_space = spaces.Box(-np.inf, np.inf, Maze.observation_space.shape, np.float32)

    def __init__(self):
        self.seen, self.mask = np.zeros(Maze.observation_space.shape, np.float32), np.ones(3, np.int8)

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        self.seen[:], self.mask[:] = obs, 1
        return self.seen, {"action_mask": self.mask}

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        self.seen[:], self.mask[:] = obs, 0 if terminated or truncated else 1
        return self.seen, reward, terminated, truncated, {"action_mask": self.mask}


def test_check_env_compares_copies_of_arrays_that_are_used_again():
    for env in (Reusing(), Reusing):
        report = ppax.check_env(env)
        assert report.passed, str(report)
        assert report["resets"].passed


class Noisy(Reusing):
    """The same with noise that has no seed."""

    def step(self, action):
        out = super().step(action)
        self.seen += np.random.default_rng().normal(size=self.seen.shape).astype(np.float32)
        return out


def test_check_env_does_not_compare_an_array_with_itself():
    assert ppax.check_env(Noisy())["seeds"].passed is False


def test_training_copies_arrays_that_are_used_again():
    class Fresh(Reusing):
        def reset(self, **options):
            return tuple(map(_copied, super().reset(**options)))

        def step(self, action):
            return tuple(map(_copied, super().step(action)))

    runs = [fit(host(world, 2), seed=0) for world in (Reusing, Fresh)]
    for a, b in zip(*(jax.tree.leaves(run.state.learner.params) for run in runs), strict=True):
        np.testing.assert_array_equal(a, b)


def _copied(x):
    return jax.tree.map(np.copy, x) if isinstance(x, np.ndarray | dict) else x
