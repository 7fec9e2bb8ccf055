"""Sweep over four learning rates and four seeds in one compiled program, split over the CPU cores."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

import ppax

ITERATIONS = 60
RATES = jnp.array([1e-4, 3e-4, 1e-3, 3e-3])
SEEDS = 4


def main() -> Array:
    """Train all members; print episode returns with one row per learning rate and one column per seed."""
    env = ppax.make("CartPole-v1", num_envs=16)
    agent = ppax.PPO(ppax.networks.mlp(env))
    members = dataclasses.replace(agent, learning_rate=jnp.repeat(RATES, SEEDS))  # every number may have a leading axis
    keys = jnp.tile(jax.random.split(jax.random.key(0), SEEDS), len(RATES))

    states = ppax.start_sweep(members, env, 128, keys)
    sweep = jax.jit(ppax.sweep)
    states, _ = sweep(members, env, states, ITERATIONS * 3 // 4, ITERATIONS)
    _, metrics = sweep(members, env, states, ITERATIONS // 4, ITERATIONS)
    table = metrics["episode_return"].reshape(len(RATES), SEEDS)
    for rate, row in zip(RATES, table, strict=True):
        print(f"learning rate {float(rate):.0e}:", *(f"{float(x):6.1f}" for x in row))
    return table


if __name__ == "__main__":
    main()
