"""Construction of agent, environment and run settings from a configuration.

Also here: checks that the user trusts the files and servers which a configuration names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ppax import envs
from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.self_play import Pool, SelfPlay
from ppax.config import group_tables
from ppax.config.catalogue import AGENT, CHAIN, LIST, ONE, Choices, PartField, choices_of, constructor, part_fields
from ppax.config.description import own_environment
from ppax.config.run_settings import NO_POOL, Run, in_iterations
from ppax.config.user_parts import require_tree, require_trusted_parts
from ppax.config.validation import (
    OBJECTS,
    is_free,
    is_section,
    keyed_tables,
    objects_of,
    options,
    resolve,
    resolve_part,
)
from ppax.core import imports
from ppax.core.imports import TEXT, Outside, may_name_a_file
from ppax.core.options import NONE, Config, Option, flatten, free_tables, hints_of, option_of
from ppax.core.parts import Table, name_of
from ppax.core.protocols import Agent, Schedule
from ppax.core.types import ConfigError
from ppax.envs import Env
from ppax.ppo.extension import Extension
from ppax.ppo.ppo import PPO
from ppax.ppo.schedules import Constant

# Names of files, servers, accounts and databases in a configuration, and the user's trust in them.

CHECKSUM = "checksum"  # option beside a path: the sender of the configuration has what has this SHA-256


def outside(config: Config) -> dict[str, Outside]:
    """Return the files and addresses that a run's configuration would open or contact, by the option that names each.

    The user must trust them before the run starts. A local file whose checksum is in the configuration is left out,
    because whoever wrote the checksum knows the file's content already, so that reading it gives nothing away. Raises
    Untrusted, before anything is imported, for names of code that the user does not trust.
    """
    config = group_tables.with_inherited(config)
    return outside_values(dict(flatten(config)), options(config))


def outside_values(values: Mapping[str, Any], known: Iterable[Option]) -> dict[str, Outside]:
    """Return those of `values` that are paths or addresses, by dotted path; `known` are the options of `values`.

    Default values are left out, and files for which the configuration also gives a checksum. Among parameters of the
    environment and arguments of modules, every text that may name a file counts as a path.
    """
    known = list(known)
    declared, tables = {one.path: one for one in known if "outside" in one.limits}, free_tables(known)
    found: dict[str, Outside] = {}
    for place, value in values.items():
        if is_free(place, tables):
            found |= {own: Outside(TEXT, x) for own, x in _texts(value, place) if may_name_a_file(x)}
        elif place in declared and not _identified(place, values):
            kind, default = declared[place].limits["outside"], declared[place].default
            found |= {own: Outside(kind, x) for own, x in _texts(value, place) if x not in (default, "", NONE)}
    return found


def _identified(place: str, values: Mapping[str, Any]) -> bool:
    """Return whether the value at `place`, among `values` by dotted path, is a local path whose checksum is given too.

    The checksum is the option `checksum` in the same table.
    """
    checksum = f"{place.rpartition('.')[0]}.{CHECKSUM}"
    remote = any(imports.REMOTE.match(text) for _, text in _texts(values[place], place))
    return bool(values.get(checksum)) and not remote


def require_asked_options(config: Config, *tables: str) -> None:
    """Raise Untrusted where a configuration names a path or address that the user does not trust.

    With `tables`, names of top-level tables, only these tables are checked.
    """
    chosen = {name: x for name, x in config.items() if name in tables} if tables else config
    imports.require_asked(outside(chosen))


def require_asked_of_env(config: Config) -> None:
    """Raise Untrusted where a parameter of the environment names a file that the user does not trust."""
    imports.require_asked(outside_values({place: x for place, x in flatten(config) if is_free(place)}, ()))


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of each string in `value`, which may be nested; `place` is the dotted path of `value`."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping | list | tuple):
        inner = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in inner:
            yield from _texts(one, f"{place}.{key}")


NOT_OF_RUN = ("agent", "groups", OBJECTS)  # tables of a configuration that its settings do not contain


class Built(NamedTuple):
    """Agent, environment and run settings that a configuration describes."""

    agent: Agent
    env: Env
    run: Run


def build(config: Config, env: Env | None = None) -> Built:
    """Build the agent, the environment and the run settings that a configuration describes.

    If `env` is given, it is used in place of the environment that the configuration names: it gets the configuration's
    `env_params` and `schedule`, and its own settings, such as the number of environments, become those of the run.
    Raises ConfigError for invalid options, Untrusted for code, files and servers that the user does not trust.
    """
    require_trusted_parts(config if env is None else config | {"env": ""})
    config = resolve(config)
    require_asked_options(config)
    _require_no_objects(config)
    env = build_env(config) if env is None else configured(env, config)
    run = dataclasses.replace(_run(config), **env.settings.run_fields())
    run = in_iterations(run, run.num_steps * env.num_streams)
    return Built(_agents(config, env, run.self_play), env, run)


def build_agent(config: Config, env: Any, self_play: Pool = NO_POOL) -> Agent:
    """Build the agent of a configuration for the spaces, players and groups of `env`, an environment or a PolicySpec.

    Players are the agents inside an environment. If `self_play` is on, groups of players train against earlier versions
    of their policies, and `env` must have `num_envs`.
    """
    config = resolve(config)
    require_asked_options(config, "agent", "groups")
    _require_no_objects(config)
    return _agents(config, env, self_play)


def _agents(config: Config, env: Any, self_play: Pool) -> Agent:
    """Return the agent for `env` that a complete configuration describes, one in which every option has a value.

    With groups of players, which are the agents inside an environment, the result has one agent for each group. With
    `self_play` on, it trains against earlier versions of the groups' policies.
    """
    tables = group_tables.checked_tables(config, dict(env.sizes))
    if not env.sizes:
        group_tables.require_groups(config)
        return _agent(config, env)
    agents = {name: _agent(tables.get(name, config), group) for name, group in env.groups.items()}
    groups = Groups(agents, env.sizes)
    return groups if self_play.every is None else SelfPlay(groups, self_play, env.num_envs)


def _require_no_objects(config: Config) -> None:
    """Raise ConfigError if a run was made from Python objects that its run file could not hold.

    The option `objects` of the run file lists them. Callbacks may be in this list, because a run works without them.
    """
    places = [place for place in objects_of(config) if not place.startswith("callbacks")]
    if places:
        raise ConfigError(
            f"objects = {', '.join(places)}: this run was made from Python objects that its file does not hold; "
            "pass them to ppax.fit, or remove the line `objects` to use the parts of ppax in their place"
        )


def build_env(config: Config) -> Env:
    """Build the environment that a configuration names, with its arguments, its schedule and its groups of agents."""
    config = resolve(config)
    require_asked_of_env(config)
    arguments = {name: config[name] for name in envs.ARGUMENTS if name in config} | {"schedule": _schedule(config)}
    return envs.grouped(envs.make(config["env"], **arguments), group_tables.players_of(config))


def configured(env: Env, config: Config) -> Env:
    """Return `env`, an environment object of the user, with `env_params` and `schedule` of the configuration set in it.

    A schedule that `env` has already is not replaced.
    """
    require_asked_of_env(config)
    has = own_environment(env).get("env_params", {})
    changed = {name: x for name, x in config.get("env_params", {}).items() if name not in has or has[name] != x}
    env = envs.other_params(env, changed)
    schedule = _schedule(config) if env.settings.schedule is None else None  # else it is set already
    return env if schedule is None else envs.with_schedule(env, schedule)


def _schedule(config: Config) -> Schedule | None:
    """Return the schedule that changes the environment's numbers over training; None if it keeps them constant.

    Numbers are its parameters, such as gravity.
    """
    schedule: Schedule = _part(
        choices_of(Run)["schedule"], config.get("schedule", {"part": "constant"}), None, "schedule"
    )
    return None if isinstance(schedule, Constant) else schedule


def _agent(config: Config, env: Any) -> PPO | Independent:
    """Build one agent from the options `agents` and `agent`, for an environment or one of its groups of players.

    With `agents` = "independent" each player (agent inside the environment) has parameters of its own.
    """
    agent: PPO = _part(AGENT, config["agent"], env, "agent")
    return Independent(agent, env.num_agents) if config["agents"] == group_tables.INDEPENDENT else agent


def settings(config: Config) -> Run:
    """Build the run settings of a configuration; its tables of agents and groups are ignored."""
    return _run(resolve({name: value for name, value in config.items() if name not in NOT_OF_RUN}))


def _run(config: Config) -> Run:
    """Build the run settings of a configuration that has every option; its tables of agents and groups are ignored."""
    return Run(**_arguments(Run, {name: x for name, x in config.items() if name not in NOT_OF_RUN}, None, ""))


def build_part(choices: Choices, table: Config, path: str) -> Any:
    """Build a part (a swappable object) outside a run's configuration, such as the search of a sweep, from its table.

    `path` is the name of the table, for error messages. Raises ConfigError for unknown options and invalid values.
    """
    return _part(choices, resolve_part(choices, table, path), None, path)


def _arguments(cls: type, config: Config, env: Any, path: str) -> dict[str, Any]:
    """Return the constructor arguments of `cls`, a class of parts or settings, from `config`, the table of its options.

    Nested parts are built. `path` is the dotted path of the table, for error messages; "" for the options of the run.
    """
    arguments: dict[str, Any] = {}
    fields = {field.name: field for field in dataclasses.fields(cls)}
    hints, of_parts = hints_of(cls), part_fields(cls)
    for name, value in config.items():
        place = f"{path}.{name}" if path else name
        if name in of_parts:
            arguments[name] = _parts(of_parts[name], value, env, place)
        elif is_section(hints[name]):
            arguments[name] = hints[name](**_arguments(hints[name], value, env, place))
        elif fields[name].metadata.get("code") and value:
            arguments[name] = imports.load(value, place)
        elif isinstance(value, dict):
            arguments[name] = Table(value)
        elif isinstance(value, list):
            leaf = option_of(fields[name], hints[name], name).leaf
            arguments[name] = np.array(value, np.float32) if leaf else tuple(value)
        else:
            arguments[name] = value
    return arguments


def _parts(field: PartField, value: Any, env: Any, path: str) -> Any:
    """Build what a field of a part holds, from its `value` in a configuration: one part, or a tuple of parts.

    In a field with parts by key, the tuple has pairs (key, part). `path` is the dotted path, for error messages.
    """
    choices = field.choices
    if field.holds == ONE:
        return _part(choices, value, env, path)
    if field.holds == LIST:
        return tuple(_part(choices, table, env, path) for table in value)
    if field.holds == CHAIN:
        return tuple(_named(_part(choices, one, env, f"{path}.{key}"), key) for key, one in dict(value).items())
    return tuple((key, _part(choices, one, env, f"{path}.{key}")) for key, one in keyed_tables(value, path))


def _named(extension: Extension, name: str) -> Extension:
    """Return `extension` under the name `name`, that of its table in the run file."""
    return extension if name_of(extension) == name else dataclasses.replace(extension, name=name)


def _part(choices: Choices, table: Config, env: Any, field: str) -> Any:
    """Build one part (a swappable object) from a table that has all its options.

    `field` is the path of the table, for error messages.
    """
    name = table["part"]
    cls = choices.find(name, f"{field}.part")
    arguments = _arguments(cls, {key: value for key, value in table.items() if key != "part"}, env, field)
    if name in choices:
        return constructor(cls, env)(**arguments)
    try:
        part = constructor(cls, env)(**arguments)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ConfigError(f"{field}.part = {name!r}: {type(error).__name__}: {error}") from error
    return require_tree(part, choices.kind, f"{field}.part = {name!r}")
