"""A run as plain data: nested dicts, as TOML holds them, checked before anything compiles.

The options are the fields of the parts themselves: name, type, default, limits and documentation stand once, at the
field (`number`, `static` in types.py). Parts are named: `[agent.advantage] part = "gae"`.
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
from ppax.agents.multi_agent import Agent, sharing_of
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

OBJECTS = "objects"  # places of a run that its file does not hold (record.py); no option: only `fit` writes it
RUN_FILE = "run.toml"  # in a run directory
FREE = ("env_params", "eval.env_params")  # tables whose names are the environment's business
# Tables without a choice of parts.
SECTIONS: dict[str, type] = {"best": BestSettings, "log": Log, "eval": EvalSettings, "self_play": Pool}
SECTIONS |= {"program": Program, "kl": KLControl}


class Built(NamedTuple):
    """What a configuration stands for."""

    agent: Agent
    env: Env
    run: Run


# ---------------------------------------------------------------- the options of a configuration


def options(config: Config) -> Iterator[Option]:
    """Every option there is, given which parts `config` names; unknown part names raise ConfigError."""
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
            part = Option(f"{path}.part", str, False, False, default, "which part", {"choices": tuple(choices)})
            name = check_value(part, section.get("part", default))
            yield part
            yield from _options(choices[name], section, path + ".")
        elif (
            path not in FREE and field.default is not dataclasses.MISSING
        ):  # without a default it comes from the environment
            yield option_of(field, hints[field.name], path)


def _table(config: Config, name: str, path: str) -> Config:
    section: Config = config.get(name, {})
    if isinstance(section, str) and name in PARTS:
        raise ConfigError(f"{path} = {section!r}: must be a table, [{path}]; write {path}.part = {section!r}")
    if not isinstance(section, dict):
        raise ConfigError(f"{path} = {section!r}: must be a table, [{path}]")
    return section


def resolve(config: Config) -> Config:
    """The configuration with every default filled in; raises ConfigError for anything that cannot be."""
    config = group_tables.filled(config)
    known = {option.path: option for option in options(config)}
    given = dict(flatten(config))
    marks = {OBJECTS: given.pop(OBJECTS)} if given.get(OBJECTS) else {}
    free = {path: value for path, value in given.items() if is_free(path)}
    for path in given:
        if path not in known and path not in free:
            raise ConfigError(f"unknown option {path!r}; did you mean {nearest(path, known)!r}?")
    each = group_tables.apart(config)  # where numbers may be lists
    values = {
        path: check_value(option, given.get(path, option.default), path.partition("agent.")[0] in each)
        for path, option in known.items()
    }
    return unflatten(values | free) | marks


def objects_of(config: Config) -> list[str]:
    """Places of a run that its file does not hold; ConfigError where they are no list of texts."""
    places = config.get(OBJECTS, [])
    if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
        raise ConfigError(f"{OBJECTS} = {places!r}: must be a list of texts")
    return places


def is_free(path: str) -> bool:
    """Whether an option belongs to the environment, which alone knows whether there is such a one."""
    return path.startswith(tuple(f"{name}." for name in FREE))


# ---------------------------------------------------------------- between configurations and objects


def build(config: Config, env: Env | None = None) -> Built:
    """The agent, environment and run that a configuration describes; for `env` instead, where it is given."""
    config = resolve(config)
    places = [place for place in objects_of(config) if not place.startswith("callbacks")]
    if places:
        raise ConfigError(
            f"objects = {', '.join(places)}: this run was made from Python objects that its file does not hold; "
            "pass them to ppax.fit, or take the line `objects` out, and what ppax has for them is used"
        )
    if env is None:
        env = build_env(config)
    tables = group_tables.known(config, dict(env.sizes))
    if not env.sizes:
        group_tables.require_groups(config)
        return Built(_agent(config, env), env, settings(config))
    agents = {name: _agent(tables.get(name, config), group) for name, group in env.groups.items()}
    run, groups = settings(config), Groups(agents, env.sizes)
    return Built(groups if run.self_play.every is None else SelfPlay(groups, run.self_play, env.num_envs), env, run)


def build_env(config: Config) -> Env:
    """The environment that a configuration describes."""
    config = resolve(config)
    made = {name: config[name] for name in envs.SETTINGS if name != "env"}
    one = envs.make(config["env"], **made, env_params=config.get("env_params"))
    return envs.grouped(one, group_tables.players_of(config))


def _agent(config: Config, env: Any) -> PPO | Independent:
    """What learns by the tables `agents` and `agent`, for an environment or a group of its agents."""
    agent = PPO(**_arguments(PPO, config["agent"], env))
    return Independent(agent, env.num_agents) if config["agents"] == group_tables.INDEPENDENT else agent


def settings(config: Config) -> Run:
    """The settings of a run beside its agent."""
    values = resolve({name: value for name, value in config.items() if name not in ("agent", "groups", OBJECTS)})
    sections: dict[str, Any] = {name: SECTIONS[name](**values.pop(name)) for name in SECTIONS if name in values}
    values.pop("agent")
    return Run(**values, **sections)


def _arguments(cls: type, config: Config, env: Env) -> dict[str, Any]:
    """What to make a part of class `cls` from."""
    arguments: dict[str, Any] = {}
    for name, value in config.items():
        if name in SECTIONS:
            arguments[name] = SECTIONS[name](**value)
        elif name in PARTS:
            kind = choices_of(cls, name)[value["part"]]
            make = partial(NETWORKS[value["part"]], env) if name == "network" else kind
            inner = {key: v for key, v in value.items() if key != "part"}
            arguments[name] = make(**_arguments(kind, inner, env))
        elif isinstance(value, list):
            fields = {field.name: field for field in dataclasses.fields(cls)}
            leaf = option_of(fields[name], typing.get_type_hints(cls)[name], name).leaf
            arguments[name] = np.array(value, np.float32) if leaf else tuple(value)
        else:
            arguments[name] = value
    return arguments


def describe_run(agent: Agent, env: Env, run: Run) -> Config:
    """The whole configuration of a run: what `build` builds it from again."""
    agent = agent.agent if isinstance(agent, SelfPlay) else agent
    if not isinstance(agent, Groups):
        return describe(run) | {"agent": describe(agent)}
    players = envs.players_of(env)
    groups = {
        name: {"players": players.get(name), "agents": sharing_of(one), "agent": describe(one)}
        for name, one in agent.agents.items()
    }
    return describe(run) | {"agent": describe(agent.learners(env.num_streams)[0][0]), "groups": groups}


def describe(part: Any, each: bool = False) -> Config:
    """The configuration of an agent or run, with all in it: the inverse of `build`, and a check of every number.

    `each`: numbers may be arrays, one for each player.
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
    """What a file can hold of a part of the user's own: its numbers and texts, checked."""
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    values = {field.name: _plain(getattr(part, field.name)) for field in fields if field.metadata}
    limits: dict[str, Any] = {field.name: dict(field.metadata) for field in fields}
    kept = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
    return {name: check_limits(name, value, limits[name]) for name, value in kept.items()}


def _plain(value: Any) -> Any:
    if getattr(value, "ndim", 0):  # one for each player, in as many digits as there are
        return [float(str(x)) for x in np.asarray(value)]
    return value.item() if hasattr(value, "item") else value


# ---------------------------------------------------------------- files


def read(path: Path) -> Config:
    """A configuration file, TOML or JSON."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return parse(text, path)


def parse(text: str, path: Path) -> Config:
    """What stands in the configuration file `path`."""
    loads = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        config = loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: a run is a table of options, not {type(config).__name__}")
    return config


def to_toml(config: Config) -> str:
    """As TOML, where "none" stands for None."""
    return tomli_w.dumps(unflatten({path: NONE if value is None else value for path, value in flatten(config)}))


def presets() -> dict[str, Path]:
    """Names and files of the tuned runs that come with ppax."""
    root = Path(str(resources.files("ppax") / "presets"))
    return {str(p.relative_to(root).with_suffix("")): p for p in sorted(root.rglob("*.toml"))}


def file_of(target: str) -> Path | None:
    """The run file that `target` is, or that lies in the run directory `target`; None: it is a name.

    ConfigError for files of another kind and for directories without a run.
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
    """The configuration that `target` names: a file, a preset, or an environment with the defaults."""
    path = file_of(target)
    if path is not None:
        return read(path)
    if target in presets():
        return read(presets()[target])
    return {"env": target}
