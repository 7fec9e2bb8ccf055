"""Matches of policies against each other: games with exactly known results, on both backends."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.agents.self_play import fitted
from ppax.core.types import ConfigError, EnvReset, EnvStep, part, static
from ppax.envs import VectorEnv, grouped, host
from ppax.networks import memories, network
from support.team_worlds import Squad
from support.trained import policy_of, random_learner

pytestmark = pytest.mark.usefixtures("quick_programs", "cached_programs")
OBS = spaces.Box(-1.0, 1.0, (1,), np.float32)


def choosing(env, choices, memory=None, hidden=(4,), independent=False) -> ppax.Policy:
    """Policy of weights 0, whose bias makes a choice certain; `choices` are of all agents, or one of each player."""
    agent: Any = ppax.PPO(network(env, hidden=hidden, **({} if memory is None else {"memory": memory})))
    agent = ppax.Independent(agent, env.num_agents) if independent else agent
    learner = jax.tree.map(np.zeros_like, random_learner(agent, env))
    bias = learner.params["policy"]["bias"]
    learner.params["policy"]["bias"] = 100.0 * np.eye(bias.shape[-1], dtype=np.float32)[choices]
    return policy_of(agent, env, learner)


@part
class Contest:
    """One winner in one step: an agent who chooses `a` wins with a probability in proportion to 1 + 2 a.

    The winner gets 1 and the others nothing; `edge` multiplies the first agent's weight.
    """

    num_agents: int = static(default=2)
    edge: float = static(default=1.0)
    observation_space = OBS
    action_space = spaces.Discrete(3)

    def reset(self, key):
        return EnvReset((), jnp.zeros((self.num_agents, 1)))

    def step(self, state, action, key):
        weight = (1.0 + 2.0 * action) * jnp.ones(self.num_agents).at[0].set(self.edge)
        winner = jax.random.categorical(key, jnp.log(weight))
        reward = (jnp.arange(self.num_agents) == winner).astype(jnp.float32)
        return EnvStep((), jnp.zeros((self.num_agents, 1)), reward, jnp.ones(self.num_agents, bool), reward > 2.0)


def near(value, expected, games):
    """Within four standard errors."""
    np.testing.assert_allclose(value, expected, rtol=0.0, atol=4.0 * np.sqrt(expected * (1.0 - expected) / games))


def test_wins_returns_and_ratings_of_a_game_with_known_probabilities():
    """Strong against weak wins 5 of 6 games from the better seat, 9 of 14 from the other; one has a memory."""
    env = VectorEnv(Contest(edge=5.0 / 3.0), 2)
    strong, weak = choosing(env, 1), choosing(env, 0, memories.GRU(3), (5,))
    policies = {"strong": strong, "weak": weak, "weak too": weak}
    result = ppax.match(policies, env, 500)
    assert result.sides == ("agent_0", "agent_1")
    wins = result.wins
    near(wins[0, 1], (5 / 6 + 9 / 14) / 2, 1000)
    near(wins[0, 2], (5 / 6 + 9 / 14) / 2, 1000)
    near(wins[1, 2], 0.5, 1000)
    np.testing.assert_allclose(wins + wins.T, np.where(np.eye(3, dtype=bool), np.nan, 1.0), rtol=1e-12)
    assert np.isnan(wins[0, 0])
    assert np.nansum(result.draws) == 0.0
    near(result.by_side["agent_0"][0, 1], 5 / 6, 500)  # strong in the better seat
    near(result.by_side["agent_1"][0, 1], 9 / 14, 500)
    near(result.by_side["agent_0"][0, 0], 5 / 8, 500)  # against itself
    np.testing.assert_allclose(result.returns[0, 1], wins[0, 1], rtol=1e-12)  # a win is a reward of 1
    elo = result.elo
    assert abs(np.mean(list(elo.values())) - 1000.0) < 1e-6
    # the score equations of Bradley and Terry: each wins as many games as its rating expects, with one more game drawn
    rated = np.array(list(elo.values()))
    chance = 1.0 / (1.0 + 10.0 ** ((rated[None] - rated[:, None]) / 400.0))
    np.fill_diagonal(chance, 0.0)
    np.testing.assert_allclose(1001 * chance.sum(1), np.nansum(1000 * wins, axis=1) + 2 * 0.5, rtol=1e-8)


def test_two_ratings_differ_by_the_odds_of_a_win():
    """Closed form: 400 log10 of the odds, with one more game drawn; the error of a log odds ratio is known."""
    for won, lost in ((75.0, 25.0), (100.0, 0.0), (0.0, 0.0)):
        out = fitted(np.array([[0.0, won], [lost, 0.0]]), (won + lost) * (1.0 - np.eye(2)))
        odds = 400.0 * np.log10((won + 0.5) / (lost + 0.5))
        np.testing.assert_allclose(out.elo, [1000.0 + odds / 2, 1000.0 - odds / 2], rtol=1e-9)
    out = fitted(np.array([[0.0, 75.0], [25.0, 0.0]]), 100.0 * (1.0 - np.eye(2)))
    of_difference = 400.0 / np.log(10.0) * np.sqrt(1.0 / (101 * (75.5 / 101) * (25.5 / 101)))
    np.testing.assert_allclose(out.error, of_difference / 2, rtol=1e-9)


def test_ratings_are_recovered_from_the_games_that_they_expect():
    """So many games that the one drawn does not matter; not all pairs have met."""
    ratings = np.array([1200.0, 1050.0, 900.0, 850.0])
    played = 1e9 * np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    won = played / (1.0 + 10.0 ** ((ratings[None] - ratings[:, None]) / 400.0))
    np.testing.assert_allclose(fitted(won, played).elo, ratings, atol=1e-4)


def test_the_same_weights_under_two_names_are_exactly_even():
    """All seatings have the same starts and random numbers: what luck gives in one seat, it takes in the other."""
    env = VectorEnv(Contest(edge=3.0), 2)
    same = choosing(env, 2)
    result = ppax.match([same, same], env, 64)
    assert result.policies == ("policy_0", "policy_1")
    assert result.wins[0, 1] == result.wins[1, 0] == 0.5
    assert result.elo == {"policy_0": 1000.0, "policy_1": 1000.0}
    assert ppax.match([same, same], env, 64, seed=1).by_side["agent_0"][0, 1] != result.by_side["agent_0"][0, 1]


def test_one_against_several_others():
    """Three seats: by hand, of the two policies and all six seatings of one against two of the other."""
    env = VectorEnv(Contest(3), 2)
    result = ppax.match({"strong": choosing(env, 1), "weak": choosing(env, 0)}, env, 400)
    assert len(result.seatings) == 2 + 6
    near(result.returns[0, 1], 3 / 5, 1200)  # strong alone
    near(result.returns[1, 0], 1 / 7, 1200)
    # of the pairs of one with each other one: strong alone wins both with 3/5, else draws one and loses one
    near(result.wins[0, 1], (3 / 5 + 6 / 7 / 2) / 2, 2400)
    near(result.draws[0, 1], (2 / 5 / 2 + 6 / 7 / 2) / 2, 2400)
    near(result.wins[1, 0], (2 / 5 / 2 + 1 / 7) / 2, 2400)


class Colors(Squad):
    """Two teams of two; all agents live to time 5, but red_0 to time 2 and blue_1 from time 2 on."""

    possible_agents = ("red_0", "blue_0", "red_1", "blue_1")
    DIES: ClassVar[dict] = {"red_0": 2}
    COMES: ClassVar[dict] = {"blue_1": 2}


BASE = {"red_0": 21.0, "blue_0": 110.0, "red_1": 160.0, "blue_1": 129.0}  # sums of 10 * (number + 1) + time
STEPS = {"red_0": 2, "blue_0": 5, "red_1": 5, "blue_1": 3}


def expected(actions):
    """Mean return of each team, where each agent makes its choice in all of its steps: 0.5 more for action 1."""
    own = {name: BASE[name] + 0.5 * STEPS[name] * actions[name] for name in BASE}
    return {team: np.mean([x for name, x in own.items() if name.startswith(team)]) for team in ("red", "blue")}


@pytest.mark.parametrize("players", [(1, 0, 0, 0), (0, 1, 0, 1)])
def test_teams_of_a_host_environment_whose_agents_come_and_go(players):
    """A shared policy, one with parameters for each agent, and one of groups: returns by hand."""
    env = host(Colors, 3)
    in_groups = grouped(env, {"first": [0, 1], "second": [2, 3]})  # red_0 and blue_0; red_1 and blue_1
    parts = {name: ppax.PPO(network(group, hidden=(4,))) for name, group in in_groups.groups.items()}
    groups = ppax.Groups(parts, in_groups.sizes)
    learner = jax.tree.map(np.zeros_like, random_learner(groups, in_groups))
    learner["first"].params["policy"]["bias"][:] = 100.0, 0.0
    learner["second"].params["policy"]["bias"][:] = 0.0, 100.0
    policies = {
        "never": choosing(env, 0),
        "own": choosing(env, list(players), independent=True),
        "second": policy_of(groups, in_groups, learner),
    }
    choices = {
        "never": dict.fromkeys(BASE, 0),
        "own": dict(zip(BASE, players, strict=True)),
        "second": {"red_0": 0, "blue_0": 0, "red_1": 1, "blue_1": 1},
    }
    result = ppax.match(policies, env, 5)
    assert result.sides == ("red", "blue")
    for i, row in enumerate(choices):
        for team in ("red", "blue"):
            np.testing.assert_allclose(result.by_side[team][i], expected(choices[row])[team], rtol=1e-6)
    assert {len(one.returns) for one in result.seatings} == {5}
    assert result.wins[0, 1] == 0.5  # blue wins, whoever plays it


def test_sides_may_be_chosen_also_of_groups():
    env = host(Colors, 2)
    policies = [choosing(env, 0), choosing(env, 1)]
    result = ppax.match(policies, env, 2, sides={"old": ["red_0", 1], "new": ["red_1", "blue_1"]})
    np.testing.assert_allclose(result.by_side["old"][1], np.mean([22.0, 112.5]), rtol=1e-6)
    split = grouped(env, {"a": [0], "b": [1], "c": [2, 3]})
    result = ppax.match(policies, split, 2, sides={"old": ["a", "b"], "new": ["c"]})
    np.testing.assert_allclose(result.by_side["old"][1], np.mean([22.0, 112.5]), rtol=1e-6)
    np.testing.assert_allclose(result.by_side["new"][0], np.mean([160.0, 129.0]), rtol=1e-6)
    for sides, message in (
        ({"a": ["red_0"], "b": ["blue_0"]}, "sides: each of red_0, blue_0, red_1, blue_1 must be on exactly one side"),
        ({"a": ["green"]}, r"sides\['a'\] has 'green': no such agent; there are red_0"),
        ({"a": [0, 1, 2, 3]}, "sides: there is one, a; must be at least two"),
    ):
        with pytest.raises(ConfigError, match=message):
            ppax.match(policies, env, 2, sides=sides)
    with pytest.raises(ConfigError, match="sides: the agents of the group 'c' must be on one side"):
        ppax.match(policies, split, 2, sides={"x": [0, 1, 2], "y": [3]})


def test_what_cannot_play_is_refused_with_a_remedy():
    env = VectorEnv(Contest(), 2, name="Contest")
    policy = choosing(env, 0)
    with pytest.raises(ConfigError, match="policies: must be at least two"):
        ppax.match([policy], env)
    with pytest.raises(ConfigError, match="CartPole-v1 has one agent"):
        ppax.match([policy, policy], ppax.make("CartPole-v1", 2))
    with pytest.raises(ConfigError, match=r"policies\['b'\] has the observation_space .* in Contest is Box\(-1.0"):
        ppax.match({"a": policy, "b": choosing(host(Colors, 2), 0)}, env)
    apart = choosing(VectorEnv(Contest(3), 2), [0, 0, 0], independent=True)
    with pytest.raises(ConfigError, match=r"policies\['b'\] has learned to play agent_0, agent_1, agent_2 apart"):
        ppax.match({"a": policy, "b": apart}, env)


def test_random_moves_in_a_turn_based_game():
    """Tic-tac-toe at random: the first player wins 737 of 1,260 games, the second 363, and 160 are drawn."""
    pytest.importorskip("pettingzoo")
    with ppax.make("pettingzoo/classic/tictactoe_v3", 16) as env:
        agent = ppax.PPO(network(env, hidden=(4,)))
        policy = policy_of(agent, env, jax.tree.map(np.zeros_like, random_learner(agent, env)))
        result = ppax.match({"a": policy, "b": policy}, env, 200)
    assert result.sides == ("player_1", "player_2")
    assert [len(one.returns) for one in result.seatings] == [200] * 4
    returns = np.concatenate([one.returns for one in result.seatings[:1]])
    for value, share in ((1, 737 / 1260), (-1, 363 / 1260), (0, 160 / 1260)):
        near(np.mean(returns[:, 0] == value), share, 200)
    np.testing.assert_array_equal(returns.sum(axis=1), 0.0)
    np.testing.assert_allclose(result.draws[0, 1] + result.wins[0, 1] + result.wins[1, 0], 1.0)
    assert result.wins[0, 1] == result.wins[1, 0]


class Sometimes(Colors):
    """Colors in which blue_1 comes to every second game only, and the others stay until the end."""

    DIES: ClassVar[dict] = {}

    def reset(self, seed=None, options=None):
        self.COMES = {} if getattr(self, "COMES", None) == {"blue_1": 9} else {"blue_1": 9}
        return super().reset(seed, options)


def test_an_agent_that_is_not_in_each_game_gets_nothing_in_the_others():
    """By hand: blue_0 gets 110 and blue_1 210, or 0; a game in which it plays alone beyond those asked for is none."""
    env = host(Sometimes, 1)
    result = ppax.match([choosing(env, 0), choosing(env, 0)], env, 5)
    for one in result.seatings:
        assert one.unfinished == 0
        blue = one.returns[:, 1].tolist()
        assert blue in ([55.0, 160.0, 55.0, 160.0, 55.0], [160.0, 55.0, 160.0, 55.0, 160.0])
        np.testing.assert_array_equal(one.returns[:, 0], (60.0 + 160.0) / 2)


def test_games_that_never_end_are_left_out():
    env = host(Colors, 2)
    result = ppax.match([choosing(env, 0), choosing(env, 1)], env, 4, max_steps=4)
    assert all(one.unfinished == 4 and one.returns.shape == (0, 2) for one in result.seatings)
    assert np.isnan(result.wins).all()
    assert list(result.elo.values()) == [1000.0, 1000.0]
    assert str(result).endswith("16 games never ended and are not counted")
