"""Checks of environments on the host, in their order; nothing is compiled."""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import gymnasium
import jax

from ppax.checks import host_checks, protocol
from ppax.checks.report import Check, Finding, attempt, last_lines, not_tried
from ppax.checks.trace import FEW, EnvTrace, ProtocolError, Subject, record_trace, short_trace, subjects_of
from ppax.core.types import ConfigError, Key
from ppax.envs import EnvError, HostEnv
from ppax.envs.hosting.conventions import adapted, unread
from ppax.envs.hosting.faults import RAISED, close_all

STEPS, RESETS = 1000, 8
CHECKS = {
    "shapes": host_checks.check_shapes,
    "types": host_checks.check_types,
    "finite": host_checks.check_finite,
    "spaces": host_checks.check_inside,
    "masks": host_checks.check_masks,
    "episode_stats": host_checks.check_episode_stats,
    "seeds": host_checks.check_seeds,
    "resets": host_checks.check_resets,
    "episodes": host_checks.check_episodes,
}
INTERFACE = "See help(gymnasium.Env): reset returns (obs, info), step returns five values."


def all_checks(env: HostEnv | gymnasium.Env, key: Key) -> list[Check]:
    """Record episodes of a few environments with random actions, and run all checks on them."""
    traces: list[EnvTrace] = []
    subjects: tuple[Subject, ...] = ()
    if isinstance(env, gymnasium.Env):
        subjects, users_own = (Subject(adapted(env), 0),), True
    else:  # of one environment, as of a robot, there may be no second one
        try:
            subjects, users_own = subjects_of(env, min(FEW, env.num_envs))
        except ConfigError as error:
            return not_created(error)

    def play() -> Finding:
        try:
            traces.append(record_trace(subjects, STEPS, RESETS, int(jax.random.bits(key)) >> 1))
        except ProtocolError as error:
            return Finding(False, str(error), None, INTERFACE)
        count = sum(len(events) for events in traces[0].events)
        return Finding(True, f"{count} resets and steps of {len(subjects)} with random actions", float(count))

    try:
        checks = [attempt("declared", protocol.check_declared, subjects[0]), attempt("interface", play)]
        for name, check in CHECKS.items():
            shapes_fit = [one.passed for one in checks if one.name == "shapes"] != [False]
            checks.append(attempt(name, check, traces[0]) if traces and shapes_fit else not_tried(name))
        if traces and isinstance(env, gymnasium.Env):  # else `host` has warned
            for sentence in unread(subjects[0].env, traces[0].events[0][0].info):
                warnings.warn(sentence, stacklevel=4)
        return checks
    finally:
        _close(subjects, users_own)


def declared_checks(env: HostEnv) -> list[Check]:
    """Run the cheap checks, which `fit` makes before training. Raises EnvError where an environment raises.

    None are run where the environments exist already: of a robot or a licence there may be one at a time.
    """
    if env.host.running:
        return []
    subjects, users_own = subjects_of(env, 1)
    try:
        declared = [attempt("declared", protocol.check_declared, subject) for subject in subjects]
        if not all(check.passed for check in declared):
            return declared
        try:
            trace = short_trace(subjects)
        except ProtocolError as error:
            return [Check("interface", False, str(error), None, INTERFACE)]
        except RAISED:
            raise EnvError(f"{env.name} failed in its first reset or step\n{traceback.format_exc()}") from None
        early = {name: CHECKS[name] for name in ("shapes", "episode_stats")}
        if any("action_mask" in event.info for _, event in trace.all()):
            early["masks"] = CHECKS["masks"]
        return [attempt(name, check, trace) for name, check in early.items()]
    finally:
        _close(subjects, users_own)


def not_created(error: EnvError | ConfigError) -> list[Check]:
    """Return the checks of an environment whose constructor or first reset raised an exception."""
    said, cause = str(error).partition("\n")[0], getattr(error, "cause", None)
    text = said if cause is None else f"{said}: {type(cause).__name__}: {' '.join(str(cause).split())}"
    failed = Check("interface", False, text, None, str(error) if cause is None else last_lines(cause))
    return [not_tried("declared"), failed, *map(not_tried, CHECKS)]


def _close(subjects: Any, users_own: bool) -> None:
    close_all([subject.env.close for subject in (() if users_own else subjects)])
