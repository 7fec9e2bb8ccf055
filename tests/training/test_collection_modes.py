"""Rollouts of a deterministic policy, of another number of environments, and with V computed after them."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import ppax
from ppax.devices.platforms import CPU
from ppax.training import collection
from ppax.training.collection import start_actor
from support.worlds import QUICK


def shapes_in(jaxpr):
    """Return the shapes of all arrays of a program, those of inner programs too."""
    found = set()
    for equation in jaxpr.eqns:
        found |= {out.aval.shape for out in equation.outvars}
        for inner in jaxprs_in_params(equation.params):
            found |= shapes_in(inner)
    return found


def test_parameters_are_not_copied_for_each_environment():
    """One product of all rows: no array of a rollout or an update has a weight matrix for each of 5 environments."""
    env = ppax.make("CartPole-v1", 5)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(6, 7)), minibatch=ppax.minibatches.Shuffle(1), num_epochs=1)
    state = jax.eval_shape(lambda: ppax.start(agent, env, 8, jax.random.key(0)))
    shapes = shapes_in(jax.make_jaxpr(lambda state: ppax.train(agent, env, state, 1))(state).jaxpr)
    assert {(6, 7), (5, 7)} <= shapes  # the second layer's weights, and its outputs in the rollout
    assert {shape for shape in shapes if shape[-2:] == (6, 7) and len(shape) > 2} == set()


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_a_deterministic_rollout_has_the_modes(name):
    env = ppax.make(name, 4)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(6,)))
    learner = agent.init(env.observation_space, jax.random.key(0))
    collect = jax.jit(ppax.collect, static_argnums=(4, 6), compiler_options=QUICK)
    actor = start_actor(agent, env, jax.random.key(1))
    rollout = collect(agent, env, learner, actor, 6, jax.random.key(2), True).rollout
    other = collect(agent, env, learner, actor, 6, jax.random.key(3), True).rollout
    sampled = collect(agent, env, learner, actor, 6, jax.random.key(2), False).rollout
    for t in range(6):
        policy = agent.policy(learner, (), rollout.steps.obs[t], rollout.steps.first[t], None)
        np.testing.assert_allclose(rollout.steps.action[t], policy.distribution.mode(), rtol=1e-5, atol=1e-6)
        log_prob = policy.distribution.log_prob(rollout.steps.action[t])
        np.testing.assert_allclose(rollout.steps.log_prob[t], log_prob, rtol=1e-5)
    np.testing.assert_array_equal(rollout.steps.action, other.steps.action)
    assert (np.asarray(sampled.steps.action) != np.asarray(rollout.steps.action)).any()


def test_another_number_of_environments():
    env, many = ppax.make("CartPole-v1", 4), ppax.make("CartPole-v1", 9)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(6,)))
    learner = agent.init(env.observation_space, jax.random.key(0))
    actor = start_actor(agent, many, jax.random.key(1))
    assert ppax.collect(agent, many, learner, actor, 3, jax.random.key(2)).rollout.steps.reward.shape == (3, 9)


def rollout_of(agent, env, monkeypatch, few_streams):
    monkeypatch.setattr(collection, "rules", lambda: CPU._replace(few_streams=few_streams))
    learner = agent.init(env.observation_space, jax.random.key(0))
    actor = start_actor(agent, env, jax.random.key(1))
    collect = jax.jit(ppax.collect, static_argnums=4, compiler_options=QUICK)
    return collect(agent, env, learner, actor, 12, jax.random.key(2)).rollout


MEMORY = ppax.networks.memories.GRU(4)


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"memory": MEMORY}, {"gsde": True}])
def test_few_streams_have_the_values_of_many(options, monkeypatch):
    """V of few streams is computed after a rollout: all equals a rollout whose V comes with each step, to rounding."""
    env = ppax.make("Pendulum-v1", 3)
    extensions = (ppax.extensions.HeldNoise(4),) if "gsde" in options else ()
    net = ppax.networks.network(env, hidden=(6,), **options)
    agent = ppax.PPO(net, extensions=extensions, normalize_obs=True)
    step_by_step, at_once = (rollout_of(agent, env, monkeypatch, few) for few in (2, 3))
    assert np.asarray(at_once.steps.value).std() > 0.01
    for one, other in zip(jax.tree.leaves(step_by_step), jax.tree.leaves(at_once), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_players_have_values_of_their_own(monkeypatch):
    """Independent players: each critic sees the steps of its own player."""
    env = ppax.make("Pursuit-2", 2)
    agent = ppax.Independent(ppax.PPO(ppax.networks.mlp(env, hidden=(6,))), 2)
    step_by_step, at_once = (rollout_of(agent, env, monkeypatch, few) for few in (0, 32))
    np.testing.assert_allclose(step_by_step.steps.value, at_once.steps.value, rtol=1e-5, atol=1e-6)


def test_values_come_with_each_step_where_past_selves_act_or_a_memory_remembers(monkeypatch):
    env = ppax.make("CartPole-v1", 3)
    plain, remembering = (
        ppax.PPO(ppax.networks.network(env, hidden=(6,), memory=m)) for m in (ppax.networks.memories.NoMemory(), MEMORY)
    )

    class Playing:
        pool = object()

    monkeypatch.setattr(collection, "rules", lambda: CPU._replace(few_streams=3))
    actors = [start_actor(agent, env, jax.random.key(0)) for agent in (plain, remembering)]
    assert collection.values_after_rollout(plain, env, actors[0])
    assert not collection.values_after_rollout(remembering, env, actors[1])
    assert not collection.values_after_rollout(Playing(), env, actors[0])
    assert not collection.values_after_rollout(plain, dataclasses.replace(env, num_envs=4), actors[0])
