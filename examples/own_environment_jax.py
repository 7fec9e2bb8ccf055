"""Your own environment in one page: a boat crosses a river to a landing, against a current that differs each time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

import ppax
from ppax.envs import TimeLimit, VectorEnv
from ppax.types import EnvReset, EnvStep, Scalar, number, part

ITERATIONS = 50


class State(NamedTuple):
    """All that changes; `step` returns the next one. What is not in here does not change."""

    position: Array  # [2] from the left bank at x = 0 to the right one at x = 1
    current: Array  # []


@part  # a frozen dataclass that JAX can look into
class River:
    """Row in any direction; the landing is at (1, 0), a tenth wide on either side."""

    strength: Scalar = number("current, at most", default=0.04, low=0.0)  # a number can be swept and annealed

    # what an agent sees and does, as Gymnasium writes it, with the types that the numbers really have
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    num_agents = None  # one agent, and no axis for it

    def reset(self, key):
        """Begin an episode; everything random is drawn from `key`."""
        current_key, place_key = jax.random.split(key)  # each key is used once
        current = jax.random.uniform(current_key, minval=-self.strength, maxval=self.strength)
        place = jax.random.uniform(place_key, minval=-0.5, maxval=0.5)
        state = State(jnp.stack([jnp.zeros(()), place]), current)
        return EnvReset(state, self._observe(state))

    def step(self, state, action, key):
        """One stroke. It never resets itself: ppax does."""
        position = state.position + 0.1 * action + jnp.stack([jnp.zeros(()), state.current])
        position = jnp.clip(position, jnp.array([0.0, -2.0]), jnp.array([1.0, 2.0]))
        state = State(position, state.current)
        landed = position[0] >= 1.0
        # A stroke costs something, so that drifting until the time limit is worse than any landing. A limit takes no
        # value away: drifting for ever is worth -0.01 / (1 - gamma) = -1, as much as -1 for a bad landing would be
        reward = jnp.where(landed, jnp.where(jnp.abs(position[1]) < 0.1, 1.0, 0.0), -0.01)
        # terminated: over for good. Time limits are the business of TimeLimit, which truncates instead
        return EnvStep(state, self._observe(state), reward.astype(jnp.float32), landed, jnp.zeros((), bool))

    def _observe(self, state):
        return jnp.concatenate([state.position, state.current[None]])


def main():
    world = TimeLimit(River(), 50)
    print(ppax.check_env(world))  # in plain words, what is wrong with it; also: ppax check-env NAME
    env = VectorEnv(world, 64)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=3e-3, normalize_obs=True)
    run = ppax.fit(agent, env, total_steps=ITERATIONS * 64 * 128)
    score = run.evaluate(episodes=256).mean_return
    print(f"mean return {score:.2f} of at most 0.91")
    return score


if __name__ == "__main__":
    main()
