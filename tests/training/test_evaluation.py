"""Evaluation plays whole episodes, and training does not notice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.core.types import Memory, Outputs
from ppax.distributions import Categorical
from ppax.envs import TimeLimit, VectorEnv, builtin, host
from ppax.networks import mlp
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import collect
from support.wins import HostWins, Wins
from support.worlds import Counter, Leaky, Team


def test_every_episode_is_whole_and_counted_once():
    env = VectorEnv(Counter(3), 2)
    agent = ppax.PPO(mlp(env))
    learner = agent.init(env.observation_space, jax.random.key(0))
    evaluation = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=5)
    assert evaluation.returns.tolist() == [6.0] * 5  # 1 + 2 + 3, not scaled, not discounted
    assert evaluation.lengths.tolist() == [3] * 5
    assert evaluation.finished.all()


@pytest.mark.parametrize("make", [lambda: VectorEnv(Wins(), 4), lambda: host(HostWins, 4)], ids=["native", "host"])
def test_how_episodes_ended_and_their_last_rewards_are_reported(make):
    env = make()
    agent = ppax.PPO(mlp(env, (4,)))
    learner = agent.init(env.observation_space, jax.random.key(0))
    out = ppax.evaluate(agent, env, learner, jax.random.key(2), episodes=32)
    assert out.lengths[out.terminated].tolist() == [3] * out.terminated.sum()
    assert out.lengths[~out.terminated].tolist() == [2] * (~out.terminated).sum()
    np.testing.assert_array_equal(out.final_rewards, np.where(out.terminated, 4.0, 2.0))
    assert 0.0 < out.terminated_share == np.mean(out.lengths == 3) < 1.0
    assert out.terminated_share + out.truncated_share == 1.0
    assert (out.min_return, out.max_return) == (3.0, 7.0)
    assert out.mean_final_reward == pytest.approx(2.0 + 2.0 * out.terminated_share)
    getattr(env, "close", lambda: None)()


def test_episodes_that_were_cut_count_as_truncated():
    env = VectorEnv(Uneven(), 2)
    agent = ppax.PPO(mlp(env))
    learner = agent.init(env.observation_space, jax.random.key(0))
    out = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=16, max_steps=5)
    assert 0 < (~out.finished).sum() < 16
    np.testing.assert_array_equal(out.terminated, out.finished)
    whole = out.finished.mean()  # returns: 1 + 2, and 1 + 2 + 3 + 4 + 5 of those that were cut
    assert (out.terminated_share, out.truncated_share) == (whole, 1.0 - whole)
    assert (out.mean_final_reward, out.max_return) == (2.0 * whole + 5.0 * (1.0 - whole), 15.0)
    assert out.mean_return == pytest.approx(3.0 * whole + 15.0 * (1.0 - whole))


def test_each_agents_own_episode_is_reported():
    env = VectorEnv(Team(), 2)
    agent = ppax.PPO(mlp(env))
    learner = agent.init(env.observation_space, jax.random.key(0))
    assert ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=6).lengths.tolist() == [2, 3, 4] * 2


def test_episodes_cut_at_max_steps_are_unfinished_and_count():
    env = VectorEnv(Counter(10**6), 2)
    agent = ppax.PPO(mlp(env))
    learner = agent.init(env.observation_space, jax.random.key(0))
    evaluation = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=2, max_steps=7)
    assert not evaluation.finished.any()
    assert evaluation.mean_return == 28.0


def test_the_same_key_gives_the_same_scores_and_sampling_differs_from_the_mode():
    env = VectorEnv(TimeLimit(builtin.CartPole(), 50), 4)
    agent = ppax.PPO(mlp(env, hidden=(8,)), normalize_obs=True)
    learner = agent.init(env.observation_space, jax.random.key(0))

    def returns(**options):
        return ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=8, **options).returns.tolist()

    assert returns() == returns()
    assert returns(deterministic=False) != returns()


def test_evaluation_between_updates_changes_no_bit_of_training():
    env = VectorEnv(TimeLimit(builtin.CartPole(), 50), 4)
    agent = ppax.PPO(mlp(env, hidden=(8,)), normalize_obs=True, normalize_reward=True)
    train = jax.jit(ppax.train)

    def run(evaluates):
        state = ppax.start(agent, env, 8, jax.random.key(0))
        for _ in range(3):
            if evaluates:
                ppax.evaluate(agent, env, state.learner, jax.random.key(9), episodes=4, deterministic=False)
            state, _ = train(agent, env, state, 1)
        return [np.asarray(x).tobytes() for x in jax.tree.leaves((state.learner, state.actor))]

    assert run(False) == run(True)


def test_memory_starts_empty_in_each_episode():
    """Two episodes after each other in collection equal two fresh ones."""
    env = VectorEnv(Counter(3), 1)
    agent = ppax.PPO(Leaky(mlp(env)), minibatch=Shuffle(1), seq_len=1)  # so that every step's memory is kept
    state = ppax.start(agent, env, 8, jax.random.key(0))
    actor = state.actor._replace(env_state=state.actor.env_state)
    steps = collect(agent, env, state.learner, actor, 8, jax.random.key(1)).rollout.steps
    # the memory holds only times seen, so V at the same time of the two episodes differs only by the episode's number
    np.testing.assert_allclose(steps.carry[1:4, 0, 0], steps.carry[5:8, 0, 0])


@pytest.mark.parametrize("episodes", [1, 3])
def test_any_number_of_episodes(episodes):
    env = VectorEnv(Team(), 2)
    agent = ppax.PPO(mlp(env))
    learner = agent.init(env.observation_space, jax.random.key(0))
    assert len(ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=episodes).returns) == episodes


@ppax.part
class Uneven(Counter):
    """Episodes of 2 or of 9 steps, by the random number of the episode."""

    def step(self, state, action, key):
        out = super().step(state, action, key)
        return out._replace(terminated=out.state.time >= 2 + 7 * (state.episode > 0.5))


@ppax.part
class Kinds(Counter):
    """Episodes by their random number: truncated after 2 steps, terminated after 3, or truncated after 9."""

    def step(self, state, action, key):
        out = super().step(state, action, key)
        time, number = out.state.time, state.episode
        truncated = (time >= 9) | ((number < 0.4) & (time >= 2))
        return out._replace(terminated=(number >= 0.4) & (number < 0.8) & (time >= 3), truncated=truncated)


def test_the_end_of_a_later_episode_is_not_that_of_the_first():
    env = VectorEnv(Kinds(), 2)
    agent = ppax.PPO(mlp(env))
    learner = agent.init(env.observation_space, jax.random.key(0))
    out = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=32)
    assert set(out.lengths.tolist()) == {2, 3, 9}  # the short ones are followed by others
    np.testing.assert_array_equal(out.terminated, out.lengths == 3)


def test_an_early_end_is_not_followed_by_a_second_episode():
    env = VectorEnv(Uneven(), 2)
    agent = ppax.PPO(mlp(env))
    learner = agent.init(env.observation_space, jax.random.key(0))
    evaluation = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=16)
    assert set(evaluation.lengths.tolist()) == {2, 9}
    assert set(evaluation.returns.tolist()) == {1 + 2, 9 * 10 / 2}


@ppax.part
class Simple:
    """Does 1 where its one feature is above 0: the observation, or with a clock whether the step is an odd one."""

    clock: bool = ppax.static(default=False)

    def init(self, key, num_values=1):
        return {"unused": jnp.zeros(1)}

    def initial_carry(self):
        return jnp.zeros(1)

    def encode(self, params, obs):
        return obs[:1]

    def remember(self, params, carry, features, first):
        def step(carry, now):
            x, first = now
            carry = jnp.where(first, 0.0, carry) + 1.0
            return carry, 2.0 * (carry % 2.0) - 1.0 if self.clock else x

        return Memory(*jax.lax.scan(step, carry, (features, first)))

    def decide(self, params, features, action_mask):
        return Outputs(Categorical(jnp.concatenate([-features, features])), jnp.zeros(1))


def test_observations_are_normalised_as_in_training():
    """The probe shows -1 or 1 and pays for the same sign; a mean of 3 makes both negative."""
    env = ppax.make("probe/ObsAction", 4)
    agent = ppax.PPO(Simple(), normalize_obs=True)
    learner = agent.init(env.observation_space, jax.random.key(0))
    mean = learner.obs_stats.mean._replace(high=jnp.full(1, 3.0))

    def returns(stats):
        fixed = learner._replace(obs_stats=stats)
        return set(ppax.evaluate(agent, env, fixed, jax.random.key(1), episodes=16).returns.tolist())

    assert returns(learner.obs_stats) == {1.0}
    assert returns(learner.obs_stats._replace(mean=mean)) == {-1.0, 1.0}


def test_deterministic_evaluation_takes_the_mode():
    """The right action has the probability e^2 / (1 + e^2): 0.88."""
    env = ppax.make("probe/ObsAction", 4)
    agent = ppax.PPO(Simple())
    learner = agent.init(env.observation_space, jax.random.key(0))
    for deterministic, returns in ((True, {1.0}), (False, {-1.0, 1.0})):
        out = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=64, deterministic=deterministic)
        assert set(out.returns.tolist()) == returns


@ppax.part
class Paid(Counter):
    """Pays the action."""

    def step(self, state, action, key):
        return super().step(state, action, key)._replace(reward=action.astype(jnp.float32))


def test_memory_is_carried_from_step_to_step():
    env = VectorEnv(Paid(5), 2)
    agent = ppax.PPO(Simple(clock=True))
    learner = agent.init(env.observation_space, jax.random.key(0))
    # does 1 0 1 0 1; without memory every step would be the first
    assert ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=2).returns.tolist() == [3.0, 3.0]
