"""Equinox module as the encoder of a network: from one observation to one feature vector; ppax adds the heads."""

import equinox as eqx
import jax

import ppax
from ppax.networks import adapters

ITERATIONS = 40


def torso(key):
    """Return an MLP of two layers with 64 units."""
    return eqx.nn.MLP(4, 64, width_size=64, depth=1, activation=jax.nn.tanh, final_activation=jax.nn.tanh, key=key)


def main() -> float:
    """Train on CartPole and return the mean episode return."""
    env = ppax.make("CartPole-v1", num_envs=16)
    network = ppax.networks.network(env, encoder=adapters.Equinox(torso), hidden=())
    agent = ppax.PPO(network, learning_rate=1e-3)
    state = ppax.start(agent, env, num_steps=128, key=jax.random.key(0))
    _, metrics = jax.jit(ppax.train)(agent, env, state, ITERATIONS)
    score = float(metrics["episode_return"])
    print(f"mean episode return while training: {score:.1f}")
    return score


if __name__ == "__main__":
    main()
