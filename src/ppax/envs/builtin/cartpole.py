"""CartPole: keep a pole upright on a cart by pushing the cart left or right.

Barto, Sutton, Anderson, "Neuronlike adaptive elements that can solve difficult learning control problems",
1983, https://doi.org/10.1109/TSMC.1983.6313077; the equations of motion are those of Florian, "Correct
equations for the dynamics of the cart-pole system", 2007,
https://coneural.org/florian/papers/05_cart_pole.pdf.
Parameters, integrator, reward and termination are those of Gymnasium's CartPole-v1, without its limit of 500 steps:
use TimeLimit.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, Scalar, number, part, static
from ppax.envs.builtin.drawing import AMBER, BLUE, GREY, INK, Canvas


class CartPoleState(NamedTuple):
    """State of CartPole: position and velocity of the cart, angle (0 is upright) and angular velocity of the pole."""

    x: Array  # [] m
    x_dot: Array  # [] m/s
    theta: Array  # [] rad
    theta_dot: Array  # [] rad/s


@part
class CartPole:
    """Environment CartPole: a pole is kept upright on a cart by pushing the cart left or right.

    Observation [4]: position and velocity of the cart, angle (0 is upright) and angular velocity of the pole. Action: 0
    pushes left, 1 right. Reward 1 for each step, including the last. The episode terminates when the pole falls or the
    cart leaves the track.
    """

    gravity: Scalar = number("gravity, m/s^2", default=9.8)
    cart_mass: Scalar = number("mass of the cart, kg", default=1.0, above=0.0)
    pole_mass: Scalar = number("mass of the pole, kg", default=0.1, above=0.0)
    half_length: Scalar = number("half the length of the pole, m", default=0.5, above=0.0)
    force: Scalar = number("force of a push, N", default=10.0)
    dt: Scalar = number("time step, s", default=0.02, above=0.0)
    start_range: Scalar = number("initial state: each variable uniform in +- this", default=0.05, low=0.0)
    # static: bounds of the observation space, which must be known while tracing
    max_x: float = static("terminates beyond this position, +- m", default=2.4, above=0.0)
    max_theta: float = static("terminates beyond this angle, +- rad", default=12 * 2 * np.pi / 360, above=0.0)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: Box [4], whose bounds of position and angle are twice the values that end an episode.

        So it contains the final observation, in which one of these values is exceeded. The two velocities have no
        bounds.
        """
        high = np.array([2 * self.max_x, np.inf, 2 * self.max_theta, np.inf], np.float32)
        return spaces.Box(-high, high, dtype=np.float32)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: left, right."""
        return spaces.Discrete(2)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of CartPole: almost upright, near the middle, almost at rest."""
        obs = jax.random.uniform(key, (4,), jnp.float32, -self.start_range, self.start_range)
        return EnvReset(CartPoleState(obs[0], obs[1], obs[2], obs[3]), obs)

    def step(self, state: CartPoleState, action: Array, key: Key) -> EnvStep:
        """Return the result of a push for one time step (explicit Euler).

        The episode terminates when the pole falls or the cart leaves the track.
        """
        new = self.move(state, jnp.where(action == 1, self.force, -self.force))
        terminated = (jnp.abs(new.x) > self.max_x) | (jnp.abs(new.theta) > self.max_theta)
        return EnvStep(new, jnp.stack(new), jnp.ones((), jnp.float32), terminated, jnp.zeros((), bool))

    def move(self, state: CartPoleState, push: Array) -> CartPoleState:
        """Return the state one time step later, with the force `push` on the cart, in N."""
        x, x_dot, theta, theta_dot = state
        sin, cos = jnp.sin(theta), jnp.cos(theta)
        mass = self.cart_mass + self.pole_mass
        pole_moment = self.pole_mass * self.half_length

        # Florian (23), (24) with friction 0; `drive` is the part that both share
        drive = (push + pole_moment * theta_dot**2 * sin) / mass
        theta_acc = (self.gravity * sin - cos * drive) / (
            self.half_length * (4.0 / 3.0 - self.pole_mass * cos**2 / mass)
        )
        x_acc = drive - pole_moment * theta_acc * cos / mass

        return CartPoleState(
            x + self.dt * x_dot,
            x_dot + self.dt * x_acc,
            theta + self.dt * theta_dot,
            theta_dot + self.dt * theta_acc,
        )

    def render(self, state: CartPoleState) -> np.ndarray:
        """Return a picture [H, W, 3] of cart and pole."""
        canvas = Canvas((-self.max_x, -1.2), (self.max_x, 1.6))
        canvas.line((-self.max_x, -0.2), (self.max_x, -0.2), GREY)
        x, angle = float(state.x), float(state.theta)
        canvas.rectangle((x - 0.3, -0.2), (x + 0.3, 0.0), INK)
        pole = 2.0 * float(self.half_length)
        canvas.line((x, 0.0), (x + pole * np.sin(angle), pole * np.cos(angle)), AMBER, 7.0)
        canvas.disc((x, 0.0), 0.06, BLUE)
        return canvas.image()
