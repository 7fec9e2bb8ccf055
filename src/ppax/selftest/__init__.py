"""`ppax.selftest`: what must hold of any agent in any environment, checked on yours, in plain words.

Each check is a function in one of the files here; what it returns is one line of the report.
"""

from __future__ import annotations

import time
from typing import Any

import jax

from ppax.envs.vector import VectorEnv
from ppax.ppo import PPO
from ppax.selftest import acting, environment, experience, learning
from ppax.selftest.check import check_env, require_sound
from ppax.selftest.report import Check, Finding, Report, attempt, not_tried
from ppax.selftest.world import World, build, fewest
from ppax.types import Key

__all__ = ["Check", "Report", "check_env", "require_sound", "selftest"]


def selftest(agent: PPO, env: VectorEnv, num_steps: int, key: Key) -> Report:
    """Check `agent` in `env` with rollouts of `num_steps` steps; nothing of it is trained for long.

    It takes well under a minute for agents that compile fast. Fewer environments than `env` has are stepped where few
    are enough. Raises ConfigError where the sizes do not divide; whatever else is wrong is a check that fails.
    """
    begin = time.perf_counter()
    few = fewest(agent, env, num_steps)
    keys = iter(jax.random.split(key, 16))
    worlds: list[World] = []

    def play(key: Key) -> Finding:
        worlds.append(build(agent, few, num_steps, key))
        steps = worlds[0].rollout.steps
        ends, what = int(steps.ended.sum()), f"{num_steps} steps of {few.num_envs} environments and an update"
        return Finding(True, f"{what}: {ends} episodes ended in the last rollout", float(ends))

    checks = [
        attempt("shapes", environment.check_shapes, few, next(keys)),
        attempt("keys", environment.check_keys, few, next(keys)),
        attempt("environment", environment.check_repeats, few, next(keys)),
        attempt("resets", environment.check_resets, few, next(keys)),
        attempt("rollout", play, next(keys)),
    ]
    with_world: dict[str, tuple[Any, ...]] = {
        "finite": (experience.check_finite,),
        "spaces": (experience.check_inside,),
        "final obs": (experience.check_final,),
        "alignment": (experience.check_alignment,),
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
    for name, (check, *arguments) in with_world.items():
        if worlds:
            checks.append(attempt(name, check, worlds[0], *arguments))
        else:
            checks.append(not_tried(name, "there is no rollout"))
    return Report(tuple(checks), time.perf_counter() - begin)
