"""Masked hybrid actions: hold, move by a vector, or shoot; shooting is allowed only while there is ammunition."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from ppax.types import EnvReset, EnvStep, part

import ppax
from ppax.envs import TimeLimit, VectorEnv

ITERATIONS = 60
HOLD, MOVE, SHOOT = range(3)


class State(NamedTuple):
    """Position of the shooter and its remaining shots."""

    position: Array  # [2]
    ammunition: Array  # []


@part
class Range:
    """Shooting range: a shot earns more the nearer the shooter is to the origin; a move is at most 0.5 per axis."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Dict({"kind": spaces.Discrete(3), "move": spaces.Box(-0.5, 0.5, (2,))})
    num_agents = None

    def _observe(self, state: State) -> tuple[Array, dict[str, Array]]:
        # A mask is a tree with the structure of the action; "move" is continuous and has no mask
        mask = {"kind": (jnp.arange(3) != SHOOT) | (state.ammunition > 0)}
        return jnp.append(state.position, state.ammunition), mask

    def reset(self, key: Array) -> EnvReset:
        state = State(jax.random.uniform(key, (2,), minval=-2.0, maxval=2.0), jnp.float32(3))
        return EnvReset(state, *self._observe(state))

    def step(self, state: State, action: dict[str, Array], key: Array) -> EnvStep:
        kind, move = action["kind"], action["move"]
        shoots = kind == SHOOT
        reward = jnp.where(shoots, jnp.exp(-2.0 * jnp.linalg.norm(state.position)), 0.0)
        state = State(state.position + jnp.where(kind == MOVE, move, 0.0), state.ammunition - shoots)
        obs, mask = self._observe(state)
        return EnvStep(state, obs, reward, jnp.bool_(False), jnp.bool_(False), mask)


def main() -> float:
    """Train and print the mean return; at most 3, for three shots from the origin."""
    env = VectorEnv(TimeLimit(Range(), 16), 64)
    network = ppax.networks.mlp(env, distribution="squashed")
    agent = ppax.PPO(network, learning_rate=3e-3)
    state = ppax.start(agent, env, 64, jax.random.key(0))
    train = jax.jit(ppax.train)
    for quarter in range(1, 5):
        state, metrics = train(agent, env, state, ITERATIONS // 4, ITERATIONS)
        print(f"after {quarter * ITERATIONS // 4} iterations: return {float(metrics['episode_return']):.2f}")
    return float(metrics["episode_return"])


if __name__ == "__main__":
    main()
