"""Checks of environments on the host: recorded resets and steps against their spaces and Gymnasium's interface."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from ppax.checks.elements import distinct, once, outside, parts, same
from ppax.checks.report import Finding, none_of, skip
from ppax.checks.trace import EnvEvent, EnvTrace, Subject
from ppax.envs.hosting.arrays import MaskForm, choices_of, leaves_of, space_mismatches
from ppax.envs.hosting.instances import generators_of

FLAGS = ("terminated", "truncated")


def check_shapes(trace: EnvTrace) -> Finding:
    """Check shapes and structure of observations, rewards and flags."""
    problems = once(_misshapen(subject, event) for subject, event in trace.all())
    return none_of(
        problems,
        f"observations, rewards and flags of {_count(trace)} are as declared",
        "Return observations as declared, one number for the reward and one flag each; or declare the returned shapes. "
        "NumPy would broadcast a wrong shape without an error.",
    )


def check_types(trace: EnvTrace) -> Finding:
    """Check types that NumPy casts without an error: harmless in ppax, but not in other libraries."""
    problems = once(_mistyped(subject, event) for subject, event in trace.all())
    return none_of(
        problems,
        "observations have the types of their spaces, rewards are floats and flags are bools",
        "Return np.asarray(obs, space.dtype), float(reward), bool(terminated), bool(truncated).",
    )


def check_finite(trace: EnvTrace) -> Finding:
    """Check that observations and rewards have no NaN or infinity."""

    def problems_of(subject: Subject, event: EnvEvent) -> Iterator[str]:
        for leaf in leaves_of(subject.observation_space):
            x = np.asarray(leaf.of(event.obs))
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                where = tuple(map(int, np.argwhere(~np.isfinite(x))[0]))
                yield f"obs{_path(leaf.path)}{list(where)} is {x[where]} after {event.where}"
        if event.step is not None and not np.isfinite(np.asarray(event.step[0], float)).all():
            yield f"the reward is {event.step[0]}"

    return none_of(
        once(problems_of(subject, event) for subject, event in trace.all()),
        f"all observations and rewards of {_count(trace)} are",
        "One NaN reaches every weight: look for a division by zero, a root or logarithm of a negative number, or an "
        "unstable simulation.",
    )


def check_inside(trace: EnvTrace) -> Finding:
    """Check that observations are inside their space."""

    def problems_of(subject: Subject, event: EnvEvent) -> Iterator[str]:
        for name, space, x in parts(subject.observation_space, event.obs, "obs"):
            yield from outside(name, space, np.asarray(x))

    return none_of(
        once(problems_of(subject, event) for subject, event in trace.all()),
        "observations are inside their space",
        "Declare the bounds that hold; infinite ones are allowed. Categories count from the space's start.",
    )


def check_masks(trace: EnvTrace) -> Finding:
    """Check that action masks have the layout of arrays/masks.py, come with every observation, and allow an action."""
    if all(mask is None for subject, event in trace.all() for _, mask in subject.masks_of(event.info)):
        return skip('the environment gives no info["action_mask"], and has no method action_masks()')

    def problems_of(subject: Subject, event: EnvEvent) -> Iterator[str]:
        each = subject.masks_of(event.info)
        usable = [space for space, _ in each if choices_of(space)]
        if not usable or "action_mask" not in event.info:
            kind = type(subject.action_space).__name__
            yield f"there is none after {event.where}" if usable else f"actions are a {kind}, masks unused"
            return
        over = np.zeros(subject.axis or 1, bool) if event.step is None else np.ravel(np.logical_or(*event.step[1:]))
        for ended, (space, mask) in zip(over, each, strict=True):
            try:
                flat = None if mask is None or not choices_of(space) else MaskForm(space)(mask)
            except ValueError as wrong:
                yield str(wrong)
                continue
            if flat is not None and not flat.any() and not ended:  # after an episode's end no action is needed
                yield f"it allows nothing after {event.where}"

    return none_of(
        once(problems_of(subject, event) for subject, event in trace.all()),
        "masks come with every observation, fit the actions and allow at least one",
        'Give info["action_mask"] at every reset and step: 1 for each action that is allowed, for a MultiDiscrete one '
        "component after the other. Where no action is possible, end the episode; after its end a mask may be all 0.",
    )


def check_episode_stats(trace: EnvTrace) -> Finding:
    """Check that `info["episode_stats"]` comes with every reset and step, or with none."""
    given = ["episode_stats" in event.info for _, event in trace.all()]
    if not any(given):
        return skip('the environment gives no info["episode_stats"]')
    missing = [f"there is none after {event.where}" for _, event in trace.all() if "episode_stats" not in event.info]
    return none_of(
        once(iter([problem]) for problem in missing),
        f"it comes with all {len(given)} resets and steps",
        'Give info["episode_stats"] = (reward, ended) at every reset and step: episode_return and episode_length are '
        "computed from it alone.",
    )


def check_seeds(trace: EnvTrace) -> Finding:
    """Check that the same seed and actions give the same episode, in another environment and in the same one."""
    one, problems = trace.events[0], [*_shared_generators(trace)]
    first = one[0].obs
    for subject, events in zip(trace.subjects[1:], trace.events[1:], strict=True):
        if subject.factory is trace.subjects[0].factory and not same(first, events[0].obs):
            problems.append(f"environment {subject.number} starts differently from environment 0 with the same seed")
    if not same(first, trace.repeated[0].obs):
        problems.append("the first observation differs when it is reset with the same seed again")
    else:
        for t, (a, b) in enumerate(zip(one, trace.repeated, strict=False)):
            if not (same(a.obs, b.obs) and same(a.step, b.step)):
                problems.append(f"step {t} differs when the same seed and actions are given again")
                break
    return none_of(
        problems,
        f"the same seed gives the same start, and the same actions the same {len(trace.repeated) - 1} steps",
        "Runs are not reproducible: call super().reset(seed=seed), draw from self.np_random alone, and reset all state "
        "in reset.",
    )


def check_resets(trace: EnvTrace) -> Finding:
    """Check that episodes start differently, with different seeds and without seed."""
    seeded, unseeded = (distinct([event.obs for event in group]) for group in (trace.starts, trace.unseeded))
    starts = len(trace.starts)
    text = f"{starts} seeds give {seeded} different starts, {len(trace.unseeded)} resets without seed {unseeded}"
    if seeded == unseeded == 1:
        return skip(f"all episodes start alike: {text}")
    return Finding(
        unseeded > 1,
        text,
        float(unseeded),
        "ppax passes a seed only to the first reset: later resets, without seed, must not restart the generator. "
        "super().reset(seed=seed) handles both.",
    )


def check_episodes(trace: EnvTrace) -> Finding:
    """Check that episodes end, and that reset starts new ones."""
    problems, lengths, ends = [], [], 0
    for subject, events in zip(trace.subjects, trace.events, strict=True):
        if subject.vector:  # a vector autoresets its environments one by one
            ends += sum(int(np.logical_or(*event.step[1:]).sum()) for event in events if event.step is not None)
            continue
        length = at_once = 0
        for before, event in itertools.pairwise(events):
            length = 0 if event.step is None else length + 1
            if event.ended:
                lengths.append(length)
                at_once += before.step is None
        if at_once > 1 and at_once >= len(lengths) - 1 and max(lengths) > 1:
            problems.append(f"after the first episode of environment {subject.number}, the first step ends all others")
        alike = [same(a.obs, b.obs) for a, b in _around_ends(events)]
        if len(alike) > 1 and all(alike) and not _alike(trace.unseeded):
            problems.append(
                f"the last observation of an episode of environment {subject.number} is the first of the next one"
            )
    if ends:
        return Finding(True, f"{ends} episodes ended", float(ends))
    if not lengths:
        steps = sum(event.step is not None for events in trace.events for event in events)
        return skip(f"no episode ended in {steps} steps: if none ever does, give the environment a time limit")
    return none_of(
        problems,
        f"{len(lengths)} episodes ended, after {min(lengths)} to {max(lengths)} steps",
        "reset must reset all state, the step counter too; step must return the final observation of the episode and "
        "must not reset: ppax resets.",
    )


def _shared_generators(trace: EnvTrace) -> Iterator[str]:
    """Yield the random generators that two environments share, so that the seed of one changes the other's numbers."""
    owners: dict[int, int] = {}
    for subject in trace.subjects:
        for name, generator in generators_of(subject.env):
            first = owners.setdefault(id(generator), subject.number)
            if first != subject.number:
                yield f"environments {first} and {subject.number} draw from one generator, {name}"


def _misshapen(subject: Subject, event: EnvEvent) -> Iterator[str]:
    for problem in space_mismatches(subject.observation_space, event.obs, "obs", subject.obs_axis):
        yield f"{problem} ({event.where})"
    if event.step is None:
        return
    for name, x in zip(("reward", *FLAGS), event.step, strict=True):
        given = np.asarray(x)
        if given.shape != subject.axis:
            yield f"{name} has the shape {list(given.shape)}, not {list(subject.axis)}"
        elif given.dtype.kind not in "fiub":
            yield f"{name} is {x!r}, a {type(x).__name__}"


def _mistyped(subject: Subject, event: EnvEvent) -> Iterator[str]:
    for leaf in leaves_of(subject.observation_space):
        x = leaf.of(event.obs)
        dtype = np.asarray(x).dtype
        # Discrete takes any integer dtype
        whole = leaf.space_dtype.kind in "iu" and not leaf.shape and dtype.kind in "iu"
        if not whole and dtype != leaf.space_dtype:
            yield f"obs{_path(leaf.path)} is {dtype} after {event.where}, its space {leaf.space_dtype}"
    if event.step is None:
        return
    reward, *flags = (np.asarray(x) for x in event.step)
    if reward.dtype.kind not in "fiu":
        yield f"reward is {event.step[0]!r}, not a number"
    for name, flag in zip(FLAGS, flags, strict=True):
        if flag.dtype.kind != "b":
            yield f"{name} is {flag.dtype}, not a bool"


def _alike(events: tuple[EnvEvent, ...]) -> bool:
    return distinct([event.obs for event in events]) == 1


def _around_ends(events: tuple[EnvEvent, ...]) -> Iterator[tuple[EnvEvent, EnvEvent]]:
    """Yield the last event of each episode and the reset after it."""
    for before, event in itertools.pairwise(events):
        if before.ended and event.step is None:
            yield before, event


def _count(trace: EnvTrace) -> str:
    steps = sum(event.step is not None for _, event in trace.all())
    return f"{steps} steps of {len(trace.subjects)} environment{'s' if len(trace.subjects) > 1 else ''}"


def _path(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step!r}]" for step in path)
