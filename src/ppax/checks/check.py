"""`ppax.check_env`: check that an environment keeps to the `Environment` protocol and to its declared spaces."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
from gymnasium.vector import VectorEnv as GymVectorEnv

from ppax.agents.groups import Groups
from ppax.checks import environment, rollout
from ppax.checks import host as on_host
from ppax.checks.context import CheckContext, context_from_rollouts, contexts_of_policies
from ppax.checks.report import Check, CheckResult, Report, attempt, not_tried
from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, Key
from ppax.core.unknown_names import refusing_unknown
from ppax.envs import HOST_SUITES, Env, EnvError, host, make
from ppax.envs.vector import VectorEnv
from ppax.networks import mlp
from ppax.ppo.ppo import PPO
from ppax.training.arguments import is_env
from ppax.training.backends import backend_of

ENVS, STEPS = 8, 64  # environments and steps of the rollout
FEW = 3  # number of environments in checks of host environments


@refusing_unknown
def check_env(
    env: Environment | Env | gymnasium.Env | GymVectorEnv | str,
    key: Key | None = None,
    env_params: Mapping[str, Any] | None = None,
) -> Report:
    """Check an environment by resets, steps and a short rollout with random actions; return a report.

    The checks are that it keeps to the `Environment` protocol (on the host: to Gymnasium's) and to its declared spaces.
    `env` is an environment, a `VectorEnv`, or a name for `ppax.make`; on the host also a `gymnasium.Env`, a function
    that makes one, or a `gymnasium.vector.VectorEnv`. Nothing is trained. The report has a line for each check, and for
    each failure what was received and what to write instead. `key` is used for resets and actions; None is a fixed key.
    `env_params` are parameters for an environment given by name, as for `ppax.make`. Raises ConfigError for an unknown
    name, and for `env_params` if `env` is no name.
    """
    begin = time.perf_counter()
    try:
        checks = _checks_of(env, jax.random.key(0) if key is None else key, env_params or {})
    except EnvError as error:
        checks = on_host.not_created(error)
    return Report(tuple(checks), time.perf_counter() - begin)


def _checks_of(env: Any, key: Key, env_params: Mapping[str, Any]) -> list[Check]:
    """Return the results of all checks of `env`: an environment, the name of one, or a function that makes one.

    Raises EnvError if the environment's constructor or first reset raises an exception.
    """
    if isinstance(env, str):
        env = make(env, FEW if env.partition("/")[0] in HOST_SUITES else ENVS, env_params=env_params)
    elif env_params:
        raise ConfigError(
            f"env_params = {dict(env_params)}: are for an environment that is named, as check_env('CartPole-v1', "
            f"env_params=...); this one, {env if isinstance(env, type) else type(env).__name__}, has its own already"
        )
    if isinstance(env, GymVectorEnv) or (callable(env) and (isinstance(env, type) or not hasattr(env, "reset"))):
        env = host(env)
    if isinstance(env, gymnasium.Env):
        return on_host.all_checks(env, key)
    subject = env if is_env(env) else VectorEnv(env, ENVS)
    with jax.debug_key_reuse(False):  # only `keys` checks key reuse
        return ALL[backend_of(subject).name](subject, key)


def compiled_checks(vector: VectorEnv, key: Key) -> list[Check]:
    """Return the results of all checks of an environment written in JAX, with an untrained agent for the rollout.

    If the environment does not match its declaration, the checks that run it are not tried.
    """
    keys = iter(jax.random.split(key, 16))
    checks = declared_checks(vector, next(keys))
    contexts: list[CheckContext] = []

    def play(key: Key) -> CheckResult:
        contexts.append(context_from_rollouts(_untrained(vector), vector, STEPS, key))
        ends = int(contexts[0].rollout.steps.ended.sum())
        rows = f"{STEPS} steps of {vector.num_envs} environments with random actions"
        return CheckResult(True, f"{rows}: {ends} episodes ended in the last rollout", float(ends))

    more: dict[str, tuple[Callable[..., CheckResult], Any]] = {
        "types": (environment.check_types, vector),
        "keys": (environment.check_keys, vector),
        "environment": (environment.check_repeats, vector),
        "side effects": (environment.check_side_effects, vector),
        "resets": (environment.check_resets, vector),
    }
    sound = all(check.passed is not False for check in checks)
    for name, (check, subject) in more.items():
        checks.append(attempt(name, check, subject, next(keys)) if sound else not_tried(name))
    checks.append(attempt("rollout", play, next(keys)) if sound else not_tried("rollout"))
    of_streams = {"finite": rollout.check_finite, "magnitude": rollout.check_magnitude, "spaces": rollout.check_inside}
    of_env = {"final obs": rollout.check_final, "alignment": rollout.check_alignment}
    if contexts and vector.groups:  # each group's observations and actions have spaces of their own
        groups = dict(contexts_of_policies(contexts[0], vector.num_envs))
        for name, of_rollout in of_streams.items():
            checks += [attempt(f"{name}/{group}", of_rollout, own) for group, own in groups.items()]
        checks += [Check(name, None, "does not apply: the agents are in groups", None, "") for name in of_env]
        return checks
    for name, of_rollout in {**of_streams, **of_env}.items():
        checks.append(attempt(name, of_rollout, contexts[0]) if contexts else not_tried(name))
    return checks


def _untrained(vector: VectorEnv) -> PPO | Groups:
    """Return an agent for the rollout of the checks, with a small network; with groups, one for each."""

    def agent(env: Any) -> PPO:
        return PPO(mlp(env, hidden=(8,)), num_epochs=1)

    groups = vector.groups
    return Groups({name: agent(group) for name, group in groups.items()}, vector.sizes) if groups else agent(vector)


def declared_checks(env: VectorEnv, key: Key | None = None) -> list[Check]:
    """Return the results of the checks that only trace a JAX environment: of its protocol, declared spaces and shapes.

    Nothing is compiled.
    """
    protocol_key, shapes_key = jax.random.split(jax.random.key(0) if key is None else key)
    checks = [attempt("protocol", environment.check_protocol, env, protocol_key)]
    more: list[tuple[str, Any, tuple[Any, ...]]] = [
        ("declared", environment.check_declared, (env,)),
        ("shapes", environment.check_shapes, (env, shapes_key)),
    ]
    for name, check, arguments in more:
        checks.append(attempt(name, check, *arguments) if checks[0].passed else not_tried(name))
    return checks


def require_sound(env: Env) -> None:
    """Raise ConfigError, before anything compiles, if an environment does not match its declaration.

    For an environment on the host, one environment is made from each different constructor, reset and stepped once;
    EnvError is raised if that raises an exception.
    """
    with jax.debug_key_reuse(False):
        checks = DECLARED[backend_of(env).name](env)
    for check in checks:
        if check.passed is False:
            name = env.name or type(getattr(env, "env", env)).__name__
            raise ConfigError(f"environment {name}: {check.name}: {check.text}. {check.advice}")


# By `Backend.name`
ALL: dict[str, Callable[..., list[Check]]] = {"compiled": compiled_checks, "host": on_host.all_checks}
DECLARED: dict[str, Callable[..., list[Check]]] = {"compiled": declared_checks, "host": on_host.declared_checks}
