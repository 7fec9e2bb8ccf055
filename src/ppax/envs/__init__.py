"""Environments: `make` creates one by name; your own implements the protocol `ppax.protocols.Environment`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from ppax.envs import builtin
from ppax.envs.builtin.navigator import CROWD
from ppax.envs.hosting.faults import EnvError
from ppax.envs.hosting.host_env import VECTORIZATIONS, HostEnv, host
from ppax.envs.suites import registry
from ppax.envs.suites.registry import HOST_SUITES, SUITES
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers import params
from ppax.envs.wrappers.action_repeat import ActionRepeat
from ppax.envs.wrappers.agent_groups import Group, Grouped, grouped
from ppax.envs.wrappers.partial_view import PartialView
from ppax.envs.wrappers.resets import PoolResets, fresh_resets
from ppax.envs.wrappers.team_view import TeamView, team_view
from ppax.envs.wrappers.time_limit import TimeLimit
from ppax.protocols import Environment
from ppax.types import ConfigError

BUILTIN: dict[str, Callable[[], Environment]] = {
    "CartPole-v1": lambda: TimeLimit(builtin.CartPole(), 500),
    "CartPole-v1-masked": lambda: PartialView(TimeLimit(builtin.CartPole(), 500), (0, 2)),  # no velocities
    "CueCorridor-10": lambda: builtin.CueCorridor(10),
    "CueCorridor-40": lambda: builtin.CueCorridor(40),
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
SETTINGS = ("env", "num_envs", "action_repeat", "vectorization", "agent_ids", "central_critic")  # arguments of `make`

Env = VectorEnv | HostEnv


def make(
    name: str,
    num_envs: int = 64,
    action_repeat: int = 1,
    vectorization: str = "sync",
    agent_ids: bool = False,
    central_critic: bool = False,
    env_params: Mapping[str, Any] | None = None,
) -> Env:
    """Create `num_envs` copies of the environment called `name`, with its usual time limit.

    Each action is applied `action_repeat` times, which together count as one step of the agent. The usual time limit
    counts the single steps.

    Built-in environments have a plain name ("CartPole-v1"), those of other libraries are "suite/id"
    ("gymnax/Acrobot-v1", "brax/ant", "jumanji/Snake-v1"); `ppax envs` lists them. If a reset of the suite is expensive,
    environments share a few resets (PoolResets). Environments on the host ("gymnasium/LunarLander-v3",
    "atari/Breakout") are stepped in this process, or in worker processes with `vectorization = "async"`. For several
    agents, `agent_ids` adds the agent's index to its observation, and `central_critic` adds an entry "joint", the
    observations of all agents, which `ppax.networks.network` gives to the critic only.

    `env_params` are parameters of the environment by name (`ppax envs NAME` lists them). Each is a value, or a range
    `{"low": 0.5, "high": 2.0}`, from which every reset samples uniformly. Any other name is passed to the suite's own
    constructor: `{"enable_wind": True}` to `gymnasium.make`.

    Raises ConfigError for an unknown name and ImportError, naming the extra to install, for a library that is not
    installed.
    """
    suite, _, env_id = name.partition("/")
    if suite in HOST_SUITES and env_id:
        params.refuse_drawn(name, env_params or {})
        views = (agent_ids, central_critic)
        if any(views) and suite != "pettingzoo":
            option = "agent_ids" if agent_ids else "central_critic"
            raise ConfigError(f"{option} = true: {name} has one agent and no others; set it to false")
        arguments = (num_envs, vectorization, action_repeat, *(views if any(views) else ()))
        return registry.load_host(suite, env_id, arguments, env_params)
    if vectorization != "sync":
        raise ConfigError(
            f"vectorization = {vectorization!r}: {name} is stepped inside the compiled program; leave it out"
        )
    env, options = _with_params(name, env_params or {})
    expensive = SUITES[name.partition("/")[0]].expensive_resets if name not in BUILTIN else False
    resets = PoolResets() if expensive else fresh_resets
    changed = tuple(name for name in env_params or {} if name not in options)
    repeated = env if action_repeat == 1 else ActionRepeat(env, action_repeat)
    viewed = team_view(repeated, agent_ids, central_critic, name)
    return VectorEnv(viewed, num_envs, name, resets, changed, tuple(options.items()))


def repeats_of(env: Env) -> int:
    """Return the action repeat of `env`: environment steps for each action."""
    if isinstance(env, HostEnv):
        return env.action_repeat
    inner: Any = env.env
    while isinstance(inner, TeamView | Grouped):
        inner = inner.env
    return inner.repeats if isinstance(inner, ActionRepeat) else 1


def players_of(env: Env) -> dict[str, tuple[int, ...]]:
    """Return the agents' indices in each group, as passed to `grouped`; {} without `grouped`."""
    return dict(env.env.players) if isinstance(env, VectorEnv) and isinstance(env.env, Grouped) else {}


def settings_of(env: Env) -> dict[str, Any]:
    """Return the arguments of `make` that give this `env`, named as in a run file."""
    inner: Any = env.env if isinstance(env, VectorEnv) else env
    inner = inner.env if isinstance(inner, Grouped) else inner
    return {
        "env": env.name,
        "num_envs": env.num_envs,
        "action_repeat": repeats_of(env),
        "vectorization": env.vectorization if isinstance(env, HostEnv) else "sync",
        "agent_ids": isinstance(inner, TeamView | HostEnv) and inner.agent_ids,
        "central_critic": isinstance(inner, TeamView | HostEnv) and inner.central_critic,
        "env_params": params_of(env),
    }


def params_of(env: Env) -> dict[str, Any]:
    """Return the argument `env_params` of `make` that gives this `env`."""
    options = dict(env.options)
    if isinstance(env, HostEnv):
        return options
    inner: Any = env.env
    while isinstance(inner, TeamView | Grouped | ActionRepeat):
        inner = inner.env
    return {name: params.read(inner, name) for name in env.changed} | options


def other_params(env: Env, env_params: Mapping[str, Any]) -> Env:
    """Return `env` made again with `env_params` added to its own; the same object if `env_params` is empty."""
    if not env_params:
        return env
    settings = settings_of(env)
    settings["env_params"] |= env_params
    return grouped(make(settings.pop("env"), **settings), players_of(env))


def require_native(env: Env, what: str, instead: str) -> VectorEnv:
    """Return `env` if it is stepped inside the compiled program.

    Raises ConfigError otherwise, with `what` as the function that needs it and `instead` as the remedy.
    """
    if isinstance(env, HostEnv):
        raise ConfigError(
            f"{what} works with environments inside the compiled program; {env.name} is stepped on the host: {instead}"
        )
    return env


def _with_params(name: str, env_params: Mapping[str, Any]) -> tuple[Environment, dict[str, Any]]:
    """Return one environment with these parameters, and those of them that were passed to its suite."""
    env = _single(name)
    known = params.places(env)
    options = {key: value for key, value in env_params.items() if key not in known and name not in BUILTIN}
    params.refuse_drawn(name, options)
    if options:
        suite, _, env_id = name.partition("/")
        try:
            env = registry.load(suite, env_id, options)
        except ConfigError as error:
            raise ConfigError(f"{params.unknown(next(iter(options)), known)} ({error})") from error
    return params.adjust(env, {key: value for key, value in env_params.items() if key not in options}), options


def _single(name: str) -> Environment:
    if name in BUILTIN:
        return BUILTIN[name]()
    suite, _, env_id = name.partition("/")
    if suite in SUITES and env_id:
        return registry.load(suite, env_id)
    nearest = difflib.get_close_matches(name, BUILTIN, n=1, cutoff=0.3)
    raise ConfigError(
        f"no environment {name!r}; "
        + (f"did you mean {nearest[0]!r}? " if nearest else "")
        + f"Built in: {', '.join(BUILTIN)}; others: {', '.join(f'{s}/ID' for s in (*SUITES, *HOST_SUITES))}"
    )


__all__ = [
    "BUILTIN",
    "HOST_SUITES",
    "SUITES",
    "VECTORIZATIONS",
    "ActionRepeat",
    "Env",
    "EnvError",
    "Group",
    "Grouped",
    "HostEnv",
    "PartialView",
    "PoolResets",
    "TeamView",
    "TimeLimit",
    "VectorEnv",
    "builtin",
    "grouped",
    "host",
    "make",
    "other_params",
    "params_of",
    "repeats_of",
    "require_native",
    "settings_of",
]
