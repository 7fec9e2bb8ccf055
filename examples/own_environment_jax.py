"""Your own JAX environment: a boat crosses a river to a landing; the current differs in each episode."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from ppax.types import EnvReset, EnvStep, Scalar, number, part

import ppax
from ppax.envs import TimeLimit, VectorEnv

ITERATIONS = 50


class State(NamedTuple):
    """State of the environment: everything that changes from step to step."""

    position: Array  # [2] from the left bank at x = 0 to the right one at x = 1
    current: Array  # []


@part  # a frozen dataclass that is a JAX pytree
class River:
    """River with a boat that rows in any direction; the landing is at (1, 0) and reaches 0.1 to either side."""

    strength: Scalar = number("maximum current", default=0.04, low=0.0)  # a number can be swept and annealed

    # Gymnasium spaces; their dtypes must be those of the arrays
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    num_agents = None  # a single agent without an agent axis

    def reset(self, key):
        """Start an episode; all randomness comes from `key`."""
        current_key, place_key = jax.random.split(key)  # each key is used once
        current = jax.random.uniform(current_key, minval=-self.strength, maxval=self.strength)
        place = jax.random.uniform(place_key, minval=-0.5, maxval=0.5)
        state = State(jnp.stack([jnp.zeros(()), place]), current)
        return EnvReset(state, self._observe(state))

    def step(self, state, action, key):
        """Row one stroke. The environment never resets itself: ppax does."""
        position = state.position + 0.1 * action + jnp.stack([jnp.zeros(()), state.current])
        position = jnp.clip(position, jnp.array([0.0, -2.0]), jnp.array([1.0, 2.0]))
        state = State(position, state.current)
        landed = position[0] >= 1.0
        # A stroke costs 0.01, so that drifting is worse than any landing. Truncation bootstraps, so drifting has the
        # value -0.01 / (1 - gamma); if a miss had a reward as low as that, the agent would never row to the bank
        reward = jnp.where(landed, jnp.where(jnp.abs(position[1]) < 0.1, 1.0, 0.0), -0.01)
        # `landed` is `terminated`: a true end. Time limits belong to TimeLimit, which truncates
        return EnvStep(state, self._observe(state), reward.astype(jnp.float32), landed, jnp.zeros((), bool))

    def _observe(self, state):
        return jnp.concatenate([state.position, state.current[None]])


def main():
    world = TimeLimit(River(), 50)
    print(ppax.check_env(world))  # a report in plain words; also: ppax check-env NAME
    env = VectorEnv(world, 64)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=3e-3, normalize_obs=True)
    run = ppax.fit(agent, env, total_steps=ITERATIONS * 64 * 128)
    score = run.evaluate(episodes=256).mean_return
    print(f"mean return {score:.2f} of at most 0.91")
    return score


if __name__ == "__main__":
    main()
