"""PettingZoo's parallel environments as streams: presence of agents, valid rows, episode ends."""

import dataclasses
import importlib.util
import signal
import tomllib

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.cli import main
from ppax.core.types import ConfigError
from ppax.envs import EnvError, host
from ppax.networks import memories, network
from ppax.training.host import Rollouts
from support.learned import learned
from support.team_worlds import Squad
from support.worlds import QUICK

pytestmark = pytest.mark.usefixtures("cached_programs")
STEPS = 12  # two episodes of 5 steps, each followed by a reset
GAMMA, LAMBDA = 0.9, 0.8


def flags(rows):
    """Return flags [T, 4] of two episodes, from one string per agent: 6 rows, the last of them the reset."""
    one = np.array([[mark == "1" for mark in row] for row in rows]).T
    return np.concatenate([one, one])


VALID = flags(["110000", "111100", "111110", "001110"])
TERMINATED = flags(["010000", "000100", "000000", "000000"])
TRUNCATED = flags(["000000", "000000", "000010", "000010"])
BEGUN = flags(["000001", "000001", "000001", "010000"])  # the next row is the first of an episode


def rollout_of(env, num_steps=STEPS, **options):
    agent = ppax.PPO(network(env, hidden=(4,), **options), gamma=GAMMA, advantage=ppax.advantages.GAE(LAMBDA))
    start = jax.jit(ppax.start, static_argnames="num_steps", compiler_options=QUICK)
    state = start(agent, env, num_steps=num_steps, key=jax.random.key(0))
    gathered = Rollouts(agent, env, state)(state.learner, state.actor, jax.random.key(1))
    return agent, state.learner, gathered.collected


@pytest.mark.parametrize("how", ["sync", "async"])
def test_every_row_by_hand(how):
    with host(Squad, 2, vectorization=how) as env:
        assert (env.num_agents, env.num_streams) == (4, 8)
        _, _, collected = rollout_of(env)
    steps = jax.tree.map(lambda x: np.asarray(x).reshape(STEPS, 2, 4, *x.shape[2:]), collected.rollout.steps)
    for b in range(2):
        np.testing.assert_array_equal(steps.valid[:, b], VALID)
        np.testing.assert_array_equal(steps.terminated[:, b], TERMINATED)
        np.testing.assert_array_equal(steps.truncated[:, b], TRUNCATED)
        first = np.concatenate([[[True, True, True, False]], BEGUN[:-1]])
        np.testing.assert_array_equal(steps.first[:, b], first)
        time = np.tile(np.arange(6), 2)[:, None]
        earned = 10.0 * np.arange(1, 5) + time + 0.5 * steps.action[:, b]
        np.testing.assert_array_equal(steps.reward[:, b], np.where(VALID, earned, 0.0))  # including the last step
        seen = VALID | np.roll(TRUNCATED, 1, axis=0)  # acting, or bootstrapping from a truncation
        times = np.broadcast_to(time, seen.shape)[seen]
        np.testing.assert_array_equal(steps.obs[:, b][seen][:, 0], times)
        np.testing.assert_array_equal(steps.obs[:, b][seen][:, 1], np.nonzero(seen)[1])
    assert np.unique(steps.obs[:, :, 1, 2]).size == 4  # a different number in each episode of each environment
    np.testing.assert_array_equal(collected.episodes.count, [2] * 8)
    np.testing.assert_array_equal(collected.episodes.length_sum, [4, 8, 10, 6] * 2)
    returns = np.where(VALID[:, None], steps.reward, 0.0).sum(axis=0).reshape(-1)
    np.testing.assert_allclose(collected.episodes.return_sum, returns)


def test_advantages_equal_a_float64_loop_over_each_agents_steps():
    """Compare with a float64 loop over the valid steps: termination cuts the value, truncation does not."""
    env = host(Squad, 2)
    agent, learner, collected = rollout_of(env)
    steps = jax.tree.map(np.asarray, collected.rollout.steps)
    targets = learned(agent, learner, collected.rollout).batch.targets
    raw = np.asarray(targets.value).reshape(8, STEPS).T - steps.value  # targets are not standardised
    value = np.concatenate([steps.value, [collected.rollout.last_value]]).astype(np.float64)
    for stream in range(8):
        following = 0.0
        for t in reversed(range(STEPS)):
            if not steps.valid[t, stream]:
                following = 0.0
                continue
            beyond = 0.0 if steps.terminated[t, stream] else GAMMA * value[t + 1, stream]
            trace = 0.0 if steps.terminated[t, stream] | steps.truncated[t, stream] else GAMMA * LAMBDA * following
            following = steps.reward[t, stream] + beyond - value[t, stream] + trace
            assert raw[t, stream] == pytest.approx(following, abs=1e-4)


def test_rows_of_absent_agents_have_no_effect_on_the_update():
    env = host(Squad, 2)
    agent, learner, collected = rollout_of(env)
    rollout = collected.rollout
    steps = jax.tree.map(np.array, rollout.steps)
    absent = ~steps.valid
    unseen = absent & ~np.concatenate([np.zeros((1, 8), bool), steps.truncated[:-1]])
    poison = {"reward": np.where(absent, np.nan, steps.reward), "action": np.where(absent, 2**31 - 1, steps.action)}
    poison |= {"obs": np.where(unseen[..., None], np.nan, steps.obs), "value": np.where(unseen, np.nan, steps.value)}
    spoiled = rollout._replace(steps=dataclasses.replace(rollout.steps, **poison))
    update = jax.jit(agent.update, compiler_options=QUICK)
    one, other = (update(learner, x, jax.random.key(4)).learner for x in (rollout, spoiled))
    for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_masks_memory_and_evaluation():
    """Agent b has only action 0; an evaluation plays whole episodes of each agent."""
    env = host(lambda: Squad(masks=True), 2)
    agent, learner, collected = rollout_of(env, memory=memories.GRU(4))
    steps = jax.tree.map(np.asarray, collected.rollout.steps)
    assert steps.action_mask.shape == (STEPS, 8, 2)
    acted = np.where(steps.valid, steps.action, 0)
    assert not acted[:, [1, 5]].any()
    assert acted[:, [0, 2, 3]].any()
    result = ppax.evaluate(agent, env, learner, jax.random.key(2), 6)
    assert result.lengths.tolist() == [2, 4, 5, 3, 2, 4]  # a, b, c, d of environment 0, a, b of environment 1
    assert result.finished.all()


def test_evaluation_reports_each_agent():
    """Episode lengths by agent: a 2, b 4, c 5, d 3."""
    env = host(Squad, 2)
    agent, learner, _ = rollout_of(env)
    result = ppax.evaluate(agent, env, learner, jax.random.key(2), 14)
    lengths = {name: set(one.lengths.tolist()) for name, one in result.by_agent.items()}
    assert lengths == {"a": {2}, "b": {4}, "c": {5}, "d": {3}}
    assert sum(len(one.returns) for one in result.by_agent.values()) == 14
    assert result.unplayed == 0


class Never(Squad):
    """Squad in which agent d never appears."""

    COMES = {"d": 1000}  # noqa: RUF012
    steps = 0  # of all environments

    def step(self, actions):
        type(self).steps += 1
        return super().step(actions)


def test_evaluation_ends_if_an_agent_never_appears():
    """The two episodes of d are reported as not played; those of the others are played."""
    env = host(Never, 2)
    agent, learner, _ = rollout_of(env)
    with pytest.warns(UserWarning, match=r"2 of 8 episodes were not played: .*did not appear within max_steps = 20"):
        result = ppax.evaluate(agent, env, learner, jax.random.key(2), 8, max_steps=20)
    assert result.unplayed == 2
    assert Never.steps < 200
    assert result.lengths.tolist() == [2, 4, 5, 2, 4, 5]
    assert len(result.by_agent["d"].returns) == 0


@pytest.mark.parametrize("memory", [memories.NoMemory(), memories.GRU(4)], ids=lambda x: type(x).__name__)
def test_each_player_uses_its_own_network_for_actions_and_values(memory):
    """Compare each player with its own PPO, step by step; biased heads make a and c choose 0, b and d 1."""
    env = host(Squad, 2)
    alone = ppax.PPO(network(env, hidden=(5,), memory=memory), minibatch=ppax.minibatches.Shuffle(1))
    agent = ppax.Independent(alone, 4)
    state = ppax.start(agent, env, STEPS, jax.random.key(0))
    wanted = np.array([0, 1, 0, 1])
    params = jax.tree.map(lambda x: 50.0 * np.eye(2)[wanted] if x.shape == (4, 2) else x, state.learner.params)
    learner = state.learner._replace(params=jax.tree.map(np.float32, params))
    rollout = Rollouts(agent, env, state)(learner, state.actor, jax.random.key(1)).collected.rollout
    steps = jax.tree.map(np.asarray, rollout.steps)
    np.testing.assert_array_equal(
        steps.action[steps.valid], np.broadcast_to(np.tile(wanted, 2), (STEPS, 8))[steps.valid]
    )
    look = jax.jit(ppax.PPO.policy, compiler_options=QUICK)
    for player in range(4):
        own, rows = jax.tree.map(lambda x, p=player: x[p], learner), slice(player, None, 4)
        carry = alone.initial_carry(2)
        for t in range(STEPS):
            policy = look(alone, own, carry, steps.obs[t, rows], steps.first[t, rows], None)
            np.testing.assert_allclose(steps.value[t, rows], policy.value, atol=1e-5)
            said = policy.distribution.log_prob(steps.action[t, rows])
            np.testing.assert_allclose(steps.log_prob[t, rows], said, atol=1e-5)
            carry = policy.carry


@pytest.mark.parametrize("how", ["sync", "async"])
def test_agent_ids_and_joint_observation_on_the_host(how):
    """Absent agents are zeros; the final observation of an agent is still visible in the step of its end."""
    with host(Squad, 2, vectorization=how, agent_ids=True, central_critic=True) as env:
        assert env.actor_obs == ("agent", "own")
        _, _, collected = rollout_of(env)
    obs = jax.tree.map(lambda x: np.asarray(x).reshape(STEPS, 2, 4, *x.shape[2:]), collected.rollout.steps.obs)
    assert (obs["agent"] == np.arange(4)).all()
    seen = VALID | np.roll(TRUNCATED | TERMINATED, 1, axis=0)
    for b in range(2):
        draws = np.repeat(obs["own"][[0, 6], b, 0, 2], 6)
        own = np.stack([[[t % 6, agent, draws[t]] for agent in range(4)] for t in range(STEPS)])
        np.testing.assert_array_equal(obs["own"][:, b][seen], own[seen].astype(np.float32))
        joint = np.where(seen[..., None], own, 0.0).reshape(STEPS, 1, 12).astype(np.float32)
        np.testing.assert_array_equal(obs["joint"][:, b], np.broadcast_to(joint, (STEPS, 4, 12)))


@pytest.mark.parametrize("sharing", ["shared", "independent"])
def test_a_run_with_a_central_critic_resumes_on_the_host(sharing, tmp_path):
    env = host(Squad, 2, agent_ids=True, central_critic=True, name="squad")
    alone = ppax.PPO(network(env, hidden=(4,)), num_epochs=1)
    agent = alone if sharing == "shared" else ppax.Independent(alone, 4)
    log = ppax.config.Log(console=False)

    def interrupt(state, row):
        if int(state.iteration) == 2:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(ppax.Interrupted):
        ppax.fit(agent, env, 5 * 8 * 16, num_steps=16, run_dir=tmp_path, log=log, callbacks=[interrupt])
    run = ppax.resume(tmp_path, env=env)
    assert int(run.state.iteration) > 4
    assert np.isfinite(run.evaluate(8).mean_return)
    written = (tmp_path / "run.toml").read_text()
    assert "agent_ids = true" in written
    assert "central_critic = true" in written
    assert f'agents = "{sharing}"' in written


@pytest.mark.nightly
def test_a_recorded_run_trains_and_reports_the_number_of_agents(tmp_path):
    env = host(Squad, 2)
    assert ppax.check_env(env).passed
    agent = ppax.PPO(network(env, hidden=(4,)), num_epochs=1)
    run = ppax.fit(agent, env, 2 * 8 * 16, num_steps=16, log=ppax.config.Log(console=False))
    valid = int(np.asarray(VALID).sum()) / VALID.size
    assert run.env_steps == pytest.approx(2 * 8 * 16 * valid, rel=0.1)
    assert np.isfinite(run.history[-1]["episode_return"])


# ---------------------------------------------------------------- refused environments


class Leaves(Squad):
    def step(self, actions):
        obs, rewards, terminations, truncations, infos = super().step(actions)
        self.agents = [agent for agent in self.agents if agent != "c"]
        return obs, rewards, terminations, truncations, infos


class Blind(Squad):
    def step(self, actions):
        obs, *rest = super().step(actions)
        return {agent: x for agent, x in obs.items() if agent in self.agents}, *rest


class Unlike(Squad):
    def action_space(self, agent):
        return spaces.Discrete(3 if agent == "c" else 2)


@pytest.mark.parametrize(
    ("world", "said"),
    [(Leaves, "agent 'c' has left without being terminated or truncated"), (Blind, "was truncated without a last obs")],
)
def test_violations_of_the_parallel_protocol_are_refused(world, said):
    with pytest.raises(EnvError, match=rf"(?s)failed in (step \d, action \[|its first step).*{said}"):
        rollout_of(host(world, 2))


def test_agents_with_different_spaces_form_groups():
    """Of names without numbers each is a group (more: tests/training/host/test_crowds)."""
    assert host(Unlike, 2).sizes == (("a", 1), ("b", 1), ("c", 1), ("d", 1))


class Words(Squad):
    def observation_space(self, agent):
        return spaces.Discrete(3)


@pytest.mark.parametrize(
    ("world", "option", "said"),
    [
        (Words, "central_critic", "observations are of Discrete"),
        (lambda: gymnasium.make("CartPole-v1"), "agent_ids", "has one agent and no others"),
    ],
)
def test_invalid_agent_ids_and_central_critic_are_refused(world, option, said):
    with pytest.raises(ConfigError, match=f"{option} = true: .*{said}.*; set it to false"):
        host(world, 2, **{option: True})


# ---------------------------------------------------------------- environments of PettingZoo

real = pytest.mark.skipif(importlib.util.find_spec("pettingzoo") is None, reason="pettingzoo is not installed")


@real
@pytest.mark.nightly
@pytest.mark.parametrize("sharing", ["shared", "independent"])
def test_a_real_environment_from_a_run_file(sharing, tmp_path):
    """Independent players and a central critic on the host, from a run file."""
    pytest.importorskip("mpe2")
    file = tmp_path / "spread.toml"
    file.write_text(
        'env = "pettingzoo/mpe/simple_spread_v3"\nnum_envs = 4\nnum_steps = 25\ntotal_steps = 1200\n'
        f'agents = "{sharing}"\nagent_ids = true\ncentral_critic = true\n[log]\nconsole = false\n'
    )
    assert main.main(["train", str(file), "--run-dir", str(tmp_path / "run")]) == 0
    assert main.main(["evaluate", str(tmp_path / "run"), "--episodes", "12"]) == 0


@real
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["mpe/simple_spread_v3", "sisl/pursuit_v5"])
def test_a_real_environment(name):
    if name.startswith("mpe"):
        pytest.importorskip("mpe2")
    with ppax.make(f"pettingzoo/{name}", 2) as env:
        assert env.num_agents == (3 if name.startswith("mpe") else 8)
        report = ppax.check_env(env)
        assert {check.name for check in report.checks if check.passed is False} <= {"spaces", "types"}, str(report)
        _, _, collected = rollout_of(env, 60)
    assert np.isfinite(np.asarray(collected.rollout.steps.reward)).all()


@real
@pytest.mark.nightly
def test_hunters_and_prey_of_a_real_environment_from_a_run_file(tmp_path):
    """Unlike agents with tables of their own; groups of the user's, with self-play, of agents that are alike."""
    pytest.importorskip("mpe2")
    file = tmp_path / "tag.toml"
    common = "num_envs = 4\nnum_steps = 26\ntotal_steps = 1664\niterations_per_env_reset = 1\n[log]\nconsole = false\n"
    file.write_text(
        f'env = "pettingzoo/mpe/simple_tag_v3"\n{common}[groups.adversary]\nagents = "independent"\n'
        "[groups.agent.agent]\nlearning_rate = 1e-3\n"
    )
    agent, env, run = ppax.config.build(tomllib.loads(file.read_text()))
    assert agent.agents["adversary"].num_agents == 3
    options = {"num_steps": run.num_steps, "log": dataclasses.replace(run.log, every=1), "iterations_per_env_reset": 1}
    whole = ppax.fit(agent, env, run.total_steps, run_dir=tmp_path / "whole", **options)
    halt = [lambda _, row: row["iteration"] == 2]
    ppax.fit(agent, env, run.total_steps, run_dir=tmp_path / "half", callbacks=halt, **options)
    resumed = ppax.resume(tmp_path / "half", console=False)
    for a, b in zip(*map(jax.tree.leaves, (whole.state.learner, resumed.state.learner)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert main.main(["evaluate", str(tmp_path / "half"), "--episodes", "8"]) == 0
    seen = {name: np.zeros((size, *env.groups[name].observation_space.shape), np.float32) for name, size in env.sizes}
    acted = ppax.load(tmp_path / "half").act(seen)
    assert {name: x.shape for name, x in acted.items()} == {"adversary": (3,), "agent": (1,)}
    assert main.main(["export", str(tmp_path / "half"), "--out", str(tmp_path / "tag.zip")]) == 0
    again = ppax.load(tmp_path / "tag.zip").act(seen)
    assert all((acted[name] == again[name]).all() for name in acted)
    for name in ("archer", "knight"):
        common += f"[groups.{name}s]\nplayers = {[0, 1] if name == 'archer' else [2, 3]}\n"
    file.write_text(
        f'env = "pettingzoo/butterfly/knights_archers_zombies_v11"\n{common}[self_play]\nevery = 1\nopponents = 1\n'
    )
    assert main.main(["train", str(file), "--run-dir", str(tmp_path / "zombies")]) == 0


@real
def test_an_unknown_id_is_refused():
    with pytest.raises(ConfigError, match=r"did you mean 'pettingzoo/sisl/pursuit_v\d'"):
        ppax.make("pettingzoo/sisl/pursuit_v99", 2)


@pytest.mark.skipif(importlib.util.find_spec("pettingzoo") is not None, reason="pettingzoo is installed")
def test_missing_library_error_names_the_extra():
    with pytest.raises(ImportError, match=r'pip install "ppax\[pettingzoo\]"'):
        ppax.make("pettingzoo/sisl/pursuit_v5", 2)
