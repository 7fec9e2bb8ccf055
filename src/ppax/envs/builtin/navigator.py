"""Navigator: agents in a box apply forces to reach their targets.

The task is the single navigator of JaxDEM, https://github.com/cdelv/JaxDEM: the reward is a difference of potentials
(Ng, Harada, Russell, "Policy invariance under reward transformations", 1999), minus a fraction of the kinetic energy
gained. Walls and other agents exert spring forces, as in the discrete element method. Options add further agents,
LIDAR, a bonus at the target, and a share of the reward that is the mean over all agents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, Scalar, number, part, static
from ppax.envs.builtin.drawing import COLOURS, GREY, INK, Canvas
from ppax.envs.sensors import lidar, lidar_rays

# Differences of JaxDEM's multi-agent task from its single navigator: LIDAR, a bonus at the target, shared reward
CROWD: dict[str, Any] = {"num_rays": 16, "goal_bonus": 0.05, "shared": 0.1}


class NavigatorState(NamedTuple):
    """State of Navigator: positions, velocities and targets of all A agents, [A, 2] each."""

    position: Array  # [A, 2], in a box from -1 to 1
    velocity: Array  # [A, 2]
    target: Array  # [A, 2]


@part
class Navigator:
    """Environment of A discs (the agents) in a box, which apply forces to reach their targets. It never terminates.

    The discs have mass 1, the box is [-1, 1]^2, and the action [A, 2] is in [-1, 1], in units of `max_force`.
    Observation [A, 6 + num_rays]: unit direction to the target (2), displacement to it clipped to `sight` (2), velocity
    (2), and for each LIDAR ray the proximity of the nearest disc or wall: 1 at the agent's own edge, 0 at a distance of
    `ray_length` or more. Ray directions are fixed, the first to the right, the others counterclockwise. The reward of
    an agent is the increase of a potential, which rises towards the target and falls with kinetic energy, plus
    `goal_bonus` at the target; a share `shared` of it is replaced by the mean over all agents. The metric `arrived` is
    1 for an agent within `radius` of its target.
    """

    max_force: Scalar = number("force of a full action, along each axis", default=2.0, low=0.0)
    drag: Scalar = number("drag force for each unit of velocity", default=2.0, low=0.0)
    stiffness: Scalar = number("contact force for each unit of overlap", default=200.0, low=0.0)
    radius: Scalar = number("radius of an agent", default=0.1, above=0.0)
    sight: Scalar = number("bound on each coordinate of the observed displacement", default=0.5, above=0.0)
    dt: Scalar = number("time step", default=0.05, above=0.0)
    sharpness: Scalar = number("decay rate of the potential exp(-sharpness * distance)", default=2.0, above=0.0)
    energy_cost: Scalar = number("reward lost for each unit of kinetic energy gained", default=0.1, low=0.0)
    goal_bonus: Scalar = number("reward for each step within `radius` of the target", default=0.0)
    shared: Scalar = number("share of the reward that is the mean over all agents", default=0.0, low=0.0, high=1.0)
    ray_length: Scalar = number("range of the LIDAR", default=0.5, above=0.0)
    num_rays: int = static("rays of each agent's LIDAR; 0: none", default=0, low=0)
    num_agents: int = static("number of agents, each with its own target", default=1, low=1)

    @property
    def observation_space(self) -> spaces.Box:
        """Space of one agent's observation: Box [6 + num_rays]; velocities have no bounds."""
        return spaces.Box(-np.inf, np.inf, (6 + self.num_rays,), np.float32)

    @property
    def action_space(self) -> spaces.Box:
        """Space of one agent's action: Box [2] from -1 to 1, its force along both axes."""
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of Navigator: agents at rest, at uniform positions with uniform targets.

        Positions and targets are inside the box; agents may overlap, and then push each other apart.
        """
        position_key, target_key = jax.random.split(key)
        shape, reach = (self.num_agents, 2), 1.0 - self.radius
        position = jax.random.uniform(position_key, shape, jnp.float32, -reach, reach)
        target = jax.random.uniform(target_key, shape, jnp.float32, -reach, reach)
        state = NavigatorState(position, jnp.zeros(shape, jnp.float32), target)
        return EnvReset(state, self._observe(state))

    def step(self, state: NavigatorState, action: Array, key: Key) -> EnvStep:
        """Return the result of one time step by semi-implicit Euler, with implicit drag, so that any drag is stable."""
        force = self.max_force * jnp.clip(action, -1.0, 1.0)
        force = force + self._wall_force(state.position) + self._pair_force(state.position)
        velocity = (state.velocity + self.dt * force) / (1.0 + self.dt * self.drag)
        new = NavigatorState(state.position + self.dt * velocity, velocity, state.target)
        near = _norm(new.target - new.position) < self.radius
        own = self._potential(new) - self._potential(state) + jnp.where(near, self.goal_bonus, 0.0)
        reward = (1.0 - self.shared) * own + self.shared * own.mean()
        never = jnp.zeros((self.num_agents,), bool)
        return EnvStep(new, self._observe(new), reward, never, never, metrics={"arrived": near})

    def _observe(self, state: NavigatorState) -> Array:
        way = state.target - state.position
        direction = way / jnp.maximum(_norm(way)[:, None], 1e-6)
        seen = [direction, jnp.clip(way, -self.sight, self.sight), state.velocity]
        return jnp.concatenate([*seen, self._lidar(state.position)] if self.num_rays else seen, axis=-1)

    def _lidar(self, position: Array) -> Array:
        """Return the proximity of the nearest disc or wall on each LIDAR ray of each of the A agents, [A, num_rays].

        It is 1 at the agent's edge and 0 out of range.
        """
        sensors = jax.vmap(lidar, (0, None, None, None, None))
        distance = sensors(position, lidar_rays(self.num_rays), position, self.radius, (-1.0, 1.0))
        return 1.0 - jnp.clip((distance - self.radius) / self.ray_length, 0.0, 1.0)

    def render(self, state: NavigatorState) -> np.ndarray:
        """Return a picture [H, W, 3] of agents as discs, each with a line to its target."""
        canvas = Canvas((-1.05, -1.05), (1.05, 1.05))
        canvas.path([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)], INK)
        places = zip(np.asarray(state.position, float), np.asarray(state.target, float), strict=True)
        for agent, (position, target) in enumerate(places):
            colour = COLOURS[agent % len(COLOURS)]
            canvas.line(position, target, GREY, 1.0)
            canvas.ring(target, 0.5 * float(self.radius), colour)
            canvas.disc(position, float(self.radius), colour)
        return canvas.image()

    def _potential(self, state: NavigatorState) -> Array:
        """Return the potential of each of the A agents, whose increase is the reward of a step, [A].

        It rises towards the agent's target, and falls with the agent's kinetic energy.
        """
        distance = _norm(state.target - state.position)
        energy = 0.5 * (state.velocity**2).sum(axis=-1)
        return jnp.exp(-self.sharpness * distance) - self.energy_cost * energy

    def _wall_force(self, position: Array) -> Array:
        """Return the force of the walls on each of the A agents, [A, 2]: inwards, proportional to the overlap."""
        right = jnp.maximum(position + self.radius - 1.0, 0.0)
        left = jnp.maximum(-position + self.radius - 1.0, 0.0)
        return self.stiffness * (left - right)

    def _pair_force(self, position: Array) -> Array:
        """Return the force of all other discs on each of the A agents, [A, 2]: repulsive, proportional to the overlap.

        It is 0 between discs whose centres coincide.
        """
        x, y = (position[:, None, axis] - position[None, :, axis] for axis in (0, 1))  # [A, A], from 2nd to 1st agent
        distance = jnp.sqrt(x**2 + y**2)
        push = jnp.maximum(2.0 * self.radius - distance, 0.0) / jnp.maximum(distance, 1e-6)
        return self.stiffness * jnp.stack([(x * push).sum(axis=-1), (y * push).sum(axis=-1)], axis=-1)


def _norm(vector: Array) -> Array:
    """Return the Euclidean norm of vectors [..., 2], as [...]."""
    return jnp.sqrt((vector**2).sum(axis=-1))
