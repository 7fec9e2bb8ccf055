"""Probes: environments so small that what a learner must find is known exactly, each testing one thing more.

After Andy Jones, "Debugging RL, without the agonizing pain", 2021, https://andyljones.com/posts/rl-debugging.html.
The first probe that fails says what is broken: the critic, its view of the observation, the discount, the
policy gradient, the policy's view of the observation, truncation, termination.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.builtin.drawing import squares
from ppax.types import EnvReset, EnvStep, Key, Scalar, part, static


class ExactValues(NamedTuple):
    """The truth about a probe, for each of its K observations."""

    obs: Array  # [K, 1]
    value: Array  # [K] V of the best policy
    best_action: Array | None = None  # [K] int32; None where every action does as well


class ProbeState(NamedTuple):
    """What a probe shows, and for how long it has run."""

    obs: Array  # [1]
    elapsed: Array  # [] int32


def _observation_space(probe: Any) -> spaces.Box:
    return spaces.Box(-1.0, 1.0, (1,), np.float32)


def _action_space(probe: Any) -> spaces.Discrete:
    return spaces.Discrete(2)


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


def _render(probe: Any, state: ProbeState) -> np.ndarray:
    """The observation as squares, [H, W, 3]."""
    return squares(state.obs)


def _constant(value: float) -> Array:
    return jnp.full((1,), value, jnp.float32)


@part
class ConstantProbe:
    """One step, always the same, reward 1: V = 1. Does the critic learn at all?"""

    num_agents = None
    observation_space = property(_observation_space)
    action_space = property(_action_space)
    render = _render

    def reset(self, key: Key) -> EnvReset:
        """Shows 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Pays 1 and terminates."""
        return _step(state, state.obs, 1.0, True)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """V(0) = 1."""
        return ExactValues(jnp.array([[0.0]]), jnp.array([1.0]))


@part
class ObsProbe:
    """One step, the reward is what was seen: V = obs. Does the critic see the observation?"""

    num_agents = None
    observation_space = property(_observation_space)
    action_space = property(_action_space)
    render = _render

    def reset(self, key: Key) -> EnvReset:
        """Shows -1 or 1 at random."""
        return _start(jax.random.rademacher(key, (1,), jnp.float32))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Pays the observation and terminates."""
        return _step(state, state.obs, state.obs[0], True)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """V(-1) = -1, V(1) = 1."""
        return ExactValues(jnp.array([[-1.0], [1.0]]), jnp.array([-1.0, 1.0]))


@part
class DiscountProbe:
    """Two steps that show 0 and then 1, reward 1 at the end. Is the value carried back, and discounted?"""

    num_agents = None
    observation_space = property(_observation_space)
    action_space = property(_action_space)
    render = _render

    def reset(self, key: Key) -> EnvReset:
        """Shows 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Pays nothing and shows 1; then pays 1 and terminates."""
        second = state.elapsed == 1
        return _step(state, _constant(1.0), second, second)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """V(0) = gamma, V(1) = 1."""
        return ExactValues(jnp.array([[0.0], [1.0]]), jnp.array([gamma, 1.0]))


@part
class ActionProbe:
    """One step, reward 1 for action 1 and -1 for action 0: V = 1. Does the policy follow the advantage?"""

    num_agents = None
    observation_space = property(_observation_space)
    action_space = property(_action_space)
    render = _render

    def reset(self, key: Key) -> EnvReset:
        """Shows 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Pays for the action and terminates."""
        return _step(state, state.obs, jnp.where(action == 1, 1.0, -1.0), True)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """V(0) = 1, by action 1."""
        return ExactValues(jnp.array([[0.0]]), jnp.array([1.0]), jnp.array([1]))


@part
class ObsActionProbe:
    """One step, reward 1 if the action matches the sign seen, else -1: V = 1. Does the policy see?"""

    num_agents = None
    observation_space = property(_observation_space)
    action_space = property(_action_space)
    render = _render

    def reset(self, key: Key) -> EnvReset:
        """Shows -1 or 1 at random."""
        return _start(jax.random.rademacher(key, (1,), jnp.float32))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Pays for the match and terminates."""
        matches = (action == 1) == (state.obs[0] > 0)
        return _step(state, state.obs, jnp.where(matches, 1.0, -1.0), True)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """V = 1, by action 0 at -1 and action 1 at 1."""
        return ExactValues(jnp.array([[-1.0], [1.0]]), jnp.array([1.0, 1.0]), jnp.array([0, 1]))


@part
class InfiniteProbe:
    """Reward 1 for ever, always showing 0: V = 1 / (1 - gamma). In a TimeLimit: is a cut bootstrapped?"""

    num_agents = None
    observation_space = property(_observation_space)
    action_space = property(_action_space)
    render = _render

    def reset(self, key: Key) -> EnvReset:
        """Shows 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Pays 1 and goes on."""
        return _step(state, state.obs, 1.0, False)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """V(0) = 1 / (1 - gamma), whatever limit cuts it."""
        return ExactValues(jnp.array([[0.0]]), 1.0 / (1.0 - jnp.array([gamma])))


@part
class FiniteProbe:
    """Reward 1 for `horizon` steps, showing the share that has passed. Is an end not bootstrapped?"""

    horizon: int = static("steps until it terminates", default=8, low=1)

    num_agents = None
    observation_space = property(_observation_space)
    action_space = property(_action_space)
    render = _render

    def reset(self, key: Key) -> EnvReset:
        """Shows 0."""
        return _start(_constant(0.0))

    def step(self, state: ProbeState, action: Array, key: Key) -> EnvStep:
        """Pays 1; the last of `horizon` steps terminates and shows 1."""
        elapsed = state.elapsed + 1
        obs = (elapsed / self.horizon)[None].astype(jnp.float32)
        return _step(state, obs, 1.0, elapsed >= self.horizon)

    def exact_values(self, gamma: Scalar) -> ExactValues:
        """V(k / horizon) = sum of gamma^i, i < horizon - k: (1 - gamma^(horizon - k)) / (1 - gamma)."""
        steps = jnp.arange(self.horizon)
        discounts = jnp.asarray(gamma, jnp.float32) ** steps
        return ExactValues((steps / self.horizon)[:, None], jnp.cumsum(discounts)[::-1])
