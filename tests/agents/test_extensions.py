"""States of extensions with several agents: by group, by player, and none in past selves."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.agents.self_play import Pool
from ppax.core.types import part
from ppax.envs import grouped
from ppax.extensions import Before, Extension, ExtensionState
from ppax.networks import network
from ppax.ppo.minibatches import Shuffle
from support.worlds import QUICK

NUM_ENVS, NUM_STEPS = 4, 2
PLAYERS = {"prey": [0], "hunters": [1, 2]}


@part
class Numbering(Extension):
    """The state is the sum of the numbers of all streams that were seen; those of the streams are then 100 more."""

    def init(self, agent, observation_space, key):
        return ExtensionState(jnp.float32(0.0))

    def init_streams(self, num_streams):
        return jnp.arange(num_streams, dtype=jnp.float32)

    def before(self, agent, state, streams, rollout, reward):
        assert reward.shape[1:] == streams.shape
        return Before(state + streams.sum(), reward, (), streams + 100.0)


def ppo(env, *extensions):
    return ppax.PPO(network(env, hidden=(2,)), minibatch=Shuffle(1), num_epochs=1, extensions=extensions)


def after_one(agent, env):
    state = jax.jit(lambda key: ppax.start(agent, env, NUM_STEPS, key), compiler_options=QUICK)(jax.random.key(0))
    return state, jax.jit(lambda state: ppax.train(agent, env, state, 1), compiler_options=QUICK)(state).state


def test_independent_players_have_states_of_their_own():
    """Streams are numbered by environment and player; each player's state is of its own streams."""
    env = ppax.make("Pursuit-2", NUM_ENVS)
    _, state = after_one(ppax.Independent(ppo(env, Numbering()), 2), env)
    numbers = np.arange(2 * NUM_ENVS, dtype=np.float32)
    np.testing.assert_array_equal(state.learner.extensions["numbering"].state, numbers.reshape(NUM_ENVS, 2).sum(axis=0))
    np.testing.assert_array_equal(state.actor.extensions["numbering"], numbers + 100.0)


@pytest.fixture(scope="module")
def groups():
    env = grouped(ppax.make("Pursuit-3", NUM_ENVS), PLAYERS)
    one, two = Numbering(), (Numbering(name="first"), Numbering())
    agents = {"prey": ppo(env.groups["prey"], one), "hunters": ppo(env.groups["hunters"], *two)}
    return ppax.Groups(agents, env.sizes), env


def test_groups_have_extensions_of_their_own(groups):
    _, state = after_one(*groups)
    own = {
        name: {one: float(x.state) for one, x in learner.extensions.items()} for name, learner in state.learner.items()
    }
    assert own == {"prey": {"numbering": 6.0}, "hunters": {"first": 28.0, "numbering": 28.0}}
    streams = {"prey": NUM_ENVS, "hunters": 2 * NUM_ENVS}
    for name, each in state.actor.extensions.items():
        assert set(each) == set(own[name])
        for x in each.values():
            np.testing.assert_array_equal(x, np.arange(streams[name]) + 100.0)


def test_a_group_without_extensions_beside_one_with(groups):
    agent, env = groups
    plain = dataclasses.replace(agent.agents["hunters"], extensions=())
    _, state = after_one(ppax.Groups(agent.agents | {"hunters": plain}, env.sizes), env)
    assert state.learner["hunters"].extensions == {}
    assert state.actor.extensions["hunters"] == {}
    assert float(state.learner["prey"].extensions["numbering"].state) == 6.0


def test_past_selves_keep_no_states_and_their_streams_stay(groups):
    agent, env = groups
    agent = ppax.SelfPlay(agent, Pool(every=1, size=2, share=0.5, opponents=1), NUM_ENVS)
    before, state = after_one(agent, env)
    assert all(learner.extensions == {} for learner in state.learner.pool.values())
    rows = {block.name: block.rows for block in agent._blocks()}
    for name, each in state.actor.extensions.items():
        numbers = np.asarray(before.actor.extensions[name]["numbering"])
        past = np.zeros(len(numbers), bool)
        past[rows[name]] = True
        assert 0 < past.sum() < len(past)
        for one, x in each.items():
            np.testing.assert_array_equal(x, np.where(past, numbers, numbers + 100.0))
            learned = state.learner.current[name].extensions[one].state
            assert float(learned) == numbers[~past].sum()
