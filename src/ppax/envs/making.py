"""Functions that make environments by name, and copies of environments with other parameters, schedules or groups."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from ppax.core import imports
from ppax.core.options import check_value, plain_data
from ppax.core.protocols import Environment, Schedule
from ppax.core.types import ConfigError
from ppax.core.unknown_names import refusing_unknown
from ppax.envs import builtin, imported
from ppax.envs.adaptive_ranges import adaptive_of, with_ends, without_ends
from ppax.envs.builtin.navigator import CROWD
from ppax.envs.curriculum import check_schedule, extreme_values, values_at
from ppax.envs.hosting.action_filter import FILTER
from ppax.envs.hosting.faults import close_all
from ppax.envs.hosting.host_env import HostEnv, host
from ppax.envs.hosting.time_limit import LIMIT
from ppax.envs.settings import (
    ACTION_REPEAT,
    TIMEOUT,
    EnvSettings,
    checked_clip,
    checked_metrics,
    checked_num_envs,
)
from ppax.envs.stagger import checked_stagger, longest_episode, no_limit
from ppax.envs.suites import registry
from ppax.envs.suites.gymnasium import constructor_arguments
from ppax.envs.suites.registry import HOST_SUITES, SUITES
from ppax.envs.vector import PoolResets, VectorEnv, fresh_resets
from ppax.envs.wrappers import agent_groups, params
from ppax.envs.wrappers.action_filter import action_filter
from ppax.envs.wrappers.clip_actions import clip_actions as clipped_to
from ppax.envs.wrappers.params import by_short_name, parameters, unknown_parameter
from ppax.envs.wrappers.time import ActionRepeat, TimeLimit
from ppax.envs.wrappers.views import SEEN, PartialView, partial_view, team_view

Env = VectorEnv | HostEnv
Single = Callable[[Mapping[str, Any]], Environment]  # options of its constructor -> one environment

BUILTIN: dict[str, Callable[[], Environment]] = {
    "CartPole-v1": lambda: TimeLimit(builtin.CartPole(), 500),
    "CartPole-v1-masked": lambda: PartialView(TimeLimit(builtin.CartPole(), 500), (0, 2)),  # no velocities
    "CueCorridor-10": lambda: builtin.CueCorridor(10),
    "CueCorridor-40": lambda: builtin.CueCorridor(40),
    "Maze-9": lambda: TimeLimit(builtin.Maze(9), 150),  # 48 steps to the goal
    "Acrobot-v1": lambda: TimeLimit(builtin.Acrobot(), 500),
    "MountainCar-v0": lambda: TimeLimit(builtin.MountainCar(), 200),
    "MountainCarContinuous-v0": lambda: TimeLimit(builtin.MountainCarContinuous(), 999),
    "Pendulum-v1": lambda: TimeLimit(builtin.Pendulum(), 200),
    "Navigator-v0": lambda: TimeLimit(builtin.Navigator(), 200),
    "Navigator-8": lambda: TimeLimit(builtin.Navigator(num_agents=8, **CROWD), 200),
    "Navigator-64": lambda: TimeLimit(builtin.Navigator(num_agents=64, radius=0.04, **CROWD), 200),
    "Pursuit-2": lambda: TimeLimit(builtin.Pursuit(), 200),
    "Pursuit-3": lambda: TimeLimit(builtin.Pursuit(prey_speed=3.0, radius=0.1, num_predators=2), 200),
    "rl8/CartPole": lambda: TimeLimit(builtin.EndlessCartPole(), 64),
    "rl8/Pendulum": lambda: TimeLimit(builtin.Pendulum(), 512),
    "rl8/MountainCar": lambda: TimeLimit(builtin.EndlessMountainCar(), 512),
    "rl8/AlgoTrading": lambda: TimeLimit(builtin.AlgoTrading(), 128),
    "probe/Constant": lambda: builtin.ConstantProbe(),
    "probe/Obs": lambda: builtin.ObsProbe(),
    "probe/Discount": lambda: builtin.DiscountProbe(),
    "probe/Action": lambda: builtin.ActionProbe(),
    "probe/ObsAction": lambda: builtin.ObsActionProbe(),
    "probe/Infinite": lambda: TimeLimit(builtin.InfiniteProbe(), 8),
    "probe/Finite": lambda: builtin.FiniteProbe(),
}

UNEXPECTED = re.compile(r"unexpected keyword argument '(?P<name>\w+)'")  # in Python's error for a wrong argument
OWN_GUIDE = 'the page "Your environment in JAX"'


@refusing_unknown
def make(
    name: str,
    num_envs: int = 64,
    action_repeat: int = 1,
    vectorization: str = "sync",
    agent_ids: bool = False,
    central_critic: bool = False,
    env_params: Mapping[str, Any] | None = None,
    timeout: float = TIMEOUT,
    info_metrics: Sequence[str] | None = None,
    schedule: Schedule | None = None,
    clip_actions: float | Sequence[float] | None = None,
    stagger: bool | int = False,
) -> Env:
    """Return `num_envs` copies of the environment called `name`, with its usual time limit.

    Built-in environments have a plain name ("CartPole-v1"), others are "suite/id" ("brax/ant"); `ppax envs` lists them.
    An environment of your own has an import path ("my_package.worlds:River"), after `ppax.trust("my_package")`. Each
    action is applied `action_repeat` times, together one step of the agent; the time limit counts single steps.
    Environments on the host, such as Gymnasium's, are stepped in this process, with `vectorization = "async"` in worker
    processes, with "ray" in actors of a Ray cluster; these must answer within `timeout` seconds. `agent_ids` adds the
    agent's index to its observation, `central_critic` adds "joint", the observations of all agents, for the critic
    only. `info_metrics` are entries of a host environment's `info` at the last step of an episode, which are logged as
    means. `env_params` are parameters by name or dotted path (`ppax envs NAME` lists them): a value, or a range
    `{"low": 0.5, "high": 2.0}` from which every reset samples uniformly. Any other name is an argument of the
    environment's own constructor. Two names add a wrapper if the environment has no such parameter: `max_steps` a time
    limit, and `seen`, for compiled environments, one that shows the agent only the observation's entries at these
    indices. `schedule` changes parameters of a compiled environment over training (a curriculum; evaluations use the
    final values), as `ppax.schedules.Linear(("env.gravity",), end=2.0)`; `clip_actions` clips continuous actions to
    [low, high], or to [-x, x] for one number x. `stagger` truncates the first episode of each environment at a random
    length, so that environments do not all end at once: of at most `stagger` steps if it is a number, of at most the
    time limit if it is True.

    Raises ConfigError for a wrong name or argument, ImportError for a missing library, EnvError where an environment on
    the host fails.
    """
    num_envs = _checked(name, num_envs)
    settings = EnvSettings(
        action_repeat=check_value(ACTION_REPEAT, action_repeat),
        vectorization=vectorization,
        agent_ids=agent_ids,
        central_critic=central_critic,
        timeout=timeout,
        info_metrics=checked_metrics(info_metrics),
        env_params={} if env_params is None else env_params,
        schedule=schedule,
        clip_actions=checked_clip(clip_actions),
        stagger=checked_stagger(stagger),
        by_name=True,
    )
    if name not in BUILTIN and imported.is_own(name):
        return _own(name, num_envs, settings)
    suite, _, env_id = name.partition("/")
    if suite in HOST_SUITES and env_id:
        return _on_host(name, num_envs, settings)
    return _native(name, num_envs, settings, partial(_single, name))


def _checked(name: object, num_envs: object) -> int:
    """Return `num_envs` as an int; ConfigError if it is no whole number of at least 1, or `name` no string."""
    if not isinstance(name, str):
        raise ConfigError(
            f"name = {name!r}: must be a string, as 'CartPole-v1'; for your own environment use ppax.envs.host(MyEnv, "
            "num_envs), or ppax.envs.VectorEnv(MyEnv(), num_envs) where it is written in JAX"
        )
    return checked_num_envs(num_envs)


def grouped(env: Any, players: Mapping[str, Sequence[int | str]]) -> Any:
    """Return `env` (a VectorEnv, a HostEnv or one environment) with its agents split into the groups `players`.

    `players` has the agents of each group, by their names, or by their indices in the environment's own order (on the
    host `possible_agents`); {} changes nothing. Raises ConfigError if an agent is in no group or in several, if an
    index does not exist, if members of a group have different spaces, or if the agents of a compiled environment have
    groups already.
    """
    if not players:
        return env
    if isinstance(env, HostEnv):
        return _grouped_on_host(env, players)
    if not isinstance(env, VectorEnv):
        return agent_groups.split_agents(env, players, type(env).__name__)
    inner = agent_groups.split_agents(env.env, players, env.name or type(env.env).__name__)
    return dataclasses.replace(env, env=inner, made=dataclasses.replace(env.made, players=inner.players))


def _grouped_on_host(env: HostEnv, players: Mapping[str, Sequence[int | str]]) -> HostEnv:
    """Return new environments like `env`, with their agents split into the groups `players`.

    `players` has the agents of each group, names or indices.
    """
    if env.host.in_groups is None:
        raise ConfigError(f"groups: {env.name} has one agent and no others; leave `players` out")
    names = env.agent_names
    if env.sizes:  # they are in the order of the groups
        team = env.host.factories[0]()
        names = tuple(map(str, team.env.possible_agents))
        close_all([team.close])
    chosen = agent_groups.partition(players, env.num_agents, env.name, names)
    return dataclasses.replace(env.host.in_groups(chosen), made=dataclasses.replace(env.made, players=chosen))


def other_params(env: Env, env_params: Mapping[str, Any]) -> Env:
    """Return `env` with `env_params` (such as {"gravity": 12.0}) added; `env` itself if it has these already.

    Raises ConfigError if `env` has no such parameter, if it is a host environment that was not made by name, and if
    `env_params` has an "action_filter" and `env` was made without one.
    """
    params.require_table(env_params)
    settings, env_params = env.settings, plain_data(env_params)
    known = parameters(env.env) if isinstance(env, VectorEnv) else {}
    env_params = by_short_name(env_params, known) if known else params.nested(env_params)
    merged = params.merged(settings.env_params, env_params)
    if merged == settings.env_params:
        return env
    if FILTER in env_params and FILTER not in {*known, *settings.env_params}:
        raise ConfigError(
            f"env_params.{FILTER}: {env.name} was made without a filter of actions, which would add the filtered "
            f"action to its observations; train with one: [env_params] {FILTER} = 1.0 changes no action"
        )
    if isinstance(env, VectorEnv) and adaptive_of(env):
        return with_schedule(other_params(without_ends(env), env_params), settings.schedule)
    if isinstance(env, VectorEnv) and (not settings.by_name or env_params.keys() <= known.keys()):
        made = dataclasses.replace(env.made, env_params=merged)
        return dataclasses.replace(env, env=params.adjust(env.env, env_params), made=made)
    if not settings.by_name:
        raise ConfigError(
            f"env_params {', '.join(env_params)}: {env.name} is made by your own function: pass them to "
            "ppax.envs.host(MyEnv, 8, env_params={...}), where a range is drawn at every reset, or set them in "
            "functools.partial(MyEnv, gravity=9.8). To evaluate with other parameters, make a second one and call "
            "ppax.evaluate"
        )
    arguments = settings.arguments() | {"env_params": merged}
    return grouped(make(settings.env, **arguments), dict(settings.players))


def for_evaluation(env: Env, *env_params: Mapping[str, Any]) -> Env:
    """Return `env` with the numbers (parameters such as gravity) at the end of its schedule, and with `env_params`.

    Of several `env_params` the later ones have priority. Raises ConfigError as `other_params` does.
    """
    last: Env = ended(env) if isinstance(env, VectorEnv) else env
    for one in env_params:
        last = other_params(last, one)
    return last


def with_schedule(env: Env, schedule: Schedule) -> VectorEnv:
    """Return `env` with a schedule that changes its numbers (parameters such as gravity) over training.

    Raises ConfigError if `env` lacks one of the numbers that the schedule changes, or is stepped on the host.
    """
    native = without_ends(require_native(env, "schedule", "leave [schedule] out"))
    scheduled = dataclasses.replace(native, schedule=schedule)
    if adaptive := adaptive_of(scheduled):
        return with_ends(native, adaptive)
    check_schedule(scheduled)
    return scheduled


def ended(env: VectorEnv) -> VectorEnv:
    """Return `env` as evaluations use it: with the last values of its schedule, and first episodes of full length.

    A schedule changes an environment's parameters, such as gravity, over training; `stagger` shortens first episodes.
    The result has neither of them. If `env` has neither, it is returned itself.
    """
    if env.stagger:
        env = dataclasses.replace(env, stagger=False)
    if env.schedule is None:
        return env
    last: Any = other_params(dataclasses.replace(without_ends(env), schedule=None), values_at(env, 1.0))
    return last  # type: ignore[no-any-return]


def require_native(env: Env, what: str, instead: str) -> VectorEnv:
    """Return `env` if it is stepped inside the compiled program; otherwise raise ConfigError.

    `what` is the function that needs it and `instead` the remedy, both for the error.
    """
    if isinstance(env, HostEnv):
        raise ConfigError(
            f"{what} works with environments inside the compiled program; {env.name} is stepped on the host: {instead}"
        )
    return env


def _on_host(name: str, num_envs: int, settings: EnvSettings) -> HostEnv:
    suite, _, env_id = name.partition("/")
    settings = dataclasses.replace(settings, env_params=params.nested(settings.env_params))
    if suite == "gymnasium" and None in settings.env_params.values():
        chosen = _without_default_none(settings.env_params, constructor_arguments(env_id))
        settings = dataclasses.replace(settings, env_params=chosen)
    if suite != "gymnasium":
        params.refuse_drawn(name, {key: x for key, x in settings.env_params.items() if key != FILTER})
    _refuse_compiled_only(name, settings)
    for view in ("agent_ids", "central_critic"):
        if getattr(settings, view) and suite != "pettingzoo":
            raise ConfigError(f"{view} = true: {name} has one agent and no others; set it to false")
    return registry.load_host(suite, env_id, num_envs, settings)


def _refuse_compiled_only(name: str, settings: EnvSettings) -> None:
    """Raise ConfigError if `settings` has a schedule, which only compiled environments can have.

    `name` is that of an environment on the host.
    """
    settings.refuse(("schedule",), f"{name} is stepped on the host, where no number is traced")


def _without_default_none(env_params: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return `env_params` without those that are None and have the default None, as run files cannot hold None.

    `defaults` are those of the constructor's arguments, by name.
    """
    return {name: x for name, x in env_params.items() if not (x is None and defaults.get(name, 0) is None)}


def _own(name: str, num_envs: int, settings: EnvSettings) -> Env:
    """Return `num_envs` copies of the user's environment `name`, an import path or a registered short name."""
    found = imported.find_env(name)
    defaults = {key: parameter.default for key, parameter in imported.parameters_of(found).items()}
    settings = dataclasses.replace(settings, env_params=_without_default_none(settings.env_params, defaults))
    tables = params.nested(settings.env_params)
    if not imported.on_host(found, name, params.first_values(tables)):
        single: Single = partial(imported.single, found, name)
        if LIMIT in tables and LIMIT not in imported.parameters_of(found):
            single = partial(_limited, single)
        takes = SEEN in imported.parameters_of(found)
        return _native(name, num_envs, settings, single, imported.needed(found), takes)
    settings = dataclasses.replace(settings, env_params=tables)
    _refuse_compiled_only(name, settings)
    added = imported.added(found, tables)
    own = {key: value for key, value in tables.items() if key not in added}
    given = imported.arguments(found, name, params.first_values(own))
    drawn = {key: value for key, value in own.items() if params.is_range(value)}
    fixed = {key: value for key, value in given.items() if key not in drawn}
    make = partial(found, **fixed) if fixed else found
    by_host = drawn | {key: tables[key] for key in added}
    env = host(make, num_envs, name, **settings.of_host() | {"env_params": by_host})
    return dataclasses.replace(env, made=settings)


def _limited(single: Single, options: Mapping[str, Any]) -> Environment:
    """Return the environment that `single(options)` makes, with a parameter "max_steps" for the caller to set.

    An environment that has no parameter of this name is wrapped in a TimeLimit, with 1 step as a placeholder.
    """
    env = single(options)
    return env if LIMIT in parameters(env) else TimeLimit(env, 1)


def _filtered(name: str, single: Single, options: Mapping[str, Any]) -> Environment:
    """Return the environment that `single(options)` makes, with a parameter "action_filter" for the caller to set.

    The parameter is the share of the policy's new action in the filtered action. An environment that has no parameter
    of this name is wrapped in an ActionFilter. `name` is the environment's name in errors.
    """
    env = single(options)
    return env if FILTER in parameters(env) else action_filter(env, 1.0, name)


def _partly_seen(name: str, single: Single, seen: Any, options: Mapping[str, Any]) -> Environment:
    """Return the environment that `single(options)` makes, inside a PartialView that shows the agent only `seen`.

    `seen` are indices of entries of the observation. `name` is the environment's name in errors.
    """
    return partial_view(single(options), seen, name)


def _takes_limit(name: str, single: Single, limit: Any) -> bool:
    """Return whether the environment `name` of ppax or of a suite has a parameter or an argument "max_steps"."""
    if LIMIT in parameters(single({})):
        return True
    if name in BUILTIN:
        return False
    try:
        single(params.first_values({LIMIT: limit}))
    except ConfigError as error:
        if UNEXPECTED.search(str(error)) is None:
            raise
        return False
    return True


def _native(
    name: str,
    num_envs: int,
    settings: EnvSettings,
    single: Single,
    needed: Sequence[str] = (),
    takes_seen: bool = False,
) -> VectorEnv:
    """Return `num_envs` compiled environments with `settings`, each made by `single(options)`.

    `needed` are arguments of the environment's constructor without a default. `takes_seen` says that the constructor
    has an argument `seen`; otherwise `seen` in `env_params` adds a wrapper that hides entries of observations.
    """
    settings.refuse(("vectorization", "timeout", "info_metrics"), f"{name} is stepped inside the compiled program")
    of_inner = dict(settings.env_params)
    named = name in BUILTIN or name.partition("/")[0] in SUITES
    if LIMIT in of_inner and named and not _takes_limit(name, single, of_inner[LIMIT]):
        single = partial(_limited, single)
    if SEEN in of_inner and not takes_seen:
        single = partial(_partly_seen, name, single, of_inner.pop(SEEN))
    if FILTER in settings.env_params:
        single = partial(_filtered, name, single)
    inner = _with_params(name, of_inner, single, needed)
    settings = dataclasses.replace(settings, env_params=by_short_name(settings.env_params, parameters(inner)))
    suite = name.partition("/")[0]
    of_suite = name not in BUILTIN and suite in SUITES
    expensive = of_suite and SUITES[suite].expensive_resets
    if of_suite:
        inner = registry.with_spaces(suite, inner, of_inner)
    inner = clipped_to(inner, settings.clip_actions)
    repeated = inner if settings.action_repeat == 1 else ActionRepeat(inner, settings.action_repeat)
    viewed = team_view(repeated, settings.agent_ids, settings.central_critic, name)
    resets = PoolResets() if expensive else fresh_resets
    if settings.stagger is True and longest_episode(viewed) is None:
        raise no_limit(name)
    made = dataclasses.replace(settings, schedule=None)
    env = VectorEnv(viewed, num_envs, name, resets, made, stagger=settings.stagger)
    if settings.schedule is None:
        return env
    env = with_schedule(env, settings.schedule)
    return registry.with_spaces(suite, env, {**of_inner, **_reached(env)}) if of_suite else env


def _reached(env: VectorEnv) -> dict[str, dict[str, Any]]:
    """Return the range of values that each parameter changed by the schedule takes over training.

    The result is {name: {"low": least value, "high": largest value}}.
    """
    seen = extreme_values(env)
    ends = {name: [end for values in seen if name in values for end in _both_ends(values[name])] for name in seen[1]}
    return {name: {"low": min(values), "high": max(values)} for name, values in ends.items()}


def _both_ends(value: Any) -> tuple[Any, Any]:
    return (value["low"], value["high"]) if isinstance(value, Mapping) else (value, value)


def _with_params(name: str, env_params: Mapping[str, Any], single: Single, needed: Sequence[str] = ()) -> Environment:
    """Return one environment with the parameters `env_params`; unknown names are passed to its constructor.

    `single(options)` makes the environment with these arguments of the constructor. `needed` are parameters that are
    passed to the constructor in any case, as it has no defaults for them. `name` is the environment's.
    """
    first = params.first_values({key: env_params[key] for key in needed if key in env_params})
    env = single(first)
    known = parameters(env)
    env_params = by_short_name(env_params, known)
    options = {key: value for key, value in env_params.items() if key not in known and name not in BUILTIN}
    params.refuse_drawn(name, options, [key for key, parameter in known.items() if params.can_be_drawn(parameter)])
    if options.keys() - first.keys():
        try:
            env = single(params.nested(first | options))
        except ConfigError as error:
            unexpected = UNEXPECTED.search(str(error))
            if unexpected is None:
                raise
            raise ConfigError(f"{unknown_parameter(unexpected['name'], known)} ({error})") from error
    return params.adjust(env, {key: value for key, value in env_params.items() if key not in options})


def _single(name: str, options: Mapping[str, Any]) -> Environment:
    if name in BUILTIN:
        return BUILTIN[name]()
    suite, _, env_id = name.partition("/")
    if suite in SUITES and env_id:
        return registry.load(suite, env_id, options)
    imports.refuse_file(name, "env")
    nearest = [f"gymnasium/{name}"] if ":" in name else difflib.get_close_matches(name, BUILTIN, n=1)
    nearest += [f"gymnasium/{one}" for one in difflib.get_close_matches(env_id or name, gymnasium.registry, n=1)]
    if nearest:
        own = f"; for your own see {OWN_GUIDE}" if env_id else ""
        raise ConfigError(
            f"no environment {name!r}; did you mean {nearest[0]!r}, as in `ppax train {nearest[0]}`? "
            f"`ppax envs` lists all names{own}"
        )
    if env_id:
        raise ConfigError(
            f"no suite {suite!r}: must be one of {', '.join((*SUITES, *HOST_SUITES))}; for your own see {OWN_GUIDE}"
        )
    here = f"; {name}.py is here: write {name}:NAME, with the name of a class in it" if _is_module_here(name) else ""
    raise ConfigError(
        f"no environment {name!r}{here}; `ppax envs` lists all names; for an environment of your own see {OWN_GUIDE}"
    )


def _is_module_here(name: str) -> bool:
    """Return whether the current directory has the Python file `name`.py.

    If so, the error for the unknown environment `name` suggests an import path, "name:CLASS".
    """
    return name.isidentifier() and Path(f"{name}.py").is_file()
