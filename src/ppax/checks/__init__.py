"""Checks of agents and environments: `ppax.selftest` and `ppax.check_env`.

Each check is a function in one of the files here. It returns a `Finding`, which is one line of the report.
"""

from __future__ import annotations

import time
from typing import Any

import jax

from ppax.checks import acting, environment, experience, learning, on_host
from ppax.checks.check import check_env, require_sound
from ppax.checks.context import CheckContext, context_after_update, smallest_env
from ppax.checks.report import Check, Finding, Report, attempt, not_tried
from ppax.envs import Env, HostEnv
from ppax.ppo import PPO
from ppax.types import Key

__all__ = ["Check", "Report", "check_env", "require_sound", "selftest"]


# Checks that need a JAX-native environment: {name: why not on the host}
NATIVE = {
    "final obs": "for environments on the host, see `episodes`",
    "alignment": "an environment on the host cannot be set back to the start of a rollout; see `seeds`",
    "devices": "environments on the host are stepped by one loop for all devices",
}


def selftest(agent: PPO, env: Env, num_steps: int, key: Key) -> Report:
    """Check `agent` in `env` for common faults, with rollouts of `num_steps` steps and a few updates.

    It takes well under a minute for agents that compile fast. Where a few environments are enough, it steps fewer than
    `env` has. Raises ConfigError where the sizes do not divide; any other fault is a failed check of the report.
    """
    few = smallest_env(agent, env, num_steps)
    if not isinstance(few, HostEnv):
        return _selftest(agent, few, env, num_steps, key)
    with few:
        return _selftest(agent, few, env, num_steps, key)


def _selftest(agent: PPO, few: Env, env: Env, num_steps: int, key: Key) -> Report:
    begin = time.perf_counter()
    keys = iter(jax.random.split(key, 16))
    contexts: list[CheckContext] = []

    def play(key: Key) -> Finding:
        contexts.append(context_after_update(agent, few, num_steps, key))
        steps = contexts[0].rollout.steps
        ends, sizes = int(steps.ended.sum()), f"{num_steps} steps of {few.num_envs} environments and an update"
        return Finding(True, f"{sizes}: {ends} episodes ended in the last rollout", float(ends))

    if isinstance(few, HostEnv):
        checks = on_host.all_checks(few, int(jax.random.bits(next(keys))) >> 1)
    else:
        checks = [
            attempt("shapes", environment.check_shapes, few, next(keys)),
            attempt("keys", environment.check_keys, few, next(keys)),
            attempt("environment", environment.check_repeats, few, next(keys)),
            attempt("resets", environment.check_resets, few, next(keys)),
        ]
    checks.append(attempt("rollout", play, next(keys)))
    with_context: dict[str, tuple[Any, ...]] = {
        "finite": (experience.check_finite,),
        "spaces": (experience.check_inside,),
        "final obs": (experience.check_final,),
        "alignment": (experience.check_alignment,),
        **({"on the host": (acting.check_host_policy,)} if isinstance(few, HostEnv) else {}),
        "ratio": (acting.check_ratio, next(keys)),
        "replay": (acting.check_replay,),
        "memory": (acting.check_memory,),
        "distribution": (acting.check_distribution, next(keys)),
        "masks": (acting.check_masks,),
        "targets": (learning.check_targets, next(keys)),
        "ends": (learning.check_ends, next(keys)),
        "minibatches": (learning.check_coverage, env, num_steps, next(keys)),
        "gradients": (learning.check_gradients, next(keys)),
        "empty rows": (learning.check_empty_rows, next(keys)),
        "update": (learning.check_repeats, next(keys)),
        "devices": (learning.check_devices, num_steps, next(keys)),
    }
    # checks of the environment alone that a check of the agent's rollout replaces
    checks = [check for check in checks if check.name not in with_context]
    for name, (check, *arguments) in with_context.items():
        if isinstance(few, HostEnv) and name in NATIVE:
            checks.append(Check(name, None, f"does not apply: {NATIVE[name]}", None, ""))
        elif contexts:
            checks.append(attempt(name, check, contexts[0], *arguments))
        else:
            checks.append(not_tried(name, "there is no rollout"))
    return Report(tuple(checks), time.perf_counter() - begin)
