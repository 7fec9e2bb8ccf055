"""The tasks of rl8, https://github.com/theOGognf/rl8, that differ from the usual ones: nothing in them ever ends.

There all environments are reset together after a number of rollouts; `iterations_per_env_reset` does that, and
TimeLimit the same for each. Its Pendulum is Gymnasium's (pendulum.py).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.builtin.cartpole import CartPole, CartPoleState
from ppax.envs.builtin.mountain_car import CarState, Valley
from ppax.types import EnvReset, EnvStep, Key, Scalar, number, part


@part
class EndlessCartPole:
    """Cart and pole without terminals. Observation [5]: x, its speed, cosine and sine of the angle, its speed.

    Actions: push left, none, right. Reward: minus the distance of everything from upright, in the middle, at rest.
    """

    cart: CartPole = CartPole()
    force: Scalar = number("size of a push, N", default=5.0)
    start_std: Scalar = number("standard deviation of each state variable at the start", default=0.01, low=0.0)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Box [5]."""
        high = np.array([np.inf, np.inf, 1.0, 1.0, np.inf], np.float32)
        return spaces.Box(-high, high, dtype=np.float32)

    @property
    def action_space(self) -> spaces.Discrete:
        """Left, none, right."""
        return spaces.Discrete(3)

    def reset(self, key: Key) -> EnvReset:
        """Almost upright, in the middle, at rest."""
        state = CartPoleState(*(self.start_std * jax.random.normal(key, (4,), jnp.float32)))
        return EnvReset(state, _observe(state))

    def step(self, state: CartPoleState, action: Array, key: Key) -> EnvStep:
        """Push for one time step (explicit Euler)."""
        new = self.cart.move(state, self.force * (jnp.asarray(action, jnp.float32) - 1.0))
        obs = _observe(new)
        never = jnp.zeros((), bool)
        return EnvStep(new, obs, -jnp.abs(obs.at[2].add(-1.0)).sum(), never, never)

    def render(self, state: CartPoleState) -> np.ndarray:
        """Cart and pole, [H, W, 3]."""
        return self.cart.render(state)


@part
class EndlessMountainCar:
    """The car in the valley without terminals. Observation [2]: position and velocity. Actions: left, none, right.

    Reward: minus the distance from the goal, and 1 where the car is there and does not roll back.
    """

    valley: Valley = Valley()
    force: Scalar = number("acceleration of a push", default=0.001, low=0.0)
    goal: Scalar = number("position to reach", default=0.5)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Box [2] without bounds: what an episode starts with may be beyond those of the valley."""
        return spaces.Box(-np.inf, np.inf, (2,), np.float32)

    @property
    def action_space(self) -> spaces.Discrete:
        """Left, none, right."""
        return spaces.Discrete(3)

    def reset(self, key: Key) -> EnvReset:
        """Near the lowest point, at any speed."""
        draw = 0.05 * jax.random.normal(key, (2,), jnp.float32)
        state = CarState(draw[0] - 0.5, draw[1])
        return EnvReset(state, jnp.stack(state))

    def step(self, state: CarState, action: Array, key: Key) -> EnvStep:
        """Push for one step."""
        new = self.valley.drive(state, self.force * (jnp.asarray(action, jnp.float32) - 1.0))
        there = (new.position >= self.goal) & (new.velocity >= 0.0)
        reward = jnp.where(there, 1.0, -jnp.abs(new.position - self.goal)).astype(jnp.float32)
        never = jnp.zeros((), bool)
        return EnvStep(new, jnp.stack(new), reward, never, never)

    def render(self, state: CarState) -> np.ndarray:
        """The valley and the car, [H, W, 3]."""
        return self.valley.picture(state, float(self.goal))


def _observe(state: CartPoleState) -> Array:
    """The angle as a point on the circle."""
    return jnp.stack([state.x, state.x_dot, jnp.cos(state.theta), jnp.sin(state.theta), state.theta_dot])
