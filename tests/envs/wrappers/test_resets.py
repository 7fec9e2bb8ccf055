"""Resets from a pool: fresh every step, shared among those that begin anew."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.config import Log
from ppax.envs import PoolResets, TimeLimit, VectorEnv, builtin
from ppax.envs.wrappers.resets import fresh_resets

ENV = builtin.CartPole()


def starts(resets, needed, seed=0):
    needed = jnp.zeros(10, bool).at[jnp.array(needed)].set(True)
    keys = jax.random.split(jax.random.key(seed), 10)
    return np.asarray(resets(ENV, needed, keys).obs)[np.asarray(needed)]


def test_as_many_as_the_pool_holds_are_all_different():
    assert len(np.unique(starts(PoolResets(4), [1, 4, 8, 9]), axis=0)) == 4


def test_more_than_that_share_evenly():
    obs = starts(PoolResets(3), range(9))
    assert sorted(np.unique(obs, axis=0, return_counts=True)[1]) == [3, 3, 3]


def test_the_next_step_has_others():
    other = starts(PoolResets(4), [0, 1], seed=1)
    assert not np.isin(other, starts(PoolResets(4), [0, 1])).any()


def test_a_pool_larger_than_the_environments_gives_each_its_own():
    np.testing.assert_array_equal(starts(PoolResets(64), range(10)), starts(fresh_resets, range(10)))


def test_only_the_pool_is_reset():
    """That is the point: the compiled program resets as many as the pool holds."""

    def program(resets):
        env = VectorEnv(TimeLimit(ENV, 5), 64, resets=resets)
        state = jax.eval_shape(env.reset, jax.random.key(0))[0]
        step = jax.jit(env.step).lower(state, jnp.zeros(64, jnp.int32), jax.random.key(0))
        return step.as_text()

    assert "tensor<64x4xf32>" in program(fresh_resets).split("case")[1]
    drawn = [line for line in program(PoolResets(3)).splitlines() if "tensor<3x4xi32>" in line or "3x4xui32" in line]
    assert drawn


@pytest.mark.usefixtures("vmapped_keys")
def test_it_trains():
    env = VectorEnv(TimeLimit(ENV, 20), 8, resets=PoolResets(2))
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(8,)))
    run = ppax.fit(agent, env, 2000, num_steps=16, log=Log(console=False))
    assert run.history[-1]["episode_length"] > 5
