"""Built-in environments: conformance of all to the protocol; five of them against Gymnasium."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from ppax.checks import environment
from ppax.core.types import EnvReset, EnvStep
from ppax.envs import BUILTIN, builtin
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers.time import TimeLimit
from ppax.envs.wrappers.wrapper import render

PROBES = [
    builtin.ConstantProbe(),
    builtin.ObsProbe(),
    builtin.DiscountProbe(),
    builtin.ActionProbe(),
    builtin.ObsActionProbe(),
    builtin.InfiniteProbe(),
    builtin.FiniteProbe(),
]
ENVS = [
    builtin.Acrobot(),
    builtin.AlgoTrading(),
    builtin.CartPole(),
    builtin.CueCorridor(),
    builtin.EndlessCartPole(),
    builtin.EndlessMountainCar(),
    builtin.Maze(),
    builtin.MountainCar(),
    builtin.MountainCarContinuous(),
    builtin.Pursuit(),
    builtin.Pursuit(num_predators=2),
    builtin.Pendulum(),
    builtin.Navigator(),
    builtin.Navigator(num_agents=3),
    builtin.Navigator(num_agents=4, num_rays=8, goal_bonus=0.1, shared=0.5),
    TimeLimit(builtin.CartPole(), 3),
    TimeLimit(builtin.Navigator(num_agents=2), 3),
    *PROBES,
]


def name(env):
    return type(env).__name__


def sample_action(env):
    agents = env.num_agents
    if agents is None:
        return np.asarray(env.action_space.sample())
    return np.stack([env.action_space.sample() for _ in range(agents)])


def avals(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)


# ---------------------------------------------------------------- all environments


@pytest.mark.parametrize("env", ENVS, ids=name)
def test_step_keeps_shapes_and_strong_types(env):
    key = jax.random.key(0)
    start = jax.eval_shape(env.reset, key)
    step = jax.eval_shape(env.step, start.state, sample_action(env), key)
    assert isinstance(start, EnvReset)
    assert isinstance(step, EnvStep)
    assert avals((start.state, start.obs)) == avals((step.state, step.obs))
    assert not any(x.weak_type for x in jax.tree.leaves((start, step)))
    agents = () if env.num_agents is None else (env.num_agents,)
    assert (step.reward.shape, step.reward.dtype) == (agents, jnp.float32)
    for flag in (step.terminated, step.truncated):
        assert (flag.shape, flag.dtype) == (agents, jnp.bool_)
    shapes = environment.check_shapes(VectorEnv(env), key)
    assert shapes.passed, shapes.text


@pytest.mark.parametrize("env", ENVS, ids=name)
def test_observations_lie_in_their_space(env):
    env.action_space.seed(0)
    step = jax.jit(env.step)
    start = jax.jit(env.reset)(jax.random.key(1))
    state, obs, ended = start.state, start.obs, False
    for i in range(12):
        for agent in range(env.num_agents or 1):
            one = jax.tree.map(lambda x, a=agent: np.asarray(x if env.num_agents is None else x[a]), obs)
            assert env.observation_space.contains(one), one
        if ended:
            break
        state, obs, _, terminated, truncated = step(state, sample_action(env), jax.random.key(i))[:5]
        ended = (terminated | truncated).all()


@pytest.mark.parametrize("env", ENVS, ids=name)
def test_pure_and_same_under_jit_and_vmap(env):
    actions = np.stack([sample_action(env) for _ in range(3)])

    def run(seed, action):
        reset_key, step_key = jax.random.split(jax.random.key(seed))
        return env.step(env.reset(reset_key).state, action, step_key)

    compiled = jax.jit(jax.vmap(run))
    together, again = compiled(jnp.arange(3), actions), compiled(jnp.arange(3), actions)
    jax.tree.map(np.testing.assert_array_equal, together, again)
    alone = run(1, actions[1])
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x[1], y, atol=1e-5), together, alone)


DRAWN = [env for env in ENVS if not isinstance(env, TimeLimit) and env not in PROBES]


@pytest.mark.parametrize("env", [env for env in DRAWN if env not in (builtin.CueCorridor(), builtin.Maze())], ids=name)
def test_every_reset_is_different(env):
    states = jax.jit(jax.vmap(lambda key: env.reset(key).state))(jax.random.split(jax.random.key(3), 256))
    drawn = np.concatenate([np.asarray(x, np.float64).reshape(256, -1) for x in jax.tree.leaves(states)], axis=1)
    assert len(np.unique(drawn, axis=0)) == 256


@pytest.mark.parametrize("env", [builtin.CartPole(), builtin.Pendulum()], ids=name)
def test_numbers_are_leaves_that_vmap_sweeps(env):
    def moved(gravity):
        swept = type(env)(gravity=gravity)
        return swept.step(swept.reset(jax.random.key(4)).state, sample_action(env), jax.random.key(5)).obs

    gravity = jnp.array([1.0, 5.0, 20.0])
    assert len(np.unique(jax.vmap(moved)(gravity), axis=0)) == 3
    assert len(jax.tree.leaves(env)) >= 6


@pytest.mark.parametrize("env", ENVS, ids=name)
def test_spaces_are_known_while_tracing(env):
    @jax.jit
    def sizes(env):
        return jnp.array([spaces.flatdim(space) for space in (env.observation_space, env.action_space)])

    assert sizes(env)[0] == spaces.flatdim(env.observation_space)


@pytest.mark.parametrize("env_name", BUILTIN)
def test_every_built_in_environment_can_be_rendered(env_name):
    env = BUILTIN[env_name]()
    begin = jax.jit(env.reset)(jax.random.key(0))
    first = render(env, begin.state)
    assert first.dtype == np.uint8
    assert first.ndim == 3
    assert first.shape[2] == 3
    if not env_name.startswith("probe/"):
        env.action_space.seed(0)
        state = begin.state
        for t in range(8):
            state = jax.jit(env.step)(state, sample_action(env), jax.random.key(t)).state
        moved = render(env, state)
        assert moved.shape == first.shape
        assert (moved != first).any()


# ---------------------------------------------------------------- against Gymnasium


def follow_gymnasium(env, env_id, spread, actions):
    """Return trajectories from 16 spread-out states, and Gymnasium's result of each step from the same state."""
    keys = jax.random.split(jax.random.key(6), 16)
    draws = np.random.default_rng(2).uniform(-1, 1, (len(spread), 16))
    begin = jax.eval_shape(env.reset, keys[0]).state
    starts = type(begin)(*(jnp.asarray(x * s + m, jnp.float32) for x, (m, s) in zip(draws, spread, strict=True)))

    def scan(state, action):
        step = jax.vmap(env.step)(state, action, keys)
        return step.state, (state, step)

    _, (states, steps) = jax.jit(lambda state: jax.lax.scan(scan, state, actions))(starts)
    states, steps = jax.tree.map(np.asarray, (states, steps))
    raw = gymnasium.make(env_id).unwrapped
    raw.reset(seed=0)
    for t, i in np.ndindex(actions.shape[:2]):
        raw.state = np.array([leaf[t, i] for leaf in states], np.float64)
        raw.steps_beyond_terminated = None
        obs, reward, terminated, _, _ = raw.step(actions[t, i])
        np.testing.assert_allclose(steps.obs[t, i], obs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(steps.reward[t, i], reward, rtol=1e-5, atol=1e-5)
        assert steps.terminated[t, i] == terminated
    assert not steps.truncated.any()
    return steps


def test_cartpole_follows_gymnasium():
    actions = np.random.default_rng(0).integers(0, 2, (40, 16))
    steps = follow_gymnasium(builtin.CartPole(), "CartPole-v1", [(0.0, 0.15)] * 4, actions)
    assert 0.1 < steps.terminated.mean() < 0.9  # both sides of the end were seen
    assert (steps.reward == 1).all()


def test_pendulum_follows_gymnasium():
    # also beyond the bounds: the environment itself clips the torque
    actions = np.random.default_rng(1).uniform(-4, 4, (40, 16, 1)).astype(np.float32)
    steps = follow_gymnasium(builtin.Pendulum(), "Pendulum-v1", [(0.0, 9.0), (0.0, 3.0)], actions)
    assert abs(steps.obs[:, :, 2]).max() == 8  # the velocity was clipped
    assert not steps.terminated.any()


VALLEY = [(-0.3, 0.9), (0.0, 0.07)]  # all of it


def test_mountain_car_follows_gymnasium():
    actions = np.random.default_rng(2).integers(0, 3, (60, 16))
    steps = follow_gymnasium(builtin.MountainCar(), "MountainCar-v0", VALLEY, actions)
    assert 0 < steps.terminated.mean() < 0.9  # both sides of the end were seen
    assert (steps.obs[:, :, 0] == np.float32(-1.2)).any()  # ... and the wall


def test_continuous_mountain_car_follows_gymnasium():
    actions = np.random.default_rng(3).uniform(-1.5, 1.5, (60, 16, 1)).astype(np.float32)
    steps = follow_gymnasium(builtin.MountainCarContinuous(), "MountainCarContinuous-v0", VALLEY, actions)
    assert 0 < steps.terminated.mean() < 0.9
    assert steps.reward.max() > 99


def test_acrobot_follows_gymnasium():
    actions = np.random.default_rng(4).integers(0, 3, (40, 16))
    wide = [(0.0, np.pi), (0.0, np.pi), (0.0, 10.0), (0.0, 20.0)]
    steps = follow_gymnasium(builtin.Acrobot(), "Acrobot-v1", wide, actions)
    assert 0.1 < steps.terminated.mean() < 0.9
    assert abs(steps.obs[:, :, 5]).max() == np.float32(9 * np.pi)  # the velocity was clipped


@pytest.mark.parametrize(
    ("env", "env_id"),
    [
        (builtin.CartPole(), "CartPole-v1"),
        (builtin.Pendulum(), "Pendulum-v1"),
        (builtin.MountainCar(), "MountainCar-v0"),
        (builtin.MountainCarContinuous(), "MountainCarContinuous-v0"),
        (builtin.Acrobot(), "Acrobot-v1"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_spaces_and_starts_are_those_of_gymnasium(env, env_id):
    theirs = gymnasium.make(env_id).unwrapped
    assert env.observation_space == theirs.observation_space
    assert env.action_space == theirs.action_space
    first = jax.jit(jax.vmap(lambda key: env.reset(key).obs))(jax.random.split(jax.random.key(8), 400))
    expected = np.stack([theirs.reset(seed=seed)[0] for seed in range(400)])
    scale = np.maximum(expected.std(axis=0), 1e-6)  # a car starts at rest
    assert (abs(first.mean(axis=0) - expected.mean(axis=0)) < 0.3 * scale).all()
    assert (abs(np.asarray(first).std(axis=0) - expected.std(axis=0)) < 0.15 * scale).all()
