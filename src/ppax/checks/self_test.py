"""`selftest`: checks of an agent in an environment, with a rollout and a few updates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from ppax.checks import environment, host, rollout, update
from ppax.checks.context import CheckContext, context_after_update, contexts_of_policies, fewest_envs
from ppax.checks.report import Check, CheckResult, Report, attempt, not_tried
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, Key
from ppax.core.unknown_names import refusing_unknown
from ppax.envs import Env
from ppax.ppo.ppo import PPO
from ppax.training.backends import backend_of


class EnvChecks(NamedTuple):
    """Checks that exist only for one kind of environments, compiled ones or those on the host.

    `alone` makes the checks of the environment without an agent, `of_policy` are further checks of a rollout, by name,
    and `skipped` are names of checks that cannot be made for this kind, with the reason.
    """

    alone: Callable[[Any, Key], list[Check]]  # of the environment without the agent
    of_policy: Mapping[str, Callable[[CheckContext], CheckResult]]  # of the policy in such environments only
    skipped: Mapping[str, str]  # checks that do not apply, and why


ENV_CHECKS = {  # by `Backend.name`
    "compiled": EnvChecks(environment.checks_without_agent, {}, {}),
    "host": EnvChecks(
        host.all_checks,
        {"on the host": rollout.check_host_policy},
        {
            "final obs": "for environments on the host, see `episodes`",
            "alignment": "an environment on the host cannot be set back to the start of a rollout; see `seeds`",
            "devices": "environments on the host are stepped by one loop for all devices",
        },
    ),
}

# Checks that step the environments again, with one policy
OF_ONE = ("final obs", "alignment", "on the host", "devices")


@refusing_unknown
def selftest(agent: Agent, env: Env, num_steps: int, key: Key) -> Report:
    """Check `agent` in `env` for common faults, with rollouts of `num_steps` steps and a few updates; return a report.

    The report has a line for each check. The check takes well under a minute for agents that compile fast. Fewer
    environments than `env` has are stepped, if fewer are enough. For the agents `Independent` and `Groups`, which have
    several policies, each policy is checked on its own agents, in checks with names such as `ratio/prey`. Raises
    ConfigError for self-play, and if a rollout cannot be divided into minibatches; any other fault is a failed check.
    """
    begin = time.perf_counter()
    _refuse_self_play(agent)
    with backend_of(env).copies(fewest_envs(agent, env, num_steps)) as few:
        checks = tuple(_checks(agent, few, env, num_steps, key))
    return Report(checks, time.perf_counter() - begin)


def _checks(agent: Agent, few: Env, env: Env, num_steps: int, key: Key) -> Iterator[Check]:
    """Yield the results of all checks of `agent`; rollouts are made in `few`, which is `env` with fewer environments.

    If a check of the environment and a check of the rollout have the same name, only the latter is made.
    """
    keys = iter(jax.random.split(key, 16))
    contexts: list[CheckContext] = []

    def play(key: Key) -> CheckResult:
        contexts.append(context_after_update(agent, few, num_steps, key))
        steps = contexts[0].rollout.steps
        ends, sizes = int(steps.ended.sum()), f"{num_steps} steps of {few.num_envs} environments and an update"
        return CheckResult(True, f"{sizes}: {ends} episodes ended in the last rollout", float(ends))

    of_env = ENV_CHECKS[backend_of(few).name]
    alone, rollout = of_env.alone(few, next(keys)), attempt("rollout", play, next(keys))
    of_rollout = _checks_of_rollout(of_env, env, num_steps, keys)
    if not isinstance(agent, PPO):
        yield from (*alone, rollout)
        yield from _of_members(contexts, of_env, env, num_steps, next(keys))
        return
    yield from (check for check in alone if check.name not in of_rollout)
    yield rollout
    for name, (check, *arguments) in of_rollout.items():
        if name in of_env.skipped:
            yield Check(name, None, f"does not apply: {of_env.skipped[name]}", None, "")
        elif contexts:
            yield attempt(name, check, contexts[0], *arguments)
        else:
            yield not_tried(name, "there is no rollout")


def _of_members(contexts: list[CheckContext], of_env: EnvChecks, env: Env, num_steps: int, key: Key) -> Iterator[Check]:
    """Yield the results of the checks of each single policy of an agent that has several policies.

    `contexts` has one context, with the rollout of all policies; it is [] if no rollout could be collected.
    """
    if not contexts:
        yield not_tried("policies", "there is no rollout")
        return
    kind = type(contexts[0].agent).__name__
    for place, (policy, context) in enumerate(contexts_of_policies(contexts[0], env.num_envs)):
        keys = iter(jax.random.split(jax.random.fold_in(key, place), 16))
        for name, (check, *arguments) in _checks_of_rollout(of_env, context.env, num_steps, keys).items():
            if name not in OF_ONE:
                yield attempt(f"{name}/{policy}", check, context, *arguments)
    for name in OF_ONE:
        if name not in of_env.skipped and (name != "on the host" or name in of_env.of_policy):
            text = f"does not apply: it steps all streams with one policy, and {kind} has several"
            yield Check(name, None, text, None, "")


def _refuse_self_play(agent: Agent) -> None:
    """Raise ConfigError for an agent with self-play: earlier versions of its policy act in some environments."""
    if agent.pool is not None:
        raise ConfigError(
            "selftest: with self-play past selves act in some environments, so that no check of a rollout (ratio, "
            "replay, gradients, ...) can be made; leave [self_play] out to check the groups"
        )


def _checks_of_rollout(of_env: EnvChecks, env: Any, num_steps: int, keys: Iterator[Key]) -> dict[str, tuple[Any, ...]]:
    """Return the checks of a rollout by name: the function and its arguments, without the first one, `context`."""
    return {
        "finite": (rollout.check_finite,),
        "spaces": (rollout.check_inside,),
        "final obs": (rollout.check_final,),
        "alignment": (rollout.check_alignment,),
        **{name: (check,) for name, check in of_env.of_policy.items()},
        "ratio": (rollout.check_ratio, next(keys)),
        "replay": (rollout.check_replay,),
        "memory": (rollout.check_memory,),
        "distribution": (rollout.check_distribution, next(keys)),
        "masks": (rollout.check_masks,),
        "targets": (update.check_targets, next(keys)),
        "ends": (update.check_ends, next(keys)),
        "minibatches": (update.check_coverage, env, num_steps, next(keys)),
        "gradients": (update.check_gradients, next(keys)),
        "empty rows": (update.check_empty_rows, next(keys)),
        "update": (update.check_repeats, next(keys)),
        "devices": (update.check_devices, num_steps, next(keys)),
    }
