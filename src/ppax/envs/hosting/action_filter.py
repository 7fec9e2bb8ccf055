"""Low-pass filter of the actions of host environments, and the spaces of a filtered environment, host or compiled.

The filter is exponential smoothing: the environment gets y_t = y_(t-1) + share * (a_t - y_(t-1)), where a_t is the
policy's action. This file imports nothing of ppax: worker processes load it too.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FILTER = "action_filter"  # parameter that any environment with continuous actions may get: the share of the new action
ENTRY = "filtered_action"  # entry of a Dict observation


class NotFiltered(ValueError):
    """Error of an environment whose actions cannot be filtered, or whose observation cannot hold filtered actions."""


def require_filterable(observation_space: spaces.Space, action_space: spaces.Space, name: str) -> None:
    """Raise NotFiltered unless actions are a Box of floats, and observations a vector of floats or a Dict.

    Only such environments can have a filter of actions. `name` is that of the environment.
    """
    if not isinstance(action_space, spaces.Box) or action_space.dtype.kind != "f":
        raise NotFiltered(
            f"env_params.{FILTER}: filters continuous actions of one Box; those of {name} are {action_space}; leave it "
            "out"
        )
    vector = isinstance(observation_space, spaces.Box) and len(observation_space.shape) == 1
    if not isinstance(observation_space, spaces.Dict) and not (vector and observation_space.dtype.kind == "f"):
        raise NotFiltered(
            f"env_params.{FILTER}: appends the filtered action to an observation that is a vector of floats, or adds "
            f"it to a Dict; observations of {name} are {observation_space}: make them a Dict with an entry for them"
        )
    if isinstance(observation_space, spaces.Dict) and ENTRY in observation_space.spaces:
        raise NotFiltered(f"env_params.{FILTER}: observations of {name} have an entry {ENTRY!r} already; leave it out")


def filtered_space(observation_space: Any, action_space: Any) -> spaces.Space:
    """Return the observation space with the filtered action: at the end of a vector, or as an entry of a Dict."""
    dtype = observation_space.dtype if isinstance(observation_space, spaces.Box) else np.dtype(np.float32)
    low, high = (np.ravel(x).astype(dtype) for x in (action_space.low, action_space.high))
    if isinstance(observation_space, spaces.Dict):
        return spaces.Dict({**observation_space.spaces, ENTRY: spaces.Box(low, high, dtype=dtype)})
    ends = zip((observation_space.low, observation_space.high), (low, high), strict=True)
    return spaces.Box(*(np.concatenate(pair).astype(dtype) for pair in ends), dtype=dtype)


def rest(action_space: Any) -> np.ndarray:
    """Return the filter's state at the start of an episode: the action nearest to 0 that `action_space` allows."""
    nearest: np.ndarray = np.clip(np.zeros(action_space.shape), action_space.low, action_space.high)
    return nearest.astype(action_space.dtype)


class HostActionFilter(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Wrapper that filters the actions of an environment, and adds the filtered action to its observation.

    The environment gets y_t = y_(t-1) + share * (a_t - y_(t-1)), where a_t is the policy's action. Every reset draws
    the share uniformly from `share`, (low, high). Raises NotFiltered for actions or observations that do not allow a
    filter. `options` are arguments of `make`, such as `render_mode`.
    """

    env: gymnasium.Env[Any, Any]

    def __init__(self, make: Any, share: tuple[float, float], /, **options: Any):
        env = make(**options)
        if not isinstance(env, gymnasium.Env):
            name = type(env).__name__
            if callable(getattr(env, "close", None)):
                env.close()
            raise NotFiltered(
                f"env_params.{FILTER}: on the host it filters the actions of a gymnasium.Env with one agent, not those "
                f"of a {name}; filter them in the environment"
            )
        super().__init__(env)
        require_filterable(env.observation_space, env.action_space, type(env.unwrapped).__name__)
        self._ends, self._share, self._rng = share, share[0], np.random.default_rng()
        self.observation_space = filtered_space(env.observation_space, env.action_space)
        self._rest = self._filtered = rest(env.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return observation and info of a new episode; the filter begins with the action nearest to 0."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        low, high = self._ends
        self._share = low if low == high else float(self._rng.uniform(low, high))
        self._filtered = self._rest
        obs, info = self.env.reset(seed=seed, options=options)
        return self._observe(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return the result of a step with the filtered action."""
        action = np.asarray(action, self._rest.dtype)
        space: Any = self.env.action_space
        moved = self._filtered + self._rest.dtype.type(self._share) * (action - self._filtered)
        self._filtered = np.clip(moved, space.low, space.high)
        obs, reward, terminated, truncated, info = self.env.step(self._filtered.copy())  # which may write into it
        return self._observe(obs), reward, terminated, truncated, info

    def _observe(self, obs: Any) -> Any:
        filtered = self._filtered.ravel()
        if isinstance(obs, dict):
            return {**obs, ENTRY: filtered.astype(np.float32)}
        return np.concatenate([obs, filtered], dtype=self.observation_space.dtype)
