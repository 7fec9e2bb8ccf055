"""EnvPool: pools as vector environments, compared with Gymnasium's; a small fake pool if EnvPool is missing."""

import importlib.util
import types

import gymnasium
import jax
import numpy as np
import pytest

import ppax
from ppax.core.types import ConfigError
from ppax.envs import EnvSettings, host
from ppax.envs.hosting.gym_vector import GymVectorStepper
from ppax.envs.suites import envpool
from ppax.networks import network
from ppax.training.host import Rollouts
from support.host_worlds import BOX, LIMIT, Maze
from support.worlds import QUICK

installed = importlib.util.find_spec("envpool") is not None
real = pytest.mark.skipif(not installed, reason="envpool is not installed")


class SmallPool:
    """Pool of mazes: the step after an end ignores its action; the seed is an argument of the constructor."""

    observation_space, action_space = BOX, Maze.action_space

    def __init__(self, env_id, *, env_type, num_envs, seed, episodic_life=None, reward_clip=None):
        assert env_type == "gymnasium"
        self.lives = env_id == "Lives-v0"
        assert (episodic_life, reward_clip) == ((True, True) if self.lives else (None, None))
        self.envs, self.over, self.closed = [Maze() for _ in range(num_envs)], np.zeros(num_envs, bool), False
        for i, env in enumerate(self.envs):
            env.reset(seed=seed + i)

    def reset(self):
        self.over[:] = False
        obs = np.stack([env.reset()[0] for env in self.envs])
        return obs, {"reward": np.zeros(len(obs), np.float32), "terminated": np.zeros(len(obs), np.int32)}

    def step(self, actions):
        rows = []
        for env, action, over in zip(self.envs, actions, self.over, strict=True):
            rows.append((env.reset()[0], 0.0, False, False) if over else env.step(action)[:4])
        obs, reward, terminated, truncated = (np.array(x) for x in zip(*rows, strict=True))
        self.over = terminated | truncated
        info = {"reward": 10 * reward, "terminated": (terminated & (obs[:, -1] > 0.5)).astype(np.int32)}
        return obs, reward.astype(np.float32), terminated, truncated, info if self.lives else {}

    def close(self):
        self.closed = True


@pytest.fixture
def small(monkeypatch):
    names = {"Maze-v0": (), "Lives-v0": ("episodic_life", "reward_clip")}

    def make_spec(env_id):
        return types.SimpleNamespace(config=types.SimpleNamespace(_fields=("seed", *names[env_id])))

    pools = []

    def make(*arguments, **options):
        pools.append(SmallPool(*arguments, **options))
        return pools[-1]

    fake = types.SimpleNamespace(make=make, make_spec=make_spec, list_all_envs=lambda: list(names))
    monkeypatch.setattr(envpool, "library", lambda name, extra: fake)
    return pools


def rollout_of(env, num_steps):
    agent = ppax.PPO(network(env, hidden=(4,)))
    start = jax.jit(ppax.start, static_argnames="num_steps", compiler_options=QUICK)
    state = start(agent, env, num_steps=num_steps, key=jax.random.key(0))
    return Rollouts(agent, env, state)(state.learner, state.actor, jax.random.key(1)).collected


def test_pool_rows_equal_those_of_gymnasium(small):
    """Compare every seed and step; autoreset rows are invalid in both."""
    pool, own = envpool.load("Maze-v0", 3), host([Maze] * 3)
    rng, seen = np.random.default_rng(0), []
    for env in (pool, own):
        rng = np.random.default_rng(0)
        env.host.reset([5, 6, 7])
        if env is own:
            env.host.reset([None] * 3)  # a pool is seeded in its constructor and then reset
        rows = [env.host.last[0].obs[0].copy()]
        for _ in range(30):
            env.host.send(0, [rng.integers(0, 3, 3)])
            one = env.host.receive(0)
            rows.append([np.array(x) for x in (one.obs[0], *one[1:6])])
        seen.append(rows)
    for a, b in zip(*seen, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)
    assert not all(row[5].all() for row in seen[0][1:])
    assert isinstance(pool.host.stepper, GymVectorStepper)
    before = len(small)
    pool.host.reset([5, 6, 7])
    assert len(small) == before + 1
    assert small[-2].closed
    pool.close()
    assert small[-1].closed


def test_lives_end_episodes_for_learning_and_statistics_count_games(small):
    """`info` of a pool has the unclipped reward and the end of the game."""
    env = envpool.load("Lives-v0", 2)
    assert env.host.spec.has_episode_stats
    collected = rollout_of(env, 64)
    steps, episodes = jax.tree.map(np.asarray, (collected.rollout.steps, collected.episodes))
    late = np.roll(steps.obs[:, :, -1], -1, axis=0) > 0.5
    over = steps.truncated | (steps.terminated & late)
    assert steps.terminated.sum() > over.sum() - steps.truncated.sum() > 0
    np.testing.assert_array_equal(episodes.count[:], over[:-1].sum(axis=0))
    for b in range(2):
        last = np.flatnonzero(over[:-1, b])[-1]
        np.testing.assert_allclose(episodes.return_sum[b], 10 * steps.reward[: last + 1, b].sum(), rtol=1e-5)
    assert episodes.length_sum.max() > LIMIT


def test_invalid_options_are_refused(small):
    with pytest.raises(ConfigError, match="did you mean 'envpool/Maze-v0'"):
        envpool.load("Maize-v0", 2)
    with pytest.raises(ConfigError, match="vectorization = 'async': EnvPool steps its environments itself"):
        envpool.load("Maze-v0", 2, EnvSettings(vectorization="async"))


@pytest.mark.skipif(installed, reason="envpool is installed")
def test_missing_library_error_names_the_extra():
    with pytest.raises(ImportError, match=r'pip install "ppax\[envpool\]"'):
        ppax.make("envpool/CartPole-v1", 2)


@real
@pytest.mark.nightly
def test_rows_of_envpool_equal_those_of_gymnasium():
    """Every valid row has the same dynamics, reward and end; the row after an end is invalid, the next one first."""
    env = ppax.make("envpool/CartPole-v1", 4)
    steps = jax.tree.map(np.asarray, rollout_of(env, 200).rollout.steps)
    assert steps.terminated.sum() > 10
    np.testing.assert_array_equal(~steps.valid[1:], steps.terminated[:-1])
    single = gymnasium.make("CartPole-v1").unwrapped
    single.reset(seed=0)
    for t in range(199):
        for b in np.flatnonzero(steps.valid[t]):
            single.state, single.steps_beyond_terminated = tuple(map(float, steps.obs[t, b])), None
            obs, reward, terminated, _, _ = single.step(int(steps.action[t, b]))
            np.testing.assert_allclose(steps.obs[t + 1, b], obs, atol=1e-5)
            assert (steps.reward[t, b], steps.terminated[t, b]) == (reward, terminated)


@real
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["CartPole-v1", "HalfCheetah-v5", "Breakout-v5"])
def test_a_real_pool(name):
    report = ppax.check_env(f"envpool/{name}")
    assert report.passed, str(report)
    with ppax.make(f"envpool/{name}", 2) as env:
        assert env.host.spec.has_episode_stats == name.startswith("Breakout")
        agent = ppax.PPO(network(env, hidden=(8,)), num_epochs=1)
        run = ppax.fit(agent, env, 128, num_steps=32, log=ppax.config.Log(console=False))
        assert 100 <= run.env_steps <= 128
        assert run.evaluate(2, seed=1).finished.sum() <= 2 if name != "CartPole-v1" else run.evaluate(2).finished.all()
