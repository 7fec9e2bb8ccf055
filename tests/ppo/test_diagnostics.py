"""Metrics of an update and its rollout: explained variance, ends of episodes, scale of observations."""

import jax
import jax.numpy as jnp
import numpy as np

import ppax
from ppax.arrays.metrics import Summary, reductions_of
from ppax.core.types import Batch, Targets, Transition
from ppax.envs import TimeLimit, VectorEnv
from ppax.ppo.diagnostics import History, ends_of_episodes, largest_observation, update_metrics
from support.worlds import Counter


def test_ends_of_episodes_and_the_largest_observation_by_hand():
    flags = {"terminated": jnp.array([[True, False, True]]), "truncated": jnp.array([[True, True, False]])}
    rest = dict.fromkeys(("obs", "action", "log_prob", "value", "reward", "first", "valid"), jnp.zeros((1, 3)))
    ends = ends_of_episodes(Transition(carry=(), **rest, **flags))
    assert {name: float(x) for name, x in ends.items()} == {"terminations": 2.0, "truncations": 1.0}
    assert dict(reductions_of(ends)) == {"terminations": "sum", "truncations": "sum"}
    obs = {"x": jnp.array([[[1.0, -7.0]]]), "picture": jnp.full((1, 1, 2), 255, jnp.uint8), "y": jnp.array([[3.0]])}
    largest = largest_observation(obs)
    assert float(largest["obs_max"]) == 7.0
    assert dict(reductions_of(largest)) == {"obs_max": "max"}
    assert dict(largest_observation({"picture": obs["picture"]})) == {}


def test_explained_variance_by_hand():
    """Rows [2, 3]; the last one is not valid and has numbers that would show."""
    valid = jnp.array([[True, True, True], [True, True, False]])
    target = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 900.0]])  # of the valid ones: mean 3, variance 2
    reward = jnp.array([[0.0, 1.0, 2.0], [3.0, 9.0, 900.0]])
    flags = dict.fromkeys(("terminated", "truncated"), jnp.zeros((2, 3), bool))
    rest = dict.fromkeys(("action", "log_prob", "first"), None)
    one_step = History(Summary(jnp.zeros((1, 1, 0)), jnp.ones((1, 1, 2)), ("ratio_max", "ratio_min"), RATIOS), *BOTH)

    def metrics(value, target=target):
        steps = Transition((), value=value, reward=reward, valid=valid, carry=(), **rest, **flags)
        batch = Batch(steps, Targets(target - value, target))
        return {name: float(x) for name, x in update_metrics(batch, valid, one_step).items()}

    # errors R - V of a perfect critic, of a constant one, of one that is 2 too low, and of one with the wrong sign:
    # their variances are 0, 2, 0 and 8 (R - V = 2 R)
    for value, explained in ((target, 1.0), (0.0 * target, 0.0), (target - 2.0, 1.0), (-target, -3.0)):
        np.testing.assert_allclose(metrics(value)["explained_variance"], explained, atol=1e-6)
    assert metrics(target, jnp.full((2, 3), 7.0))["explained_variance"] == 0.0  # constant targets
    # targets as GAE computes them: (R - V) + V, which is R up to rounding
    rounded = (1.0 - 0.1 * target) + 0.1 * target + jnp.array([[0.0, 1e-7, 0.0], [0.0, 0.0, 0.0]])
    assert 0.0 < metrics(target, rounded)["target_std"] < 1e-6
    assert metrics(target, rounded)["explained_variance"] == 0.0
    # and small differences that are no rounding count: std 1.4e-5, error 0
    np.testing.assert_allclose(metrics(1e-5 * target, 1.0 + 1e-5 * target)["explained_variance"], 1.0, atol=0.05)
    found = metrics(target - 2.0)
    expected = {"target_mean": 3.0, "target_std": 2.0**0.5, "value_mean": 1.0, "valid_fraction": 5 / 6}
    expected |= {"reward_mean": 3.0, "reward_std": 10.0**0.5, "reward_min": 0.0, "reward_max": 9.0}
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-6, err_msg=name)


RATIOS = (("ratio_max", "max"), ("ratio_min", "min"))
BOTH = jnp.ones((1, 1), bool), jnp.ones((1, 1), bool)


def logged(env, iterations=3):
    vector = VectorEnv(env, 2)
    agent = ppax.PPO(ppax.networks.network(vector, hidden=(4,)))
    state = ppax.start(agent, vector, 8, jax.random.key(0))
    return ppax.train(agent, vector, state, iterations).metrics


def test_rows_count_ends_and_leave_out_autoreset_steps():
    """24 steps of 2 environments, episodes of 3 steps and a step that resets: 6 episodes in each."""
    ended, cut = logged(Counter(terminates=True)), logged(TimeLimit(Counter(length=99), 3))
    assert [float(ended[name]) for name in ("episodes", "terminations", "truncations")] == [12.0, 12.0, 0.0]
    assert [float(cut[name]) for name in ("episodes", "terminations", "truncations")] == [12.0, 0.0, 12.0]
    # the counter is observed at 0, 1, 2; 3 is the final observation, seen in the step that resets alone
    np.testing.assert_array_equal(ended["obs_max"], 2.0)
