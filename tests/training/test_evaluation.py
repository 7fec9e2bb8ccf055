"""Evaluation plays whole episodes, and training does not notice."""

import math
import operator
from functools import partial
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.agents.metrics import EVALUATED
from ppax.core.types import ConfigError, Memory, Outputs
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


# ---------------------------------------------------------------- as a pure function


class Begun(NamedTuple):
    """State of a pole, and its first observation, [4]."""

    pole: builtin.cartpole.CartPoleState
    first: jax.Array


@ppax.part
class KnownStart(builtin.CartPole):
    """CartPole whose metrics are the four numbers of the episode's first observation."""

    def reset(self, key):
        out = super().reset(key)
        return out._replace(state=Begun(out.state, out.obs))

    def step(self, state, action, key):
        out = super().step(state.pole, action, key)
        metrics = {f"first_{i}": state.first[i] for i in range(4)}
        return out._replace(state=Begun(out.state, state.first), metrics=metrics)


def length_by_hand(params, first, limit):
    """Return the length of an episode from an observation, at most `limit`, and whether the pole fell.

    Gymnasium's dynamics, and the actor's network, both in float64.
    """
    pole = gymnasium.make("CartPole-v1").unwrapped
    pole.reset(seed=0)
    pole.state, obs = tuple(first), first
    for length in range(1, limit + 1):
        hidden = np.tanh(obs @ params["actor"]["0"]["kernel"] + params["actor"]["0"]["bias"])
        obs, _, over, _, _ = pole.step(int(np.argmax(hidden @ params["policy"]["kernel"] + params["policy"]["bias"])))
        if over:
            return length, True
    return limit, False


LIMIT = 9


@pytest.fixture
def played(vmapped_keys):
    """Three learners in one program, each over eight episodes of the same starts: learners, and their results."""
    env = VectorEnv(KnownStart(), 2)
    agent = ppax.PPO(mlp(env, hidden=(8,)))
    learners = jax.vmap(partial(agent.init, env.observation_space))(jax.random.split(jax.random.key(0), 3))

    @jax.jit
    def play(agent, env, learners, key):
        return jax.vmap(lambda learner: ppax.play_episodes(agent, env, learner, key, 8, max_steps=LIMIT))(learners)

    return agent, env, learners, play(agent, env, learners, jax.random.key(1))


def test_a_batch_of_learners_is_played_in_one_program_as_gymnasium_plays_them(played):
    """Oracle: each episode again, from its first observation, in Gymnasium and NumPy."""
    _, _, learners, out = played
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), learners.params)
    firsts = np.stack([np.asarray(out.metrics[f"first_{i}"], np.float64) for i in range(4)], -1)
    assert len(np.unique(firsts[0], axis=0)) == 8
    for i in range(3):
        own = jax.tree.map(operator.itemgetter(i), params)
        expected = [length_by_hand(own, first, LIMIT) for first in firsts[i]]
        lengths, fell = map(list, zip(*expected, strict=True))
        assert out.lengths[i].tolist() == lengths
        assert out.terminated[i].tolist() == out.finished[i].tolist() == fell
        assert out.truncated[i].tolist() == [not one for one in fell]
        assert out.returns[i].tolist() == lengths
        assert out.final_rewards[i].tolist() == [1.0] * 8
    assert 0 < out.truncated.sum() < 24


def test_the_pure_function_plays_the_episodes_of_evaluate(played):
    agent, env, learners, out = played
    for i in range(3):
        learner = jax.tree.map(operator.itemgetter(i), learners)
        alone = ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=8, max_steps=LIMIT)
        for name in ("returns", "lengths", "finished", "terminated", "truncated", "final_rewards"):
            np.testing.assert_array_equal(getattr(out, name)[i], getattr(alone, name))
        assert out.metrics.keys() == alone.metrics.keys()


def test_a_loop_of_the_users_own_trains_and_evaluates_in_one_program():
    """The environment pays 1, 2, 3 and ends."""
    env = VectorEnv(Counter(3), 2)
    agent = ppax.PPO(mlp(env, (4,)), num_epochs=1)

    @jax.jit
    def trained(state, keys):
        def step(state, key):
            state, _ = ppax.train(agent, env, state, 1)
            return state, ppax.play_episodes(agent, env, state.learner, key, episodes=3).returns.mean()

        return jax.lax.scan(step, state, keys)

    state = ppax.start(agent, env, 4, jax.random.key(0))
    state, scores = trained(state, jax.random.split(jax.random.key(1), 2))
    assert int(state.iteration) == 2
    assert scores.tolist() == [6.0, 6.0]


def test_episodes_of_an_endless_environment_are_cut_by_default_and_at_a_traced_length():
    env = VectorEnv(builtin.Pendulum(), 2)
    agent = ppax.PPO(mlp(env, (4,)))
    learner = agent.init(env.observation_space, jax.random.key(0))
    play = jax.jit(lambda *limit: ppax.play_episodes(agent, env, learner, jax.random.key(1), 2, True, *limit).lengths)
    assert play().tolist() == [1_000] * 2
    assert play(jnp.int32(5)).tolist() == [5] * 2


def test_what_cannot_be_a_pure_function_is_refused():
    env = VectorEnv(Counter(3), 2)
    agent = ppax.PPO(mlp(env, (4,)))
    learner, key = agent.init(env.observation_space, jax.random.key(0)), jax.random.key(1)
    with pytest.raises(ConfigError, match=r"cannot be called inside jit, vmap or scan: write ppax\.play_episodes"):
        jax.jit(lambda learner: ppax.evaluate(agent, env, learner, key).returns)(learner)
    with pytest.raises(ConfigError, match=r"episodes = 0: must be at least 1; nearest valid value: 1"):
        ppax.play_episodes(agent, env, learner, key, 0)
    with pytest.raises(ConfigError, match=r"max_steps = -1: must be at least 1"):
        ppax.play_episodes(agent, env, learner, key, 2, max_steps=-1)
    for verb in (ppax.evaluate, ppax.play_episodes):  # steps are counted in 32 bits
        with pytest.raises(ConfigError, match=r"max_steps = 2147483648: must be at most 2147483647"):
            verb(agent, env, learner, key, 2, max_steps=2**31)
    with host(HostWins, 2) as other, pytest.raises(ConfigError, match=r"stepped on the host: write ppax\.evaluate\("):
        ppax.play_episodes(ppax.PPO(mlp(other, (4,))), other, learner, key)


def test_the_median_is_that_of_all_episodes_played():
    """Oracle: NumPy's median, of an even number of returns with an outlier; an agent that did not appear has none."""
    returns, lengths = np.array([1.0, 100.0, 4.0, 3.0, 0.0]), np.array([1, 9, 2, 2, 0])
    ended = np.array([True, True, False, True, False])
    out = ppax.Evaluation(returns, lengths, ended, np.array([True, False, False, True, False]), returns)
    assert out.median_return == np.median(returns[:4]) == 3.5
    assert out.truncated.tolist() == [False, True, True, False, False]
    assert out.columns["eval_return_median"] == out.scores["median_return"] == 3.5
    nothing = ppax.Evaluation(*(np.zeros(0),) * 2, *(np.zeros(0, bool),) * 2, np.zeros(0))
    assert math.isnan(nothing.median_return)


# ---------------------------------------------------------------- metrics of the environment


@ppax.part
class Named(Wins):
    """Logs a metric under a name of the test's choice."""

    name: str = ppax.static(default="win")

    def step(self, state, action, key):
        out = super().step(state, action, key)
        return out._replace(metrics={self.name: out.reward})


def named_on_the_host(name):
    class HostNamed(HostWins):
        def step(self, action):
            return (*super().step(action)[:4], {name: 1.0})

    return host(HostNamed, 2, info_metrics=[name])


@pytest.mark.parametrize("make", [lambda name: VectorEnv(Named(name=name), 2), named_on_the_host], ids=["jax", "host"])
@pytest.mark.parametrize("name", ["return", "mean_return", "terminated", "cut", "eval_length"])
def test_a_metric_of_the_environment_does_not_replace_a_statistic(make, name):
    """Refused in training without evaluations, too, as an evaluation may follow it."""
    env = make(name)
    agent = ppax.PPO(mlp(env, (4,)), num_epochs=1, minibatch=Shuffle(num_minibatches=1))
    state = ppax.start(agent, env, 4, jax.random.key(0))
    message = f"metric '{name}': must be.*not the name of another metric.*rename it, for example to 'env_{name}'"
    with pytest.raises(ConfigError, match=message):
        ppax.evaluate(agent, env, state.learner, jax.random.key(1), 2)
    with pytest.raises(ConfigError, match=message):
        ppax.compile(agent, env, state)
    getattr(env, "close", lambda: None)()


def test_the_names_that_are_taken_are_those_of_all_statistics():
    nothing = ppax.Evaluation(*(np.zeros(0),) * 2, *(np.zeros(0, bool),) * 2, np.zeros(0))
    assert {*nothing.scores, *nothing.columns} == EVALUATED
