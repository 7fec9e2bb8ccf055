"""From objects to a configuration: agents, parts, environments and settings as plain data."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.self_play import SelfPlay
from ppax.config.catalogue import AGENT, Choices, chain_choices_of, choices_of, list_choices_of, table_choices_of
from ppax.config.own_environments import own_environment
from ppax.config.run_settings import Run
from ppax.config.validation import is_section
from ppax.core import imports
from ppax.core.options import Config, check_limits, check_value, flatten, hints_of, is_option, option_of, unflatten
from ppax.core.parts import name_of
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError
from ppax.envs import Env
from ppax.ppo.ppo import PPO


def describe_run(agent: Agent, env: Env, run: Run) -> Config:
    """Configuration of a whole run: the inverse of `build`."""
    agent = agent.agent if isinstance(agent, SelfPlay) else agent
    settings = describe(run) | own_environment(env)
    if not isinstance(agent, Groups):
        return settings | {"agent": describe(agent)}
    players = dict(env.settings.players)
    groups = {
        name: {"players": players.get(name), "agents": one.sharing, "agent": describe(one)}
        for name, one in agent.agents.items()
    }
    return settings | {"agent": describe(agent.learners(env.num_streams)[0][0]), "groups": groups}


def describe(part: Any, each: bool = False) -> Config:
    """Configuration of an agent, a run or a part, with all nested parts: the inverse of `build`. Checks every number.

    `each`: numbers may be arrays, one per player.
    """
    if isinstance(part, Independent):
        return describe(part.agent, each=True)
    config: Config = {"part": AGENT.name_of(part)} if isinstance(part, PPO) else {}
    hints, slots, lists = hints_of(part.__class__), choices_of(type(part)), list_choices_of(type(part))
    tables, chains = table_choices_of(type(part)), chain_choices_of(type(part))
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.name in slots:
            config[field.name] = _part(value, slots[field.name], each)
        elif field.name in tables:
            inner = {key: _part(one, tables[field.name], each) for key, one in value}
            config |= unflatten(dict(flatten({field.name: inner}))) if inner else {}
        elif field.name in chains:
            config[field.name] = {name_of(one): _part(one, chains[field.name], each) for one in value} or []
        elif field.name in lists:
            config[field.name] = [_of_list(one, lists[field.name], field.name) for one in value]
        elif is_section(hints[field.name]):
            config[field.name] = describe(value, each)
        elif field.name == "env_params" and value:
            config[field.name] = unflatten(dict(flatten(value)))
        elif is_option(field, hints[field.name]):
            option = option_of(field, hints[field.name], field.name)
            config[field.name] = check_value(option, _plain(value), each)
    return config


def describe_part(part: Any, choices: Choices) -> Config:
    """Return the table of a part that is not of a run: the inverse of `build_part`."""
    return _part(part, choices, False)


def _part(part: Any, choices: Choices, each: bool) -> Config:
    """Table of one part; of a class that no run file can name, only its plain numbers and strings."""
    name = choices.name_of(part)
    if name in choices:
        return {"part": name} | describe(part, each)
    numbers = {"part": name} | _numbers(part)
    if not imports.is_path(name):
        return numbers
    try:
        return {"part": name} | describe(part, each)
    except ConfigError:  # fields that no run file can hold, such as arrays; run/python_objects.py lists them
        return numbers


def _of_list(part: Any, choices: Choices, name: str) -> Config:
    """Table of one part in a list; ConfigError for a class that no run file can name."""
    own = choices.name_of(part)
    if own not in choices and not imports.is_path(own):
        raise ConfigError(
            f"{name} = {part!r}: must be parts of the catalogue, {', '.join(x.__name__ for x in choices.values())}; "
            "pass a logger of your own, an object with log(row) and close(), among callbacks, or write its part in a "
            "module that can be imported"
        )
    return {"part": own} | describe(part)


def _numbers(part: Any) -> Config:
    """Numbers and strings of a user-defined part, checked: the fields that a file can hold."""
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    values = {field.name: _plain(getattr(part, field.name)) for field in fields if field.metadata}
    limits: dict[str, Any] = {field.name: dict(field.metadata) for field in fields}
    kept = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
    return {name: check_limits(name, value, limits[name]) for name, value in kept.items()}


def _plain(value: Any) -> Any:
    if getattr(value, "ndim", 0):  # one per player, in the shortest digits of float32
        return [float(str(x)) for x in np.asarray(value)]
    return value.item() if hasattr(value, "item") else value
