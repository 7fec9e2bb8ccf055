"""The checks of environments on the host, in order; nothing is compiled."""

from __future__ import annotations

import traceback
from typing import Any

import gymnasium

from ppax.checks import host_checks, protocol
from ppax.checks.report import Check, Finding, attempt, not_tried
from ppax.checks.watched import FEW, EnvTrace, ProtocolError, Subject, first_look, subjects_of, watch
from ppax.envs import EnvError, HostEnv
from ppax.envs.hosting.batch import RAISED, close_all

STEPS, RESETS = 1000, 8
CHECKS = {
    "shapes": host_checks.check_shapes,
    "types": host_checks.check_types,
    "finite": host_checks.check_finite,
    "spaces": host_checks.check_inside,
    "masks": host_checks.check_masks,
    "episode_stats": host_checks.check_tally,
    "seeds": host_checks.check_seeds,
    "resets": host_checks.check_resets,
    "episodes": host_checks.check_episodes,
}
INTERFACE = "help(gymnasium.Env) has the interface: reset returns (obs, info), step five values."


def all_checks(env: HostEnv | gymnasium.Env, seed: int) -> list[Check]:
    """Episodes of a few environments with random actions, looked at in every way."""
    watched: list[EnvTrace] = []
    subjects, own = ((Subject(env, 0),), True) if isinstance(env, gymnasium.Env) else subjects_of(env, FEW)

    def play() -> Finding:
        try:
            watched.append(watch(subjects, STEPS, RESETS, seed))
        except ProtocolError as error:
            return Finding(False, str(error), None, INTERFACE)
        moments = sum(len(seen) for seen in watched[0].moments)
        return Finding(True, f"{moments} resets and steps of {len(subjects)} with random actions", float(moments))

    try:
        checks = [attempt("declared", protocol.check_declared, subjects[0]), attempt("interface", play)]
        for name, check in CHECKS.items():
            fitting = [one.passed for one in checks if one.name == "shapes"] != [False]
            checks.append(attempt(name, check, watched[0]) if watched and fitting else not_tried(name))
        return checks
    finally:
        _close(subjects, own)


def declared_checks(env: HostEnv) -> list[Check]:
    """What must hold before training: the cheap part. EnvError where an environment raises an exception."""
    subjects, own = subjects_of(env, 1)
    try:
        declared = [attempt("declared", protocol.check_declared, subject) for subject in subjects]
        if not all(check.passed for check in declared):
            return declared
        try:
            seen = first_look(subjects)
        except ProtocolError as error:
            return [Check("interface", False, str(error), None, INTERFACE)]
        except RAISED:
            raise EnvError(f"{env.name} failed in its first reset or step\n{traceback.format_exc()}") from None
        early = {name: CHECKS[name] for name in ("shapes", "episode_stats")}
        if any("action_mask" in moment.info for _, moment in seen.all()):
            early["masks"] = CHECKS["masks"]
        return [attempt(name, check, seen) for name, check in early.items()]
    finally:
        _close(subjects, own)


def _close(subjects: Any, own: bool) -> None:
    close_all([subject.env.close for subject in (() if own else subjects)])
