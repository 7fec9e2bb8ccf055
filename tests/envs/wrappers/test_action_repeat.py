"""Action repeat: rewards are summed, an episode's end is the end, and a limit counts steps of what it wraps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Counter, Masked, Team

import ppax
from ppax.config import Log
from ppax.envs import ActionRepeat, TimeLimit, VectorEnv
from ppax.networks import mlp
from ppax.run.restore import load_run
from ppax.types import EnvReset, EnvStep, part


def episode(env, steps, action=0):
    """Steps from a reset on: rewards, flags and observations, as lists."""
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
def test_rewards_are_summed_and_nothing_moves_beyond_the_end(terminates):
    """The reward is the time; seven steps in threes: 1 + 2 + 3, 4 + 5 + 6, and 7 alone."""
    out = episode(ActionRepeat(Counter(7, terminates=terminates), 3), 3)
    assert column(out, "reward") == [6, 15, 7]
    assert column(out, "terminated") == [False, False, terminates]
    assert column(out, "truncated") == [False, False, not terminates]
    assert [float(x.obs[0]) for x in out] == [3, 6, 7]  # the last one is of the end itself
    assert [int(x.state.inner.time) for x in out] == [3, 6, 7]


def test_a_limit_inside_counts_single_steps_and_one_around_it_the_agents():
    inside = episode(ActionRepeat(TimeLimit(Counter(10**6), 4), 3), 2)
    assert column(inside, "reward") == [6, 4]  # 1 + 2 + 3, then 4 alone
    assert column(inside, "truncated") == [False, True]
    assert column(inside, "terminated") == [False, False]
    around = episode(TimeLimit(ActionRepeat(Counter(10**6), 3), 2), 2)
    assert column(around, "reward") == [6, 15]
    assert column(around, "truncated") == [False, True]


def test_each_agent_stops_at_its_own_end():
    """Agents end after 2, 3 and 4 steps, the last one by truncation; each gets 1 a step."""
    first, second = episode(ActionRepeat(Team(), 3), 2)
    np.testing.assert_array_equal(first.reward, [2, 3, 3])
    np.testing.assert_array_equal(first.terminated, [True, True, False])
    np.testing.assert_array_equal(first.truncated, [False, False, False])
    np.testing.assert_array_equal(first.obs[:, 0], [2, 3, 3])  # of the agent's own end
    np.testing.assert_array_equal(second.reward, [0, 0, 1])
    np.testing.assert_array_equal(second.truncated, [False, False, True])
    np.testing.assert_array_equal(second.terminated, [False, False, False])
    assert (float(second.obs[2, 0]), int(second.state.inner)) == (4, 4)


def test_who_is_out_is_not_cut_as_well():
    """A limit of 3 cuts the last agent, and the second as it ends; the first one ended a step earlier."""
    (only,) = episode(ActionRepeat(TimeLimit(Team(), 3), 4), 1)
    np.testing.assert_array_equal(only.terminated, [True, True, False])
    np.testing.assert_array_equal(only.truncated, [False, True, True])
    np.testing.assert_array_equal(only.reward, [2, 3, 3])


@part
class Blink:
    """Two agents; the first one's end, after one step, is said once and never again."""

    observation_space = Team.observation_space
    action_space = Team.action_space
    num_agents = 2

    def reset(self, key):
        return EnvReset(jnp.int32(0), jnp.zeros((2, 2)))

    def step(self, state, action, key):
        state = state + 1
        over = jnp.stack([state == 1, state == 4])
        return EnvStep(state, jnp.full((2, 2), state, jnp.float32), jnp.ones(2), over, over & False)


def test_an_end_is_remembered_from_step_to_step():
    first, second = episode(ActionRepeat(Blink(), 3), 2)
    np.testing.assert_array_equal(first.reward, [1, 3])
    np.testing.assert_array_equal(second.reward, [0, 1])
    assert int(second.state.inner) == 4  # both are over then: no fifth step


def test_masks_are_of_the_last_step_taken():
    """At time t action t % 4 is forbidden; the episode ends at 10."""
    out = episode(ActionRepeat(Masked(), 4), 3, action=3)
    expected = [[i != t % 4 for i in range(4)] for t in (4, 8, 10)]
    assert column(out, "action_mask") == expected
    # 3 is forbidden at times 3 and 7: three times 1 and once -100, and then 8 and 9
    assert column(out, "reward") == [-97, -97, 2]


class Sum(NamedTuple):
    total: jax.Array
    last: jax.Array


@part
class Noise:
    """Adds a random number each step."""

    observation_space = Counter.observation_space
    action_space = Counter.action_space
    num_agents = None

    def reset(self, key):
        return EnvReset(jnp.zeros(()), jnp.zeros(2))

    def step(self, state, action, key):
        noise = jax.random.normal(key)
        flag = noise > 1e9
        return EnvStep(state + noise, jnp.stack([state, noise]), noise**2, flag, flag)


def test_every_repeat_draws_for_itself():
    """Of 4 independent normals the sum has variance 4, of one drawn four times 16; squares add up to 4 on average."""
    env = ActionRepeat(Noise(), 4)
    keys = jax.random.split(jax.random.key(0), 4000)
    out = jax.jit(jax.vmap(lambda key: env.step(env.reset(key).state, 0, jax.random.fold_in(key, 1))))(keys)
    np.testing.assert_allclose(np.var(out.state.inner), 4.0, rtol=0.15)
    np.testing.assert_allclose(np.mean(out.reward), 4.0, rtol=0.1)


def test_by_name_and_once_is_nothing():
    assert jax.tree.structure(ppax.make("CartPole-v1", 2, 1)) == jax.tree.structure(ppax.make("CartPole-v1", 2))
    env = ppax.make("Pendulum-v1", 3, action_repeat=7)
    assert (env.settings.action_repeat, ppax.make("Pendulum-v1").settings.action_repeat) == (7, 1)
    agent = ppax.PPO(mlp(env, (4,)))
    learner = agent.init(env.observation_space, jax.random.key(0))
    played = ppax.evaluate(agent, env, learner, jax.random.key(1), 3)
    assert played.lengths.tolist() == [29] * 3  # 200 single steps, in sevens: 28 and a rest


def test_streams_reset_and_count_steps_of_the_agent():
    """Five steps in twos: three of the agent, then one that resets."""
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


def test_a_recorded_run_has_it_again(tmp_path):
    env = ppax.make("Pendulum-v1", 2, action_repeat=3)
    agent = ppax.PPO(mlp(env, (4,)), num_epochs=1)
    run = ppax.fit(agent, env, 8, run_dir=tmp_path / "run", num_steps=4, log=Log(console=False))
    assert run.env_steps == 8  # of the agent; 24 of the pendulum
    np.testing.assert_array_equal(run.state.actor.env_state.env.inner.elapsed, 12)
    assert jax.tree.structure(load_run(tmp_path / "run").env) == jax.tree.structure(env)
