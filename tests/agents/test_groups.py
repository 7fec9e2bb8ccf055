"""Groups of unlike agents: as players that learn apart, where they are alike; spaces, masks, memories apart."""

import dataclasses
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.agents.groups import FLAT
from ppax.checks import require_sound
from ppax.core.options import flatten
from ppax.core.types import ConfigError, Rollout, Transition
from ppax.envs import ActionRepeat, TimeLimit, VectorEnv, builtin, grouped
from ppax.networks import mlp, network
from ppax.networks.memories import GRU
from ppax.policy import Policy
from ppax.policy.spec import spec_of
from ppax.ppo.minibatches import Shuffle
from ppax.training.loop import num_devices
from support.players import Copies, Orchestra
from support.worlds import QUICK, Team

NUM_ENVS, NUM_STEPS = 4, 8


def ppo(env, **options):
    return ppax.PPO(network(env, hidden=(8,)), minibatch=Shuffle(2), num_epochs=2, **options)


def trained(agent, env, iterations=3):
    def run(key):
        return ppax.train(agent, env, ppax.start(agent, env, NUM_STEPS, key), iterations)

    return jax.jit(run, compiler_options=QUICK)(jax.random.key(0))


def assert_same(one, other, **tolerance):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), **tolerance)


def orchestra(num_envs=NUM_ENVS, **options):
    env = VectorEnv(Orchestra(), num_envs)
    leader = ppax.PPO(
        network(env.groups["leader"], hidden=(8,), memory=GRU()), seq_len=4, minibatch=Shuffle(1), **options
    )
    players = ppax.Independent(dataclasses.replace(ppo(env.groups["player"], **options), normalize_obs=True), 2)
    return ppax.Groups({"leader": leader, "player": players}, env.sizes), env


@pytest.mark.nightly
def test_groups_of_one_agent_equal_independent_players():
    """The same keys, the same streams: two groups of one agent each, and two independent players."""
    alike = VectorEnv(Copies(TimeLimit(builtin.Pendulum(), 12), 2), NUM_ENVS)
    apart = grouped(alike, {"a": [0], "b": [1]})
    agent = ppo(alike, normalize_obs=True)
    rates = [1e-3, 1e-4]
    one = trained(ppax.Independent(dataclasses.replace(agent, learning_rate=np.array(rates, np.float32)), 2), alike)
    agents = {name: dataclasses.replace(agent, learning_rate=rate) for name, rate in zip("ab", rates, strict=True)}
    two = trained(ppax.Groups(agents, apart.sizes), apart)
    for place, name in enumerate("ab"):
        own = jax.tree.map(lambda x, place=place: x[place], one.state.learner)
        assert_same(own.params, two.state.learner[name].params, rtol=0, atol=1e-6)
        mine, theirs = one.metrics[f"value_loss/agent_{place}"], two.metrics[f"value_loss/{name}"]
        assert float(mine) == pytest.approx(float(theirs), rel=1e-4)
    assert float(two.metrics["value_loss"]) == pytest.approx(float(one.metrics["value_loss"]), rel=1e-4)


def test_actions_and_rewards_of_groups_keep_their_order():
    """The order of groups is no one's order: actions go to whom they are of, rewards come back with them."""
    team = Team()
    env = grouped(TimeLimit(team, 8), {"late": [2], "others": [1, 0]})
    begin = env.reset(jax.random.key(0))
    assert env.num_agents == {"late": 1, "others": 2}
    np.testing.assert_array_equal(begin.obs["others"][:, 1], [1, 0])  # a Team's agent sees its number
    np.testing.assert_array_equal(begin.obs["late"][:, 1], [2])
    state = begin.state
    for time in range(1, 5):
        out = env.step(state, {"late": jnp.zeros(1, int), "others": jnp.zeros(2, int)}, jax.random.key(1))
        state = out.state
        np.testing.assert_array_equal(out.terminated, [False, time >= 3, time >= 2])
        np.testing.assert_array_equal(out.truncated, [time >= 4, False, False])
    # an order that is not its own inverse: to deal out and to put back are then different things
    copies = grouped(Copies(builtin.Pendulum(), 3), {"one": [1], "two": [2, 0]})
    plain = copies.env
    start = plain.reset(jax.random.key(0))
    action = jnp.array([[1.0], [-1.0], [0.3]])
    mine = plain.step(start.state, action, jax.random.key(1))
    theirs = copies.step(start.state, {"one": action[1:2], "two": action[jnp.array([2, 0])]}, jax.random.key(1))
    np.testing.assert_array_equal(mine.reward[np.array([1, 2, 0])], theirs.reward)
    np.testing.assert_array_equal(mine.obs[1], theirs.obs["one"][0])
    np.testing.assert_array_equal(mine.obs[np.array([2, 0])], theirs.obs["two"])


def test_stored_carries_match_each_groups_sequence_length():
    """Sequences of 2 and of 4 steps: a rollout of 8 keeps memories at 0, 2, 4, 6; the second group reads 0 and 4."""
    groups = (("short", 1), ("long", 1))
    env = VectorEnv(builtin.Pendulum(), 3)
    one = ppax.PPO(network(env, hidden=(8,), memory=GRU(2)), seq_len=2)
    agent = ppax.Groups({"short": one, "long": dataclasses.replace(one, seq_len=4)}, groups)
    assert agent.sequence_length(8) == 2
    steps, streams = 8, 3 * 2
    flat = {field: jnp.zeros((steps, streams)) for field in FLAT}
    kept = jnp.broadcast_to(jnp.array([0.0, 2.0, 4.0, 6.0])[:, None, None], (4, 3, 2))
    trees = {name: {group: jnp.zeros((steps, 3, 1)) for group, _ in groups} for name in ("obs", "action")}
    rows = Transition(**flat, **trees, carry={"short": kept, "long": kept}, action_mask=None)
    rollout = Rollout(rows, jnp.zeros(streams), jnp.zeros((steps, streams)))
    assert agent.rollout("short", rollout).steps.carry[:, 0, 0].tolist() == [0.0, 2.0, 4.0, 6.0]
    assert agent.rollout("long", rollout).steps.carry[:, 0, 0].tolist() == [0.0, 4.0]


@pytest.mark.nightly
def test_unlike_agents_train_with_masks_memories_and_deaths():
    agent, env = orchestra()
    require_sound(env)
    out = trained(agent, env, 3)
    metrics = out.metrics
    assert float(metrics["ratio_first_max_dev"]) < 1e-6  # acting and learning saw the same
    assert [float(metrics[f"episode_length/{name}"]) for name in ("leader", "player", "player_1")] == [3.0, 5.0, 5.0]
    assert {"entropy/leader", "entropy/player", "entropy/player_0", "entropy"} <= set(metrics)
    assert "entropy/leader_0" not in metrics
    learner = out.state.learner
    assert list(learner) == ["leader", "player"]
    assert jax.tree.leaves(learner["player"].params)[0].shape[0] == 2
    # who leaves early is not valid while the others play on
    assert float(metrics["valid_fraction/leader"]) < float(metrics["valid_fraction/player"])
    evaluation = ppax.evaluate(agent, env, learner, jax.random.key(1), 9)
    assert evaluation.by_agent["leader"].lengths.tolist() == [3, 3, 3]
    assert evaluation.by_agent["player"].lengths.tolist() == [5] * 6


@pytest.mark.nightly
def test_two_devices_compute_what_one_does():
    one, two = (trained(*orchestra(program=ppax.Program(devices=n))) for n in (1, 2))
    assert_same(one.state.learner, two.state.learner, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_unlike_agents_learn_their_parts():
    """The leader comes to name the tune, the players to turn their knobs to the middle: what they hear is over."""
    agent, env = orchestra(16, learning_rate=0.01)
    out = trained(agent, env, 150)
    evaluation = ppax.evaluate(agent, env, out.state.learner, jax.random.key(1), 96).by_agent
    assert evaluation["leader"].mean_return > 2.9  # of 3
    assert evaluation["player"].mean_return > -3.7  # 2/3 off in each of five steps


def test_an_action_is_repeated_for_each_group():
    env = ActionRepeat(Orchestra(), 2)
    begin = env.reset(jax.random.key(0))
    action = {"leader": jnp.zeros(1, jnp.int32), "player": jnp.zeros((2, 1))}
    first = env.step(begin.state, action, jax.random.key(1))
    second = env.step(first.state, action, jax.random.key(2))
    assert second.terminated.tolist() == [True, False, False]
    third = env.step(second.state, action, jax.random.key(3))
    assert third.terminated.tolist() == [False, True, True]  # of the leader, whose end was before, nothing more
    assert float(third.reward[0]) == 0.0
    np.testing.assert_array_equal(third.obs["leader"], second.obs["leader"])


# ---------------------------------------------------------------- runs


PLAN = """
env = "Pursuit-3"
num_envs = 4
num_steps = 8
total_steps = 384
[log]
every = 1
console = false
[agent]
learning_rate = 1e-3
num_epochs = 1
[agent.network]
hidden = [4]
[groups.prey]
players = [0]
[groups.prey.agent]
num_epochs = 2
[groups.prey.agent.loss]
part = "dpo"
[groups.hunters]
players = [1, 2]
agents = "independent"
[groups.hunters.agent]
learning_rate = [1e-3, 1e-4]
"""


def test_a_run_file_says_it():
    plan = tomllib.loads(PLAN)
    agent, env, run = config.build(plan)
    assert env.sizes == agent.sizes == (("prey", 1), ("hunters", 2))
    prey, hunters = agent.agents["prey"], agent.agents["hunters"]
    assert isinstance(hunters, ppax.Independent)
    assert (prey.num_epochs, hunters.num_epochs, prey.learning_rate) == (2, 1, 1e-3)
    assert type(prey.loss).__name__ == "DPO"
    assert type(hunters.agent.loss).__name__ == "ClippedSurrogate"
    assert prey.network.hidden == hunters.agent.network.hidden == (4,)
    again = config.build(config.describe_run(agent, env, run))
    assert jax.tree.structure(again.agent) == jax.tree.structure(agent)
    assert again.env.sizes == env.sizes


@pytest.mark.nightly
def test_groups_go_on_after_a_stop(tmp_path):
    agent, env, run = config.build(tomllib.loads(PLAN))
    whole = ppax.fit(agent, env, run.total_steps, 0, tmp_path / "whole", NUM_STEPS, run.log)
    half = ppax.fit(
        agent, env, run.total_steps, 0, tmp_path / "half", NUM_STEPS, run.log, [lambda _, row: row["iteration"] == 2]
    )
    assert len(half.history) == 2
    resumed = ppax.resume(tmp_path / "half", console=False)
    assert_same(whole.state.learner, resumed.state.learner, rtol=0, atol=0)
    assert jax.tree.structure(resumed.agent) == jax.tree.structure(whole.agent)
    assert {"loss/hunters_1", "episode_return/prey", "episode_return/hunters"} <= set(resumed.history[-1])


def test_a_command_line_says_it():
    from ppax.cli.options import add_train, parse_run

    given = ["Pursuit-3", "--groups.prey.players", "0", "--groups.hunters.players", "1", "2"]
    given += ["--groups.hunters.agents", "independent", "--groups.hunters.agent.gamma", "0.9,0.8", "--num-envs", "4"]
    _, plan = parse_run("train", given, add_train)
    agent, env, _ = config.build(plan)
    np.testing.assert_array_equal(agent.agents["hunters"].agent.gamma, np.array([0.9, 0.8], np.float32))
    assert env.sizes == (("prey", 1), ("hunters", 2))


@pytest.mark.parametrize(
    ("run", "group", "expected"),
    [
        ({"optimizer": {"eps": 0.5}}, {"optimizer": {"part": "muon"}}, {"optimizer.eps": 1e-8}),
        ({"optimizer": {"eps": 0.5}}, {"optimizer": {"part": "adam", "b1": 0.5}}, {"optimizer.eps": 0.5}),
        ({"optimizer": {"eps": 0.5}}, {"optimizer": {"b1": 0.5}}, {"optimizer.eps": 0.5, "optimizer.b1": 0.5}),
        ({"optimizer": {"part": "muon"}}, {"optimizer": {"part": "adam"}}, {"optimizer.eps": 1e-5}),
        ({"advantage": {"gae_lambda": 0.5}}, {"advantage": {"part": "monte_carlo"}}, {}),
        (
            {"network": {"memory": {"part": "gru", "width": 3}}},
            {"network": {"hidden": [3]}},
            {"network.memory.width": 3},
        ),
        ({"network": {"memory": {"part": "gru", "width": 3}}}, {"network": {"memory": {"part": "none"}}}, {}),
        (
            {"optimizer": {"part": "actor_critic", "critic": {"eps": 0.5}}},
            {"optimizer": {"critic": {"part": "muon"}}},
            {"optimizer.critic.eps": 1e-8},
        ),
        (
            {"extensions": {"kl_control": {"target_kl": 0.5}}},
            {"extensions": {"kl_control": {"rate_target": 0.1}}},
            {"extensions.kl_control.target_kl": 0.5},
        ),
    ],
)
def test_a_group_takes_numbers_of_the_same_part_alone(run, group, expected):
    """A part that the run's table does not name is the default one, and another part starts from its own defaults."""
    plan = config.resolve({"env": "Pursuit-3", "agent": run, "groups": {"prey": {"agent": group}}})
    got = dict(flatten(plan["groups"]["prey"]["agent"]))
    assert {path: got[path] for path in expected} == expected


@pytest.mark.parametrize("name", ["prey", "agent", "good_agent"])
def test_a_group_may_have_any_name(name, tmp_path):
    """Also that of the table "agent": numbers for each player, and a bundle with a network of the group's own."""
    agent = {"learning_rate": [1e-3, 1e-4], "network": {"activation": "relu"}}
    groups = {name: {"players": [0, 1], "agents": "independent", "agent": agent}, "others": {"players": [2]}}
    plan = {"env": "Pursuit-3", "num_envs": 2, "agent": {"network": {"hidden": [4]}}, "groups": groups}
    built = config.build(plan)
    np.testing.assert_array_equal(built.agent.agents[name].agent.learning_rate, np.array([1e-3, 1e-4], np.float32))
    learner = ppax.start(built.agent, built.env, 4, jax.random.key(0)).learner
    policy = Policy(built.agent, learner, spec_of(built.agent, built.env, None, config.resolve(plan)))
    policy.export(tmp_path / "policy.zip", ["numpy"])
    loaded = ppax.load(tmp_path / "policy.zip")
    assert loaded.agent.agents[name].agent.network.activation == "relu"
    obs = {group: np.full((2, size, 13), 0.5, np.float32) for group, size in built.env.sizes}
    assert_same(policy.act(obs), loaded.act(obs), rtol=0, atol=0)


@pytest.fixture
def the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(PLAN.replace("prey", "the_prey") + "[agent.advantage]\npart = 'td_lambda'\n")
    return str(path)


@pytest.mark.parametrize("equals", [True, False])
def test_a_command_line_overrides_groups_of_a_file(the_file, equals):
    """Names of groups are taken as they are; parts of a group decide which options it has."""
    from ppax.cli.options import add_train, parse_run

    given = {
        "--groups.the_prey.agent.learning-rate": "0.5",
        "--groups.the_prey.agent.loss.part": "kl_penalty",
        "--groups.the_prey.agent.loss.kl_coef": "0.25",
        "--groups.the_prey.agent.advantage.td-lambda": "0.75",  # of the part that the run's table names
        "--agent.gamma": "0.5",  # which groups take from the run
    }
    pairs = [[f"{k}={v}"] if equals else [k, v] for k, v in given.items()]
    _, plan = parse_run("train", [the_file, *(text for pair in pairs for text in pair)], add_train)
    assert list(plan["groups"]) == ["the_prey", "hunters"]
    prey = plan["groups"]["the_prey"]["agent"]
    assert (prey["learning_rate"], prey["gamma"], prey["num_epochs"]) == (0.5, 0.5, 2)
    assert (prey["loss"]["part"], prey["loss"]["kl_coef"]) == ("kl_penalty", 0.25)
    assert (prey["advantage"]["part"], prey["advantage"]["td_lambda"]) == ("td_lambda", 0.75)
    assert plan["groups"]["hunters"]["agent"]["gamma"] == 0.5
    assert plan["groups"]["hunters"]["agent"]["loss"]["part"] == "clipped"


def test_a_command_line_names_groups_with_underscores():
    from ppax.cli.options import add_train, parse_run

    given = ["Pursuit-2", "--groups.the_prey.players", "0", "--groups.a-b.players=1", "--groups.a-b.agent.num_epochs=3"]
    _, plan = parse_run("train", given, add_train)
    assert {name: table["players"] for name, table in plan["groups"].items()} == {"the_prey": [0], "a-b": [1]}
    assert plan["groups"]["a-b"]["agent"]["num_epochs"] == 3


def test_groups_whose_names_in_the_logs_are_the_same_are_refused():
    """Two agents of `prey` are logged as prey_0 and prey_1, and so would be a group of that name."""
    env = grouped(ppax.make("Pursuit-3", 4), {"prey": [0, 1], "prey_1": [2]})
    agents = {name: ppax.PPO(mlp(group, hidden=(4,))) for name, group in env.groups.items()}
    with pytest.raises(ConfigError, match="prey_1 is a group, and an agent of the group prey: rename the group"):
        ppax.start(ppax.Groups(agents, env.sizes), env, NUM_STEPS, jax.random.key(0))


def refused(**changes):
    plan = tomllib.loads(PLAN)
    for path, value in changes.items():
        *tables, name = path.split("__")
        table = plan
        for key in tables:
            table = table[key]
        table[name] = value
    config.build(plan)


def dotted_groups():
    """A run of an environment that names its groups."""
    inner = grouped(ppax.make("Pursuit-2", 4), {"red": [0], "blue": [1]})
    renamed = (("red=1", (0,)), ("blue", (1,)))
    env = dataclasses.replace(inner, env=dataclasses.replace(inner.env, players=renamed))
    ppax.fit(ppax.Groups({name: ppo(env.groups[name]) for name, _ in env.sizes}, env.sizes), env, 64, num_steps=8)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: refused(groups__prey__players=[0, 1]), "must have each of the 3 agents of Pursuit-3, 0 to 2, once"),
        (lambda: refused(groups__prey__players=[]), "no group may be empty"),
        (lambda: refused(groups={"prey": {}}), "Pursuit-3 defines no groups, its agents are alike; .*players = "),
        (lambda: refused(groups={"a.b": {}}), r"groups.'a.b': a group's name has no dot and no equals sign"),
        (
            lambda: grouped(ppax.make("Pursuit-2", 4), {"a.b": [0], "c": [1]}),
            r"groups.'a.b': a group's name has no dot .*; nearest valid value: 'a_b'",
        ),
        (dotted_groups, r"groups.'red=1': a group's name has no dot and no equals sign"),
        (lambda: refused(groups={"prey": 3}), r"groups.prey = 3: must be a table, \[groups.prey\]"),
        (lambda: refused(groups__prey__agent__gama=0.5), "unknown option 'groups.prey.agent.gama'; did you mean"),
        (
            lambda: refused(groups__hunters__agents="shared"),
            "groups.hunters.agent.learning_rate = .* must be one number",
        ),
        (lambda: refused(env="CartPole-v1"), "CartPole-v1 has one agent and no others; leave `players` out"),
        (lambda: start(ppo, grouped_pursuit()), r"Pursuit-3 has groups of agents, a \(1\), b \(2\): write ppax.Groups"),
        (lambda: start(of(("a", 2)), grouped_pursuit()), r"Groups has sizes \(\('a', 2\),\), Pursuit-3 has"),
        (
            lambda: start(of(("a", 2)), ppax.make("Pursuit-2", 4)),
            "Groups: Pursuit-2 has no groups; write ppax.envs.grouped",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong, text):
    with pytest.raises(ConfigError, match=text):
        wrong()


def grouped_pursuit():
    return grouped(ppax.make("Pursuit-3", 4), {"a": [0], "b": [1, 2]})


def of(*sizes):
    return lambda env: ppax.Groups({name: ppax.PPO(mlp(ppax.make("Pursuit-3"))) for name, _ in sizes}, sizes)


def start(make, env):
    agent = ppo(ppax.make("Pursuit-3")) if make is ppo else make(env)
    ppax.start(agent, env, NUM_STEPS, jax.random.key(0))


def two_groups(first, second):
    env = orchestra()[1]
    programs = zip(env.groups.items(), (first, second), strict=True)
    agents = {name: ppo(one, program=ppax.Program(devices=n)) for (name, one), n in programs}
    return ppax.Groups(agents, env.sizes), env


def test_the_devices_of_one_group_are_those_of_all():
    agent, env = two_groups(2, None)
    assert num_devices(agent, env, 8) == 2
    agent, env = two_groups(None, 2)
    assert num_devices(agent, env, 8) == 2
    with pytest.raises(ConfigError, match=r"program\.devices: groups on \[1, 2\] devices; must be the same number"):
        num_devices(*two_groups(2, 1), 8)
