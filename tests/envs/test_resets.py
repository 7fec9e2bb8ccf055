"""Pool of resets: new in every step, shared by the environments that reset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.config import Log
from ppax.envs import PoolResets, TimeLimit, VectorEnv, builtin
from ppax.envs.vector import fresh_resets

ENV = builtin.CartPole()


def starts(resets, needed, seed=0):
    needed = jnp.zeros(10, bool).at[jnp.array(needed)].set(True)
    keys = jax.random.split(jax.random.key(seed), 10)
    return np.asarray(resets(ENV, needed, keys).obs)[np.asarray(needed)]


def test_resets_up_to_the_pool_size_are_all_different():
    assert len(np.unique(starts(PoolResets(4), [1, 4, 8, 9]), axis=0)) == 4


def test_more_resets_than_the_pool_size_share_evenly():
    obs = starts(PoolResets(3), range(9))
    assert sorted(np.unique(obs, axis=0, return_counts=True)[1]) == [3, 3, 3]


def test_each_step_has_new_resets():
    other = starts(PoolResets(4), [0, 1], seed=1)
    assert not np.isin(other, starts(PoolResets(4), [0, 1])).any()


def test_a_pool_larger_than_the_number_of_environments_shares_nothing():
    assert len(np.unique(starts(PoolResets(64), range(10)), axis=0)) == 10


def test_the_pool_does_not_draw_with_the_keys_of_environments_that_step():
    assert not np.isin(starts(PoolResets(64), range(10)), starts(fresh_resets, range(10))).any()


def test_the_program_resets_only_as_many_as_the_pool_size():
    """The compiled program computes as many resets as the pool size."""

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
