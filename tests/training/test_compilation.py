"""Ahead-of-time compilation: results equal those of `train`; errors name changes that need recompilation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.networks import mlp
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.schedules import Linear
from ppax.training.compiled import differences


@pytest.fixture(scope="module")
def made():
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env, hidden=(16,)), minibatch=Shuffle(2), schedule=Linear(), learning_rate=1e-3)
    state = ppax.start(agent, env, 16, jax.random.key(0))
    return agent, env, ppax.compile(agent, env, state)


def fresh(agent, env, steps=16):
    return ppax.start(agent, env, steps, jax.random.key(0))


def test_compiled_program_equals_train(made):
    agent, env, program = made
    ours = program(agent, env, fresh(agent, env), 3)
    theirs = jax.jit(ppax.train)(agent, env, fresh(agent, env), 3)
    for a, b in zip(jax.tree.leaves(ours.state.learner), jax.tree.leaves(theirs.state.learner), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    np.testing.assert_allclose(ours.metrics["learning_rate"], 1e-3 / 3, rtol=1e-5)  # of the third iteration
    assert program.compile_seconds >= program.xla_seconds > 0.0


def test_changed_hyperparameters_do_not_recompile(made):
    agent, env, program = made
    slow = dataclasses.replace(agent, learning_rate=jnp.float32(0.0), loss=dataclasses.replace(agent.loss, clip_eps=1))
    program(agent, env, fresh(agent, env), 1, 10)  # the devices hold the numbers of this call
    before = fresh(agent, env)
    old = jax.tree.map(np.asarray, before.learner.params)
    with jax.log_compiles(False):
        after = program(slow, env, before, 1, 10)
    for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(after.state.learner.params), strict=True):
        np.testing.assert_array_equal(a, b)  # the learning rate of 0 was used


def test_whole_numbers_at_compilation_may_become_others(made):
    """Oracle: the program of the same numbers as floats."""
    agent, env, program = made
    whole = dataclasses.replace(agent, ent_coef=0, gamma=1, loss=dataclasses.replace(agent.loss, clip_eps=1))
    compiled = ppax.compile(whole, env, fresh(whole, env))
    ours, theirs = (one(agent, env, fresh(agent, env), 2) for one in (compiled, program))
    for a, b in zip(jax.tree.leaves(ours.state.learner), jax.tree.leaves(theirs.state.learner), strict=True):
        np.testing.assert_array_equal(a, b)


def changed_agents(agent, env):
    replace = dataclasses.replace
    yield replace(agent, num_epochs=3), r"agent.num_epochs was 4 and is 3"
    yield replace(agent, minibatch=Shuffle(4)), r"agent.minibatch.num_minibatches was 2 and is 4"
    yield replace(agent, network=mlp(env, hidden=(8,))), r"agent.network.hidden was \(16,\) and is \(8,\)"
    yield replace(agent, max_grad_norm=None), r"agent.max_grad_norm was float32\[\] and is None"
    yield replace(agent, schedule=ppax.schedules.Constant()), r"agent.schedule was Linear and is Constant"
    yield replace(agent, learning_rate=jnp.ones(2)), r"agent.learning_rate was float32\[\] and is float32\[2\]"


def test_errors_name_the_changed_field(made):
    """A guard compares agent and environments before the call; other differences are found after JAX refuses."""
    agent, env, program = made
    program(agent, env, fresh(agent, env), 1)
    for other, message in changed_agents(agent, env):
        with pytest.raises(ppax.ConfigError, match=message):
            program(other, env, fresh(agent, env), 1)
    with pytest.raises(ppax.ConfigError, match=r"state\.num_steps was 16 and is 8"):
        program(agent, env, fresh(agent, env, 8), 1)
    wider = ppax.make("CartPole-v1", 8)
    with pytest.raises(ppax.ConfigError, match=r"env\.num_envs was 4 and is 8"):
        program(agent, wider, fresh(agent, wider), 1)
    state = fresh(agent, env)
    torn = dataclasses.replace(state, actor=state.actor._replace(obs=state.actor.obs[:, :3]))
    with pytest.raises(ppax.ConfigError, match=r"state.actor.obs was float32\[4,4\] and is float32\[4,3\]"):
        program(agent, env, torn, 1)


def test_differences_of_plain_trees():
    old = {"a": (1.0, np.zeros(2)), "b": None}
    assert list(differences(old, {"a": (1.0, np.zeros(2)), "b": None})) == []
    assert list(differences(old, {"a": (1.0, np.zeros(3)), "b": None})) == [".a.1 was float64[2] and is float64[3]"]
    assert list(differences(old, {"a": (1.0, np.zeros(2))})) == [" had ['a', 'b'] and has ['a']"]
