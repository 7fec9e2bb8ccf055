"""Action repeat: summed rewards, episode ends, and time limits inside and outside."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.config import Log
from ppax.core.types import EnvReset, EnvStep, part
from ppax.envs import ActionRepeat, TimeLimit, VectorEnv
from ppax.networks import mlp
from ppax.run.restore import load_run
from support.worlds import Counter, Masked, Team


def episode(env, steps, action=0):
    """Return the steps after a reset."""
    step = jax.jit(env.step)
    state, out = env.reset(jax.random.key(0)).state, []
    action = jnp.full(() if env.num_agents is None else (env.num_agents,), action)
    for i in range(steps):
        now = step(state, action, jax.random.key(i + 1))
        state = now.state
        out.append(now)
    return out


def column(out, name):
    return [np.asarray(getattr(x, name)).tolist() for x in out]


@pytest.mark.parametrize("terminates", [True, False])
def test_rewards_are_summed_up_to_the_episode_end(terminates):
    """The reward is the time; seven steps with a repeat of 3: 1 + 2 + 3, 4 + 5 + 6, and 7."""
    out = episode(ActionRepeat(Counter(7, terminates=terminates), 3), 3)
    assert column(out, "reward") == [6, 15, 7]
    assert column(out, "terminated") == [False, False, terminates]
    assert column(out, "truncated") == [False, False, not terminates]
    assert [float(x.obs[0]) for x in out] == [3, 6, 7]  # the last one is the final observation
    assert [int(x.state.inner.time) for x in out] == [3, 6, 7]


def test_an_inner_limit_counts_single_steps_and_an_outer_one_repeated_steps():
    inside = episode(ActionRepeat(TimeLimit(Counter(10**6), 4), 3), 2)
    assert column(inside, "reward") == [6, 4]  # 1 + 2 + 3, then 4
    assert column(inside, "truncated") == [False, True]
    assert column(inside, "terminated") == [False, False]
    around = episode(TimeLimit(ActionRepeat(Counter(10**6), 3), 2), 2)
    assert column(around, "reward") == [6, 15]
    assert column(around, "truncated") == [False, True]


@part
class Whole(Counter):
    """`Counter` with rewards of integers."""

    def step(self, state, action, key):
        step = Counter.step(self, state, action, key)
        return step._replace(reward=step.reward.astype(jnp.int32))


def test_rewards_of_integers_are_summed():
    out = episode(ActionRepeat(Whole(7), 3), 3)
    assert column(out, "reward") == [6, 15, 7]
    assert {x.reward.dtype for x in out} == {jnp.dtype(jnp.float32)}


def test_each_agent_stops_at_its_own_end():
    """Agents end after 2, 3 and 4 steps, the last one by truncation; the reward is 1 a step."""
    first, second = episode(ActionRepeat(Team(), 3), 2)
    np.testing.assert_array_equal(first.reward, [2, 3, 3])
    np.testing.assert_array_equal(first.terminated, [True, True, False])
    np.testing.assert_array_equal(first.truncated, [False, False, False])
    np.testing.assert_array_equal(first.obs[:, 0], [2, 3, 3])  # the agent's final observation
    np.testing.assert_array_equal(second.reward, [0, 0, 1])
    np.testing.assert_array_equal(second.truncated, [False, False, True])
    np.testing.assert_array_equal(second.terminated, [False, False, False])
    assert (float(second.obs[2, 0]), int(second.state.inner)) == (4, 4)


def test_an_agent_that_ended_is_not_truncated_later():
    """A limit of 3 truncates the last agent, and the second in the step of its end; the first ended a step earlier."""
    (only,) = episode(ActionRepeat(TimeLimit(Team(), 3), 4), 1)
    np.testing.assert_array_equal(only.terminated, [True, True, False])
    np.testing.assert_array_equal(only.truncated, [False, True, True])
    np.testing.assert_array_equal(only.reward, [2, 3, 3])


@part
class Blink:
    """Two agents; the flag of the first one's end, after one step, is True in that step only."""

    observation_space = Team.observation_space
    action_space = Team.action_space
    num_agents = 2

    def reset(self, key):
        return EnvReset(jnp.int32(0), jnp.zeros((2, 2)))

    def step(self, state, action, key):
        state = state + 1
        over = jnp.stack([state == 1, state == 4])
        return EnvStep(state, jnp.full((2, 2), state, jnp.float32), jnp.ones(2), over, over & False)


def test_an_agents_end_is_remembered_between_steps():
    first, second = episode(ActionRepeat(Blink(), 3), 2)
    np.testing.assert_array_equal(first.reward, [1, 3])
    np.testing.assert_array_equal(second.reward, [0, 1])
    assert int(second.state.inner) == 4  # both have ended: no fifth step


def test_masks_are_those_after_the_last_repeated_step():
    """At time t action t % 4 is forbidden; the episode ends at 10."""
    out = episode(ActionRepeat(Masked(), 4), 3, action=3)
    expected = [[i != t % 4 for i in range(4)] for t in (4, 8, 10)]
    assert column(out, "action_mask") == expected
    # action 3 is forbidden at times 3 and 7: 3 * 1 - 100, and then the rewards at times 8 and 9
    assert column(out, "reward") == [-97, -97, 2]


class Sum(NamedTuple):
    total: jax.Array
    last: jax.Array


@part
class Noise:
    """Environment that adds a random number in each step."""

    observation_space = Counter.observation_space
    action_space = Counter.action_space
    num_agents = None

    def reset(self, key):
        return EnvReset(jnp.zeros(()), jnp.zeros(2))

    def step(self, state, action, key):
        noise = jax.random.normal(key)
        flag = noise > 1e9
        return EnvStep(state + noise, jnp.stack([state, noise]), noise**2, flag, flag)


def test_every_repeated_step_has_its_own_key():
    """The sum of 4 independent normals has variance 4, of one normal used four times 16."""
    env = ActionRepeat(Noise(), 4)
    keys = jax.random.split(jax.random.key(0), 4000)
    out = jax.jit(jax.vmap(lambda key: env.step(env.reset(key).state, 0, jax.random.fold_in(key, 1))))(keys)
    np.testing.assert_allclose(np.var(out.state.inner), 4.0, rtol=0.15)
    np.testing.assert_allclose(np.mean(out.reward), 4.0, rtol=0.1)


def test_action_repeat_by_name_and_1_is_no_wrapper():
    assert jax.tree.structure(ppax.make("CartPole-v1", 2, 1)) == jax.tree.structure(ppax.make("CartPole-v1", 2))
    env = ppax.make("Pendulum-v1", 3, action_repeat=7)
    assert (env.settings.action_repeat, ppax.make("Pendulum-v1").settings.action_repeat) == (7, 1)
    agent = ppax.PPO(mlp(env, (4,)))
    learner = agent.init(env.observation_space, jax.random.key(0))
    played = ppax.evaluate(agent, env, learner, jax.random.key(1), 3)
    assert played.lengths.tolist() == [29] * 3  # 200 single steps with a repeat of 7: 28 and one shorter


def test_streams_reset_and_count_repeated_steps_as_one():
    """Five steps with a repeat of 2 are three steps, then one autoreset step."""
    env = VectorEnv(ActionRepeat(Counter(5), 2), 2)
    state, rewards, valid, first = env.reset(jax.random.key(0))[0], [], [], []
    step = jax.jit(env.step)
    for i in range(5):
        out = step(state, jnp.zeros(2, jnp.int32), jax.random.key(i))
        state = out.state
        rewards.append(float(out.reward[0]))
        valid.append(bool(out.valid[0]))
        first.append(bool(out.first[0]))
    assert rewards == [3, 7, 5, 0, 3]
    assert valid == [True, True, True, False, True]
    assert first == [False, False, False, True, False]


def test_a_recorded_run_restores_action_repeat(tmp_path):
    env = ppax.make("Pendulum-v1", 2, action_repeat=3)
    agent = ppax.PPO(mlp(env, (4,)), num_epochs=1)
    run = ppax.fit(agent, env, 8, run_dir=tmp_path / "run", num_steps=4, log=Log(console=False))
    assert run.env_steps == 8  # repeated steps; 24 single steps
    np.testing.assert_array_equal(run.state.actor.env_state.env.inner.elapsed, 12)
    assert jax.tree.structure(load_run(tmp_path / "run").env) == jax.tree.structure(env)
