"""Acrobot: two hanging links with a motor at the joint between them; swing the free end up.

Sutton, "Generalization in reinforcement learning: successful examples using sparse coarse coding", 1996; the equations
are those of Sutton and Barto, "Reinforcement Learning", 2nd edition, section 11.
Parameters, integrator, reward and termination are those of Gymnasium's Acrobot-v1, without its limit of 500 steps: use
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
from ppax.envs.builtin.drawing import BLUE, GREEN, INK, Canvas


class AcrobotState(NamedTuple):
    """State of Acrobot: angles and angular velocities of both links.

    The first angle is 0 hanging down, the second is relative to the first link.
    """

    theta1: Array  # [] rad
    theta2: Array  # [] rad
    theta1_dot: Array  # [] rad/s
    theta2_dot: Array  # [] rad/s


@part
class Acrobot:
    """Environment Acrobot: two hanging links, with a motor at the joint between them, are to swing up.

    Observation [6]: cosine and sine of both angles, both velocities. Actions: torque -1, 0, 1 at the joint. The reward
    is -1 for each step. A step that lifts the free end one link's length above the hinge has reward 0 and terminates.
    """

    gravity: Scalar = number("gravity, m/s^2", default=9.8)
    mass: Scalar = number("mass of a link, kg", default=1.0, above=0.0)
    length: Scalar = number("length of the first link, m", default=1.0, above=0.0)
    centre: Scalar = number("distance from a link's joint to its centre of mass, m", default=0.5, above=0.0)
    inertia: Scalar = number("moment of inertia of a link, kg m^2", default=1.0, above=0.0)
    torque: Scalar = number("torque of the motor, N m", default=1.0)
    dt: Scalar = number("time step, s", default=0.2, above=0.0)
    # static: bounds of the observation space, which must be known while tracing
    max_theta1_dot: float = static("bound on the first angular velocity, rad/s", default=4 * np.pi, above=0.0)
    max_theta2_dot: float = static("bound on the second angular velocity, rad/s", default=9 * np.pi, above=0.0)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: Box [6], cosine and sine of both angles, both angular velocities."""
        high = np.array([1.0, 1.0, 1.0, 1.0, self.max_theta1_dot, self.max_theta2_dot], np.float32)
        return spaces.Box(-high, high, dtype=np.float32)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: torque -1, 0, 1."""
        return spaces.Discrete(3)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of Acrobot: almost hanging down, almost at rest."""
        state = AcrobotState(*jax.random.uniform(key, (4,), jnp.float32, -0.1, 0.1))
        return EnvReset(state, _observe(state))

    def step(self, state: AcrobotState, action: Array, key: Key) -> EnvStep:
        """Return the result of applying the torque for one time step (fourth-order Runge-Kutta)."""
        torque = self.torque * (jnp.asarray(action, jnp.float32) - 1.0)
        x, dt = jnp.stack(state), self.dt
        k1 = self._change(x, torque)
        k2 = self._change(x + 0.5 * dt * k1, torque)
        k3 = self._change(x + 0.5 * dt * k2, torque)
        k4 = self._change(x + dt * k3, torque)
        theta1, theta2, theta1_dot, theta2_dot = x + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        new = AcrobotState(
            _wrap(theta1),
            _wrap(theta2),
            jnp.clip(theta1_dot, -self.max_theta1_dot, self.max_theta1_dot),
            jnp.clip(theta2_dot, -self.max_theta2_dot, self.max_theta2_dot),
        )
        terminated = -jnp.cos(new.theta1) - jnp.cos(new.theta1 + new.theta2) > 1.0
        reward = jnp.where(terminated, 0.0, -1.0).astype(jnp.float32)
        return EnvStep(new, _observe(new), reward, terminated, jnp.zeros((), bool))

    def _change(self, x: Array, torque: Array) -> Array:
        """Return the time derivative of Acrobot's state `x` [4]."""
        theta1, theta2, theta1_dot, theta2_dot = x
        m, l1, lc, inertia, g = self.mass, self.length, self.centre, self.inertia, self.gravity
        cos2, sin2 = jnp.cos(theta2), jnp.sin(theta2)
        d1 = m * lc**2 + m * (l1**2 + lc**2 + 2.0 * l1 * lc * cos2) + 2.0 * inertia
        d2 = m * (lc**2 + l1 * lc * cos2) + inertia
        phi2 = m * lc * g * jnp.cos(theta1 + theta2 - np.pi / 2)
        phi1 = (
            -m * l1 * lc * sin2 * (theta2_dot**2 + 2.0 * theta1_dot * theta2_dot)
            + (m * lc + m * l1) * g * jnp.cos(theta1 - np.pi / 2)
            + phi2
        )
        drive = torque + d2 / d1 * phi1 - m * l1 * lc * theta1_dot**2 * sin2 - phi2
        theta2_acc = drive / (m * lc**2 + inertia - d2**2 / d1)
        theta1_acc = -(d2 * theta2_acc + phi1) / d1
        return jnp.stack([theta1_dot, theta2_dot, theta1_acc, theta2_acc])

    def render(self, state: AcrobotState) -> np.ndarray:
        """Return a picture [H, W, 3] of both links and the height to reach."""
        canvas = Canvas((-2.2, -2.2), (2.2, 2.2))
        canvas.line((-2.2, 1.0), (2.2, 1.0), GREEN)
        first, both = float(state.theta1), float(state.theta1) + float(state.theta2)
        joint = np.array([np.sin(first), -np.cos(first)])
        end = joint + np.array([np.sin(both), -np.cos(both)])
        canvas.line((0.0, 0.0), joint, BLUE, 10.0)
        canvas.line(joint, end, BLUE, 10.0)
        canvas.disc((0.0, 0.0), 0.08, INK)
        canvas.disc(joint, 0.08, INK)
        return canvas.image()


def _wrap(angle: Array) -> Array:
    """Return `angle`, in rad, turned by whole turns into [-pi, pi)."""
    return jnp.mod(angle + np.pi, 2 * np.pi) - np.pi


def _observe(state: AcrobotState) -> Array:
    """Return the observation [6]: both angles as cosine and sine, and both angular velocities.

    Cosine and sine are the same after a full turn.
    """
    angles = (jnp.cos(state.theta1), jnp.sin(state.theta1), jnp.cos(state.theta2), jnp.sin(state.theta2))
    return jnp.stack([*angles, state.theta1_dot, state.theta2_dot])
