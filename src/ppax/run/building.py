"""`ppax.build`, which takes what `ppax train` takes and returns agent, environment and settings of the same run."""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium

from ppax import config
from ppax.config.catalogue import choices_of
from ppax.core import imports
from ppax.core.options import Config, check_numbers, flatten, unflatten
from ppax.core.parts import slot_chains
from ppax.core.protocols import Agent, Callback, Environment, Logger, StopCondition
from ppax.core.types import ConfigError
from ppax.envs import Env, VectorEnv
from ppax.envs.suites.registry import require_adapted
from ppax.networks import Composed
from ppax.ppo.ppo import PPO
from ppax.run.fit import fit_run
from ppax.run.result import TrainedRun
from ppax.training.arguments import is_env, require_env

Target = str | Path | Env | Environment | Mapping[str, Any]
FIELDS = {field.name for field in dataclasses.fields(PPO)}


class Built(config.Built):
    """Agent, environment and settings of a run, as `ppax.build` returns them; its method `fit` trains the run."""

    __slots__ = ()

    def fit(
        self,
        run_dir: str | Path | None = None,
        callbacks: Sequence[Callback | Logger | StopCondition] = (),
        *,
        overwrite: bool = False,
    ) -> TrainedRun:
        """Train the built run, as `ppax train` does, and return the trained run.

        `run_dir` (None: nothing is written), `callbacks` and `overwrite` are those of `ppax.fit`.
        """
        return fit_run(*self, run_dir, callbacks, overwrite=overwrite)


def build(target: Target, **options: Any) -> Built:
    """Return agent, environment and settings of the run that `ppax train TARGET` makes; `.fit()` of the result trains.

        run = ppax.build("CartPole-v1", seed=3, num_envs=8, agent={"learning_rate": 1e-4}).fit("runs/first")

    `target` is the name of an environment, a preset, a run file, a run directory, a configuration, or an environment:
    one that `ppax.make` or `ppax.envs.host` returned, or a single one written in JAX. The run begins from the preset
    with the environment's name, where there is one, else from the defaults by the kind of environment
    (docs/settings.md); `preset` names another preset, or is "none". `options` override these settings, with the names
    of a run file; parts of the agent and sections may be objects, as `agent={"loss": MyLoss()}, log=ppax.Log(keep=9)`.

    Raises ConfigError for an unknown name, with the nearest one, and for an invalid option. Warns where a preset is
    tuned for another number of steps.
    """
    given, parts, of_objects = _as_data(options)
    with ExitStack() as stack:
        # classes of an object are in use already; those that options name take trust
        stack.enter_context(imports.trusting(_code_of(of_objects)))
        stack.enter_context(imports.trusting({one.name for one in config.outside(given).values()}))
        if isinstance(target, str | Path):
            file, env, found = config.file_of(str(target)), None, config.find(str(target))
            stack.enter_context(imports.trusting((), within=[] if file is None else [file.parent]))
        elif isinstance(target, Mapping):
            env, found = None, dict(target)
        else:
            env = _vectorised(target, given)
            found = _settings_of(env, given)
        started = config.begun(found | {name: given[name] for name in (config.PRESET, "env") if name in given})
        complete, text = config.completed(config.overridden(started, given), env)
        built = config.build(complete, env)
    if text and complete[config.PRESET] is not None:
        warnings.warn(text, stacklevel=2)
    return Built(_with_parts(built.agent, parts), built.env, built.run)


def _as_data(options: Mapping[str, Any]) -> tuple[Config, dict[str, Any], Config]:
    """Return the options as data of a run file, the agent's parts that were given as objects, and their own data.

    Parts are swappable objects of the agent, such as its loss; the result has them by field name. They are left out of
    the first data, except for a network that a run file can hold, and for parts inside of the table of a network. The
    last data is what objects among the options are as tables: loggers of a Log, networks and their parts.

    Raises ConfigError if the option `agent` is no table, or if it has an object under a name that is no field of an
    agent.
    """
    agent = options.get("agent", {})
    if not isinstance(agent, Mapping):
        raise ConfigError(
            'agent: must be a table of options, as agent={"learning_rate": 1e-4}; an agent that you have built trains '
            "with ppax.fit(agent, env)"
        )
    start = options.get("init_from")
    start = start.run if isinstance(start, config.InitFrom) else start
    if start is not None and not isinstance(start, str | Path | Mapping):
        raise ConfigError(
            f"init_from: a {type(start).__name__} in memory, which run.toml cannot name; give the path of a run "
            "directory, or train with ppax.fit(agent, env, init_from=...)"
        )
    # `fit` has no argument `eval`, which is a function of Python
    others = {"eval" if name == "evaluation" else name: x for name, x in options.items() if name != "agent"}
    sections = {name: config.describe(x) for name, x in others.items() if dataclasses.is_dataclass(x)}
    given = others | sections
    if isinstance(given.get("init_from"), str | Path):  # as in `fit`, and as --init-from
        given["init_from"] = {"run": str(given["init_from"])}
    slots = {*choices_of(PPO), *slot_chains(PPO)}
    parts = {
        name: x
        for name, x in agent.items()
        if dataclasses.is_dataclass(x) or (name in slots and not isinstance(x, Mapping | str))
    }
    for name in parts.keys() - FIELDS:
        nearest = difflib.get_close_matches(name, FIELDS, n=1, cutoff=0.0)[0]
        raise ConfigError(f"agent.{name}: unknown option; did you mean agent.{nearest}?")
    inner = _parts_in(agent.get("network"))
    of_objects = _network(parts) | ({"network": inner} if inner else {})
    data = {name: x for name, x in agent.items() if name not in parts} | _network(parts)
    if inner:
        data["network"] = {**agent["network"], **inner}
    return unflatten(dict(flatten(given | ({"agent": data} if data else {})))), parts, {**sections, "agent": of_objects}


def _parts_in(network: Any) -> Config:
    """Return the parts in the table `network` that are objects, such as its memory, as tables of a run file, by name.

    {} if `network` is no table. Raises ConfigError for a part that no run file can hold.
    """
    if not isinstance(network, Mapping):
        return {}
    slots, found = choices_of(Composed), {}
    for name, x in network.items():
        if name not in slots or not dataclasses.is_dataclass(x):
            continue
        place = f"agent.network.{name}"
        check_numbers(x, place)
        table = found[name] = config.describe_part(x, slots[name])
        try:
            with imports.trusting(_code_of({"agent": {"network": {name: table}}})):
                same = bool(config.build_part(slots[name], dict(table), place) == x)
        except (ConfigError, ValueError):  # a class that cannot be imported; fields that are arrays
            same = False
        if not same:
            raise ConfigError(
                f"{place}: a {type(x).__name__} that no run file can hold; give the whole network as an object, "
                f'agent={{"network": ppax.networks.network(env, {name}=...)}}'
            )
    return found


def _network(parts: Mapping[str, Any]) -> Config:
    """Return the network among `parts`, the agent's objects by field name, as the table {"network": ...} of a run file.

    {} if there is no network, or none that a run file can hold. The table is needed because the defaults of other
    settings depend on the network's memory and distribution.
    """
    network = parts.get("network")
    if not dataclasses.is_dataclass(network):
        return {}
    table = {"network": config.describe_part(network, choices_of(PPO)["network"])}
    try:
        with imports.trusting(_code_of({"agent": table})):
            config.resolve({"agent": table})
    except ConfigError:  # a class that cannot be imported, or a field that no run file can hold
        return {}
    return table


def _code_of(given: Config) -> set[str]:
    """Return the packages of the classes that a configuration names by import path, for a caller that trusts them."""
    return {config.package_of(path) for path in config.import_paths(given).values()}


def _vectorised(env: Any, given: Config) -> Env:
    """Return `env`, or, if it is a single environment written in JAX, a vector environment of copies of it.

    The number of copies is `num_envs` of the options `given` or of their preset, else the default for the kind of
    environment.
    """
    if is_env(env) or isinstance(env, gymnasium.Env | type) or not hasattr(env, "num_agents"):
        require_env(env)
        return env  # type: ignore[no-any-return]
    require_adapted(env)
    return VectorEnv(env, config.num_envs_for(given, VectorEnv(env, 1)))


def _settings_of(env: Env, given: Config) -> Config:
    """Return the settings of a run file that `env` was made with.

    Raises ConfigError where the options `given` name another value, which would have no effect.
    """
    settings = {name: x for name, x in env.settings.run_fields().items() if x != {} and name != "schedule"}
    for name in settings.keys() & given.keys() - {"env_params"}:
        if given[name] != settings[name]:
            raise ConfigError(
                f"{name} = {given[name]!r}: the environment was made with {settings[name]!r}; make it with the other, "
                "or leave this out"
            )
    return settings


def _with_parts(agent: Agent, parts: Mapping[str, Any]) -> Agent:
    """Return `agent` with the objects `parts`, by field name, in place of its own; unchanged if there are none.

    Raises ConfigError if `agent` consists of several agents: such an agent is built by hand.
    """
    if not parts:
        return agent
    if not isinstance(agent, PPO):
        raise ConfigError(
            f"agent.{next(iter(parts))}: objects are parts of one policy, and here are several; give its table "
            '{"part": ...}, or build the agents by hand (page "Many agents")'
        )
    agent = dataclasses.replace(agent, **parts)
    check_numbers(agent)
    return agent
