"""Forced resets (`iterations_per_env_reset`): every k iterations all environments are reset and episodes truncated."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.arrays import counter
from ppax.config import Log
from ppax.core.types import Targets, part
from ppax.devices.layout import Program
from ppax.envs import VectorEnv
from ppax.networks import mlp
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import force_reset
from support.worlds import QUICK, Counter, Leaky, Team

ENDLESS = Counter(10**6)


@part
class Flags:
    """Advantage estimator whose targets are flags of the step: 1 truncated, 10 terminated."""

    def __call__(self, steps, next_value, gamma, ratio=None):
        marks = steps.truncated.astype(jnp.float32) + 10.0 * steps.terminated
        return Targets(marks - steps.value, marks)


def make(env, num_envs=4, **changes):
    env = VectorEnv(env, num_envs)
    network = mlp(env, hidden=(4,))
    options = {"advantage": Flags(), "minibatch": Shuffle(2), "num_epochs": 1} | changes
    return ppax.PPO(Leaky(network) if options.pop("memory", False) else network, **options), env


start = jax.jit(ppax.start, static_argnames=("num_steps", "iterations_per_env_reset"), compiler_options=QUICK)
train = jax.jit(ppax.train, compiler_options=QUICK)


def path(agent, env, num_steps, k, iterations):
    """States and metrics after each iteration."""
    state, out = start(agent, env, num_steps, jax.random.key(0), iterations_per_env_reset=k), []
    for _ in range(iterations):
        state, metrics = train(agent, env, state, 1, 9)
        out.append((state, {name: float(x) for name, x in metrics.items()}))
    return out


def test_environments_are_reset_after_every_second_iteration():
    agent, env = make(ENDLESS, memory=True, seq_len=2)
    steps, episodes = path(agent, env, 4, 2, 5), []
    for i, (state, metrics) in enumerate(steps, 1):
        actor, fresh = state.actor, i % 2 == 0
        np.testing.assert_array_equal(actor.env_state.env.time, 0 if fresh else 4)
        np.testing.assert_array_equal(actor.obs[:, 0], 0 if fresh else 4)
        np.testing.assert_array_equal(actor.first, fresh)
        np.testing.assert_array_equal(actor.episode_length, 0 if fresh else 4)
        np.testing.assert_array_equal(actor.episode_return, 0 if fresh else 1 + 2 + 3 + 4)
        assert (np.asarray(actor.carry) == 0).all() == fresh
        assert (np.asarray(actor.reward_trace) == 0).all() == fresh
        # the last of four steps is truncated
        assert metrics["target_mean"] == (0.25 if fresh else 0.0)
        # every step is valid, and a truncated episode counts
        assert counter.to_int(state.env_steps) == 16 * i
        assert metrics["episodes"] == (4 if fresh else 0)
        np.testing.assert_equal(metrics["episode_return"], 36.0 if fresh else np.nan)  # 1 + 2 + ... + 8
        episodes.append(np.asarray(actor.env_state.env.episode))
    np.testing.assert_array_equal(episodes[1], episodes[2])
    np.testing.assert_array_equal(episodes[3], episodes[4])
    assert len(np.unique([episodes[0], episodes[1], episodes[3]])) == 12  # every reset has a key of its own


@pytest.mark.parametrize(
    ("env", "num_steps", "valid", "marks", "finished"),
    [
        # terminates on the last step: no truncation, and the next rollout has no autoreset step
        (Counter(4), 4, 4, 10, 1),
        # the last row is an autoreset step: nothing to truncate
        (Counter(3), 4, 3, 10, 1),
        # agents end after 2, 3 and 4 steps: only the last one is truncated, and counts
        (Team(), 3, 2 + 3 + 3, 10 + 10 + 1, 3),
    ],
    ids=["terminated", "reset", "agents"],
)
def test_a_forced_reset_truncates_only_running_episodes(env, num_steps, valid, marks, finished):
    agent, env = make(env)
    for i, (state, metrics) in enumerate(path(agent, env, num_steps, 1, 2), 1):
        assert counter.to_int(state.env_steps) == 4 * valid * i
        np.testing.assert_allclose(metrics["target_mean"], marks / valid, rtol=1e-6)
        assert metrics["episodes"] == 4 * finished
        assert np.asarray(state.actor.first).all()
        assert not np.asarray(state.actor.env_state.ended).any()
    if isinstance(env.env, Team):
        assert metrics["episode_return"] == pytest.approx(8 / 3)  # 2, 3 and, cut, 3 steps, 1 a step
        assert metrics["episode_length"] == pytest.approx(8 / 3)


def test_the_last_value_is_that_of_the_observation_before_the_reset():
    agent, env = make(ENDLESS)
    state = start(agent, env, 4, jax.random.key(1), iterations_per_env_reset=1)
    learner = state.learner
    collect, restarted = jax.jit(ppax.collect, static_argnums=4), jax.jit(force_reset)
    collected = collect(agent, env, learner, state.actor, 4, jax.random.key(2))
    cut = restarted(agent, env, collected, jnp.bool_(True), jax.random.key(3))
    # an observation is (time, number of the episode): after four steps (4, ...)
    beyond = jnp.stack([jnp.full(4, 4.0), collected.actor.env_state.env.episode], axis=1)
    policy = agent.policy(learner, (), beyond, jnp.zeros(4, bool), None)
    np.testing.assert_allclose(cut.rollout.last_value, policy.value, rtol=1e-6)
    assert np.abs(policy.value - agent.policy(learner, (), cut.actor.obs, cut.actor.first, None).value).min() > 1e-3
    np.testing.assert_array_equal(cut.rollout.steps.truncated, [[False] * 4] * 3 + [[True] * 4])
    left = restarted(agent, env, collected, jnp.bool_(False), jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, left, collected)
    # terminated at the third row, so the last one is an autoreset step: nothing to truncate
    shorter = dataclasses.replace(env, env=Counter(3))
    collected = collect(agent, shorter, learner, state.actor, 4, jax.random.key(2))
    steps = restarted(agent, shorter, collected, jnp.bool_(True), jax.random.key(3)).rollout.steps
    np.testing.assert_array_equal(steps.terminated[:, 0], [False, False, True, False])
    assert not np.asarray(steps.truncated).any()


def test_without_forced_resets_the_program_is_the_same():
    agent, env = make(ENDLESS)

    def program(k):
        state = jax.eval_shape(lambda: ppax.start(agent, env, 4, jax.random.key(0), iterations_per_env_reset=k))
        return str(jax.make_jaxpr(lambda state: ppax.train(agent, env, state, 1, 9))(state))

    default = program(None)
    assert program(0) == program(-1) == program(-3) == default
    assert program(3) != default


def same(one, other, **tolerance):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        x, y = (jax.random.key_data(z) if jnp.issubdtype(z.dtype, jax.dtypes.prng_key) else z for z in (x, y))
        np.testing.assert_allclose(x, y, **tolerance)


def test_two_devices_reset_as_one():
    agent, env = make(Counter(5), advantage=ppax.advantages.GAE(), memory=True, seq_len=3)
    one, two = (
        path(dataclasses.replace(agent, program=Program(devices=devices)), env, 6, 2, 3)[-1] for devices in (1, 2)
    )
    assert len(two[0].actor.first.sharding.device_set) == 2
    same(one[0], two[0], atol=1e-5, rtol=1e-5)
    assert one[1].keys() == two[1].keys()
    assert one[1]["episodes"] == two[1]["episodes"] > 0


@pytest.mark.nightly
@pytest.mark.usefixtures("vmapped_keys")
def test_members_of_a_sweep_reset_as_solo_runs():
    """A solo run resets in a branch (`cond`), a sweep selects (`where`): the states are equal."""
    agent, env = make(ENDLESS)
    keys, k = jax.random.split(jax.random.key(0), 2), {"iterations_per_env_reset": 2}
    states = jax.jit(lambda: ppax.start_sweep(agent, env, 4, keys, **k))()
    together = jax.jit(ppax.sweep, compiler_options=QUICK)(agent, env, states, 2).state
    np.testing.assert_array_equal(together.actor.env_state.env.time, 0)
    assert len(np.unique(together.actor.env_state.env.episode)) == 8
    alone = dataclasses.replace(agent, program=Program(devices=1))

    def solo(key):
        return ppax.train(alone, env, ppax.start(alone, env, 4, key, **k), 2).state

    same(jax.jit(jax.vmap(solo), compiler_options=QUICK)(keys), together, atol=1e-5)


@pytest.mark.usefixtures("shared_programs", "quick_programs")
def test_forced_resets_are_resumed_from_the_run_file_bit_for_bit(tmp_path):
    env = ppax.make("Pendulum-v1", 2)
    agent = ppax.PPO(mlp(env, (4,)), num_epochs=1)
    options = {"num_steps": 4, "log": Log(every=1, console=False), "iterations_per_env_reset": 2}
    whole = ppax.fit(agent, env, 8 * 7, run_dir=tmp_path / "whole", **options)
    stop = [lambda state, row: row["iteration"] == 3]
    ppax.fit(agent, env, 8 * 7, run_dir=tmp_path / "half", callbacks=stop, **options)
    resumed = ppax.resume(tmp_path / "half", console=False)
    assert int(resumed.state.iteration) == 7
    same(whole.state, resumed.state, atol=0, rtol=0)
    # 7 is odd: the last forced reset was one rollout of 4 steps ago
    np.testing.assert_array_equal(resumed.state.actor.episode_length, 4)
