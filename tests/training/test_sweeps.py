"""Sweeps: members equal separate runs."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.core.types import number, part
from ppax.networks import mlp
from ppax.networks.heads import CategoricalHead
from ppax.ppo.critics import PopArt, TwoHot
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.schedules import Linear, Steps
from ppax.training.arguments import require_arguments
from support.worlds import QUICK

sweeps = importlib.import_module("ppax.training.sweeps")
pytestmark = pytest.mark.usefixtures("vmapped_keys")


def make(members, num_envs=4):
    env = ppax.make("CartPole-v1", num_envs)
    agent = ppax.PPO(mlp(env, hidden=(16,)), learning_rate=1e-3, critic=PopArt())
    keys = jax.random.split(jax.random.key(0), members)
    return agent, env, ppax.start_sweep(agent, env, 8, keys)


@pytest.mark.parametrize(
    "members", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 4))]
)  # 3 is not divisible by two devices
def test_members_equal_their_separate_runs(members):
    agent, env, states = make(members)
    rates = jnp.linspace(1e-4, 1e-2, members)
    shares = jnp.linspace(0.1, 0.9, members)
    swept = dataclasses.replace(agent, learning_rate=rates, critic=PopArt(shares))
    together = jax.jit(ppax.sweep, compiler_options=QUICK)(swept, env, states, 5)
    alone = jax.jit(ppax.train, compiler_options=QUICK)
    for i in range(members):
        member = dataclasses.replace(agent, learning_rate=rates[i], critic=PopArt(shares[i]))
        solo = alone(member, env, jax.tree.map(lambda x, i=i: x[i], states), 5)
        for a, b in zip(jax.tree.leaves(solo.state.learner), jax.tree.leaves(together.state.learner), strict=True):
            np.testing.assert_allclose(a, b[i], atol=1e-5)
        np.testing.assert_allclose(solo.metrics["loss"], together.metrics["loss"][i], rtol=1e-4)
    np.testing.assert_array_equal(together.state.iteration, np.full(members, 5))
    np.testing.assert_allclose(together.state.learner.critic.weight, 1.0 - (1.0 - shares) ** 5, rtol=1e-5)


@pytest.fixture(scope="module")
def players():
    """Two independent players and an environment that is never stepped."""
    env = ppax.make("Pursuit-2", 4)
    return ppax.Independent(ppax.PPO(mlp(env, hidden=(4,))), 2), env


def rates(agent, learning_rate):
    return dataclasses.replace(agent, agent=dataclasses.replace(agent.agent, learning_rate=learning_rate))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.5, [0.5, 0.5, 0.5]),
        ([1.0, 2.0], [[1.0, 2.0]] * 3),  # one for each player, the same in all members
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),  # one for each member
        (np.arange(6.0).reshape(3, 2), np.arange(6.0).reshape(3, 2)),
    ],
)
def test_values_per_player_and_values_per_member(players, given, expected):
    agent, env = players
    swept, _ = sweeps._members(rates(agent, np.array(given, np.float32)), env, 3)
    np.testing.assert_array_equal(swept.agent.learning_rate, expected)
    grouped = ppax.Groups({"both": rates(agent, np.array(given, np.float32))}, (("both", 2),))
    swept, _ = sweeps._members(grouped, env, 3)
    np.testing.assert_array_equal(swept.agents["both"].agent.learning_rate, expected)


def test_ambiguous_values_per_player_or_member_are_refused(players):
    agent, env = players
    text = r"agent\.agent\.learning_rate has 2 values, for 2 states and for 2 players: must have shape \(2, 2\)"
    with pytest.raises(ppax.ConfigError, match=text):
        sweeps._members(rates(agent, np.ones(2, np.float32)), env, 2)
    swept, _ = sweeps._members(rates(agent, np.ones((2, 2), np.float32)), env, 2)
    assert swept.agent.learning_rate.shape == (2, 2)


def test_a_wrong_number_of_values_is_refused_by_name():
    agent, env, states = make(4)
    with pytest.raises(ppax.ConfigError, match=r"agent\.learning_rate has 3 values for 4 states: must be one, or 4"):
        ppax.sweep(dataclasses.replace(agent, learning_rate=jnp.ones(3)), env, states, 1)


def test_an_array_of_an_environment_that_all_members_share_is_explained():
    """gymnax's Acrobot has the torques of its three actions as an array."""
    env = ppax.make("gymnax/Acrobot-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env))
    keys = jax.random.split(jax.random.key(0), 4)
    text = r"available_torque has 3 values for 4 states.*jnp\.broadcast_to\(x, \(4, 3\)\)"
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.start_sweep(agent, env, 4, keys)
    shared = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *jnp.shape(x))), env)
    states = ppax.start_sweep(agent, shared, 4, keys)
    assert states.iteration.shape == (4,)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"gamma": jnp.array([0.9, 1.5])}, r"agent\.gamma = 1\.5: must be at most 1"),
        ({"gamma": -0.5}, r"agent\.gamma = -0\.5: must be at least 0"),
        ({"schedule": Steps(at=(0.5, 0.7), values=(1e-3, 1e-5))}, r"at = \[0\.5, 0\.7\] must begin at 0"),
        ({"schedule": Steps(at=(0.0, jnp.array([0.5, 1.5])), values=(1e-3, 1e-5))}, "progress ends at 1"),
        ({"critic": TwoHot(low=10.0, high=-10.0)}, "low = 10 must be below high = -10"),
        ({"critic": TwoHot(low=jnp.array([-10.0, 10.0]), high=5.0)}, "low = 10 must be below high = 5"),
    ],
)
@pytest.mark.parametrize("kind", [lambda one: one, lambda one: ppax.Independent(one, 2)], ids=["ppo", "independent"])
def test_a_members_agent_is_refused_where_it_would_be_alone(kind, options, text):
    """Of three members one is wrong, or two equal ones."""
    env = ppax.make("Pursuit-2", 4)
    options = jax.tree.map(lambda x: x if np.ndim(x) == 0 else x[jnp.array([0, 1, 1])], options)
    agent, keys = kind(ppax.PPO(mlp(env, hidden=(4,)), **options)), jax.random.split(jax.random.key(0), 3)
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.start_sweep(agent, env, 8, keys)
    second = jax.tree.map(lambda x: x if np.ndim(x) == 0 else x[1], agent)
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.start(second, env, 8, keys[0])


@part
class FlooredHead(CategoricalHead):
    """Categorical head with a number of its own: the least probability of an action, of two."""

    floor: object = number("least probability", default=0.0, low=0.0, high=0.5)

    def __call__(self, outputs, log_std, action_mask):
        probability = self.floor + (1.0 - 2.0 * self.floor) * jax.nn.softmax(outputs)
        return super().__call__(jnp.log(probability), log_std, action_mask)


def floored(floor, num_envs=4):
    env = ppax.make("CartPole-v1", num_envs)
    made = dataclasses.replace(mlp(env, hidden=(4,)), head=FlooredHead(2, floor=floor))
    return ppax.PPO(made, learning_rate=1e-2, num_epochs=1), env


def test_a_number_of_a_head_is_swept():
    """At a floor of 0.5 both actions always have probability 0.5, whose entropy is log 2."""
    floors = jnp.array([0.0, 0.2, 0.5])
    swept, env = floored(floors)
    states = ppax.start_sweep(swept, env, 8, jax.random.split(jax.random.key(0), 3))
    state, metrics = jax.jit(ppax.sweep, static_argnums=3, compiler_options=QUICK)(swept, env, states, 3)
    np.testing.assert_allclose(metrics["entropy"][2], np.log(2.0), rtol=1e-6)

    def train(floor, state):
        return ppax.train(floored(floor)[0], env, state, 3).state.learner

    mapped = jax.jit(jax.vmap(train), compiler_options=QUICK)(floors, states)
    alone = jax.jit(train, compiler_options=QUICK)(floors[1], jax.tree.map(lambda x: x[1], states))
    for solo, *many in zip(*map(jax.tree.leaves, (alone, state.learner, mapped)), strict=True):
        for one in many:
            np.testing.assert_allclose(solo, one[1], atol=1e-5)


def test_a_number_of_a_head_is_annealed():
    agent, _ = floored(0.4)
    agent = dataclasses.replace(agent, schedule=Linear(leaves=("network.head.floor",)))
    assert agent.annealed(jnp.float32(0.25), jnp.float32(0.0)).network.head.floor == pytest.approx(0.3)


def test_a_head_that_is_no_part_is_refused():
    agent, env = floored(0.0)
    other = dataclasses.replace(agent, network=dataclasses.replace(agent.network, head=lambda *x: None))
    with pytest.raises(ppax.ConfigError, match=r"agent\.network\.head: a function is no part: .* @ppax.part"):
        require_arguments(other, env)


def test_each_member_anneals_over_its_own_iterations():
    """A member that has discarded iterations is behind the others: its training ends later, as with `vmap(train)`."""
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1, minibatch=Shuffle(1), schedule=Linear())
    states = ppax.start_sweep(agent, env, 8, jax.random.split(jax.random.key(0), 2))
    states = dataclasses.replace(states, iteration=jnp.array([0, 6], jnp.int32))
    found = jax.jit(ppax.sweep, compiler_options=QUICK)(agent, env, states, 2).metrics["learning_rate"]
    np.testing.assert_allclose(found, 3e-4 * np.array([0.5, 0.125]), rtol=1e-5)


def test_the_first_environments_have_the_values_that_a_schedule_begins_with():
    """Also where these are not the environment's own: the first reset draws from the scheduled range."""
    schedule = Steps(("env.half_length.low", "env.half_length.high"), at=(0,), values=(1.0,))
    env = ppax.make("CartPole-v1", 4, env_params={"half_length": {"low": 0.4, "high": 0.6}}, schedule=schedule)
    state = ppax.start(ppax.PPO(mlp(env, hidden=(4,))), env, 8, jax.random.key(0))
    drawn = [x for x in jax.tree.leaves(state.actor.env_state.env) if x.shape == (4,) and (np.asarray(x) == 1.0).all()]
    assert drawn
