"""Metrics of finished episodes against float64 NumPy over the list of their returns; numbers that schedules change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.agents.metrics import annealed_numbers, episode_metrics
from ppax.arrays.metrics import add_up, averaged, nothing, pack
from ppax.config import Log
from ppax.core.types import ActorState, part
from ppax.envs import grouped
from ppax.networks import network
from ppax.ppo.schedules import Both, Linear, Steps, scale
from ppax.training.collection import count_step, finished_episodes

ITERATIONS, STEPS, ENVS = 3, 20, 4


def played(rewards, ended):
    """Metrics of a run, and the returns of each stream's episodes; `rewards`, `ended` are [iterations, T, B]."""
    streams = rewards.shape[2]
    zeros = jnp.zeros(streams)
    actor = ActorState((), (), zeros == 0, None, (), zeros, zeros.astype(jnp.int32), zeros)
    totals, returns, running = None, [[] for _ in range(streams)], np.zeros(streams)
    for reward, over in zip(rewards, ended, strict=True):
        steps = []
        for r, e in zip(reward, over, strict=True):
            valid = jnp.ones(streams, bool)
            actor, counts = count_step(0.9, actor, jnp.asarray(r, jnp.float32), jnp.asarray(e), valid)
            steps.append(counts)
            running += np.float32(r)
            for i in np.flatnonzero(e):
                returns[i].append(running[i])
                running[i] = 0.0
        episodes = finished_episodes(jnp.asarray(over), jax.tree.map(lambda *x: jnp.stack(x), *steps), {})
        metrics = pack(episode_metrics(episodes, 2, ()))
        totals = add_up(nothing(metrics) if totals is None else totals, metrics, jnp.bool_(True))
    return averaged(totals, len(rewards)), returns


@pytest.mark.parametrize("offset", [0.0, 5000.0])  # sums of squares of large returns would lose the deviations
def test_spread_and_extremes_are_those_of_all_episodes(offset):
    rng = np.random.default_rng(0)
    ended = rng.random((ITERATIONS, STEPS, 2 * ENVS)) < 0.2
    ended[1] = False  # an iteration without episodes
    rewards = np.where(ended, offset, 0.0) + rng.normal(size=ended.shape).round(2)
    metrics, returns = played(rewards, ended)
    parts = {"": returns, "/agent_0": returns[::2], "/agent_1": returns[1::2]}
    for suffix, own in parts.items():
        every = np.concatenate(own).astype(np.float64)
        assert float(metrics[f"episodes{suffix}"]) == len(every) > 5
        np.testing.assert_allclose(metrics[f"episode_return_std{suffix}"], every.std(), rtol=2e-3)
        np.testing.assert_allclose(metrics[f"episode_return_min{suffix}"], every.min(), rtol=1e-5)
        np.testing.assert_allclose(metrics[f"episode_return_max{suffix}"], every.max(), rtol=1e-5)
        np.testing.assert_allclose(metrics[f"episode_return{suffix}"], every.mean(), rtol=1e-5, atol=1e-5)


def test_equal_returns_have_no_spread():
    ended = np.ones((ITERATIONS, STEPS, 4), bool)
    metrics, _ = played(np.full(ended.shape, 499.7), ended)
    assert float(metrics["episode_return_std"]) < 1e-3
    np.testing.assert_allclose(metrics["episode_return_min"], 499.7)


def test_without_episodes_there_are_no_numbers():
    metrics, _ = played(np.ones((1, 2, 2)), np.zeros((1, 2, 2), bool))
    for name in ("episode_return", "episode_return_std", "episode_return_min", "episode_return_max"):
        assert np.isnan(metrics[name])
    assert float(metrics["episodes"]) == 0.0


def tiny(space, **options):
    return ppax.PPO(network(space, hidden=(4,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(1), **options)


def numbers(agent, progress=0.25):
    found = jax.jit(lambda agent, x: annealed_numbers(agent, x, 1000.0 * x))(agent, jnp.float32(progress))
    return {name: float(x) for name, x in found.items()}


@part
class Halved:
    """Schedule of a user."""

    def __call__(self, agent, progress, env_steps):
        return scale(agent, ("gamma",), 0.5)


def test_numbers_that_schedules_change_are_found_by_their_paths():
    env = ppax.make("CartPole-v1", 4)
    linear = Linear(("learning_rate", "loss.clip_eps"))
    steps = Steps(("ent_coef",), at=(0.0, 200.0), values=(0.5, 0.125), by="env_steps")
    agent = tiny(env, schedule=Both(linear, steps))
    expected = {"learning_rate": 3e-4 * 0.75, "loss.clip_eps": 0.2 * 0.75, "ent_coef": 0.125}
    assert numbers(agent) == pytest.approx(expected)
    assert numbers(tiny(env)) == {}
    assert numbers(tiny(env, schedule=Halved())) == pytest.approx({"gamma": 0.495})


def test_numbers_of_groups_have_their_names():
    env = grouped(ppax.make("Pursuit-2", 4), {"prey": (0,), "hunter": (1,)})
    schedules = {"prey": Linear(("ent_coef",)), "hunter": Linear(("ent_coef", "vf_coef"))}
    agents = {name: tiny(group, schedule=schedules[name], ent_coef=0.4) for name, group in env.groups.items()}
    expected = {"ent_coef": 0.3, "ent_coef/prey": 0.3, "ent_coef/hunter": 0.3, "vf_coef/hunter": 0.375}
    assert numbers(ppax.Groups(agents, env.sizes)) == pytest.approx(expected)


def test_numbers_of_independent_players_are_the_first_ones():
    env = ppax.make("Pursuit-2", 4)
    agent = tiny(env, schedule=Linear(("learning_rate",)), learning_rate=jnp.array([0.5, 0.25]))
    assert numbers(ppax.Independent(agent, 2)) == pytest.approx({"learning_rate": 0.375})


@pytest.mark.usefixtures("quick_programs")
def test_rows_have_annealed_numbers_and_the_spread_of_the_policy():
    env = ppax.make("Pendulum-v1", 4)
    net = network(env, hidden=(4,), log_std_init=-0.5)
    shuffle = ppax.minibatches.Shuffle(1)
    agent = ppax.PPO(net, num_epochs=1, minibatch=shuffle, schedule=Linear(("loss.clip_eps",)), learning_rate=0.0)
    run = ppax.fit(agent, env, 4 * 32, num_steps=8, log=Log(every=1, console=False), stop="loss.clip_eps <= 0.11")
    assert [row["loss.clip_eps"] for row in run.history] == pytest.approx([0.2, 0.15, 0.1])
    assert [row["policy_std"] for row in run.history] == pytest.approx([np.exp(-0.5)] * 3)
    assert run.history[-1]["learning_rate"] == 0.0  # as before: no second column of it
    assert "policy_std" not in ppax.fit(tiny(CART), CART, 32, num_steps=8, log=Log(console=False)).history[0]


CART = ppax.make("CartPole-v1", 4)
