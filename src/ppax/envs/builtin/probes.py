"""Probes: environments with known optimal values and actions, each of which tests one more property of a learner.

After Andy Jones, "Debugging RL, without the agonizing pain", 2021, https://andyljones.com/posts/rl-debugging.html.
The first probe that fails names the defect: the critic, the critic's input, the discount, the policy gradient, the
policy's input, bootstrapping after truncation, bootstrapping after termination.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, Scalar, part, static
from ppax.envs.builtin.drawing import squares


class ExactValues(NamedTuple):
    """Optimal values and actions of a probe (an environment where they are known), for each of its K observations.

    `obs` is [K, 1], `value` [K] and `best_action` [K]; `best_action` is None if all actions are equally good.
    """

    obs: Array  # [K, 1]
    value: Array  # [K] V of the optimal policy
    best_action: Array | None = None  # [K] int32; None if all actions are equally good


class ProbeState(NamedTuple):
    """State of a probe: its observation, and the number of steps so far."""

    obs: Array  # [1]
    elapsed: Array  # [] int32


class Probe:
    """Base of the probes (environments with known optimal values): their spaces and rendering."""

    num_agents = None  # no agent axis
    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def render(self, state: ProbeState) -> np.ndarray:
        """Return a picture [H, W, 3] of the probe's observation as squares."""
        return squares(state.obs)


@part
class ConstantProbe(Probe):
    """Environment of one step with a constant observation and reward 1: V = 1. Tests whether the critic learns."""

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode, with observation 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Return the result of the only step: reward 1 and termination."""
        return _step(state, state.obs, 1.0, True)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """Return the probe's exact values and best actions: V(0) = 1, whatever the action."""
        return ExactValues(jnp.array([[0.0]]), jnp.array([1.0]))


@part
class ObsProbe(Probe):
    """Environment of one step whose reward is the observation: V = obs. Tests the critic's input."""

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode, with observation -1 or 1, at random."""
        return _start(jax.random.rademacher(key, (1,), jnp.float32))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Return the result of the only step: the observation as reward, and termination."""
        return _step(state, state.obs, state.obs[0], True)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """Return the probe's exact values and best actions: V(-1) = -1, V(1) = 1, whatever the action."""
        return ExactValues(jnp.array([[-1.0], [1.0]]), jnp.array([-1.0, 1.0]))


@part
class DiscountProbe(Probe):
    """Environment of two steps with observations 0 and 1, reward 1 at the end: V(0) = gamma. Tests the discount."""

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode, with observation 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Return the result of a step.

        The first has reward 0 and observation 1, the second has reward 1 and terminates.
        """
        second = state.elapsed == 1
        return _step(state, _constant(1.0), second, second)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """Return the probe's exact values and best actions: V(0) = gamma, V(1) = 1, whatever the action."""
        return ExactValues(jnp.array([[0.0], [1.0]]), jnp.array([gamma, 1.0]))


@part
class ActionProbe(Probe):
    """Environment of one step with reward 1 for action 1 and -1 for action 0. Tests the policy gradient.

    V = 1 for the optimal policy, which always takes action 1.
    """

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode, with observation 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Return the result of the only step: reward 1 for action 1, -1 for action 0, and termination."""
        return _step(state, state.obs, jnp.where(action == 1, 1.0, -1.0), True)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """Return the probe's exact values and best actions: V(0) = 1, by action 1."""
        return ExactValues(jnp.array([[0.0]]), jnp.array([1.0]), jnp.array([1]))


@part
class ObsActionProbe(Probe):
    """Environment of one step with reward 1 if the action matches the observation's sign, else -1: V = 1.

    It tests the policy's input. Action 0 matches observation -1, and action 1 observation 1.
    """

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode, with observation -1 or 1, at random."""
        return _start(jax.random.rademacher(key, (1,), jnp.float32))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Return the result of the only step, which terminates.

        The reward is 1 for action 0 at observation -1 and for action 1 at observation 1, otherwise -1.
        """
        matches = (action == 1) == (state.obs[0] > 0)
        return _step(state, state.obs, jnp.where(matches, 1.0, -1.0), True)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """Return the probe's exact values and best actions: V = 1, by action 0 at observation -1 and action 1 at 1."""
        return ExactValues(jnp.array([[-1.0], [1.0]]), jnp.array([1.0, 1.0]), jnp.array([0, 1]))


@part
class InfiniteProbe(Probe):
    """Environment of an endless episode with reward 1 and observation 0: V = 1 / (1 - gamma).

    Inside the wrapper TimeLimit it tests the bootstrap value after truncation.
    """

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode, with observation 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Return the result of a step: reward 1; the episode never ends."""
        return _step(state, state.obs, 1.0, False)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """Return the probe's exact values and best actions: V(0) = 1 / (1 - gamma), for any time limit and action."""
        return ExactValues(jnp.array([[0.0]]), 1.0 / (1.0 - jnp.array([gamma])))


@part
class FiniteProbe(Probe):
    """Environment with reward 1 for `horizon` steps, whose observation is the fraction of these steps that has passed.

    It tests whether the learned V is 0 after termination.
    """

    horizon: int = static("length of an episode, steps", default=8, low=1)

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode, with observation 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Return the result of a step: reward 1; the last of `horizon` steps terminates, with observation 1."""
        elapsed = state.elapsed + 1
        obs = (elapsed / self.horizon)[None].astype(jnp.float32)
        return _step(state, obs, 1.0, elapsed >= self.horizon)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """Return the probe's exact values and best actions: V(k / horizon) = (1 - gamma^(horizon - k)) / (1 - gamma).

        That is the sum of gamma^i over i < horizon - k, whatever the action.
        """
        steps = jnp.arange(self.horizon)
        discounts = jnp.asarray(gamma, jnp.float32) ** steps
        return ExactValues((steps / self.horizon)[:, None], jnp.cumsum(discounts)[::-1])


def _start(obs: Array) -> EnvReset:
    return EnvReset(ProbeState(obs, jnp.zeros((), jnp.int32)), obs)


def _step(state: ProbeState, obs: Array, reward: Scalar, terminated: bool | Array) -> EnvStep:
    return EnvStep(
        ProbeState(obs, state.elapsed + 1),
        obs,
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(terminated, bool),
        jnp.zeros((), bool),
    )


def _constant(value: float) -> Array:
    return jnp.full((1,), value, jnp.float32)
