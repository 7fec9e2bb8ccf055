"""Low-pass filter of continuous actions before they reach a compiled environment; observations have its state."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, Scalar, number, part
from ppax.envs.hosting.action_filter import ENTRY, FILTER, NotFiltered, filtered_space, require_filterable, rest
from ppax.envs.wrappers.wrapper import Wrapper


class ActionFilterState(NamedTuple):
    """State of the environment with filtered actions, and the last filtered action of each agent."""

    inner: PyTree
    filtered: Array  # [*shape] or [A, *shape]


@part
class ActionFilter(Wrapper):
    """Wrapper of `env` that filters its continuous actions: y_t = y_(t-1) + action_filter * (a_t - y_(t-1)).

    a_t is the policy's action, and the environment gets y_t. This is exponential smoothing, a low-pass filter of first
    order; with action_filter = 1 it changes nothing. At the start of an episode y is the action nearest to 0. y_t is
    part of the observation, so that the observation stays Markovian: as the last elements of a vector, or as the entry
    "filtered_action" of a Dict.
    """

    # a leaf: swept, scheduled, and drawn at resets like other parameters of an environment
    action_filter: Scalar = number(
        "share of the new action in the filtered action; 1: actions as they are",
        default=dataclasses.MISSING,
        above=0.0,
        high=1.0,
    )

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one agent's observation, with the filtered action."""
        return filtered_space(self.env.observation_space, self.env.action_space)

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment; the filter begins with the action nearest to 0."""
        start = self.env.reset(key)
        filtered = jnp.asarray(rest(self.env.action_space), jnp.float32)
        if self.num_agents is not None:
            filtered = jnp.broadcast_to(filtered, (self.num_agents, *filtered.shape))  # type: ignore[arg-type]
        return start._replace(state=ActionFilterState(start.state, filtered), obs=self._observe(start.obs, filtered))

    def inside(self, state: ActionFilterState) -> tuple[Environment, PyTree]:
        """Return the inner environment and its state."""
        return self.env, state.inner

    def step(self, state: ActionFilterState, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment with the filtered action."""
        space: Any = self.env.action_space
        moved = state.filtered + self.action_filter * (jnp.asarray(action, jnp.float32) - state.filtered)
        low, high = (np.broadcast_to(bound, moved.shape) for bound in (space.low, space.high))
        filtered = jnp.clip(moved, low, high)  # rounding may leave the Box
        step = self.env.step(state.inner, filtered.astype(jnp.asarray(action).dtype), key)
        return step._replace(state=ActionFilterState(step.state, filtered), obs=self._observe(step.obs, filtered))

    def _observe(self, obs: PyTree, filtered: Array) -> PyTree:
        """Return the observation with the filtered action added, both of one agent or of all A agents, [A, ...]."""
        flat = filtered.reshape(*(() if self.num_agents is None else (self.num_agents,)), -1)
        if isinstance(obs, dict):
            return {**obs, ENTRY: flat}
        return jnp.concatenate([obs, flat.astype(obs.dtype)], axis=-1)


def action_filter(env: Environment, share: Scalar, name: str) -> ActionFilter:
    """Return `env` inside an ActionFilter, in which `share` is the share of the new action in the filtered action.

    `name` is the name of `env` in errors. Raises ConfigError for actions that are not continuous, for groups of agents,
    and for observations that are neither a vector of floats nor a Dict.
    """
    if isinstance(env.num_agents, dict):
        raise ConfigError(f"env_params.{FILTER}: {name} has groups of agents; filter the actions in the environment")
    try:
        require_filterable(env.observation_space, env.action_space, name)
    except NotFiltered as found:
        raise ConfigError(str(found)) from None
    return ActionFilter(env, share)
