"""Names that an environment gives its agents: in metrics, evaluations and films."""

from pathlib import Path

import jax
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli import options
from ppax.cli.output import evaluation_text
from ppax.core.types import ConfigError, EnvReset, EnvStep, part, static
from ppax.envs import TimeLimit, VectorEnv, grouped, host
from ppax.networks import network
from ppax.run.films import Film
from ppax.training.backends import backend_of
from support.team_worlds import Squad

COLORS = ("red_0", "red_1", "blue_0", "blue_1")


class Colors(Squad):
    """Squad of two teams."""

    possible_agents = COLORS
    DIES = {"red_0": 2}  # noqa: RUF012
    COMES = {}  # noqa: RUF012


@part
class Duel:
    """Compiled environment whose agents have names."""

    agent_names: tuple = static(default=("left", "right"))
    num_agents = 2
    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return EnvReset((), jax.numpy.zeros((2, 1)))

    def step(self, state, action, key):
        no = jax.numpy.zeros(2, bool)
        return EnvStep((), jax.numpy.zeros((2, 1)), jax.numpy.arange(2.0), no, no)


def metrics_of(agent, env):
    state = jax.eval_shape(lambda key: ppax.start(agent, env, 8, key), jax.random.key(0))
    return backend_of(env).metric_names(agent, state)


def players_in(names, metric):
    return [name.partition("/")[2] for name in names if name.startswith(metric + "/")]


def small(space):
    return ppax.PPO(network(space, hidden=(4,)))


@pytest.mark.parametrize("metric", ["episode_return", "episode_length", "entropy", "explained_variance"])
def test_players_of_a_host_environment_have_its_names_in_all_metrics(metric):
    env = host(Colors, 2)
    assert players_in(metrics_of(ppax.Independent(small(env), 4), env), metric) == list(COLORS)


def test_members_of_groups_have_their_own_names_and_groups_theirs():
    env = grouped(host(Colors, 2), {"warm": [0, 1], "cold": [3], "rest": [2]})
    assert env.agent_names == ("red_0", "red_1", "blue_1", "blue_0")
    groups = {name: small(group) for name, group in env.groups.items()}
    groups["warm"] = ppax.Independent(groups["warm"], 2)
    names = metrics_of(ppax.Groups(groups, env.sizes), env)
    assert players_in(names, "episode_return") == ["warm", "red_0", "red_1", "cold", "rest"]
    assert set(players_in(names, "entropy")) == {"warm", "red_0", "red_1", "cold", "rest"}


def test_compiled_environments_may_name_their_agents_also_inside_wrappers():
    env = VectorEnv(TimeLimit(Duel(), 5), 2)
    assert env.agent_names == ("left", "right")
    names = metrics_of(ppax.Independent(small(env), 2), env)
    assert players_in(names, "entropy") == players_in(names, "episode_return") == ["left", "right"]
    assert grouped(env, {"b": [1], "a": [0]}).agent_names == ("right", "left")
    with pytest.raises(ConfigError, match="agent_names of Duel: one; must be 2 different names, one for each agent"):
        VectorEnv(Duel(("one",)), 2).agent_names  # noqa: B018


NAMED = {"old": ["blue_0", "red_0"], "new": ["red_1", 3]}


def test_groups_are_made_of_names():
    """Whatever groups there are: numbers and names count as in `possible_agents`."""
    plain = host(Colors, 2)
    for env in (plain, grouped(plain, {"a": [3, 0], "b": [2, 1]})):
        assert grouped(env, NAMED).settings.players == (("old", (2, 0)), ("new", (1, 3)))
    for given in ({"l": ["right"], "r": ["left"]}, {"l": [1], "r": ["left"]}):
        assert grouped(VectorEnv(Duel(), 2), given).env.players == (("l", (1,)), ("r", (0,)))
    numbered = ppax.make("Pursuit-2", 2)
    assert grouped(numbered, {"prey": ["agent_1"], "hunter": ["agent_0"]}).env.players[0] == ("prey", (1,))
    with pytest.raises(ConfigError, match="groups: Duel has no agent 'middle'; there are left, right"):
        grouped(VectorEnv(Duel(), 2, name="Duel"), {"l": ["middle"], "r": ["left"]})
    with pytest.raises(ConfigError, match=r"groups: l = 'left': must be a list; nearest valid value: \['left'\]"):
        grouped(VectorEnv(Duel(), 2), {"l": "left", "r": ["right"]})
    with pytest.raises(ConfigError, match="once, and no group may be empty"):
        grouped(VectorEnv(Duel(), 2), {"l": ["left"], "r": [0]})


def test_groups_of_a_run_file_and_of_the_command_line_are_made_of_names():
    words = ["Pursuit-2", "--groups.prey.players", "agent_0", "--groups.hunter.players", "agent_1"]
    typed = options.parse_run("train", words, options.add_train)[1]
    written = config.resolve(
        {"env": "Pursuit-2", "groups": {"prey": {"players": ["agent_0"]}, "hunter": {"players": [1]}}}
    )
    for given in (typed, written):
        assert config.build_env(given).settings.players == (("prey", (0,)), ("hunter", (1,)))
    with pytest.raises(ConfigError, match=r"groups\.prey\.players = 1\.5: must be of type int"):
        config.resolve({"env": "Pursuit-2", "groups": {"prey": {"players": [1.5]}}})
    with pytest.raises(ConfigError, match=r"players = 'agent_0': must be a list .* value: \['agent_0'\]"):
        config.resolve({"env": "Pursuit-2", "groups": {"prey": {"players": "agent_0"}}})


def test_agents_without_names_are_numbered_in_groups_by_group():
    env = ppax.make("Pursuit-3", 4)
    assert env.agent_names == ("agent_0", "agent_1", "agent_2")
    split = grouped(env, {"prey": [0], "predators": [1, 2]})
    assert split.agent_names == ("prey_0", "predators_0", "predators_1")


def test_an_evaluation_has_the_names_of_the_agents():
    """Rewards of Squad: 10 * (number + 1) + time, 0.5 more for action 1; red_0 dies after 2 of 5 steps."""
    env = host(Colors, 2)
    agent = small(env)
    learner = agent.init(env.observation_space, jax.random.key(0))
    evaluation = ppax.evaluate(agent, env, learner, jax.random.key(1), 8)
    assert list(evaluation.by_agent) == list(COLORS)
    assert 21.0 <= evaluation.by_agent["red_0"].mean_return <= 22.0
    assert 160.0 <= evaluation.by_agent["blue_0"].mean_return <= 162.5
    assert "; red_0 2" in evaluation_text(evaluation, True)
    assert evaluation.columns["eval_length/red_0"] == 2.0
    assert "mean_return/blue_1" in evaluation.scores


def test_a_film_names_the_agents_beside_their_returns():
    made = Film(Path("play.gif"), 4, np.array([[1.0, 2.5]]), np.array([3]), True, ("red_0", "blue_0"))
    assert made.returns_text(0) == "red_0 1.00, blue_0 2.50"
    assert made._replace(returns=np.array([[4.0]]), names=()).returns_text(0) == "4.00"
