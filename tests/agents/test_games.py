"""Games with known solutions: an equilibrium, coordination, and credit that only a central critic can assign."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.agents import self_play
from ppax.core.types import part
from ppax.envs import TimeLimit, VectorEnv
from ppax.envs.wrappers.views import team_view
from ppax.envs.wrappers.wrapper import Wrapper
from ppax.networks import network
from ppax.ppo.critics import PopArt
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.schedules import Linear
from support.games import Credit, Matrix
from support.worlds import QUICK

NUM_STEPS = 16


def view(game, num_envs=16, **options):
    options = {"agent_ids": False, "central_critic": False} | options
    return VectorEnv(team_view(TimeLimit(game, NUM_STEPS), **options, name="game"), num_envs)


def ppo(env, **options):
    # nothing that is done now matters later
    return ppax.PPO(network(env, hidden=()), minibatch=Shuffle(1), gamma=0.0, **options)


def program(agent, env, iterations, obs=None):
    """Probabilities of actions, and V, after some training: of each agent, or for observations `obs` [n, ...]."""

    def run(key):
        after = ppax.train(agent, env, ppax.start(agent, env, NUM_STEPS, key), iterations).state
        actor, count = after.actor, env.num_agents
        seen = (actor.obs, actor.first) if obs is None else (obs, jnp.ones(2, bool))
        policy = agent.policy(after.learner, (), *seen, None)
        return jnp.exp(policy.distribution.log_probs)[:count], policy.value[:count]

    return jax.jit(run, compiler_options=QUICK)


def learned(agent, env, iterations):
    """What comes of one run."""
    return [np.asarray(x) for x in program(agent, env, iterations)(jax.random.key(0))]


# Row player: the last row is best whatever the column. Column player: against it the middle column is best
DOMINANCE = np.array([[[3, 0, 1], [1, 1, 2], [4, 2, 3]], [[1, 2, 3], [3, 0, 1], [0, 2, 1]]], np.float32)


def test_players_come_to_the_equilibrium():
    env = view(Matrix(DOMINANCE))
    agent = ppax.Independent(ppo(env, learning_rate=0.05), 2)
    play, value = learned(agent, env, 60)
    assert play[0, 2] > 0.95
    assert play[1, 1] > 0.95
    np.testing.assert_allclose(value, [2.0, 2.0], atol=0.1)  # what they get there


def quantal(payoff, temperature):
    """The equilibrium of players who also like to be unpredictable (McKelvey and Palfrey 1995), float64."""
    row, column = np.ones(2) / 2, np.ones(2) / 2
    for _ in range(10_000):
        for_row, for_column = payoff[0].astype(float) @ column, row @ payoff[1].astype(float)
        new = [np.exp(x / temperature) / np.exp(x / temperature).sum() for x in (for_row, for_column)]
        row, column = 0.9 * row + 0.1 * new[0], 0.9 * column + 0.1 * new[1]
    return np.stack([row, column])


@pytest.mark.nightly
def test_pennies_of_unlike_worth_come_to_the_mixed_equilibrium():
    """Nobody can be sure of the other; with the entropy bonus the equilibrium is a point that draws near."""
    pennies = np.array([[[3, 0], [0, 1]], [[0, 1], [1, 0]]], np.float32)
    env = view(Matrix(pennies), num_envs=32)
    parts = {"ent_coef": 0.5, "normalize_advantage": "off", "learning_rate": 0.03}
    play, _ = learned(ppax.Independent(ppo(env, schedule=Linear(), **parts), 2), env, 400)
    expected = quantal(pennies, 0.5)
    assert abs(expected[0, 0] - 0.5) > 0.1  # not just anything
    np.testing.assert_allclose(play, expected, atol=0.05)


@pytest.mark.nightly
def test_who_know_who_they_are_can_do_different_things():
    """Each is paid where they differ: one policy for both can do so by who they are, or half of the time."""
    differ = np.array([[[0, 1], [1, 0]]] * 2, np.float32)
    worth = {}
    for ids in (False, True):
        env = view(Matrix(differ), agent_ids=ids)
        play, _ = learned(ppo(env, learning_rate=0.05), env, 60)
        worth[ids] = play[0, 0] * play[1, 1] + play[0, 1] * play[1, 0]
    assert worth[True] > 0.95
    assert worth[False] <= 0.5


@pytest.mark.nightly
def test_only_a_central_critic_can_tell_luck_from_merit(vmapped_keys):
    """Eight runs each: with it all of them come to choose right; without it luck leads them anywhere."""
    right, own = {}, jnp.array([[-1.0, 0.0], [1.0, 0.0]])  # the two signs, in turn
    for central in (False, True):
        env = view(Credit(), num_envs=32, central_critic=central)
        agent = ppo(env, learning_rate=0.02, critic=PopArt(), num_epochs=8)
        obs = {"own": own, "joint": jnp.zeros((2, 8))} if central else own
        play, _ = jax.vmap(program(agent, env, 50, obs))(jax.random.split(jax.random.key(0), 8))
        right[central] = np.asarray(play[:, 0, 0] + play[:, 1, 1]) / 2
    assert right[True].min() > 0.95
    assert right[False].mean() < 0.75


@part
class Unlike(Wrapper):
    """Wrapper that splits the four agents in two groups: "padded" observes a further number, which is always 0."""

    num_agents = {"plain": 2, "padded": 2}  # noqa: RUF012

    @property
    def observation_space(self):
        boxes = {name: spaces.Box(-np.inf, np.inf, (n,), np.float32) for name, n in (("plain", 2), ("padded", 3))}
        return spaces.Dict(boxes)

    @property
    def action_space(self):
        return spaces.Dict(dict.fromkeys(self.num_agents, self.env.action_space))

    def _split(self, obs):
        return {"plain": obs[:2], "padded": jnp.pad(obs[2:], ((0, 0), (0, 1)))}

    def reset(self, key):
        start = self.env.reset(key)
        return start._replace(obs=self._split(start.obs))

    def step(self, state, action, key):
        step = self.env.step(state, jnp.concatenate([action["plain"], action["padded"]]), key)
        return step._replace(obs=self._split(step.obs))


@pytest.mark.nightly
def test_only_a_central_critic_of_unlike_agents_can_tell_luck_from_merit(vmapped_keys):
    """As above, with a policy and a critic for each of two groups, whose critics observe all four agents."""
    right = {}
    for central in (False, True):
        env = view(Unlike(Credit()), num_envs=32, central_critic=central)
        agents = {
            name: ppo(group, learning_rate=0.02, critic=PopArt(), num_epochs=8) for name, group in env.groups.items()
        }
        agent, ones = ppax.Groups(agents, env.sizes), jnp.ones(4, bool)
        own = {
            name: jnp.zeros((2, n)).at[:, 0].set(jnp.array([-1.0, 1.0])) for name, n in (("plain", 2), ("padded", 3))
        }
        obs = {name: {"own": x, "joint": jnp.zeros((2, 10))} for name, x in own.items()} if central else own

        def run(key, agent=agent, env=env, obs=obs, ones=ones):
            learner = ppax.train(agent, env, ppax.start(agent, env, NUM_STEPS, key), 50).state.learner
            parts = agent.policy(learner, {"plain": (), "padded": ()}, obs, ones, None).distribution.parts
            chosen = [jnp.exp(part.log_probs) for part in parts.values()]
            return jnp.stack([x[0, 0] + x[1, 1] for x in chosen]).mean() / 2

        right[central] = np.asarray(
            jax.vmap(jax.jit(run, compiler_options=QUICK))(jax.random.split(jax.random.key(0), 4))
        )
    assert right[True].min() > 0.95
    assert right[False].mean() < 0.75


@pytest.mark.parametrize("sizes", [(1, 3), (3, 3), (5, 5), (3, 1), (1, 1)], ids=str)
def test_equal_returns_are_a_draw(sizes):
    """Of teams of every size, whatever the return; a difference of one part in a thousand is none."""
    groups, count = tuple(zip("ab", sizes, strict=True)), sum(sizes)
    seats = list(self_play.past_self_blocks(8, groups, 1.0, 1))
    weights, flags = self_play.margin_weights(seats, 8, count), np.zeros((3, 8), bool)
    first, ended = flags.copy(), flags.copy()
    first[0] = ended[2] = True

    def won(reward):
        rewards = np.zeros((3, 8, count), np.float32)
        rewards[1] = reward
        return self_play.play_games(rewards, first, ended, weights, jnp.zeros((8, count)), jnp.zeros(8, bool)).won

    better = np.full((8, count), 3.0, np.float32)
    for block in seats:
        better[block.envs, block.members] *= 1.001
    for reward in (0.1, 7.0, -1 / 3, 1e6):
        np.testing.assert_array_equal(won(reward), 0.5)
    np.testing.assert_array_equal(won(better), 1.0)
    np.testing.assert_array_equal(won(-better), 0.0)
