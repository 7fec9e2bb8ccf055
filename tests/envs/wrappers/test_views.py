"""Team view: agent ids, and the joint observation of the central critic."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.checks import require_sound
from ppax.cli.main import main
from ppax.core import imports
from ppax.core.types import ConfigError, EnvReset, EnvStep, part
from ppax.envs import ActionRepeat, PartialView, TeamView, TimeLimit, VectorEnv, grouped
from ppax.envs.wrappers.agent_groups import split_agents
from ppax.envs.wrappers.views import team_view
from ppax.networks import network
from support.games import Credit
from support.players import Orchestra, Poisoned
from support.worlds import QUICK, Counter, Team


@part
class Stated(Team):
    """`Team` with a global state: the time, twice."""

    def reset(self, key):
        return Team.reset(self, key)._replace(global_state={"time": jnp.full(2, 0.0)})

    def step(self, state, action, key):
        step = Team.step(self, state, action, key)
        return step._replace(global_state={"time": jnp.full(2, step.state.astype(jnp.float32))})


def view(env, agent_ids=True, central_critic=True):
    return team_view(env, agent_ids, central_critic, "Team")


def played(env, steps):
    """Return the observations after a reset and after each of `steps` steps."""
    begin = env.reset(jax.random.key(0))
    assert isinstance(begin, EnvReset)
    seen, state = [begin.obs], begin.state
    for t in range(steps):
        out = env.step(state, jnp.zeros(3, jnp.int32), jax.random.key(t))
        assert isinstance(out, EnvStep)
        assert out.global_state is None
        state = out.state
        seen.append(out.obs)
    return seen


def test_own_observation_agent_id_and_joint_observation():
    """Agent i observes (time, i) and ends at time 2 + i, where it is in the joint observation for the last time."""
    seen = played(view(Team()), 4)
    for time, obs in enumerate(seen):
        np.testing.assert_array_equal(obs["own"], [[time, i] for i in range(3)])
        np.testing.assert_array_equal(obs["agent"], [0, 1, 2])
        joint = [x for i in range(3) for x in ((time, i) if time <= 2 + i else (0, 0))]
        np.testing.assert_array_equal(obs["joint"], [joint] * 3)


def test_global_state_replaces_the_joint_observation():
    for env, steps, times in ((Stated(), 3, [0, 1, 2, 3]), (ActionRepeat(Stated(), 2), 2, [0, 2, 4])):
        seen = played(view(env), steps)
        for time, obs in zip(times, seen, strict=True):
            np.testing.assert_array_equal(obs["joint"], np.full((3, 2), time))
    # without a central critic the global state is ignored
    streams = VectorEnv(Stated(), 2)
    state, obs, _ = streams.reset(jax.random.key(0))
    out = streams.step(state, jnp.zeros(6, jnp.int32), jax.random.key(1))
    assert out.obs.shape == obs.shape == (6, 2)


def test_spaces_match_the_observations():
    env = view(TimeLimit(Team(), 8))
    assert list(env.observation_space.spaces) == ["agent", "joint", "own"]
    assert env.observation_space["agent"].n == 3
    assert env.observation_space["joint"].shape == (6,)
    assert view(Stated()).observation_space["joint"].shape == (2,)
    assert env.actor_obs == ("own", "agent")
    assert view(Team(), agent_ids=False).actor_obs == ("own",)
    assert view(Team(), False, False) == Team()
    for game in (env, view(TimeLimit(Credit(), 8)), view(TimeLimit(Stated(), 8))):
        require_sound(VectorEnv(game, 4))  # observations are in their spaces


def test_the_actor_does_not_read_the_joint_observation():
    env = VectorEnv(view(TimeLimit(Team(), 8)), 2)
    agent = ppax.PPO(network(env, hidden=(4,)))
    learner = agent.init(env.observation_space, jax.random.key(0))
    _, obs, _ = env.reset(jax.random.key(1))
    look = jax.jit(lambda obs: agent.policy(learner, (), obs, jnp.ones(6, bool), None))
    before, after = look(obs), look(obs | {"joint": obs["joint"] + 1.0})
    np.testing.assert_array_equal(before.distribution.logits, after.distribution.logits)
    assert (before.value != after.value).all()
    other = look(obs | {"agent": jnp.roll(obs["agent"], 1)})
    assert (other.distribution.logits != before.distribution.logits).any(axis=1).all()


def test_absent_agents_are_zeros_in_the_joint_observation():
    first, second = (played(view(Poisoned(Team(), x)), 4) for x in (0.0, np.nan))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one["joint"], other["joint"])


def test_unlike_agents_have_one_joint_observation():
    """The leader hears a tune of three numbers and leaves at time 3, each player two: what was said, and its place."""
    env = view(Orchestra())
    assert env.num_agents == {"leader": 1, "player": 2}
    shapes = {name: {key: x.shape for key, x in space.items()} for name, space in env.observation_space.items()}
    assert shapes == {
        "leader": {"own": (3,), "agent": (), "joint": (7,)},
        "player": {"own": (2,), "agent": (), "joint": (7,)},
    }
    require_sound(VectorEnv(env, 3))
    start = env.reset(jax.random.key(0))
    state, now = start.state, start
    for time in range(5):
        obs = now.obs
        np.testing.assert_array_equal(now.action_mask["leader"], Orchestra()._seen(state.inner)[1]["leader"])
        np.testing.assert_array_equal(obs["leader"]["agent"], [0])
        np.testing.assert_array_equal(obs["player"]["agent"], [1, 2])
        np.testing.assert_array_equal(obs["leader"]["own"], Orchestra()._seen(state.inner)[0]["leader"])
        tune = obs["leader"]["own"][0] if time <= 3 else np.zeros(3)  # its last observation is that of time 3
        said = float(state.inner[2])
        joint = [*np.asarray(tune), said, 0.0, said, 1.0]
        np.testing.assert_array_equal(obs["leader"]["joint"], [joint])
        np.testing.assert_array_equal(obs["player"]["joint"], [joint] * 2)
        action = {"leader": jnp.array([time % 3]), "player": jnp.zeros((2, 1))}
        now = env.step(state, action, jax.random.key(time))
        state = now.state


def test_a_view_of_groups_trains_as_groups_of_a_view(vmapped_keys):
    """The same observations by two ways, so the same parameters; only the first one is there for unlike agents."""
    players = {"prey": [0], "hunters": [1, 2]}
    outside = VectorEnv(team_view(split_agents(ppax.make("Pursuit-3", 1).env, players, "P"), True, True, "P"), 4)
    inside = grouped(ppax.make("Pursuit-3", 4, agent_ids=True, central_critic=True), players)
    assert outside.sizes == inside.sizes
    assert outside.observation_space == inside.observation_space
    assert outside.groups == inside.groups
    agents = {name: ppax.PPO(network(group, hidden=(4,)), num_epochs=1) for name, group in inside.groups.items()}
    agent, learned = ppax.Groups(agents, inside.sizes), []
    for env in (outside, inside):
        state = ppax.start(agent, env, 16, jax.random.key(0))
        learned.append(
            jax.jit(ppax.train, static_argnums=3, compiler_options=QUICK)(agent, env, state, 2).state.learner
        )
    for one, other in zip(*map(jax.tree.leaves, learned), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("how", ["file", "command"])
def test_a_central_critic_of_unlike_agents_by_run_file_and_command(how, tmp_path):
    sizes = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "192", "--eval.episodes", "2", "--no-log.console"]
    target, options = "support.players:Orchestra", ["--central-critic"]
    if how == "file":
        target, options = str(tmp_path / "run.toml"), []
        (tmp_path / "run.toml").write_text('env = "support.players:Orchestra"\ncentral_critic = true\n')
    trust = ["--trust", "support"]
    assert main(["train", target, *sizes, *options, *trust, "--run-dir", str(tmp_path / "run"), "--no-cache"]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2", *trust]) == 0
    with imports.trusting(["support"]):
        policy = ppax.load(tmp_path / "run")
    assert policy.spec.actor_obs == ("own",)
    assert policy.agent.agents["leader"].network.actor_obs == ("own",)
    assert policy.agent.agents["leader"].network.critic_obs == ()


def test_run_files_round_trip_agent_ids_and_central_critic():
    plan = {"env": "Pursuit-3", "num_envs": 4, "agent_ids": True, "central_critic": True, "action_repeat": 2}
    built = config.build(plan)
    assert isinstance(built.env.env, TeamView)
    assert built.env.observation_space["joint"].shape == (39,)
    assert built.env.settings.run_fields() == {
        "env": "Pursuit-3",
        "num_envs": 4,
        "action_repeat": 2,
        "vectorization": "sync",
        "timeout": 60.0,
        "info_metrics": None,
        "agent_ids": True,
        "central_critic": True,
        "clip_actions": None,
        "stagger": False,
        "env_params": {},
    }
    described = config.describe(built.agent)
    assert described["network"]["actor_obs"] == ["own", "agent"]
    assert described["network"]["critic_obs"] == []
    again = config.build(config.describe(built.run) | {"agent": described})
    assert jax.tree.structure(again) == jax.tree.structure(built)
    assert dataclasses.replace(built.env, env=built.env.env.env.env).num_agents == 3


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: ppax.make("CartPole-v1", central_critic=True), "central_critic = true: CartPole-v1 has one agent"),
        (
            lambda: ppax.make("gymnasium/CartPole-v1", agent_ids=True),
            "agent_ids = true: gymnasium/CartPole-v1 has one agent",
        ),
        (lambda: view(view(Team())), "a vector is made of Box and Dict of Box only. Let the environment give"),
        (lambda: network(VectorEnv(view(Team())), shared=True), "one torso needs the same inputs for actor and critic"),
        (lambda: view(PartialView(Counter(), (0,))), "agent_ids = true: Team has one agent and no others"),
    ],
)
def test_invalid_views_are_refused_by_name(wrong, text):
    with pytest.raises(ConfigError, match=text):
        wrong()
