"""Configuration of a run as nested dicts, as in TOML: options, checks, conversion to objects and back.

The options are the fields of the parts: name, type, default, limits and help stand at the field (`number`, `static` in
parts.py). A part is chosen by its name: `[agent.advantage] part = "gae"`. Checks run before anything compiles.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
import typing
from collections.abc import Iterator
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from ppax import envs
from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.multi_agent import Agent
from ppax.agents.opponents import Pool
from ppax.agents.self_play import SelfPlay
from ppax.config import group_tables
from ppax.config.catalogue import NETWORKS, PARTS, choices_of
from ppax.config.settings import BestSettings as BestSettings
from ppax.config.settings import EvalSettings as EvalSettings
from ppax.config.settings import Log as Log
from ppax.config.settings import Run as Run
from ppax.envs import Env
from ppax.learning.kl_control import KLControl
from ppax.options import NONE, Config, Option, check_limits, check_value, flatten, nearest, option_of, unflatten
from ppax.ppo import PPO
from ppax.program.layout import Program
from ppax.types import ConfigError

# Key that lists the Python objects that a run file cannot hold (run/record.py); `fit` writes it, it is no option.
OBJECTS = "objects"
RUN_FILE = "run.toml"  # in a run directory
FREE = ("env_params", "eval.env_params")  # tables with free names, which the environment checks
# Sections: tables with a fixed class, without a choice of parts.
SECTIONS: dict[str, type] = {"best": BestSettings, "log": Log, "eval": EvalSettings, "self_play": Pool}
SECTIONS |= {"program": Program, "kl": KLControl}


class Built(NamedTuple):
    """Objects that a configuration describes."""

    agent: Agent
    env: Env
    run: Run


# ---------------------------------------------------------------- the options of a configuration


def options(config: Config) -> Iterator[Option]:
    """Yield every option of the parts that `config` names; raise ConfigError for an unknown part name."""
    yield from _options(Run, config, "")
    yield from _options(PPO, _table(config, "agent", "agent"), "agent.")
    for name, table in group_tables.tables(config).items():
        yield from group_tables.own_options(name)
        yield from _options(PPO, _table(table, "agent", f"groups.{name}.agent"), f"groups.{name}.agent.")


def _options(cls: type, config: Config, prefix: str) -> Iterator[Option]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        path = prefix + field.name
        if field.name in SECTIONS:
            yield from _options(SECTIONS[field.name], _table(config, field.name, path), path + ".")
        elif field.name in PARTS:
            section, choices = _table(config, field.name, path), choices_of(cls, field.name)
            default = next(iter(choices))
            part = Option(f"{path}.part", str, False, False, default, "name of the part", {"choices": tuple(choices)})
            name = check_value(part, section.get("part", default))
            yield part
            yield from _options(choices[name], section, path + ".")
        elif path not in FREE and field.default is not dataclasses.MISSING:
            # a field without default is set from the environment
            yield option_of(field, hints[field.name], path)


def _table(config: Config, name: str, path: str) -> Config:
    section: Config = config.get(name, {})
    if isinstance(section, str) and name in PARTS:
        raise ConfigError(f"{path} = {section!r}: must be a table, [{path}]; write {path}.part = {section!r}")
    if not isinstance(section, dict):
        raise ConfigError(f"{path} = {section!r}: must be a table, [{path}]")
    return section


def resolve(config: Config) -> Config:
    """Fill in every default and check every value; raise ConfigError for an unknown option or an invalid value."""
    config = group_tables.filled(config)
    known = {option.path: option for option in options(config)}
    given = dict(flatten(config))
    objects = {OBJECTS: given.pop(OBJECTS)} if given.get(OBJECTS) else {}
    free = {path: value for path, value in given.items() if is_free(path)}
    for path in given:
        if path not in known and path not in free:
            raise ConfigError(f"unknown option {path!r}; did you mean {nearest(path, known)!r}?")
    per_agent = group_tables.apart(config)  # prefixes of tables whose numbers may be lists, one per agent
    values = {
        path: check_value(option, given.get(path, option.default), path.partition("agent.")[0] in per_agent)
        for path, option in known.items()
    }
    return unflatten(values | free) | objects


def objects_of(config: Config) -> list[str]:
    """Paths of the Python objects that the run file cannot hold; ConfigError unless they are a list of strings."""
    places = config.get(OBJECTS, [])
    if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
        raise ConfigError(f"{OBJECTS} = {places!r}: must be a list of strings")
    return places


def is_free(path: str) -> bool:
    """Return whether `path` is a parameter of the environment, which checks it itself."""
    return path.startswith(tuple(f"{name}." for name in FREE))


# ---------------------------------------------------------------- between configurations and objects


def build(config: Config, env: Env | None = None) -> Built:
    """Build agent, environment and run of a configuration; `env` replaces the configured environment."""
    config = resolve(config)
    places = [place for place in objects_of(config) if not place.startswith("callbacks")]
    if places:
        raise ConfigError(
            f"objects = {', '.join(places)}: this run was made from Python objects that its file does not hold; "
            "pass them to ppax.fit, or remove the line `objects` to use the parts of ppax in their place"
        )
    if env is None:
        env = build_env(config)
    tables = group_tables.checked_tables(config, dict(env.sizes))
    if not env.sizes:
        group_tables.require_groups(config)
        return Built(_agent(config, env), env, settings(config))
    agents = {name: _agent(tables.get(name, config), group) for name, group in env.groups.items()}
    run, groups = settings(config), Groups(agents, env.sizes)
    return Built(groups if run.self_play.every is None else SelfPlay(groups, run.self_play, env.num_envs), env, run)


def build_env(config: Config) -> Env:
    """Build the environment of a configuration."""
    config = resolve(config)
    env_settings = {name: config[name] for name in envs.SETTINGS if name != "env"}
    env = envs.make(config["env"], **env_settings, env_params=config.get("env_params"))
    return envs.grouped(env, group_tables.players_of(config))


def _agent(config: Config, env: Any) -> PPO | Independent:
    """Build the agent of the tables `agents` and `agent`, for an environment or a group of its agents."""
    agent = PPO(**_arguments(PPO, config["agent"], env))
    return Independent(agent, env.num_agents) if config["agents"] == group_tables.INDEPENDENT else agent


def settings(config: Config) -> Run:
    """Build the settings of a run, without its agent."""
    values = resolve({name: value for name, value in config.items() if name not in ("agent", "groups", OBJECTS)})
    sections: dict[str, Any] = {name: SECTIONS[name](**values.pop(name)) for name in SECTIONS if name in values}
    values.pop("agent")
    return Run(**values, **sections)


def _arguments(cls: type, config: Config, env: Env) -> dict[str, Any]:
    """Constructor arguments of a part of class `cls`."""
    arguments: dict[str, Any] = {}
    for name, value in config.items():
        if name in SECTIONS:
            arguments[name] = SECTIONS[name](**value)
        elif name in PARTS:
            part_class = choices_of(cls, name)[value["part"]]
            make = partial(NETWORKS[value["part"]], env) if name == "network" else part_class
            inner = {key: v for key, v in value.items() if key != "part"}
            arguments[name] = make(**_arguments(part_class, inner, env))
        elif isinstance(value, list):
            fields = {field.name: field for field in dataclasses.fields(cls)}
            leaf = option_of(fields[name], typing.get_type_hints(cls)[name], name).leaf
            arguments[name] = np.array(value, np.float32) if leaf else tuple(value)
        else:
            arguments[name] = value
    return arguments


def describe_run(agent: Agent, env: Env, run: Run) -> Config:
    """Configuration of a whole run: the inverse of `build`."""
    agent = agent.agent if isinstance(agent, SelfPlay) else agent
    if not isinstance(agent, Groups):
        return describe(run) | {"agent": describe(agent)}
    players = envs.players_of(env)
    groups = {
        name: {"players": players.get(name), "agents": one.sharing, "agent": describe(one)}
        for name, one in agent.agents.items()
    }
    return describe(run) | {"agent": describe(agent.learners(env.num_streams)[0][0]), "groups": groups}


def describe(part: Any, each: bool = False) -> Config:
    """Configuration of an agent, a run or a part, with all nested parts: the inverse of `build`. Checks every number.

    `each`: numbers may be arrays, one per player.
    """
    if isinstance(part, Independent):
        return describe(part.agent, each=True)
    config: Config = {}
    hints = typing.get_type_hints(type(part))
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.name in PARTS:
            names = {cls: name for name, cls in choices_of(type(part), field.name).items()}
            own = f"{type(value).__module__}.{type(value).__qualname__}"
            inner = describe(value, each) if type(value) in names else _numbers(value)
            config[field.name] = {"part": names.get(type(value), own)} | inner
        elif field.name in SECTIONS:
            config[field.name] = describe(value, each)
        elif field.name == "env_params" and value:
            config[field.name] = dict(value)
        elif field.metadata and field.default is not dataclasses.MISSING:
            option = option_of(field, hints[field.name], field.name)
            config[field.name] = check_value(option, _plain(value), each)
    return config


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


# ---------------------------------------------------------------- files


def read(path: Path) -> Config:
    """Read a configuration file, TOML or JSON; ConfigError where that fails."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return parse(text, path)


def parse(text: str, path: Path) -> Config:
    """Parse the text of the configuration file `path`, whose suffix chooses JSON or TOML."""
    loads = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        config = loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: a run file must be a table of options, not {type(config).__name__}")
    return config


def to_toml(config: Config) -> str:
    """Write a configuration as TOML, with "none" for None."""
    return tomli_w.dumps(unflatten({path: NONE if value is None else value for path, value in flatten(config)}))


def presets() -> dict[str, Path]:
    """Presets, the tuned runs that come with ppax: files by name."""
    root = Path(str(resources.files("ppax") / "presets"))
    return {str(p.relative_to(root).with_suffix("")): p for p in sorted(root.rglob("*.toml"))}


def file_of(target: str) -> Path | None:
    """Run file at `target`, or in the run directory `target`; None where `target` is a preset or an environment.

    Raises ConfigError for files of another kind and for directories without a run.
    """
    path = Path(target)
    if path.suffix in (".toml", ".json"):
        return path
    if target in presets() or target in envs.BUILTIN:
        return None
    if path.suffix in (".yaml", ".yml") or path.is_file():
        raise ConfigError(f"{path}: a run file is TOML or JSON, named .toml or .json; see `ppax presets` for examples")
    if (path / RUN_FILE).is_file():
        return path / RUN_FILE
    if path.is_dir() and target.partition("/")[0] not in (*envs.SUITES, *envs.HOST_SUITES):
        raise ConfigError(f"{path} is a directory without {RUN_FILE}: must be a run directory, a run file or a name")
    return None


def find(target: str) -> Config:
    """Configuration of `target`: a file, a preset, or an environment with the defaults."""
    path = file_of(target)
    if path is not None:
        return read(path)
    if target in presets():
        return read(presets()[target])
    return {"env": target}
