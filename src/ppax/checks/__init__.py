"""`ppax.selftest`: what must hold of any agent in any environment, checked on yours, in plain words.

Each check is a function in one of the files here; what it returns is one line of the report.
"""

from __future__ import annotations

import time
from typing import Any

import jax

from ppax.checks import acting, environment, experience, learning, on_host
from ppax.checks.check import check_env, require_sound
from ppax.checks.report import Check, Finding, Report, attempt, not_tried
from ppax.checks.world import CheckContext, build, fewest
from ppax.envs import Env, HostEnv
from ppax.ppo import PPO
from ppax.types import Key

__all__ = ["Check", "Report", "check_env", "require_sound", "selftest"]


# Checks that need an environment inside a compiled program
NATIVE = {
    "final obs": "of environments on the host see `episodes`",
    "alignment": "an environment on the host cannot be put back to where a rollout began; see `seeds`",
    "devices": "environments on the host are stepped by one loop, whatever the devices are",
}


def selftest(agent: PPO, env: Env, num_steps: int, key: Key) -> Report:
    """Check `agent` in `env` with rollouts of `num_steps` steps; nothing of it is trained for long.

    It takes well under a minute for agents that compile fast. Fewer environments than `env` has are stepped where few
    are enough. Raises ConfigError where the sizes do not divide; whatever else is wrong is a check that fails.
    """
    few = fewest(agent, env, num_steps)
    if not isinstance(few, HostEnv):
        return _selftest(agent, few, env, num_steps, key)
    with few:
        return _selftest(agent, few, env, num_steps, key)


def _selftest(agent: PPO, few: Env, env: Env, num_steps: int, key: Key) -> Report:
    begin = time.perf_counter()
    keys = iter(jax.random.split(key, 16))
    worlds: list[CheckContext] = []

    def play(key: Key) -> Finding:
        worlds.append(build(agent, few, num_steps, key))
        steps = worlds[0].rollout.steps
        ends, what = int(steps.ended.sum()), f"{num_steps} steps of {few.num_envs} environments and an update"
        return Finding(True, f"{what}: {ends} episodes ended in the last rollout", float(ends))

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
    with_world: dict[str, tuple[Any, ...]] = {
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
    # what the rollout of the agent says again, and says better
    checks = [check for check in checks if check.name not in with_world]
    for name, (check, *arguments) in with_world.items():
        if isinstance(few, HostEnv) and name in NATIVE:
            checks.append(Check(name, None, f"does not apply: {NATIVE[name]}", None, ""))
        elif worlds:
            checks.append(attempt(name, check, worlds[0], *arguments))
        else:
            checks.append(not_tried(name, "there is no rollout"))
    return Report(tuple(checks), time.perf_counter() - begin)
