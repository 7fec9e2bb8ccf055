"""Running statistics: exact at any count and for any chunking, independent of invalid rows; reward normalisation."""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppax import PPO, collect
from ppax.core.types import EnvReset, EnvStep, LearnerState, Rollout, Transition, part
from ppax.envs.vector import VectorEnv
from ppax.networks import mlp
from ppax.ppo import normalization
from ppax.ppo.normalization import FloatPair, Normalization, RunningStats
from ppax.training.collection import start_actor

update = jax.jit(normalization.update_stats)


def exact(x, count=0.0, mean=0.0, var=1.0):
    """Moments of a prior and samples [n, ...] together, float64, straight from the definition.

    Sum of squares around the common mean: each set's own, plus the squared distance of its mean.
    """
    x = np.asarray(x, np.float64)
    total = count + len(x)
    middle = (count * mean + x.sum(axis=0)) / total
    squares = count * (var + (mean - middle) ** 2) + ((x - middle) ** 2).sum(axis=0)
    return middle, squares / total


def close(stats, x, rtol=1e-6, **prior):
    mean, var = exact(x, **prior)
    np.testing.assert_allclose(stats.mean.high, mean, rtol=rtol, atol=1e-6)
    np.testing.assert_allclose(stats.var.high, var, rtol=rtol)


def test_initial_statistics_normalise_nothing_and_have_no_weight():
    stats = normalization.init_stats((2,))
    np.testing.assert_array_equal(stats.count, [0, 0])
    np.testing.assert_array_equal([stats.mean.high, stats.var.high], [[0, 0], [1, 1]])
    stats = update(stats, jnp.array([[3.0, 3.0], [5.0, 5.0]]), jnp.zeros(2, bool))  # nor does a batch of no valid row
    np.testing.assert_array_equal([stats.mean.high, stats.var.high], [[0, 0], [1, 1]])
    # then samples 3 and 5: mean 4, variance 1
    stats = update(stats, jnp.array([[3.0, 3.0], [5.0, 5.0]]), jnp.ones(2, bool))
    np.testing.assert_allclose(stats.mean.high, [4.0] * 2, rtol=1e-6)
    np.testing.assert_allclose(stats.var.high, [1.0] * 2, rtol=1e-6)


def test_the_first_samples_may_have_a_small_variance():
    """Their variance takes the place of the initial 1, without the rounding of a difference from 1."""
    x = (3.0 * np.random.default_rng(0).normal(size=(4096, 4)) * [1.0, 1e-3, 1e-4, 1e-6]).astype(np.float32)
    close(update(normalization.init_stats((4,)), jnp.asarray(x), jnp.ones(4096, bool)), x, rtol=1e-5)


def test_chunking_does_not_matter():
    x = np.random.default_rng(0).normal([5.0, -300.0, 0.0], [2.0, 0.5, 0.1], (840, 3)).astype(np.float32)

    def step(stats, piece):
        return normalization.update_stats(stats, piece, jnp.ones(piece.shape[0], bool)), None

    feed = jax.jit(lambda pieces: jax.lax.scan(step, normalization.init_stats((3,)), pieces)[0])
    for chunk in (1, 7, 120, 840):
        stats = feed(x.reshape(-1, chunk, 3))
        assert stats.count[0] == 840
        close(stats, x, rtol=1e-5)


def test_categorical_observations_are_not_normalised():
    space = spaces.Tuple([spaces.Discrete(9), spaces.MultiDiscrete([3, 4]), spaces.Box(-9, 9, (2,))])
    obs = jax.tree.map(lambda *x: jnp.stack(x)[:, None], *(space.sample() for _ in range(5)))
    stats = normalization.update_obs_stats(normalization.init_obs_stats(space), obs, jnp.ones((5, 1), bool))
    seen = normalization.normalize_obs(stats, obs)
    assert all(one is other for one, other in zip(seen[:2], obs[:2], strict=True))
    np.testing.assert_allclose(seen[2].mean((0, 1)), [0.0, 0.0], atol=1e-5)


def test_rollouts_have_two_leading_axes_and_trees_have_leaves():
    rng = np.random.default_rng(1)
    obs = {"a": rng.normal(3, 2, (5, 4)).astype(np.float32), "b": rng.integers(0, 9, (5, 4, 2, 3))}
    obs["b"] = obs["b"].astype(np.int32)
    valid = rng.random((5, 4)) < 0.7
    space = spaces.Dict({"a": spaces.Box(-9, 9, ()), "b": spaces.Box(0, 9, (2, 3), np.int32)})
    stats = normalization.init_obs_stats(space)
    stats = jax.jit(normalization.update_obs_stats)(stats, obs, valid)
    for name in obs:
        close(stats[name], obs[name][valid])
    seen = jax.jit(normalization.normalize_obs)(stats, obs)
    for name in obs:
        mean, var = exact(obs[name][valid])
        np.testing.assert_allclose(seen[name], (obs[name] - mean) / np.sqrt(var), rtol=1e-5, atol=1e-5)


def test_invalid_rows_change_no_statistics():
    x = np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32)
    valid = np.array([True, False, True, True, False, True])
    stats = normalization.init_stats((4,))
    for junk in (np.nan, np.inf, 1e30):
        got = update(stats, np.where(valid[:, None], x, np.float32(junk)), valid)
        close(got, x[valid])
        assert got.count[0] == 4
    nothing = update(stats, np.full((6, 4), np.nan, np.float32), np.zeros(6, bool))
    jax.tree.map(np.testing.assert_array_equal, nothing, stats)


def old_stats(mean, var=1.0):
    """Statistics of a billion samples."""
    return RunningStats(
        jnp.array([10**9, 0], jnp.uint32),
        FloatPair(jnp.float32(mean), jnp.float32(0)),
        FloatPair(jnp.float32(var), jnp.float32(0)),
    )


@jax.jit
def feed_pairs(stats, low, high):
    """100 000 batches of 8: four samples at `low`, four at `high`."""
    batch = jnp.stack([low] * 4 + [high] * 4)

    def step(_, stats):
        return normalization.update_stats(stats, batch, jnp.ones(8, bool))

    return jax.lax.fori_loop(0, 100_000, step, stats)


def test_a_billion_samples_do_not_drift():
    # N(1000, 1) in 100 000 batches of 8
    def step(stats, key):
        x = 1e3 + jax.random.normal(key, (8,))
        return normalization.update_stats(stats, x, jnp.ones(8, bool)), None

    feed = jax.jit(lambda stats, key: jax.lax.scan(step, stats, jax.random.split(key, 100_000))[0])
    stats = feed(old_stats(1e3), jax.random.key(0))
    assert abs(float(stats.mean.high) + float(stats.mean.low) - 1e3) < 1e-3
    assert abs(float(stats.var.high) - 1.0) < 0.01
    assert int(stats.count[0]) == 10**9 + 800_000


def test_a_billion_samples_still_move_by_the_right_amount():
    # n = 8e5 samples of mean 1003, variance 1 join N = 1e9 of mean 1000, variance 1, total 1.0008e9:
    # mean moves by 3 n / total = .002398, variance by 9 n N / total^2 = .007188. In plain float32 a batch would move
    # the mean by 2.4e-8, less than half of what 1000 can show (6e-5), so nothing would ever move.
    stats = feed_pairs(old_stats(1e3), jnp.float32(1002.0), jnp.float32(1004.0))
    total = 1e9 + 8e5
    moved = float(stats.mean.high) - 1e3 + float(stats.mean.low)
    np.testing.assert_allclose(moved, 3 * 8e5 / total, rtol=0.01)
    np.testing.assert_allclose(float(stats.var.high) - 1 + float(stats.var.low), 9 * 8e5 * 1e9 / total**2, rtol=0.01)


def test_the_count_crosses_2_to_the_32():
    stats = old_stats(0.0)._replace(count=jnp.array([2**32 - 4, 0], jnp.uint32))
    stats = update(stats, jnp.full(8, 1e6), jnp.ones(8, bool))
    np.testing.assert_array_equal(stats.count, [4, 1])
    # 8 of 4.3e9 samples at 1e6: the mean moves by 8e6 / 2^32 = .001863; with the high word lost it were 667 000
    np.testing.assert_allclose(stats.mean.high, 8e6 / 2**32, rtol=1e-5)


def test_a_constant_feature_stays_finite_and_near_zero():
    stats = update(normalization.init_stats((1,)), jnp.full((9999, 1), 5.0), jnp.ones(9999, bool))
    seen = normalization.normalize_obs(stats, jnp.array([[5.0], [6.0], [-1e9]]))
    np.testing.assert_allclose(seen[:, 0], [0.0, 10.0, -10.0], atol=1e-2)
    # and where the variance has shrunk to nothing at all
    nothing = stats._replace(var=FloatPair(jnp.zeros(1), jnp.zeros(1)), mean=FloatPair(jnp.full(1, 5.0), jnp.zeros(1)))
    np.testing.assert_array_equal(normalization.normalize_obs(nothing, jnp.array([[5.0], [6.0]]))[:, 0], [0.0, 10.0])


def test_a_large_batch_far_from_one_early_sample():
    # 100 000 samples of 1000 +- 1 join one of 0: variance (1 + 1e5 + 1e6 * 1e5 / 100 001) / 100 001 = 10.9998, about.
    # The first one's share is 1 / 100 001: taken as 1 - .99999 in float32 it is wrong by .14 %.
    x = np.tile(np.array([999.0, 1001.0], np.float32), 50_000)
    one = update(normalization.init_stats(()), np.zeros(1, np.float32), np.ones(1, bool))
    close(update(one, x, np.ones(100_000, bool)), x, rtol=1e-4, count=1.0, mean=0.0, var=0.0)


def test_normalizing_keeps_what_a_large_mean_would_round_away():
    # a mean of 16 777 216.5 needs the low part: 2^24 + 1 lies half above it
    stats = old_stats(2.0**24)
    stats = stats._replace(mean=stats.mean._replace(low=jnp.float32(0.5)))
    seen = normalization.normalize_obs(stats, jnp.array([2.0**24, 2.0**24 + 2]))
    np.testing.assert_allclose(seen, [-0.5, 1.5], rtol=1e-6)


def test_merging_keeps_what_a_large_mean_would_round_away():
    # 100 samples of mean 2^24 + .5 and then 2^24 and 2^24 + 2: the mean's excess is (50 + 0 + 2) / 102 = .5098
    stats = old_stats(2.0**24)._replace(count=jnp.array([100, 0], jnp.uint32))
    stats = stats._replace(mean=stats.mean._replace(low=jnp.float32(0.5)))
    stats = update(stats, jnp.array([2.0**24, 2.0**24 + 2]), jnp.ones(2, bool))
    np.testing.assert_allclose(float(stats.mean.high) - 2**24 + float(stats.mean.low), 52 / 102, rtol=1e-5)


def test_reward_scaling_does_not_centre_and_clips():
    # over the std 2, clipped at 10; the sign survives although the mean is 7
    stats = old_stats(7.0, var=4.0)
    reward = jnp.array([[1.0, -3.0, 100.0, -100.0, 0.0]])
    steps = Transition(None, None, None, None, reward, None, None, None, jnp.zeros((1, 5), bool), ())
    learner = LearnerState((), (), None, stats)  # no row is valid: the statistics stay
    scaled = normalization.normalize_rewards(learner, Rollout(steps, None, jnp.zeros((1, 5))), Normalization())
    np.testing.assert_allclose(scaled.reward, [[0.5, -1.5, 10.0, -10.0, 0.0]], rtol=1e-6)
    off = normalization.normalize_rewards(
        learner._replace(reward_stats=None), Rollout(steps, None, None), Normalization()
    )
    assert off.reward is reward


@part
class TwoSteps:
    """Episodes of two steps with rewards 1 and 2."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    num_agents = None

    def reset(self, key):
        return EnvReset(jnp.int32(0), jnp.zeros(1))

    def step(self, state, action, key):
        last = state == 1
        return EnvStep(state + 1, jnp.zeros(1), jnp.where(last, 2.0, 1.0), last, jnp.bool_(False))


def test_the_discounted_return_counts_the_last_reward_and_forgets_it_afterwards():
    # gamma .5. R = 1, then .5 * 1 + 2 = 2.5, and only then is it forgotten; the autoreset row gives 0 and does not
    # count; the next episode is the same. Forgetting before the last reward would give 1, 2; leaking it into the
    # next episode 1, 2.5, _, 1.625, ...
    env = VectorEnv(TwoSteps(), 3)
    agent = PPO(mlp(env, hidden=(2,)), gamma=0.5, normalize_reward=True)
    learner = agent.init(env.observation_space, jax.random.key(0))

    @jax.jit
    def run(learner, key):
        start_key, *keys = jax.random.split(key, 3)
        first = collect(agent, env, learner, start_actor(agent, env, start_key), 5, keys[0])
        return first.rollout, collect(agent, env, learner, first.actor, 5, keys[1]).rollout

    first, second = run(learner, jax.random.key(1))
    expected = [1.0, 2.5, 0.0, 1.0, 2.5], [0.0, 1.0, 2.5, 0.0, 1.0]  # the second rollout goes on where it stood
    for rollout, trace in zip((first, second), expected, strict=True):
        np.testing.assert_allclose(rollout.reward_trace, np.array([trace] * 3).T)
        np.testing.assert_array_equal(rollout.steps.valid[:, 0], np.array(trace) > 0)
        np.testing.assert_array_equal(rollout.steps.ended[:, 0], np.array(trace) == 2.5)
