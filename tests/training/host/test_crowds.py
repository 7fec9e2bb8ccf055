"""Groups of unlike agents on the host: every row by hand; training, resume, evaluation, rendering, export."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

import ppax
from ppax.agents.groups import FLAT
from ppax.core.types import ConfigError
from ppax.envs import EnvError, grouped, host
from ppax.networks import memories, network
from ppax.ppo.minibatches import Shuffle
from ppax.training.host import Rollouts
from support.crowds import Hunt, LateHunt
from support.team_worlds import Squad
from support.worlds import QUICK

pytestmark = pytest.mark.usefixtures("cached_programs")
STEPS = 12  # two episodes of 5 steps, each followed by a reset
SIZES = (("hunter", 2), ("prey", 2))
NUMBERS = np.array(
    [0, 2, 1, 3]
)  # places of the streams' agents in `possible_agents`: hunter_0, hunter_1, prey_0, prey_1


def flags(rows):
    """Return flags [T, 4] of two episodes, from one string per stream: 6 rows, the last of them the reset."""
    one = np.array([[mark == "1" for mark in row] for row in rows]).T
    return np.concatenate([one, one])


VALID = flags(["110000", "001110", "111110", "111100"])
TERMINATED = flags(["010000", "000000", "000000", "000100"])
TRUNCATED = flags(["000000", "000010", "000010", "000000"])
BEGUN = flags(["000001", "010000", "000001", "000001"])  # the next row is the first of an episode


def agent_of(env, memory=None, **options):
    agents = {
        name: ppax.PPO(
            network(group, hidden=(4,), **({"memory": memories.GRU(4)} if name == memory else {})),
            minibatch=Shuffle(2),
            num_epochs=2,
            **options,
        )
        for name, group in env.groups.items()
    }
    return ppax.Groups(agents, env.sizes)


def rollout_of(env, num_steps=STEPS, **options):
    agent = agent_of(env, **options)
    start = jax.jit(ppax.start, static_argnames="num_steps", compiler_options=QUICK)
    state = start(agent, env, num_steps=num_steps, key=jax.random.key(0))
    gathered = Rollouts(agent, env, state)(state.learner, state.actor, jax.random.key(1))
    return agent, state.learner, gathered.collected


def by_env(x, agents):
    """Reshape [T, 2 * A, ...] to [T, 2, A, ...]."""
    x = np.asarray(x)
    return x.reshape(len(x), 2, agents, *x.shape[2:])


@pytest.mark.parametrize("how", ["sync", "async"])
def test_every_row_by_hand(how):
    with host(Hunt, 2, vectorization=how) as env:
        assert (env.sizes, env.num_streams) == (SIZES, 8)
        assert env.agent_names == ("hunter_0", "hunter_1", "prey_0", "prey_1")
        _, _, collected = rollout_of(env)
    steps = collected.rollout.steps
    assert {name: x.shape for name, x in steps.obs.items()} == {"hunter": (STEPS, 4, 3), "prey": (STEPS, 4, 4)}
    flat = {name: by_env(getattr(steps, name), 4) for name in FLAT if getattr(steps, name) is not None}
    obs, action = ({name: by_env(x, 2) for name, x in tree.items()} for tree in (steps.obs, steps.action))
    time = np.tile(np.arange(6), 2)[:, None]
    acted = np.concatenate([0.5 * action["hunter"], 0.25 * action["prey"].sum(axis=-1)], axis=2)
    for b in range(2):
        np.testing.assert_array_equal(flat["valid"][:, b], VALID)
        np.testing.assert_array_equal(flat["terminated"][:, b], TERMINATED)
        np.testing.assert_array_equal(flat["truncated"][:, b], TRUNCATED)
        first = np.concatenate([[[True, False, True, True]], BEGUN[:-1]])
        np.testing.assert_array_equal(flat["first"][:, b], first)
        earned = np.where(VALID, 10.0 * (NUMBERS + 1) + time + acted[:, b], 0.0)
        np.testing.assert_allclose(flat["reward"][:, b], earned, rtol=1e-6)  # including the last step
        seen = VALID | np.roll(TRUNCATED, 1, axis=0)  # acting, or bootstrapping from a truncation
        for name, own in (("hunter", slice(0, 2)), ("prey", slice(2, 4))):
            rows = seen[:, own]
            np.testing.assert_array_equal(obs[name][:, b][rows][:, 0], np.broadcast_to(time, rows.shape)[rows])
            np.testing.assert_array_equal(obs[name][:, b][rows][:, 1], NUMBERS[own][np.nonzero(rows)[1]])
        assert (obs["hunter"][[0, 6], b, 1] == 0.0).all()  # absent since the reset: zeros
        np.testing.assert_array_equal(obs["prey"][:, b, 0, 3], -obs["prey"][:, b, 0, 0])
    draws = obs["prey"][:, :, 0, 2]
    assert np.unique(draws).size == 4  # a different number in each episode of each environment
    np.testing.assert_array_equal(collected.episodes.count, [2] * 8)
    np.testing.assert_array_equal(collected.episodes.length_sum, [4, 6, 10, 8] * 2)
    np.testing.assert_allclose(collected.episodes.return_sum, flat["reward"].sum(axis=0).reshape(-1), rtol=1e-6)


def test_workers_play_the_same_rollout():
    each = []
    for how, workers in (("sync", None), ("async", 2)):
        with host(partial(Hunt, masks=True), 3, vectorization=how, workers=workers) as env:
            each.append(rollout_of(env, memory="prey")[2].rollout)
    for one, other in zip(*map(jax.tree.leaves, each), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_rows_of_absent_agents_have_no_effect_on_the_update():
    with host(Hunt, 2) as env:
        agent, learner, collected = rollout_of(env)
    steps = jax.tree.map(np.array, collected.rollout.steps)
    absent = ~steps.valid
    unseen = absent & ~np.concatenate([np.zeros((1, 8), bool), steps.truncated[:-1]])
    own = {name: by_env(unseen, 4)[:, :, rows].reshape(STEPS, 4)[..., None]
           for name, rows in (("hunter", slice(0, 2)), ("prey", slice(2, 4)))}  # fmt: skip
    poison = {"reward": np.where(absent, np.nan, steps.reward), "value": np.where(unseen, np.nan, steps.value)}
    poison["obs"] = {name: np.where(own[name], np.nan, x) for name, x in steps.obs.items()}
    spoiled = collected.rollout._replace(steps=dataclasses.replace(collected.rollout.steps, **poison))
    update = jax.jit(agent.update, compiler_options=QUICK)
    one, other = (update(learner, x, jax.random.key(4)).learner for x in (collected.rollout, spoiled))
    for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("world", [Hunt, LateHunt])
def test_masks_of_one_group_memory_of_the_other_and_evaluation(world):
    """hunter_1 may not take action 2, and hunters may be absent after a reset; an episode of each agent is played."""
    with host(partial(world, masks=True), 2) as env:
        agent, learner, collected = rollout_of(env, memory="prey")
        steps = collected.rollout.steps
        assert steps.action_mask["prey"] is None
        allowed = by_env(steps.action_mask["hunter"], 2)
        present = by_env(steps.valid, 4)[:, :, 1]
        np.testing.assert_array_equal(allowed[:, :, 1, 2], ~present)  # absent ones may take every action
        assert allowed[..., :2].all()
        assert allowed[:, :, 0].all()
        assert not (by_env(steps.action["hunter"], 2)[:, :, 1][present] == 2).any()
        assert {name: len(jax.tree.leaves(x)) > 0 for name, x in steps.carry.items()} == {"hunter": False, "prey": True}
        result = ppax.evaluate(agent, env, learner, jax.random.key(2), 8)
    lengths = {Hunt: [2, 3, 5, 4], LateHunt: [2, 3, 5, 4]}[world]
    assert result.lengths.tolist() == [length for length in lengths for _ in range(1)] * 2
    assert result.finished.all()
    assert set(result.by_agent) >= {"hunter", "prey", "hunter_1", "prey_0"}


def log(**options):
    return ppax.config.Log(console=False, **options)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_run_resumes_bit_for_bit_where_every_iteration_resets(how, tmp_path):
    with host(partial(Hunt, masks=True), 2, vectorization=how, name="hunt") as env:
        agent, options = agent_of(env, memory="prey"), {"num_steps": STEPS, "iterations_per_env_reset": 1}
        total = 4 * 8 * STEPS
        whole = ppax.fit(agent, env, total, run_dir=tmp_path / "whole", log=log(every=1), **options)
        halt = [lambda _, row: row["iteration"] == 2]
        ppax.fit(agent, env, total, run_dir=tmp_path / "half", log=log(every=1), callbacks=halt, **options)
        resumed = ppax.resume(tmp_path / "half", env=env, console=False)
    for a, b in zip(*map(jax.tree.leaves, (whole.state.learner, resumed.state.learner)), strict=True):
        np.testing.assert_array_equal(a, b)
    row = whole.history[-1]
    assert {"episode_return/hunter", "episode_return/prey_1", "loss/hunter", "loss/prey"} <= set(row)
    assert row["ratio_first_max_dev"] < 1e-5
    assert row["valid_fraction"] == pytest.approx(VALID.mean())


def test_agents_alike_are_put_into_groups_by_their_places():
    """Groups of the user's: also of agents that form groups by their names."""
    with host(Hunt, 2) as env:
        apart = grouped(env, {"prey": [3, 1], "first": [0], "second": [2]})
        assert apart.sizes == (("prey", 2), ("first", 1), ("second", 1))
        assert apart.settings.players == (("prey", (3, 1)), ("first", (0,)), ("second", (2,)))
        _, _, collected = rollout_of(apart)
    obs = collected.rollout.steps.obs
    np.testing.assert_array_equal(by_env(obs["prey"], 2)[0, :, :, 1], [[3, 1], [3, 1]])
    assert (np.asarray(obs["first"])[:, :, 1] == 0).all()


def test_indices_and_joint_observations_keep_the_order_of_the_environment():
    with host(Squad, 2, agent_ids=True, central_critic=True) as env:
        apart = grouped(env, {"x": [3, 0], "y": [1, 2]})
        assert apart.actor_obs == apart.groups["y"].actor_obs == ("agent", "own")
        _, _, collected = rollout_of(apart)
    obs = collected.rollout.steps.obs
    np.testing.assert_array_equal(by_env(obs["x"]["agent"], 2)[3], [[3, 0], [3, 0]])
    np.testing.assert_array_equal(by_env(obs["x"]["own"], 2)[3, :, 0, 1], [3, 3])
    for name in ("x", "y"):  # at time 3 agent a is absent: zeros
        joint = by_env(obs[name]["joint"], 2)[3].reshape(2, 2, 4, 3)
        np.testing.assert_array_equal(joint[..., 1], np.broadcast_to([0, 1, 2, 3], (2, 2, 4)))
        np.testing.assert_array_equal(joint[..., 0], np.broadcast_to([0, 3, 3, 3], (2, 2, 4)))


def test_a_central_critic_of_unlike_agents_observes_all_of_them():
    """Three numbers of a hunter, four of a prey, in the order of `possible_agents`; zeros of those that are absent.

    An agent's last observation is there in the step of its end: hunter_0 at time 2, where hunter_1 appears.
    """
    with host(Hunt, 2, agent_ids=True, central_critic=True) as env:
        assert env.sizes == SIZES
        assert env.actor_obs == ("agent", "own")
        shapes = {name: {key: x.shape for key, x in space.items()} for name, space in env.observation_space.items()}
        assert shapes["hunter"] == {"agent": (), "joint": (14,), "own": (3,)}
        assert shapes["prey"] == {"agent": (), "joint": (14,), "own": (4,)}
        _, _, collected = rollout_of(env)
    obs = {name: {key: by_env(x, 2) for key, x in one.items()} for name, one in collected.rollout.steps.obs.items()}
    stays = {0: range(3), 1: range(6), 2: range(2, 6), 3: range(5)}
    for b, row in np.ndindex(2, STEPS):
        time, draw = row % 6, obs["prey"]["own"][row - row % 6, b, 0, 2]
        every = [[time, i, draw] if i % 2 == 0 else [time, i, draw, -time] for i in range(4)]
        joint = np.concatenate([np.float32(x) * (time in stays[i]) for i, x in enumerate(every)])
        for group, first in (("hunter", 0), ("prey", 1)):
            for place in range(2):
                if time in stays[first + 2 * place]:
                    np.testing.assert_array_equal(obs[group]["joint"][row, b, place], joint)
                    np.testing.assert_array_equal(obs[group]["own"][row, b, place], every[first + 2 * place])
                    assert obs[group]["agent"][row, b, place] == first + 2 * place


def test_a_run_of_unlike_agents_with_a_central_critic_resumes_and_acts_without_the_joint_observation(tmp_path):
    env = host(Hunt, 2, central_critic=True, name="hunt")
    agents = {name: ppax.PPO(network(group, hidden=(4,)), num_epochs=1) for name, group in env.groups.items()}
    agent, log = ppax.Groups(agents, env.sizes), ppax.config.Log(console=False)
    stop = [lambda state, row: int(state.iteration) >= 2]
    ppax.fit(agent, env, 5 * 8 * 12, num_steps=12, run_dir=tmp_path, log=log, callbacks=stop)
    run = ppax.resume(tmp_path, env=env)
    assert int(run.state.iteration) == 5
    assert np.isfinite(run.evaluate(4).mean_return)
    policy, other = ppax.load(tmp_path), ppax.load(tmp_path)
    obs = {"hunter_0": {"own": np.float32([0, 0, 0.5])}, "prey_0": {"own": np.float32([0, 1, 0.5, 0])}}
    joint = {"joint": np.full(14, 7.0, np.float32)}
    with_joint = {agent: one | joint for agent, one in obs.items()}
    for one, same in zip(policy.act(obs).values(), other.act(with_joint).values(), strict=True):
        np.testing.assert_array_equal(one, same)


@pytest.mark.parametrize(
    ("players", "said"),
    [
        ({"all": [0, 1, 2, 3]}, r"members of a group .* need the same spaces; observation_space of 'prey_0'"),
        ({"some": [0, 2]}, "must have each of the 4 agents of own, 0 to 3"),
    ],
)
def test_impossible_groups_are_refused(players, said):
    with pytest.raises(ConfigError, match=said):
        grouped(host(Hunt, 2), players)


def test_groups_of_one_agent_and_one_agent_for_groups_are_refused():
    with pytest.raises(ConfigError, match=r"CartPole-v1 has one agent and no others; leave `players` out"):
        grouped(ppax.make("gymnasium/CartPole-v1", 2), {"all": [0]})
    env = host(Hunt, 2)
    with pytest.raises(ConfigError, match=r"own has groups of agents, hunter \(2\), prey \(2\): write ppax.Groups"):
        ppax.fit(ppax.PPO(network(host(lambda: Hunt(), 1).groups["prey"])), env, 100)


class NanHunt(Hunt):
    def _one(self, agent):
        seen = super()._one(agent)
        return seen + np.nan if (self.time, agent) == (3, "prey_1") else seen


def test_an_observation_that_is_not_finite_names_the_agent():
    with pytest.raises(EnvError, match=r"environment 0, agent 'prey_1', step 2: its observation is nan"):
        rollout_of(host(NanHunt, 2))


def test_the_environment_passes_its_checks_and_is_rendered(tmp_path):
    with host(partial(Hunt, masks=True), 2) as env:
        report = ppax.check_env(env)
        assert report.passed, str(report)
        agent, learner, _ = rollout_of(env)
        with ppax.training.backends.backend_of(env).scene(agent, learner, jax.random.key(0), False) as scene:
            moves = [scene.move(t) for t in range(6)]
            assert scene.picture().shape == (4, 4, 3)
        assert [move.ended for move in moves] == [False] * 4 + [True, False]
