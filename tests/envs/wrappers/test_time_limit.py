"""Time limit: truncates, never terminates, and keeps a termination in the same step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.core.types import EnvReset, EnvStep
from ppax.envs import builtin
from ppax.envs.wrappers.time import TimeLimit


def flags(env, num_steps):
    """Return terminated and truncated of each step with action 1."""
    state, both = env.reset(jax.random.key(0)).state, []
    for _ in range(num_steps):
        step = env.step(state, 1, jax.random.key(0))
        state = step.state
        both.append((bool(step.terminated), bool(step.truncated)))
    return both


def test_time_limit_truncates_and_never_terminates():
    assert flags(TimeLimit(builtin.InfiniteProbe(), 3), 4) == [(False, False)] * 2 + [(False, True)] * 2


def test_time_limit_reports_both_when_the_end_falls_on_the_limit():
    assert flags(TimeLimit(builtin.FiniteProbe(horizon=3), 3), 3)[-1] == (True, True)


def test_time_limit_does_not_change_an_earlier_end():
    assert flags(TimeLimit(builtin.FiniteProbe(horizon=2), 3), 2)[-1] == (True, False)


def test_time_limits_nest():
    assert flags(TimeLimit(TimeLimit(builtin.InfiniteProbe(), 2), 5), 2)[-1] == (False, True)


@pytest.mark.parametrize("limit", [3, 3.0, 2.5, np.int64(3), jnp.float32(3), jnp.uint32(3)])
def test_time_limit_takes_any_number(limit):
    env = TimeLimit(builtin.InfiniteProbe(), limit)
    assert [truncated for _, truncated in flags(env, 3)] == [False, False, True]
    step = jax.eval_shape(env.step, env.reset(jax.random.key(0)).state, 1, jax.random.key(0))
    assert (step.truncated.shape, step.truncated.dtype) == ((), jnp.bool_)


def test_another_time_limit_does_not_recompile():
    traces = []

    @jax.jit
    def last_flag(env):
        traces.append(env)
        return env.step(env.reset(jax.random.key(0)).state, 1, jax.random.key(0)).truncated

    assert [bool(last_flag(TimeLimit(builtin.CartPole(), limit))) for limit in (1, 2)] == [True, False]
    assert len(traces) == 1


def test_time_limit_passes_a_mask_on():
    mask = jnp.array([True, False])

    class Masked:
        def reset(self, key):
            return EnvReset((), jnp.zeros(()), mask)

        def step(self, state, action, key):
            no = jnp.zeros((), bool)
            return EnvStep((), jnp.zeros(()), jnp.ones(()), no, no, mask)

    env = TimeLimit(Masked(), 3)
    start = env.reset(jax.random.key(0))
    assert start.action_mask is mask
    assert env.step(start.state, 0, jax.random.key(0)).action_mask is mask
