"""Flax linen module as the encoder of a network: from one observation to one feature vector; ppax adds the heads."""

import jax
from flax import linen

import ppax
from ppax.networks import adapters

ITERATIONS = 40


class Torso(linen.Module):
    """Two layers, the second with a residual connection."""

    width: int = 64

    @linen.compact
    def __call__(self, x):
        x = linen.tanh(linen.Dense(self.width)(x))
        return x + linen.tanh(linen.Dense(self.width)(x))


def main() -> float:
    """Train on CartPole and return the mean episode return."""
    env = ppax.make("CartPole-v1", num_envs=16)
    network = ppax.networks.network(env, encoder=adapters.Linen(Torso), hidden=())
    agent = ppax.PPO(network, learning_rate=1e-3)
    state = ppax.start(agent, env, num_steps=128, key=jax.random.key(0))
    _, metrics = jax.jit(ppax.train)(agent, env, state, ITERATIONS)
    score = float(metrics["episode_return"])
    print(f"mean episode return while training: {score:.1f}")
    return score


if __name__ == "__main__":
    main()
