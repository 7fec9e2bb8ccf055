"""Classic control environments of rl8, https://github.com/theOGognf/rl8: variants that never terminate.

In rl8 all environments are reset together after a number of rollouts, as with ppax's option `iterations_per_env_reset`;
TimeLimit limits each environment separately. Rl8's Pendulum is Gymnasium's (pendulum.py).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, Scalar, number, part
from ppax.envs.builtin.cartpole import CartPole, CartPoleState
from ppax.envs.builtin.mountain_car import CarState, Valley


@part
class EndlessCartPole:
    """Environment CartPole of rl8, which never terminates.

    Observation [5]: position and velocity of the cart, cosine and sine of the angle, angular velocity. Actions: push
    left, none, right. Reward: minus the L1 distance of the observation from upright, centred, at rest.
    """

    # only the dynamics of CartPole: its push, initial states and limits are not used
    cart: CartPole = dataclasses.field(
        default=CartPole(), metadata={"parameters": ("gravity", "cart_mass", "pole_mass", "half_length", "dt")}
    )
    force: Scalar = number("force of a push, N", default=5.0)
    start_std: Scalar = number("initial state: standard deviation of each variable", default=0.01, low=0.0)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: Box [5], position, velocity, cosine and sine of the angle, angular velocity."""
        high = np.array([np.inf, np.inf, 1.0, 1.0, np.inf], np.float32)
        return spaces.Box(-high, high, dtype=np.float32)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: push left, none, right."""
        return spaces.Discrete(3)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of CartPole: almost upright, centred, almost at rest."""
        state = CartPoleState(*(self.start_std * jax.random.normal(key, (4,), jnp.float32)))
        return EnvReset(state, _observe(state))

    def step(self, state: CartPoleState, action: Array, key: Key) -> EnvStep:
        """Return the result of a push for one time step (explicit Euler), which never ends the episode."""
        new = self.cart.move(state, self.force * (jnp.asarray(action, jnp.float32) - 1.0))
        obs = _observe(new)
        never = jnp.zeros((), bool)
        return EnvStep(new, obs, -jnp.abs(obs.at[2].add(-1.0)).sum(), never, never)

    def render(self, state: CartPoleState) -> np.ndarray:
        """Return a picture [H, W, 3] of cart and pole."""
        return self.cart.render(state)


@part
class EndlessMountainCar:
    """Environment MountainCar of rl8, which never terminates.

    Observation [2]: position and velocity. Actions: push left, none, right. Reward: 1 while the car is at the goal and
    does not roll back, otherwise minus the distance to the goal. The metric `at_goal` is 1 in steps with reward 1, else
    0.
    """

    valley: Valley = Valley()
    force: Scalar = number("acceleration of a push", default=0.001, low=0.0)
    goal: Scalar = number("position to reach", default=0.5)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: Box [2], position and velocity, without bounds.

        Initial states, which are drawn from normal distributions, may exceed the bounds of the valley.
        """
        return spaces.Box(-np.inf, np.inf, (2,), np.float32)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: push left, none, right."""
        return spaces.Discrete(3)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode of MountainCar: near the lowest point, with a random velocity."""
        draw = 0.05 * jax.random.normal(key, (2,), jnp.float32)
        state = CarState(draw[0] - 0.5, draw[1])
        return EnvReset(state, jnp.stack(state))

    def step(self, state: CarState, action: Array, key: Key) -> EnvStep:
        """Return the result of a push for one step, which never ends the episode."""
        new = self.valley.drive(state, self.force * (jnp.asarray(action, jnp.float32) - 1.0))
        at_goal = (new.position >= self.goal) & (new.velocity >= 0.0)
        reward = jnp.where(at_goal, 1.0, -jnp.abs(new.position - self.goal)).astype(jnp.float32)
        never = jnp.zeros((), bool)
        return EnvStep(new, jnp.stack(new), reward, never, never, metrics={"at_goal": at_goal})

    def render(self, state: CarState) -> np.ndarray:
        """Return a picture [H, W, 3] of the valley and the car."""
        return self.valley.picture(state, float(self.goal))


def _observe(state: CartPoleState) -> Array:
    """Return the observation [5] of CartPole, with the angle as cosine and sine."""
    return jnp.stack([state.x, state.x_dot, jnp.cos(state.theta), jnp.sin(state.theta), state.theta_dot])
