"""Navigator: point masses in a box steer to their targets by pushing themselves.

The task is the single navigator of JaxDEM, https://github.com/cdelv/JaxDEM: the reward is a difference of
potentials (Ng, Harada, Russell, "Policy invariance under reward transformations", 1999), less a little of the
kinetic energy gained. Walls and other agents push back like springs, as in the discrete element method. With several
agents each may see the others by LIDAR, share in the reward of all, and be paid for being where it wants to be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.builtin.drawing import COLOURS, GREY, INK, Canvas
from ppax.types import EnvReset, EnvStep, Key, Scalar, number, part, static

# How JaxDEM's crowds differ from its single navigator: they see each other, and are paid for arriving
CROWD: dict[str, Any] = {"num_rays": 16, "goal_bonus": 0.05, "shared": 0.1}


class NavigatorState(NamedTuple):
    """Where the agents are, how fast they move, where each wants to go."""

    position: Array  # [A, 2], in a box from -1 to 1
    velocity: Array  # [A, 2]
    target: Array  # [A, 2]


@part
class Navigator:
    """Discs of mass 1 in the box [-1, 1]^2; action [A, 2] in [-1, 1], in units of `max_force`. Never ends.

    Observation [A, 6 + num_rays]: unit direction to the target (2), the way to it clipped to `sight` (2), velocity (2),
    and what each ray of the LIDAR meets, discs or walls: 1 at the agent's own edge, 0 at `ray_length` from there and
    beyond. Rays are fixed in the box, the first to the right, the others counterclockwise.
    """

    max_force: Scalar = number("force of a full action, along each axis", default=2.0, low=0.0)
    drag: Scalar = number("drag force for each unit of velocity", default=2.0, low=0.0)
    stiffness: Scalar = number("contact force for each unit of overlap", default=200.0, low=0.0)
    radius: Scalar = number("radius of an agent", default=0.1, above=0.0)
    sight: Scalar = number("bound on each coordinate of the observed way to the target", default=0.5, above=0.0)
    dt: Scalar = number("time step", default=0.05, above=0.0)
    sharpness: Scalar = number("the potential is exp(-sharpness * distance)", default=2.0, above=0.0)
    energy_cost: Scalar = number("reward lost for each unit of kinetic energy gained", default=0.1, low=0.0)
    goal_bonus: Scalar = number("reward for each step within a radius of the target", default=0.0)
    shared: Scalar = number("share of the reward that is the mean over all agents", default=0.0, low=0.0, high=1.0)
    ray_length: Scalar = number("how far the LIDAR sees", default=0.5, above=0.0)
    num_rays: int = static("rays of each agent's LIDAR; 0: none", default=0, low=0)
    num_agents: int = static("number of agents, each with its own target", default=1, low=1)

    @property
    def observation_space(self) -> spaces.Box:
        """Box [6 + num_rays] of one agent; a velocity has no bound."""
        return spaces.Box(-np.inf, np.inf, (6 + self.num_rays,), np.float32)

    @property
    def action_space(self) -> spaces.Box:
        """Box [2] of one agent."""
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, key: Key) -> EnvReset:
        """Agents at rest and targets, uniform where a disc fits in the box; overlapping agents push apart."""
        position_key, target_key = jax.random.split(key)
        shape, reach = (self.num_agents, 2), 1.0 - self.radius
        position = jax.random.uniform(position_key, shape, jnp.float32, -reach, reach)
        target = jax.random.uniform(target_key, shape, jnp.float32, -reach, reach)
        state = NavigatorState(position, jnp.zeros(shape, jnp.float32), target)
        return EnvReset(state, self._observe(state))

    def step(self, state: NavigatorState, action: Array, key: Key) -> EnvStep:
        """Push for one time step (semi-implicit Euler, drag implicit, so that no drag makes it unstable)."""
        force = self.max_force * jnp.clip(action, -1.0, 1.0)
        force = force + self._wall_force(state.position) + self._pair_force(state.position)
        velocity = (state.velocity + self.dt * force) / (1.0 + self.dt * self.drag)
        new = NavigatorState(state.position + self.dt * velocity, velocity, state.target)
        near = _norm(new.target - new.position) < self.radius
        own = self._potential(new) - self._potential(state) + jnp.where(near, self.goal_bonus, 0.0)
        reward = (1.0 - self.shared) * own + self.shared * own.mean()
        never = jnp.zeros((self.num_agents,), bool)
        return EnvStep(new, self._observe(new), reward, never, never)

    def _observe(self, state: NavigatorState) -> Array:
        way = state.target - state.position
        direction = way / jnp.maximum(_norm(way)[:, None], 1e-6)
        seen = [direction, jnp.clip(way, -self.sight, self.sight), state.velocity]
        return jnp.concatenate([*seen, self._lidar(state.position)] if self.num_rays else seen, axis=-1)

    def _lidar(self, position: Array) -> Array:
        """What each ray [A, num_rays] meets first: 1 at the agent's edge, 0 at `ray_length` and beyond."""
        angle = jnp.arange(self.num_rays, dtype=jnp.float32) * (2.0 * np.pi / self.num_rays)
        ray = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)  # [R, 2]
        # walls: along each axis the ray reaches the wall on the side to which it points
        pace = jnp.maximum(jnp.abs(ray), 1e-6)[None]
        wall = ((1.0 - jnp.sign(ray)[None] * position[:, None, :]) / pace).min(axis=-1)  # [A, R]
        # discs: the ray's nearest point to a centre is `ahead` along it and `aside` from it; an agent is not ahead of
        # itself. All [A, R, A], the others last, so that the loop over them is one of vectors
        x, y = (position[None, :, axis] - position[:, None, axis] for axis in (0, 1))
        x, y, cos, sin = x[:, None, :], y[:, None, :], ray[None, :, :1], ray[None, :, 1:]
        ahead, aside = x * cos + y * sin, x * sin - y * cos
        half_chord2 = self.radius**2 - aside**2
        distance = ahead - jnp.sqrt(jnp.maximum(half_chord2, 0.0))
        disc = jnp.where((half_chord2 > 0.0) & (ahead > 0.0), distance, jnp.inf).min(axis=-1)  # [A, R]
        free = jnp.minimum(wall, disc) - self.radius
        return 1.0 - jnp.clip(free / self.ray_length, 0.0, 1.0)

    def render(self, state: NavigatorState) -> np.ndarray:
        """Agents as discs, each with a line to its target, [H, W, 3]."""
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
        """What the reward [A] is the difference of."""
        distance = _norm(state.target - state.position)
        energy = 0.5 * (state.velocity**2).sum(axis=-1)
        return jnp.exp(-self.sharpness * distance) - self.energy_cost * energy

    def _wall_force(self, position: Array) -> Array:
        """Each wall pushes [A, 2] inwards in proportion to how deep a disc is in it."""
        right = jnp.maximum(position + self.radius - 1.0, 0.0)
        left = jnp.maximum(-position + self.radius - 1.0, 0.0)
        return self.stiffness * (left - right)

    def _pair_force(self, position: Array) -> Array:
        """All other discs push [A, 2] away in proportion to the overlap, but not from the very same spot."""
        x, y = (position[:, None, axis] - position[None, :, axis] for axis in (0, 1))  # [A, A], to the first
        distance = jnp.sqrt(x**2 + y**2)
        push = jnp.maximum(2.0 * self.radius - distance, 0.0) / jnp.maximum(distance, 1e-6)
        return self.stiffness * jnp.stack([(x * push).sum(axis=-1), (y * push).sum(axis=-1)], axis=-1)


def _norm(vector: Array) -> Array:
    """Length of [..., 2]."""
    return jnp.sqrt((vector**2).sum(axis=-1))
