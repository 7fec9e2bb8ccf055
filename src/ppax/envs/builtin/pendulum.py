"""Pendulum swing-up: a motor too weak to lift the pendulum has to swing it up and then hold it there.

Dynamics, cost and parameters are those of Gymnasium's Pendulum-v1, https://gymnasium.farama.org/environments/classic_control/pendulum/,
without its limit of 200 steps: use TimeLimit. The angle is 0 when upright.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, Scalar, number, part, static
from ppax.envs.builtin.drawing import INK, RED, Canvas


class PendulumState(NamedTuple):
    """State of Pendulum: angle (0 is upright, not wrapped) and angular velocity."""

    theta: Array  # [] rad
    theta_dot: Array  # [] rad/s


@part
class Pendulum:
    """Environment Pendulum: a motor too weak to lift a rod has to swing it up and hold it there. It never terminates.

    Observation [3]: cosine and sine of the angle (0 is upright), angular velocity. Action [1]: torque in N m. The
    reward is the negative of a cost, which grows with the angle, the angular velocity and the torque.
    """

    gravity: Scalar = number("gravity, m/s^2", default=10.0)
    mass: Scalar = number("mass of the rod, kg", default=1.0, above=0.0)
    length: Scalar = number("length of the rod, m", default=1.0, above=0.0)
    dt: Scalar = number("time step, s", default=0.05, above=0.0)
    start_theta: Scalar = number("initial angle: uniform in +- this, rad", default=np.pi, low=0.0)
    start_theta_dot: Scalar = number("initial angular velocity: uniform in +- this, rad/s", default=1.0, low=0.0)
    # static: bounds of the spaces, which must be known while tracing
    max_theta_dot: float = static("bound on the angular velocity, rad/s", default=8.0, above=0.0)
    max_torque: float = static("bound on the torque, N m", default=2.0, above=0.0)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: Box [3], cosine and sine of the angle, angular velocity."""
        high = np.array([1.0, 1.0, self.max_theta_dot], np.float32)
        return spaces.Box(-high, high, dtype=np.float32)

    @property
    def action_space(self) -> spaces.Box:
        """Space of actions: Box [1], the torque from -max_torque to max_torque, in N m."""
        return spaces.Box(-self.max_torque, self.max_torque, (1,), np.float32)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of Pendulum: at a random angle with a small velocity."""
        unit = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        state = PendulumState(unit[0] * self.start_theta, unit[1] * self.start_theta_dot)
        return EnvReset(state, _observe(state))

    def step(self, state: PendulumState, action: Array, key: Key) -> EnvStep:
        """Return the result of applying the torque for one time step.

        The reward is the negative cost, which is computed from the torque and the state before the step.
        """
        torque = jnp.clip(action[0], -self.max_torque, self.max_torque)
        angle = jnp.mod(state.theta + np.pi, 2 * np.pi) - np.pi
        cost = angle**2 + 0.1 * state.theta_dot**2 + 0.001 * torque**2

        # a rod about its end: moment of inertia m l^2 / 3, centre of mass at l / 2
        gravity_acc = 1.5 * self.gravity / self.length * jnp.sin(state.theta)
        torque_acc = 3.0 * torque / (self.mass * self.length**2)
        theta_dot = state.theta_dot + self.dt * (gravity_acc + torque_acc)
        theta_dot = jnp.clip(theta_dot, -self.max_theta_dot, self.max_theta_dot)
        new = PendulumState(state.theta + self.dt * theta_dot, theta_dot)
        never = jnp.zeros((), bool)
        return EnvStep(new, _observe(new), -cost, never, never)

    def render(self, state: PendulumState) -> np.ndarray:
        """Return a picture [H, W, 3] of the pendulum's rod."""
        canvas = Canvas((-1.3, -1.3), (1.3, 1.3))
        angle = float(state.theta)
        canvas.line((0.0, 0.0), (-np.sin(angle), np.cos(angle)), RED, 14.0)
        canvas.disc((0.0, 0.0), 0.06, INK)
        return canvas.image()


def _observe(state: PendulumState) -> Array:
    """Return the observation [3]: the angle as cosine and sine, and the angular velocity.

    Cosine and sine are the same after a full turn.
    """
    return jnp.stack([jnp.cos(state.theta), jnp.sin(state.theta), state.theta_dot])
