"""Recomputed targets: with unchanged weights they equal the stored ones, with and without memory."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.core.types import LearnerState, Targets, Transition
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.networks import mlp
from ppax.ppo.advantages import GAE, CanonicalVTrace, VTrace
from ppax.ppo.extension import Chain
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.recompute import Epoch, Minibatch, Never, Recomputation, RecomputeInputs
from ppax.training.collection import collect
from support.learned import learned
from support.worlds import QUICK, Leaky, Masked, Team

WORLDS = {
    "truncated": lambda: VectorEnv(TimeLimit(builtin.CartPole(), 5), 4),
    "agents": lambda: VectorEnv(Team(), 2),
    "masked": lambda: VectorEnv(Masked(), 4),
}
SAME = ("loss", "policy_loss", "value_loss", "entropy", "grad_norm", "approx_kl")


def played(world, **options):
    env = WORLDS[world]()
    network = mlp(env, hidden=(8,))
    network = Leaky(network) if options.pop("memory") else network
    agent = ppax.PPO(network, minibatch=Shuffle(2), num_epochs=2, **options)
    state = start(agent, env, 12, jax.random.key(0))
    # the second rollout begins in the middle of episodes
    actor = gather(agent, env, state.learner, state.actor, 12, jax.random.key(1)).actor
    return agent, state.learner, gather(agent, env, state.learner, actor, 12, jax.random.key(2)).rollout


@functools.partial(jax.jit, compiler_options=QUICK)
def learn(agent, learner, rollout):
    return agent.update(learner, rollout, jax.random.key(3))


gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
start = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)


@pytest.mark.parametrize(
    ("world", "memory", "mode", "length", "advantage", "normalize"),
    [
        ("truncated", True, Epoch(), 4, GAE(), "rollout"),
        ("agents", True, Epoch(), 12, VTrace(), "off"),
        ("agents", False, Minibatch(), 12, GAE(), "rollout"),
        ("masked", True, Minibatch(), 12, VTrace(), "minibatch"),
        # the trace does not go beyond a sequence, so only one-step advantages are the same for shorter ones
        ("truncated", True, Minibatch(), 4, GAE(0.0), "minibatch"),
    ],
)
def test_recomputed_targets_with_the_same_weights_are_the_stored_ones(
    world, memory, mode, length, advantage, normalize
):
    options = {"seq_len": length, "advantage": advantage, "normalize_advantage": normalize, "recompute": mode}
    agent, learner, rollout = played(world, memory=memory, learning_rate=0.0, normalize_reward=True, **options)
    agent = dataclasses.replace(agent, recompute=Never())  # with V-trace a user could not start so
    assert (rollout.steps.truncated & ~rollout.steps.terminated)[:-1].any() or world == "masked"
    once = learn(agent, learner, rollout).metrics
    again = learn(dataclasses.replace(agent, recompute=mode), learner, rollout).metrics
    for name in SAME:
        np.testing.assert_allclose(once[name], again[name], rtol=1e-4, atol=1e-6, err_msg=name)
    # and it does look: stored values of no worth change the first, not the second
    spoilt = rollout._replace(steps=dataclasses.replace(rollout.steps, value=rollout.steps.value + 7.0))
    if length in (None, 12) or mode == Epoch():
        after = learn(dataclasses.replace(agent, recompute=mode), learner, spoilt).metrics
        np.testing.assert_allclose(after["value_loss"], again["value_loss"], rtol=1e-4)
        assert abs(learn(agent, learner, spoilt).metrics["value_loss"] - once["value_loss"]) > 1e-3


def test_recomputed_targets_of_invalid_rows_are_zero():
    """Samplers may rank sequences by their targets."""
    agent, learner, rollout = played("agents", memory=False, recompute=Minibatch(), seq_len=12)
    (steps, _, _), targets = learned(agent, learner, rollout)
    assert (~steps.valid).any()
    for x in targets:
        np.testing.assert_array_equal(x[~steps.valid], 0.0)
        assert (x[steps.valid] != 0.0).any()


class Looked(NamedTuple):
    """Agent whose advantages are the rewards, and whose value targets are the values after each step."""

    gamma: float = 1.0

    def evaluate_actions(self, learner, steps):
        return jnp.zeros(steps.valid.shape), jnp.zeros(steps.valid.shape)

    def advantage(self, steps, next_value, gamma, ratio):
        assert steps.valid.shape == (6,)
        return Targets(steps.reward, next_value)


def test_joined_sequences_keep_the_end_value_of_the_last_one():
    # two streams in three pieces of two steps each
    valid, nothing = jnp.ones((6, 2), bool), jnp.zeros((6, 2))
    steps = Transition(None, None, nothing, nothing, nothing, nothing, nothing, None, valid, ())
    inputs = RecomputeInputs(jnp.arange(12.0).reshape(6, 2), jnp.arange(6.0))
    learner = LearnerState((), (), None, None)
    targets = Recomputation(Looked(), Chain(()), learner, steps, inputs, None, 6).over_rollout(())
    assert targets.advantage.reshape(2, 6).tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert targets.value.reshape(2, 6)[:, -1].tolist() == [2.0, 5.0]
    assert targets.advantage.shape == (6, 2)


@pytest.mark.parametrize(
    ("advantage", "text"),
    [(VTrace(), r"vtrace with .*, or use gae"), (CanonicalVTrace(), r"vtrace_canonical with .*, or use td_lambda")],
)
def test_v_trace_is_refused_where_ratios_are_not_recomputed(advantage, text):
    """All ratios are 1 there, and no bound of them has an effect."""
    env = WORLDS["truncated"]()
    agent = ppax.PPO(mlp(env, hidden=(8,)), advantage=advantage)
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.start(agent, env, 8, jax.random.key(0))
    ppax.start(dataclasses.replace(agent, recompute=Epoch()), env, 8, jax.random.key(0))


def test_without_recompute_no_target_inputs_are_stored():
    agent, learner, rollout = played("truncated", memory=False)
    assert learned(agent, learner, rollout).recomputed is None
    assert agent.recompute.inputs(None, rollout.steps, None, None, 1) == (None, None)
    assert agent.sequence_length(12) == 1
    assert dataclasses.replace(agent, recompute=Epoch()).sequence_length(12) == 1
    # drawn sequences must reach far enough for a trace
    assert dataclasses.replace(agent, recompute=Minibatch()).sequence_length(12) == 12


@pytest.mark.parametrize(("memory", "mode"), [(True, Epoch()), (False, Minibatch())])
def test_rows_that_do_not_count_change_nothing_bit_for_bit(memory, mode):
    agent, learner, rollout = played("agents", memory=memory, recompute=mode, advantage=VTrace(), learning_rate=0.01)
    steps, invalid = rollout.steps, ~rollout.steps.valid
    ends = (steps.truncated & ~steps.terminated)[:-1]
    real = jnp.concatenate([jnp.zeros_like(invalid[:1]), ends])  # V of this observation counts
    assert (invalid & ~real).any()

    def poison(x, where):
        return jnp.where(where.reshape(where.shape + (1,) * (x.ndim - where.ndim)), jnp.nan, x)

    dirty = dataclasses.replace(
        steps,
        obs=poison(steps.obs, invalid & ~real),
        log_prob=poison(steps.log_prob, invalid),
        reward=poison(steps.reward, invalid),
        value=poison(steps.value, invalid & ~real),
    )
    one, other = learn(agent, learner, rollout), learn(agent, learner, rollout._replace(steps=dirty))
    for a, b in zip(jax.tree.leaves(one.learner), jax.tree.leaves(other.learner), strict=True):
        np.testing.assert_array_equal(a, b)
    # and the test can fail: the observation after a truncation is looked at
    assert (invalid & real).any()
    harmed = learn(agent, learner, rollout._replace(steps=dataclasses.replace(steps, obs=poison(steps.obs, invalid))))
    assert not np.isfinite(harmed.metrics["loss"])
