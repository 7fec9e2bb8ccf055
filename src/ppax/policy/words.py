"""Inputs and outputs of a policy in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

WIDEST = 6  # most numbers of a vector that are shown


def described(spec: Any) -> str:
    """Return a line for each property of a PolicySpec."""
    lines = {
        "environment": spec.env or "of your own",
        "observation": observations(spec),
        "action": actions(spec),
        "mask": "required: True where an action is allowed" if spec.masked else "none in training",
        "memory": _memory(spec),
        "agents": _agents(spec),
        "trained with": f"ppax {spec.version}" if spec.version else "ppax",
    }
    return "\n".join(f"{name:<13}{text}" for name, text in lines.items())


def observations(spec: Any) -> str:
    """Return the form of one observation."""
    text = _of_space(spec.observation_space)
    spare = ", ".join(map(repr, spec.unread))
    return text + (f" ({spare} may be left out: acting does not read it)" if spare else "")


def actions(spec: Any) -> str:
    """Return the form of one action."""
    return _of_space(spec.action_space)


def _of_space(space: spaces.Space) -> str:
    if isinstance(space, spaces.Dict):
        return "dict of " + ", ".join(f"{name!r}: {_of_space(inner)}" for name, inner in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return "tuple of " + ", ".join(map(_of_space, space.spaces))
    if isinstance(space, spaces.Discrete):
        return f"integer from {space.start} to {space.start + space.n - 1}"
    if isinstance(space, spaces.MultiDiscrete):
        last = np.asarray(space.start) + space.nvec - 1
        return f"{space.dtype}{list(space.shape)}, integers from {_numbers(space.start)} to {_numbers(last)}"
    if isinstance(space, spaces.MultiBinary):
        return f"{space.dtype}{list(space.shape)} of 0 and 1"
    low, high = _numbers(space.low), _numbers(space.high)
    limits = "" if (low, high) == ("-inf", "inf") else f" from {low} to {high}"
    return f"{space.dtype}{list(space.shape)}{limits}"


def _numbers(x: Any) -> str:
    """Return one number where all are equal, else the list, abbreviated."""
    flat = np.unique(x)
    if len(flat) == 1:
        return f"{flat[0]:g}"
    shown = ", ".join(f"{one:g}" for one in np.ravel(x)[:WIDEST])
    return f"[{shown}{', ...' if np.size(x) > WIDEST else ''}]"


def _memory(spec: Any) -> str:
    if not spec.memory:
        return "none"
    size = sum(int(np.prod(one.shape)) for one in spec.memory.values())
    return f"{size} numbers for each stream; call reset where an episode begins"


def _agents(spec: Any) -> str:
    if spec.sizes:
        sizes = ", ".join(f"{name!r} ({size})" for name, size in spec.sizes)
        return f"groups {sizes}; observations and actions are dicts by agent, or by group, [agents, ...] each"
    if spec.num_agents == 1:
        return "one"
    names = f"{spec.names[0]!r} to {spec.names[-1]!r}"
    if spec.sharing == "independent":
        return f"{names}, each with parameters of its own: observations [{spec.num_agents}, ...], or dicts by agent"
    return f"{names}, one policy for all: the observation of one agent, a batch, or a dict by agent"
