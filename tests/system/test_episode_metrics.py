"""Metrics of the environment: means over episodes of the values at their last steps (oracle: support/counting.py)."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ppax
from ppax.config import BestSettings, Log
from ppax.envs import VectorEnv, grouped, host
from ppax.envs.wrappers.time import ActionRepeat, TimeLimit
from ppax.envs.wrappers.views import team_view
from support.counting import LONG, SHORT, SUCCESS, Counting, HostCounting, HostTeam, Lives

ENVS, STEPS = 8, 32
LOG = Log(every=1, console=False)
BOTH = ["steps", "is_success"]


def vector(mode):
    return SyncVectorEnv([HostCounting] * ENVS, autoreset_mode=mode)


def limited():
    return VectorEnv(TimeLimit(Counting(), 5), ENVS)


MAKE = {
    "native": lambda: VectorEnv(Counting(), ENVS),
    "time limit": limited,
    "agents": lambda: VectorEnv(Counting(3), ENVS),
    "groups": lambda: grouped(VectorEnv(Counting(3), ENVS), {"red": (2, 0), "blue": (1,)}),
    "views": lambda: VectorEnv(team_view(Counting(2), True, False, ""), ENVS),
    "sync": lambda: host(HostCounting, ENVS, info_metrics=BOTH),
    "async": lambda: host(HostCounting, ENVS, vectorization="async", workers=2, info_metrics=BOTH),
    "lives": lambda: host(Lives, ENVS, info_metrics=BOTH),
    "team": lambda: host(HostTeam, ENVS, info_metrics=BOTH),
    **{mode.name: lambda mode=mode: host(vector(mode), info_metrics=BOTH) for mode in AutoresetMode},
}


def agent_for(env):
    if getattr(env, "sizes", ()):  # a group of agents has none
        return ppax.Groups({name: agent_for(group) for name, group in env.groups.items()}, env.sizes)
    return ppax.PPO(ppax.networks.network(env, hidden=(8,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(1))


def rows_of(env, agent, iterations=3):
    total = iterations * STEPS * env.num_streams
    return ppax.fit(agent, env, total, num_steps=STEPS, log=LOG)


@pytest.mark.parametrize("kind", MAKE)
def test_means_over_episodes_equal_the_lengths_that_ppax_counts(kind):
    env = MAKE[kind]()
    run = rows_of(env, agent_for(env))
    for row in run.history:
        suffixes = [name.removeprefix("episode_length") for name in row if name.startswith("episode_length")]
        assert (len(suffixes) > 1) == (env.num_agents > 1)
        for suffix in suffixes:
            assert SHORT <= row[f"steps{suffix}"] <= LONG
            assert row[f"steps{suffix}"] == pytest.approx(row[f"episode_length{suffix}"], rel=1e-6)
            assert 0.0 < row[f"is_success{suffix}"] < 1.0
    out = run.evaluate(episodes=24)
    np.testing.assert_array_equal(out.metrics["steps"], out.lengths)
    np.testing.assert_array_equal(out.metrics["is_success"], out.lengths > SUCCESS)
    assert out.mean_metrics["is_success"] == pytest.approx(np.mean(out.lengths > SUCCESS))
    assert "is_success=" in repr(out)
    for one in out.by_agent.values():
        np.testing.assert_array_equal(one.metrics["steps"], one.lengths)
    getattr(env, "close", lambda: None)()


def test_metrics_do_not_change_training():
    class Silent(HostCounting):
        def step(self, action):
            return (*super().step(action)[:4], {})

    given, silent = host(HostCounting, ENVS, info_metrics=BOTH), host(Silent, ENVS)
    one, other = (rows_of(env, agent_for(env)).state.learner.params for env in (given, silent))
    assert "is_success" not in rows_of(silent, agent_for(silent), 1).history[0]
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


def test_action_repeat_reports_the_metric_of_the_last_single_step():
    env = VectorEnv(ActionRepeat(Counting(), 2), ENVS)
    out = rows_of(env, agent_for(env), 1).evaluate(episodes=64)
    single = out.metrics["steps"]
    np.testing.assert_array_equal(-(-single // 2), out.lengths)
    assert {*single.astype(int)} == {*range(SHORT, LONG + 1)}  # odd ones too: the step after the end is not counted


def test_is_success_of_host_environments_is_logged_by_default():
    env = host(HostCounting, ENVS)
    row = rows_of(env, agent_for(env), 1).history[0]
    assert 0.0 < row["is_success"] < 1.0
    assert "steps" not in row
    assert "is_success" not in rows_of(host(HostCounting, ENVS, info_metrics=()), agent_for(env), 1).history[0]


class Refusing(HostCounting):
    """Environment with masks, which refuses other actions."""

    action_space = gymnasium.spaces.Discrete(8)

    def reset(self, **options):
        obs, _ = super().reset(**options)
        return obs, self._mask()

    def step(self, action):
        assert action == self.time, "a forbidden action"
        *out, info = super().step(action)
        return (*out, info | self._mask())

    def _mask(self):
        return {"action_mask": np.arange(8) == self.time}


class Rarely(HostCounting):
    """Environment that gives the metric after one of two actions alone."""

    def step(self, action):
        *out, info = super().step(action)
        return (*out, info if action else {})


class RefusingTeam(HostTeam):
    """The same for PettingZoo."""

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(8)

    def reset(self, seed=None, options=None):
        obs, info = super().reset(seed, options)
        return obs, {agent: self._mask() for agent in info}

    def step(self, actions):
        assert all(action == self.time for action in actions.values()), "a forbidden action"
        *out, info = super().step(actions)
        return (*out, {agent: one | self._mask() for agent, one in info.items()})

    def _mask(self):
        return {"action_mask": np.arange(8) == self.time}


@pytest.mark.parametrize(("world", "expected"), [(Refusing, True), (RefusingTeam, True), (Rarely, None)])
def test_what_is_logged_by_default_is_not_left_to_chance(world, expected):
    """Eight constructions; and the random state of spaces is that of the user."""
    found = {host(world, 1).host.spec.metrics for _ in range(8)}
    assert len(found) == 1
    assert expected is None or found == {("is_success",)}
    if world is Rarely:
        spaces = [HostCounting.action_space.seed(3), [HostCounting.action_space.sample() for _ in range(8)]]
        HostCounting.action_space.seed(3)
        host(HostCounting, 1)
        assert spaces[1] == [HostCounting.action_space.sample() for _ in range(8)]


def test_a_first_step_that_fails_is_an_error_and_no_missing_metric():
    class Fails(HostCounting):
        def step(self, action):
            raise ValueError("the wheel fell off")

    with pytest.raises(ppax.EnvError, match=r"(?s)Fails failed in its first step\n.*the wheel fell off"):
        host(Fails, 2)


def test_a_metric_of_last_steps_alone_is_named_with_its_remedy():
    env = host(lambda: HostCounting(only_last=True), ENVS)
    with pytest.raises(
        ppax.ConfigError, match=r"no metric 'is_success' is logged; .* info_metrics = \[\"is_success\"\]"
    ):
        ppax.fit(agent_for(env), env, 64, num_steps=8, log=LOG, best=BestSettings(metric="is_success"))


def test_entries_of_the_last_step_alone_are_enough():
    env = host(lambda: HostCounting(only_last=True), ENVS, info_metrics=BOTH)
    row = rows_of(env, agent_for(env), 1).history[0]
    assert row["steps"] == pytest.approx(row["episode_length"], rel=1e-6)


def test_a_missing_entry_names_the_environment_and_the_remedy():
    env = host(HostCounting, ENVS, info_metrics=["height"])
    with pytest.raises(ppax.EnvError, match=r'(?s)environment \d failed in step.*info\["height"\] is missing'):
        rows_of(env, agent_for(env), 1)


class Endless(gymnasium.Env):
    """Environment that gives its metric at an end of its own alone, which never comes."""

    observation_space, action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


def test_a_metric_that_is_missing_where_a_time_limit_cuts_is_no_nan():
    """A recorder of episodes inside of the limit reports the end at the reset: the error is that of other ends."""

    def recorded():
        return gymnasium.wrappers.TimeLimit(gymnasium.wrappers.RecordEpisodeStatistics(Endless()), 5)

    env = host(recorded, ENVS, info_metrics=["is_success"])
    with pytest.raises(ppax.EnvError, match=r"(?s)environment \d failed in step.*info lacks one of is_success"):
        rows_of(env, agent_for(env), 2)


@pytest.mark.parametrize("name", ["loss", "episode_return", "seconds", "a/b"])
def test_names_of_other_metrics_are_refused(name):
    class Named(HostCounting):
        def step(self, action):
            return (*super().step(action)[:4], {name: 1.0})

    env = host(Named, ENVS, info_metrics=[name])
    with pytest.raises(ppax.ConfigError, match=f"the environment's metric '{name}'"):
        rows_of(env, agent_for(env), 1)


def test_a_stop_condition_and_the_best_policy_may_name_them():
    env = limited()
    agent, best = agent_for(env), BestSettings(metric="is_success")
    run = ppax.fit(agent, env, 10_000, num_steps=STEPS, log=LOG, stop="is_success >= 0.1", best=best)
    assert len(run.history) == 1
    assert "is_success" in run.stopped


def test_two_devices_report_the_same_means():
    env = VectorEnv(Counting(), ENVS)
    agent = agent_for(env)
    two = ppax.PPO(agent.network, num_epochs=1, minibatch=agent.minibatch, program=ppax.Program(devices=2))
    one, other = (rows_of(env, each).history[-1] for each in (agent, two))
    assert other["steps"] == pytest.approx(one["steps"], rel=1e-6)


def test_gymnasium_robotics_style_wrappers_reach_ppax():
    def make():
        return gymnasium.wrappers.TimeLimit(HostCounting(), 4)

    env = host(make, ENVS)
    row = rows_of(env, agent_for(env), 1).history[0]
    assert 0.0 < row["is_success"] < 1.0
