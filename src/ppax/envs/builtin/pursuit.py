"""Pursuit: a prey flees from one or two predators in the unit square; each player chooses its heading.

The pursuit games of jaxagents, https://github.com/amavrits/jax-agents, without their limit of 2 s, 200 steps: use
TimeLimit.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, Scalar, number, part, static
from ppax.envs.builtin.drawing import BLUE, COLOURS, INK, RED, Canvas


class PursuitState(NamedTuple):
    """State of Pursuit: time [], positions [A, 2] and headings [A] of the A players; the prey is the first player."""

    time: Array  # [] s
    position: Array  # [A, 2] in the unit square
    heading: Array  # [A] rad


@part
class Pursuit:
    """Environment in which a prey flees from predators; each player (agent) chooses its heading.

    The A agents are the prey, then the predators. Action [A, 1]: heading in rad, from -pi to pi. Observation [A, 1 + 4
    A]: time, all positions, all headings, and the agent's index (one-hot). The reward of a step is 1 for the prey and
    -1 for each predator. In a step with a capture it is -100 for the prey, 100 for each predator within `radius` and 50
    for every other predator, and the episode of all agents terminates. (Numbers are those of the default options.) The
    metric `caught` is 1 in such a step and 0 in others.
    """

    prey_speed: Scalar = number("speed of the prey", default=1.0, low=0.0)
    predator_speed: Scalar = number("speed of the predators", default=1.0, low=0.0)
    radius: Scalar = number("capture distance", default=0.2, low=0.0)
    dt: Scalar = number("time step, s", default=0.01, above=0.0)
    step_reward: Scalar = number("reward of the prey for each step; predators get its negative", default=1.0)
    capture_reward: Scalar = number("reward of a predator for a capture; half of it for the others", default=100.0)
    num_predators: int = static("number of predators", default=1, low=1)

    @property
    def num_agents(self) -> int:
        """Number of agents: the prey and the predators."""
        return 1 + self.num_predators

    @property
    def observation_space(self) -> spaces.Box:
        """Space of one agent's observation: Box [1 + 4 A], for A agents: time, positions, headings, one-hot index."""
        return spaces.Box(-np.inf, np.inf, (1 + 4 * self.num_agents,), np.float32)

    @property
    def action_space(self) -> spaces.Box:
        """Space of one agent's action: Box [1], its heading from -pi to pi, in rad."""
        return spaces.Box(-np.pi, np.pi, (1,), np.float32)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of Pursuit: uniform positions.

        Captures are looked for after each step, so a predator may start within the capture distance of the prey.
        """
        position = jax.random.uniform(key, (self.num_agents, 2), jnp.float32)
        state = PursuitState(jnp.zeros((), jnp.float32), position, jnp.zeros(self.num_agents, jnp.float32))
        return EnvReset(state, self._observe(state))

    def step(self, state: PursuitState, action: Array, key: Key) -> EnvStep:
        """Return the result of moving all players for one time step; the walls of the square stop them."""
        heading = jnp.clip(action[:, 0], -np.pi, np.pi)
        speed = self._of_players(self.prey_speed, self.predator_speed)
        way = jnp.stack([jnp.cos(heading), jnp.sin(heading)], axis=-1)
        position = jnp.clip(state.position + self.dt * speed[:, None] * way, 0.0, 1.0)
        new = PursuitState(jnp.asarray(state.time + self.dt, jnp.float32), position, heading)

        near = jnp.sqrt(((position[1:] - position[:1]) ** 2).sum(axis=-1)) <= self.radius  # [A - 1]
        caught = near.any()
        share = jnp.concatenate([-jnp.ones(1, jnp.float32), jnp.where(near, 1.0, 0.5)])
        reward = jnp.where(
            caught, self.capture_reward * share, self._of_players(self.step_reward, -self.step_reward)
        ).astype(jnp.float32)
        terminated = jnp.broadcast_to(caught, (self.num_agents,))
        never = jnp.zeros(self.num_agents, bool)
        return EnvStep(new, self._observe(new), reward, terminated, never, metrics={"caught": caught})

    def render(self, state: PursuitState) -> np.ndarray:
        """Return a picture [H, W, 3] of the prey in blue, and of the predators with their capture distance."""
        canvas = Canvas((-0.05, -0.05), (1.05, 1.05))
        canvas.path([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)], INK)
        for player, (position, heading) in enumerate(zip(state.position, state.heading, strict=True)):
            x, angle = np.asarray(position, float), float(heading)
            colour = BLUE if player == 0 else (RED if player == 1 else COLOURS[player % len(COLOURS)])
            if player:
                canvas.ring(x, float(self.radius), colour, 1.5)
            canvas.line(x, x + 0.06 * np.array([np.cos(angle), np.sin(angle)]), colour)
            canvas.disc(x, 0.02, colour)
        return canvas.image()

    def _observe(self, state: PursuitState) -> Array:
        everything = jnp.concatenate([state.time[None], state.position.reshape(-1), state.heading])
        return jnp.concatenate(
            [jnp.tile(everything, (self.num_agents, 1)), jnp.eye(self.num_agents, dtype=jnp.float32)], axis=-1
        )

    def _of_players(self, prey: Scalar, predator: Scalar) -> Array:
        """Return an array [A] of a value for each of the A players: `prey` first, then `predator` for each predator."""
        is_prey = jnp.arange(self.num_agents) == 0
        return jnp.where(is_prey, jnp.asarray(prey, jnp.float32), jnp.asarray(predator, jnp.float32))
