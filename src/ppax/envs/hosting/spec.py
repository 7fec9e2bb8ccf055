"""Spaces and sizes of host environments, read from one of them."""

from __future__ import annotations

import contextlib
import copy
import inspect
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Env, error, spaces

from ppax.core.options import Option, check_value
from ppax.core.types import ConfigError
from ppax.envs.hosting.action_filter import FILTER, HostActionFilter, NotFiltered
from ppax.envs.hosting.arrays import HostSpec, mask_form, sample_allowed
from ppax.envs.hosting.conventions import METHODS, REMEDY, SharedEnv, new_adapted, unread, wrappers_of
from ppax.envs.hosting.domain_randomisation import DomainRandomisation
from ppax.envs.hosting.faults import RAISED, EnvError, close_all
from ppax.envs.hosting.team import (
    HeterogeneousAgents,
    NotFlattenable,
    Team,
    Turns,
    difference,
    is_parallel,
    is_turn_based,
)
from ppax.envs.hosting.time_limit import LIMIT, MOST_STEPS, NotLimited, limited, takes
from ppax.envs.hosting.workers import Factory
from ppax.envs.settings import EnvSettings, checked_num_envs
from ppax.envs.stagger import no_limit
from ppax.envs.wrappers.agent_groups import own_limit, without_number
from ppax.envs.wrappers.params import is_range, refuse_lists, require_numbers, split_ranges

SUCCESS = ("is_success",)  # entries of `info` that are logged by default
SOURCES = "a function that makes one environment, a list of such functions, or a gymnasium.vector.VectorEnv"
# errors that have a message of their own: of ppax, and of libraries that are not installed
EXPLAINED = (
    *(ConfigError, ImportError, EnvError, error.DependencyNotInstalled),
    *(HeterogeneousAgents, NotFlattenable, NotFiltered, NotLimited),
)
SHARE = Option(f"env_params.{FILTER}", float, limits={"above": 0.0, "high": 1.0})  # of the new action
STEPS = Option(f"env_params.{LIMIT}", int, limits={"low": 1, "high": MOST_STEPS})


@contextlib.contextmanager
def env_errors(name: str, call: str) -> Iterator[None]:
    """Yield once; inside of this context an exception or `sys.exit` of an environment becomes an EnvError.

    The error names the environment, `name`, and its `call`, such as "constructor". Exceptions that explain themselves,
    such as ConfigError and ImportError, pass unchanged.
    """
    try:
        yield
    except EXPLAINED:
        raise
    except RAISED as raised:
        failed = EnvError(f"{name} failed in its {call}\n{traceback.format_exc()}")
        failed.cause = raised
        raise failed from None


def new_env(factory: Callable[[], Any]) -> Any:
    """Return a new environment made by `factory`, with action masks and recorded episode statistics in `info`.

    Raises ConfigError if `factory` has returned the same environment before.
    """
    try:
        return new_adapted(factory)
    except SharedEnv as shared:
        raise ConfigError(f"source: {shared}") from None


def factories_of(source: Any, num_envs: int | None) -> list[Factory]:
    """Return a list of functions, each of which makes one environment, from `source`, the argument of `host`.

    `source` is one function, which the list repeats `num_envs` times (8 by default), or a list of functions. Raises
    ConfigError for anything else, and for a list whose length is not `num_envs`.
    """
    listed = isinstance(source, Iterable) and not isinstance(source, str | Mapping) and not callable(source)
    given = list(source) if listed else [source]
    for place, one in enumerate(given):
        _require_factory(one, f"source[{place}]" if listed else "source")
    if not given:
        raise ConfigError(f"source = {source!r}: must be {SOURCES}, at least one")
    if num_envs is not None:
        num_envs = checked_num_envs(num_envs)
    if listed and num_envs not in (None, len(given)):
        raise ConfigError(f"num_envs = {num_envs}: the list has {len(given)} functions; leave num_envs out")
    return given if listed else given * (8 if num_envs is None else num_envs)


def _require_factory(one: Any, name: str) -> None:
    """Raise ConfigError, with what to write instead, unless `one` is a function; `name` is its name in the message."""
    if callable(one):
        return
    kind = type(one).__name__
    if isinstance(one, str):
        raise ConfigError(f"{name} = {one!r}: the name of an environment: write ppax.make({one!r}, num_envs=8)")
    if callable(getattr(one, "reset", None)) and callable(getattr(one, "step", None)):
        raise ConfigError(
            f"{name}: one environment, of type {kind}: pass a function that makes one, as its class: "
            f"ppax.envs.host({kind}, num_envs=8)"
        )
    raise ConfigError(f"{name} = {one!r}: must be {SOURCES}")


def with_params(
    factories: list[Factory], made: EnvSettings, set_params: Callable[[Any, dict[str, float]], None] | None, name: str
) -> tuple[list[Factory], HostSpec]:
    """Return functions that make environments with `made.env_params`, and the spaces and sizes of one environment.

    `set_params(env, numbers)`, if given, puts the parameters into an environment. Raises EnvError, with `name`, where
    the constructor or the first reset of an environment raises an exception, and ConfigError for invalid parameters.
    """
    name = name or getattr(factories[0], "__name__", "the environment")
    given = dict(made.env_params)
    if set_params is not None and not (given.keys() - {FILTER, LIMIT}):
        raise ConfigError(
            f"set_params = {getattr(set_params, '__name__', set_params)}: env_params has no number for it to set; give "
            'some, as env_params={"wind": {"low": 0.5, "high": 2.0}}, or leave it out'
        )
    share = given.pop(FILTER, None) if not any(takes(one, FILTER, unknown=False) for one in factories) else None
    steps = given.pop(LIMIT, None) if not any(takes(one, LIMIT) for one in factories) else None
    limit = None if steps is None else steps_of_limit(steps)
    if limit is not None and set_params is None:  # inside: a new environment of each episode has it, too
        factories = _wrapped(factories, lambda one: _alike(partial(limited, one, limit), one))
    if given or set_params is not None:
        factories = _with_arguments(factories, given, set_params)
    if limit is not None and set_params is not None:  # outside: `set_params` gets the user's environment
        factories = _wrapped(factories, lambda one: partial(limited, one, limit))
    if share is not None:
        ends = _share(share)
        factories = _wrapped(factories, lambda one: partial(HostActionFilter, one, ends))
    try:
        return with_spec(factories, made, name)
    except (NotFiltered, NotLimited) as found:
        raise ConfigError(str(found)) from None
    except EnvError as failed:
        if not given or not isinstance(failed.cause, TypeError):
            raise
        raise ConfigError(f"env_params {', '.join(given)}: {failed.cause}") from failed.cause


def _with_arguments(
    factories: list[Factory], given: Mapping[str, Any], set_params: Callable[[Any, dict[str, float]], None] | None
) -> list[Factory]:
    """Return functions that make environments with the parameters `given`; a range is drawn from at every reset.

    `set_params(env, numbers)`, if given, puts the parameters into an environment. Raises ConfigError for invalid ones.
    """
    defaults = _defaults_of(factories[0])
    fixed, ranges = split_ranges(given, defaults)
    for one in factories:
        refuse_lists(fixed, one)
        require_numbers(ranges, _defaults_of(one))
    if set_params is not None:
        constant = {name: {"low": x, "high": x} for name, x in fixed.items()}
        fixed, ranges = {}, split_ranges(constant, defaults)[1] | ranges
    factories = _wrapped(factories, lambda one: partial(one, **fixed))
    if ranges:
        factories = _wrapped(factories, lambda one: partial(DomainRandomisation, one, ranges, set_params))
    return factories


def _share(value: Any) -> tuple[float, float]:
    """Return (low, high) of the parameter "action_filter" of `env_params`, from `value`, a number or a range.

    It is the share of the policy's new action in the filtered action. Raises ConfigError for an invalid value or range.
    """
    ends = split_ranges({FILTER: value})[1][FILTER] if is_range(value) else (value, value)
    low, high = (check_value(SHARE, end) for end in ends)
    return low, high


def steps_of_limit(steps: Any) -> int:
    """Return `steps`, the time limit in `env_params`, as an int; ConfigError for a range, as it cannot be drawn."""
    if is_range(steps):
        raise ConfigError(
            f"env_params.{LIMIT} = {dict(steps)!r}: the time limit of an environment on the host cannot be drawn at a "
            "reset; give one number"
        )
    return int(check_value(STEPS, steps))


def _alike(made: Any, factory: Factory) -> Any:
    """Return the function `made`, which passes its arguments on to `factory`, with the signature of `factory`.

    Later checks of `env_params` read arguments and defaults from this signature.
    """
    with contextlib.suppress(TypeError, ValueError):  # a class in C
        made.__signature__ = inspect.signature(factory)
    return made


def _wrapped(factories: list[Factory], wrap: Callable[[Factory], Any]) -> list[Factory]:
    """Return a list with `wrap(factory)` of each function; a function that is listed several times is wrapped once.

    Equal entries of `factories` thus become equal entries of the result, by which later code knows that they make
    environments of one kind: checks, for example, then compare the environments with each other.
    """
    made = {id(one): wrap(one) for one in factories}
    return [made[id(one)] for one in factories]


def _arguments_of(factory: Factory) -> Mapping[str, inspect.Parameter]:
    """Return a function's arguments by name; {} for one whose signature Python does not know."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):  # a class in C
        return {}


def _defaults_of(factory: Factory) -> dict[str, Any]:
    """Return the defaults of a function's arguments by name; arguments without a default are left out."""
    return {name: x.default for name, x in _arguments_of(factory).items() if x.default is not x.empty}


def with_spec(factories: list[Factory], settings: EnvSettings, name: str) -> tuple[list[Factory], HostSpec]:
    """Return `factories`, wrapped if environments have several agents, and the HostSpec read from a new environment.

    A wrapped function makes a `Team`, whose arrays have an agent axis, with the options `agent_ids`, `central_critic`
    and `players` of `settings`; a turn-based environment is also wrapped in `Turns`. Without several agents the
    functions are returned as they are. `name` is the environment's name in errors. Raises ConfigError for options that
    do not fit the environment.
    """
    _refuse_compiled(factories[0])
    agent_ids, central_critic = settings.agent_ids, settings.central_critic
    with env_errors(name, "constructor"):
        env = new_env(factories[0])
    _refuse_converted(env)
    turns = is_turn_based(env)
    if turns:
        settings.refuse(("action_repeat",), f"{type(env).__name__} is turn-based: the next turn is another agent's")
        factories = _wrapped(factories, lambda one: partial(Turns, one))
    if is_parallel(env):
        players = settings.players or groups_by_name(env)
        close_all([env.close])
        views: dict[str, Any] = {"agent_ids": agent_ids, "central_critic": central_critic, "players": players}
        factories = _wrapped(factories, lambda one: partial(Team, one, turns=turns, **views))
        env = _team(factories[0], name)
    elif agent_ids or central_critic:
        close_all([env.close])
        option = "agent_ids" if agent_ids else "central_critic"
        raise ConfigError(f"{option} = true: {type(env).__name__} has one agent and no others; set it to false")
    if not isinstance(env, Env | Team):
        kinds = "a gymnasium.Env, or a ParallelEnv or AECEnv of PettingZoo"
        raise ConfigError(f"{factories[0]} gives {type(env).__name__}: must be a function that makes {kinds}")
    try:
        with env_errors(name, "first reset"):
            info = info_of(first_reset(env), env)
        for sentence in _unread(env, info):
            warnings.warn(sentence, stacklevel=5)
        team: Any = (env.num_agents, tuple(map(str, env.names)), env.sizes) if isinstance(env, Team) else (None, (), ())
        agents, players, sizes = team
        mask_size: Any = mask_sizes_of(env, info) if sizes else mask_size_of(env.action_space, info, type(env).__name__)
        names = _first_metrics(env, info, name) if settings.info_metrics is None else settings.info_metrics
        stats = "episode_stats" in info
        spec = HostSpec(env.observation_space, env.action_space, mask_size, stats, agents, names, players, sizes, turns)
        spec = spec._replace(
            max_num_envs=own_limit(env, "max_num_envs"),
            max_horizon=own_limit(env, "max_horizon"),
            clip_actions=settings.clip_actions,
            time_limit=(limit := _time_limit(env, settings.action_repeat)),
            stagger=_longest_first(limit, settings.stagger, name),
        )
        return factories, spec
    finally:
        close_all([env.close])


def _time_limit(env: Any, action_repeat: int) -> int | None:
    """Return the time limit of `env` in steps of the agent; None if it is not known.

    It is that of Gymnasium's TimeLimit, or `max_cycles` of parallel environments of PettingZoo.
    """
    limits = [vars(one).get("_max_episode_steps") for one in wrappers_of(env) if hasattr(one, "__dict__")]
    if isinstance(env, Team) and not env.turns:
        limits += [vars(one).get("max_cycles") for one in wrappers_of(env) if hasattr(one, "__dict__")]
    found = [limit for limit in limits if isinstance(limit, int)]
    return -(-min(found) // action_repeat) if found else None


def _longest_first(limit: int | None, stagger: bool | int, name: str) -> int:
    """Return the largest length of first episodes, in steps of the agent, if `stagger` shortens them; else 0.

    With `stagger = true` it is the time limit `limit`. Raises ConfigError if that is None: not known.
    """
    if stagger is not True:
        return int(stagger)
    if limit is None:
        raise no_limit(name)
    return limit


def groups_by_name(env: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return groups of agents with different spaces, by the agents' names without numbers: "red_0" is in "red".

    They are pairs of the group's name and its agents' indices; () if all agents have the same spaces. If agents of one
    group still have different spaces, each agent of the environment is its own group.
    """
    agents = list(env.possible_agents)
    if difference(env, agents) is None:
        return ()
    names = [str(agent).replace(".", "_").replace("=", "_") for agent in agents]
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        groups.setdefault(without_number(name), []).append(i)
    if "" in groups or any(difference(env, [agents[i] for i in members]) for members in groups.values()):
        groups = {name: [i] for i, name in enumerate(names)}
    return tuple((name, tuple(members)) for name, members in groups.items())


def _team(factory: Callable[..., Any], name: str) -> Any:
    """Return a new environment of several agents, made by `factory`; `name` is the environment's name in errors.

    Raises ConfigError if agents of one group have different spaces, or if a central critic needs all observations
    joined to one vector and these cannot be flattened.
    """
    try:
        with env_errors(name, "constructor"):
            return new_env(factory)
    except HeterogeneousAgents as found:
        raise ConfigError(
            "groups: members of a group share a policy and need the same spaces; "
            f"{found}; put them into groups of their own"
        ) from found
    except NotFlattenable as found:
        raise ConfigError(f"central_critic = true: {found}; set it to false") from found


def _refuse_compiled(factory: Factory) -> None:
    """Raise ConfigError if `factory` is a class with methods reset and step, but not close: a compiled environment.

    All host environments have close. A function is not checked.
    """
    methods = [callable(getattr(factory, name, None)) for name in ("reset", "step", "close")]
    if isinstance(factory, type) and methods == [True, True, False]:
        name = factory.__name__
        raise ConfigError(
            f"{name} is a class with reset and step of a compiled environment: pass an instance, {name}(), to "
            f"ppax.check_env, or ppax.envs.VectorEnv({name}(), num_envs=64) for training. On the host it must be a "
            "gymnasium.Env or a PettingZoo ParallelEnv"
        )


def _refuse_converted(env: Any) -> None:
    """Raise ConfigError for PettingZoo's parallel form of a turn-based environment, in which all agents always act."""
    if not is_turn_based(env) and type(env).__name__ == "turn_based_aec_to_parallel_wrapper":
        close_all([env.close])
        raise ConfigError(
            "turn_based_aec_to_parallel: in its result all agents act at each step, also those without a legal action; "
            "pass a function that makes the turn-based (AEC) environment itself: agents then act in their turns"
        )


def first_reset(env: Any) -> Any:
    """Return the result of `env.reset` with a seed, or without one if `reset` takes none, as in Gym before 0.26."""
    try:
        return env.reset(seed=0)
    except TypeError:
        return env.reset()


def _unread(env: Any, info: dict[str, Any]) -> Iterator[str]:
    """Yield warnings about action masks under a name that ppax does not read, and about wrappers that normalise values.

    Each is one sentence. For an environment of Gymnasium they are those of `conventions.unread`. Of an environment of
    several agents, a `Team`, only action masks are checked.
    """
    if not isinstance(env, Team):
        yield from unread(env, info)
    elif all(mask is None for mask in env.masks_of(info)):
        entries = {entry for one in env.own_spaces if isinstance(one, spaces.Dict) for entry in one.spaces}
        places = [f"a method or attribute {name}" for name in METHODS if hasattr(env.env, name)]
        for place in [*places, *(f'obs["{name}"]' for name in METHODS if name in entries)]:
            yield f"{type(env.env).__name__} has {place}, which is not read, and trains without action masks: {REMEDY}"


def _first_metrics(env: Any, info: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return the entries of `info` that are logged by default: "is_success", if the first step gives it; else ().

    The step is made after a reset with a seed, with an action that the mask allows, so that the result is always the
    same.
    """
    rng, team = np.random.default_rng(0), isinstance(env, Team)
    own, given = (env.actions, env.masks_of(info)) if team else ([env.action_space], [info.get("action_mask")])
    try:
        actions = [sample_allowed(_seeded(space), mask, rng) for space, mask in zip(own, given, strict=True)]
    except (ValueError, NotImplementedError):  # neither mask nor space of actions: refused by the check before training
        return ()
    with env_errors(name, "first step"):
        out = env.step(actions if team else actions[0])
    if not isinstance(out, tuple) or not out or not isinstance(out[-1], dict):  # refused by the check before training
        return ()
    infos = out[-1].get("agent_infos", [out[-1]])
    return tuple(entry for entry in SUCCESS if all(entry in one for one in infos))


def _seeded(space: spaces.Space) -> spaces.Space:
    """Return a copy of a space with seed 0, so that the random state of the user's space does not change."""
    own = copy.deepcopy(space)
    own.seed(0)
    return own


def info_of(result: Any, env: Any) -> dict[str, Any]:
    """Return the `info` in the result of a reset; ConfigError if there is none, as in Gym before 0.26."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result[1]
    kind = type(env).__name__
    raise ConfigError(
        f"{kind}.reset returns a {type(result).__name__} and no (obs, info): so did Gym before 0.26. Write "
        "`return obs, {}` in reset(self, *, seed=None, options=None), and in step "
        "`return obs, reward, terminated, truncated, {}`"
    )


def mask_size_of(space: spaces.Space, info: dict[str, Any], name: str) -> int | None:
    """Return the number of entries of the environment's action mask, flat; None without masks.

    Raises ConfigError if there is a mask, but no discrete action in `space` that it could apply to. `info` is that of a
    reset, and `name` is for the error.
    """
    if "action_mask" not in info:
        return None
    form = mask_form(space)
    if form is None:
        raise ConfigError(
            f'{name} gives info["action_mask"] for actions of {space}: masks are of Discrete, MultiDiscrete and '
            "MultiBinary actions, and of Dict and Tuple with such. Leave the mask out"
        )
    return int(form.size)


def mask_sizes_of(team: Team, info: dict[str, Any]) -> tuple[tuple[str, int], ...] | None:
    """Return the name and number of mask entries of each group with action masks; None if there are no masks.

    A group that does not act after the reset is included if its action space supports masks, as it may have them later.
    """
    sizes, begin, space = [], 0, team.action_space
    for group, count in team.sizes:
        mask, acts = info["action_mask"][group], info["acting"][begin : begin + count].any()
        later = not acts and mask_form(space[group]) is not None
        given = {"action_mask": mask} if later or mask is not None else {}
        size = mask_size_of(space[group], given, f"group {group!r}")
        sizes += [] if size is None else [(group, size)]
        begin += count
    return tuple(sizes) or None
