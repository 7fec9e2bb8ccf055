"""Staggered first episodes on the host: a loop by hand, workers, recorded episodes, teams, turns and evaluations."""

import dataclasses

import jax
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

import ppax
from ppax.core.types import ConfigError
from ppax.envs import host
from ppax.envs.hosting.batch import first_length
from ppax.envs.hosting.rendering import with_rendering
from ppax.networks import mlp
from ppax.training.host import Rollouts
from support.host_worlds import LIMIT, Maze
from support.team_worlds import Squad
from support.turn_games import Scripted, Turn
from support.worlds import QUICK

ENVS, STEPS = 8, 16
SEEDS = [*range(ENVS)]
FLAGS = ("reward", "terminated", "truncated", "first", "valid", "logged")
start = jax.jit(ppax.start, static_argnames="num_steps", compiler_options=QUICK)


def play(env, num_steps=STEPS, seeds=SEEDS, action=1):
    """Return the first observations and the steps [T] of all environments, each a dict of arrays [B]."""
    rows, (begin,) = [], env.host.reset(seeds)
    first = [x.copy() for x in begin.obs]
    for _ in range(num_steps):
        actions = [np.full(x.shape, action, x.dtype) for x in env.host.stepper.arrays.action]
        env.host.send(0, actions)
        step = env.host.receive(0)
        rows.append({name: np.array(getattr(step, name)) for name in FLAGS} | {"obs": step.obs[0].copy()})
    env.close()
    return first, rows


def test_first_episodes_end_at_their_length_and_later_ones_are_whole():
    """Against single environments of Gymnasium, stepped by a loop that cuts each one's first episode."""
    _, rows = play(host(Maze, ENVS, stagger=LIMIT))
    cuts = 0
    for i, seed in enumerate(SEEDS):
        env, over, size, length = Maze(), False, 0, first_length(seed, LIMIT)
        env.reset(seed=seed)
        for row in rows:
            if over:
                obs, _ = env.reset()
                want = {"reward": 0.0, "terminated": False, "truncated": False, "first": True, "valid": False}
                over, size, length, cut = False, 0, None, False
            else:
                obs, reward, terminated, truncated, _ = env.step(1)
                size += 1
                cut = size == length and not (terminated or truncated)
                cuts += cut
                want = {"reward": np.float32(reward), "terminated": terminated, "truncated": truncated or cut}
                want |= {"first": False, "valid": True}
                over = terminated or truncated or cut
            assert {name: row[name][i] for name in want} == want
            assert row["logged"][i] == (not cut)
            np.testing.assert_array_equal(row["obs"][i], obs)
    assert 0 < cuts < ENVS


def test_lengths_are_uniform_and_belong_to_the_seed():
    drawn = [first_length(seed, 10) for seed in range(4000)]
    counts = np.bincount(drawn, minlength=11)
    assert (counts[0], len(counts)) == (0, 11)
    assert ((counts[1:] - 400) ** 2 / 400).sum() < 27.9, "chi-square of 9 degrees of freedom"
    assert drawn == [first_length(seed, 10) for seed in range(4000)]


def test_workers_and_one_process_give_the_same_results():
    results = []
    for options in ({}, {"vectorization": "async", "workers": 2}):
        env = host(Maze, ENVS, stagger=LIMIT, **options)
        env.host.reset(SEEDS)
        seen = []
        for _ in range(8):
            for number, rows in enumerate(env.host.batches):
                env.host.send(number, [np.ones(rows.stop - rows.start, np.int64)])
                step = env.host.receive(number)
                seen.append(np.stack([getattr(step, name) for name in FLAGS]))
        results.append(np.concatenate(seen, axis=1))
        env.close()
    one, two = (x.reshape(len(FLAGS), 8, -1) for x in results)
    np.testing.assert_array_equal(one, two)
    assert not one[FLAGS.index("logged")].all()


def test_only_a_reset_of_all_environments_staggers():
    env = host(Endless, ENVS, stagger=3)
    _, rows = play(env, 12)
    assert np.stack([row["truncated"] for row in rows]).sum() == ENVS, "later episodes go on"
    _, again = play(env, 12, [seed + 100 for seed in SEEDS])
    cut = np.stack([row["truncated"] for row in again])
    np.testing.assert_array_equal(cut.argmax(axis=0) + 1, [first_length(seed + 100, 3) for seed in SEEDS])


@pytest.mark.parametrize(
    ("make", "options", "longest"),
    [
        (lambda: TimeLimit(Maze(), 50), {}, 50),
        (lambda: RecordEpisodeStatistics(TimeLimit(TimeLimit(Maze(), 30), 50)), {}, 30),
        (lambda: TimeLimit(Maze(), 50), {"action_repeat": 3}, 17),
    ],
)
def test_the_limit_is_that_of_gymnasium(make, options, longest):
    env = host(make, 2, stagger=True, **options)
    assert env.host.spec.stagger == longest
    assert env.settings.stagger is True


def test_action_repeat_counts_steps_of_the_agent():
    env = host(lambda: TimeLimit(Endless(), 100), ENVS, stagger=5, action_repeat=4)
    _, rows = play(env, 6)
    cut = np.stack([row["truncated"] for row in rows])
    np.testing.assert_array_equal(cut.argmax(axis=0) + 1, [first_length(seed, 5) for seed in SEEDS])


class Endless(Maze):
    """Maze that never ends by itself."""

    def step(self, action):
        obs, reward, *_ = super().step(action)
        return obs, reward, False, False, {}


def episodes(make, **options):
    """Return the episode statistics of a rollout, and the rows of the rollout, by Rollouts, with the actor after it."""
    env = host(make, ENVS, **options)
    agent = ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1)
    state = start(agent, env, num_steps=STEPS, key=jax.random.key(0))
    collected = Rollouts(agent, env, state)(state.learner, state.actor, jax.random.key(1)).collected
    env.close()
    return jax.tree.map(np.asarray, collected)


@pytest.mark.usefixtures("cached_programs")
@pytest.mark.parametrize("recorded", [False, True])
def test_cut_episodes_are_not_logged(recorded):
    """Returns and lengths by a loop over the rollout; a recorder, whose episode the cut ends, changes nothing."""
    found = episodes((lambda: RecordEpisodeStatistics(Maze())) if recorded else Maze, stagger=LIMIT)
    steps, dropped = found.rollout.steps, 0
    for i in range(ENVS):
        returns, sizes, total, size, first = [], [], 0.0, 0, True
        for t in range(STEPS):
            total, size = total + steps.reward[t, i], size + int(steps.valid[t, i])
            if steps.ended[t, i]:
                if steps.terminated[t, i] or size == LIMIT:
                    returns.append(total)
                    sizes.append(size)
                else:
                    assert first, "only a first episode is cut"
                    dropped += 1
                total, size, first = 0.0, 0, False
        assert found.episodes.count[i] == len(returns)
        assert found.episodes.length_sum[i] == sum(sizes)
        np.testing.assert_allclose(found.episodes.return_sum[i], sum(returns), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.actor.episode_return[i], total, rtol=1e-4, atol=1e-5)
    assert dropped


def test_agents_of_a_team_are_cut_together():
    """Agents that have ended before, or are not there yet, are not cut; the others are, and all are reset."""
    env = host(Squad, ENVS, stagger=5)
    _, rows = play(env, 6)
    for i, seed in enumerate(SEEDS):
        own, length = slice(4 * i, 4 * i + 4), first_length(seed, 5)
        at, after = rows[length - 1], rows[length]
        running = at["valid"][own] & ~at["terminated"][own]
        np.testing.assert_array_equal(at["truncated"][own], running)
        by_itself = length == 5  # where the squad's own limit is
        np.testing.assert_array_equal(at["logged"][own], np.ones(4, bool) if by_itself else ~running)
        assert not after["valid"][own].any()
        np.testing.assert_array_equal(after["first"][own], [True, True, True, False])


def test_turns_are_cut_for_the_agents_that_wait_too():
    """Every agent's last decision before the cut is truncated, with a row of its final observation."""
    script = [Turn("abc"[k % 3], {"a": 1.0, "b": 2.0, "c": 3.0}) for k in range(60)]
    env = host(lambda: Scripted([script], masks=False), 1, stagger=12)
    agent = ppax.PPO(mlp(env, hidden=(4,)), num_epochs=1)
    state = start(agent, env, num_steps=32, key=jax.random.key(0))
    found = Rollouts(agent, env, state)(state.learner, state.actor, jax.random.key(1)).collected
    env.close()
    steps, played = jax.tree.map(np.asarray, (found.rollout.steps, found.rollout.played))
    length = 1 + int(played.truncated[:, 0].argmax())
    assert played.truncated[length - 1].all()
    assert 3 <= length <= 12
    for k in range(3):
        decisions = len(range(k, length, 3))
        assert steps.truncated[decisions - 1, k]
        assert steps.obs[decisions, k, 0] == length, "the observation after the last turn of the first episode"
        np.testing.assert_allclose(steps.reward[:decisions, k].sum(), (k + 1.0) * (length - k))
    assert np.asarray(found.episodes.count).sum() == 0


def test_evaluations_and_films_see_whole_episodes():
    env = ppax.make("gymnasium/Pendulum-v1", 2, stagger=True)
    assert env.host.spec.stagger == 200
    with env.recreate(3) as other:
        assert other.host.spec.stagger == 0
        other.host.reset([0, 1, 2])
        assert other.host.stepper.arrays.logged is None
        assert other.recreate(1).host.spec.stagger == 0
    one = with_rendering(env)
    assert one.env.host.spec.stagger == 0
    one.env.close()


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match=r"Maze has no time limit.*stagger = 500"):
        host(Maze, 2, stagger=True)
    with pytest.raises(ConfigError, match="nearest valid value: 2"):
        host(Maze, 2, stagger=1)
    with pytest.raises(ConfigError, match=r"stagger = 5: a VectorEnv steps its environments itself"):
        host(SyncVectorEnv([Maze, Maze]), stagger=5)
    assert dataclasses.replace(host(Maze, 2).made, stagger=5).of_host()["stagger"] == 5
