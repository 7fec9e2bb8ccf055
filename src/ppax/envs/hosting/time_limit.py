"""Time limit of host environments whose constructor has no argument for one, set by `env_params.max_steps`.

Compiled environments have the same parameter. This file imports nothing of ppax: worker processes load it too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

LIMIT = "max_steps"  # parameter that any environment may get: steps after which an episode is truncated
MOST_STEPS = 2**31 - 1  # greatest limit, on the host and in compiled environments, whose counters are int32


class NotLimited(ValueError):
    """Error of an environment around which no time limit can be put."""


def takes(make: Callable[..., Any], name: str, unknown: bool = True) -> bool:
    """Return whether the class or function `make` takes an argument `name`, itself or by `**kwargs`.

    A class with `**kwargs` passes these on to the classes that it inherits from, which are looked at. Where a function
    with `**kwargs` passes them cannot be known: the result is then `unknown`, and False for `gymnasium.make`.
    """
    while isinstance(make, functools.partial):
        make = make.func
    try:
        arguments = inspect.signature(make).parameters
    except (TypeError, ValueError):  # a class in C
        return False
    if name in arguments:
        return True
    if make is gymnasium.make or not any(one.kind is one.VAR_KEYWORD for one in arguments.values()):
        return False
    if not isinstance(make, type):
        return unknown
    own = (vars(one)["__init__"] for one in make.__mro__ if "__init__" in vars(one) and one is not object)
    return any(name in inspect.signature(init).parameters for init in own)


def limited(make: Callable[..., Any], steps: int, /, **arguments: Any) -> Any:
    """Return the environment `make(**arguments)`, whose episodes are truncated after `steps` steps.

    If it has a TimeLimit of Gymnasium already, `steps` becomes the limit of this wrapper. Raises NotLimited for a
    turn-based environment.
    """
    env = make(**arguments)
    inner = env
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, TimeLimit):
            inner._max_episode_steps = steps
            return env
        inner = inner.env
    if isinstance(env, gymnasium.Env):
        return TimeLimit(env, steps)
    if hasattr(env, "possible_agents") and not hasattr(env, "agent_iter"):
        return ParallelTimeLimit(env, steps)
    name = type(env).__name__
    if callable(getattr(env, "close", None)):
        env.close()
    raise NotLimited(
        f"env_params.{LIMIT}: truncates episodes of a gymnasium.Env or a ParallelEnv of PettingZoo, not those of a "
        f"{name}; count the steps in the environment"
    )


class ParallelTimeLimit:
    """ParallelEnv of PettingZoo whose agents are all truncated after `steps` steps of an episode."""

    def __init__(self, env: Any, steps: int):
        self.env, self._max_episode_steps, self._elapsed, self._over = env, steps, 0, False

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # in unpickling, before it is set
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def agents(self) -> list[Any]:
        """Agents whose episode runs; none after the time limit."""
        return [] if self._over else self.env.agents

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Return observations and infos of a new episode."""
        self._elapsed, self._over = 0, False
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """Return the result of a step, in which all running agents are truncated if it reaches the time limit."""
        obs, rewards, terminations, truncations, infos = self.env.step(actions)
        self._elapsed += 1
        if self._elapsed >= self._max_episode_steps:
            self._over = True
            running = {agent: not terminations.get(agent, False) for agent in (*truncations, *self.env.agents)}
            truncations = running | {agent: True for agent, flag in truncations.items() if flag}
        return obs, rewards, terminations, truncations, infos
