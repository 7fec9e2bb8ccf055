"""MountainCar: a car too weak to drive out of a valley directly must first gain speed in the other direction.

Moore, "Efficient memory-based learning for robot control", 1990, https://www.cl.cam.ac.uk/techreports/UCAM-CL-TR-209.pdf.
Parameters, rewards and terminations are those of Gymnasium's MountainCar-v0 and MountainCarContinuous-v0, without their
limits of 200 and 999 steps: use TimeLimit. Both, and rl8's variant (rl8.py), share `Valley`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, Scalar, number, part, static
from ppax.envs.builtin.drawing import BLUE, GREEN, GREY, INK, Canvas


class CarState(NamedTuple):
    """State of MountainCar: position of the car along the valley, and its velocity, in distance per step."""

    position: Array  # []
    velocity: Array  # []


@part
class Valley:
    """Track of MountainCar from -1.2, where a wall stops the car, to 0.6; the lowest point is at -0.52."""

    gravity: Scalar = number("acceleration by gravity where the track is steepest", default=0.0025)
    # static: bounds of the observation spaces, which must be known while tracing
    low: float = static("position of the wall on the left", default=-1.2)
    high: float = static("position of the right end", default=0.6)
    max_speed: float = static("bound on the velocity, in both directions", default=0.07, above=0.0)

    @property
    def space(self) -> spaces.Box:
        """Space of observations: Box [2], position and velocity of the car."""
        low, high = (
            np.array([x, y], np.float32) for x, y in ((self.low, -self.max_speed), (self.high, self.max_speed))
        )
        return spaces.Box(low, high, dtype=np.float32)

    def drive(self, state: CarState, push: Array) -> CarState:
        """Return the car's state one step later, with the acceleration `push` [] of the motor."""
        velocity = state.velocity + push - self.gravity * jnp.cos(3.0 * state.position)
        velocity = jnp.clip(velocity, -self.max_speed, self.max_speed)
        position = jnp.clip(state.position + velocity, self.low, self.high)
        return CarState(position, jnp.where((position == self.low) & (velocity < 0.0), 0.0, velocity))

    def picture(self, state: CarState, goal: float) -> np.ndarray:
        """Return a picture [H, W, 3] of the valley, the car and the flag at the position `goal`."""
        track = np.linspace(self.low, self.high, 60)
        canvas = Canvas((self.low, -0.1), (self.high, 1.2))
        canvas.path(np.stack([track, _height(track)], axis=1), INK)
        canvas.line((goal, _height(goal)), (goal, _height(goal) + 0.2), GREY)
        canvas.rectangle((goal, _height(goal) + 0.12), (goal + 0.09, _height(goal) + 0.2), GREEN)
        x = float(state.position)
        canvas.disc((x, _height(x) + 0.05), 0.05, BLUE)
        return canvas.image()


@part
class MountainCar:
    """Environment MountainCar: a car too weak to drive out of a valley directly must gain speed first.

    Observation [2]: position and velocity. Actions: push left, none, right. Reward -1 for each step. The episode
    terminates when the car has reached the goal and does not roll back.
    """

    valley: Valley = Valley()
    force: Scalar = number("acceleration of a push", default=0.001, low=0.0)
    goal: Scalar = number("position to reach", default=0.5)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: Box [2], position and velocity."""
        return self.valley.space

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: push left, none, right."""
        return spaces.Discrete(3)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of MountainCar: near the lowest point, at rest."""
        return _start(key)

    def step(self, state: CarState, action: Array, key: Key) -> EnvStep:
        """Return the result of a push for one step; the episode terminates at the goal."""
        new = self.valley.drive(state, (jnp.asarray(action, jnp.float32) - 1.0) * self.force)
        terminated = (new.position >= self.goal) & (new.velocity >= 0.0)
        return EnvStep(new, jnp.stack(new), -jnp.ones((), jnp.float32), terminated, jnp.zeros((), bool))

    def render(self, state: CarState) -> np.ndarray:
        """Return a picture [H, W, 3] of the valley and the car."""
        return self.valley.picture(state, float(self.goal))


@part
class MountainCarContinuous:
    """Environment MountainCar with a continuous action [1], a push from -1 to 1.

    Observation [2]: position and velocity. The reward is -0.1 times the square of the push, plus `goal_reward` at the
    goal, where the episode terminates.
    """

    valley: Valley = Valley()
    power: Scalar = number("acceleration of a full push", default=0.0015, low=0.0)
    goal: Scalar = number("position to reach", default=0.45)
    goal_reward: Scalar = number("reward for reaching the goal", default=100.0)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: Box [2], position and velocity."""
        return self.valley.space

    @property
    def action_space(self) -> spaces.Box:
        """Space of actions: Box [1], a push from -1 to 1."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of MountainCar: near the lowest point, at rest."""
        return _start(key)

    def step(self, state: CarState, action: Array, key: Key) -> EnvStep:
        """Return the result of a push for one step; the episode terminates at the goal."""
        new = self.valley.drive(state, self.power * jnp.clip(action[0], -1.0, 1.0))
        terminated = (new.position >= self.goal) & (new.velocity >= 0.0)
        reward = jnp.where(terminated, self.goal_reward, 0.0) - 0.1 * action[0] ** 2
        return EnvStep(new, jnp.stack(new), reward.astype(jnp.float32), terminated, jnp.zeros((), bool))

    def render(self, state: CarState) -> np.ndarray:
        """Return a picture [H, W, 3] of the valley and the car."""
        return self.valley.picture(state, float(self.goal))


def _start(key: Key) -> EnvReset:
    """Return the start of an episode of MountainCar: at a position uniform from -0.6 to -0.4, at rest."""
    state = CarState(jax.random.uniform(key, (), jnp.float32, -0.6, -0.4), jnp.zeros((), jnp.float32))
    return EnvReset(state, jnp.stack(state))


def _height(position: np.ndarray | float) -> np.ndarray | float:
    """Return the height of MountainCar's track at a position; its slope gives the acceleration by gravity."""
    return 0.45 * np.sin(3.0 * position) + 0.55
