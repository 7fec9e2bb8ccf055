"""Team view: agent ids, and the joint observation of the central critic."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.checks import require_sound
from ppax.core.types import ConfigError, EnvReset, EnvStep, part
from ppax.envs import ActionRepeat, PartialView, TeamView, TimeLimit, VectorEnv
from ppax.envs.wrappers.views import team_view
from ppax.networks import network
from support.games import Credit
from support.players import Poisoned
from support.worlds import Counter, Team


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
