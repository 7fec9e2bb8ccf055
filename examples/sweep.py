"""A sweep is one program: four learning rates times four seeds, trained together by `jax.vmap`."""

import dataclasses

import jax
import jax.numpy as jnp

import ppax

ITERATIONS = 60

env = ppax.make("CartPole-v1", num_envs=16)
agent = ppax.PPO(ppax.networks.mlp(env))


def run(learning_rate: jax.Array, key: jax.Array) -> jax.Array:
    """Train one member; its mean episode return over the last quarter of training."""
    member = dataclasses.replace(agent, learning_rate=learning_rate)
    state = ppax.start(member, env, num_steps=128, key=key)
    state, _ = ppax.train(member, env, state, num_iterations=ITERATIONS * 3 // 4, total_iterations=ITERATIONS)
    _, metrics = ppax.train(member, env, state, num_iterations=ITERATIONS // 4)
    return metrics["episode_return"]


def main() -> None:
    """Print a table: a row a learning rate, a column a seed."""
    rates = jnp.array([1e-4, 3e-4, 1e-3, 3e-3])
    keys = jax.random.split(jax.random.key(0), 4)
    over_seeds = jax.vmap(run, (None, 0))
    returns = jax.jit(jax.vmap(over_seeds, (0, None)))(rates, keys)
    for rate, row in zip(rates, returns, strict=True):
        print(f"learning rate {float(rate):.0e}:", *(f"{float(x):6.1f}" for x in row))


if __name__ == "__main__":
    main()
