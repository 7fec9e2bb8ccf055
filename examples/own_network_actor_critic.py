"""Whole actor-critic module of flax.nnx, named by its import path: trained, loaded from its run, and exported.

On the command line, in the directory of this file:

ppax train CartPole-v1 --agent.network nnx --agent.network.module own_network_actor_critic:ActorCritic \\
    --agent.network.arguments.width 32 --trust own_network_actor_critic
"""

import sys
from pathlib import Path

import numpy as np
from flax import nnx

import ppax

ITERATIONS = 40


class ActorCritic(nnx.Module):
    """Logits of the two actions of CartPole, and the value, from one observation."""

    def __init__(self, width: int = 64, *, rngs: nnx.Rngs):
        self.actor, self.critic = nnx.Linear(4, width, rngs=rngs), nnx.Linear(4, width, rngs=rngs)
        self.policy, self.value = nnx.Linear(width, 2, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        return self.policy(nnx.tanh(self.actor(x))), self.value(nnx.tanh(self.critic(x)))


def main() -> float:
    """Train on CartPole, compare the loaded and the exported policy, and return the mean return."""
    sys.path.insert(0, str(Path(__file__).parent))
    ppax.trust("own_network_actor_critic")
    network = {"part": "nnx", "module": "own_network_actor_critic:ActorCritic", "arguments": {"width": 32}}
    settings = {"num_envs": 16, "num_steps": 128, "total_steps": ITERATIONS * 16 * 128}
    run = ppax.build("CartPole-v1", preset="none", **settings, agent={"network": network}).fit("runs/actor_critic")

    policy, obs = ppax.load("runs/actor_critic"), np.float32([[0.0, 0.1, 0.02, -0.1]])
    policy.export("actor_critic.zip")  # compares the actions of all formats with those of the policy
    print(f"action {policy.act(obs)[0]}, exported {ppax.load('actor_critic.zip').act(obs)[0]}")
    score = run.evaluate(episodes=32).mean_return
    print(f"mean return: {score:.1f}")
    return score


if __name__ == "__main__":
    main()
