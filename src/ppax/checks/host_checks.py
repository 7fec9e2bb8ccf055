"""Checks of environments on the host: what they gave, beside what their spaces and Gymnasium's interface say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from ppax.arrays import masks
from ppax.checks.elements import distinct, once, outside, parts, same
from ppax.checks.report import Finding, none_of, skip
from ppax.checks.watched import EnvEvent, EnvTrace, Subject
from ppax.envs.hosting.arrays import flat_mask, leaves_of, misfits

FLAGS = ("terminated", "truncated")


def check_shapes(seen: EnvTrace) -> Finding:
    """What would not go into the arrays that learning reads."""
    problems = once(_misshapen(subject, moment) for subject, moment in seen.all())
    return none_of(
        problems,
        f"observations, rewards and flags of {_count(seen)} are as declared",
        "Return what the observation space declares, one number for the reward and one flag each; or declare what is "
        "returned. NumPy would spread a wrong shape over the array without a word.",
    )


def check_types(seen: EnvTrace) -> Finding:
    """Types that are cast in silence: harmless here, and elsewhere not."""
    problems = once(_mistyped(subject, moment) for subject, moment in seen.all())
    return none_of(
        problems,
        "observations have the types of their spaces, rewards are floats and flags are bools",
        "Return np.asarray(obs, space.dtype), float(reward), bool(terminated), bool(truncated).",
    )


def check_finite(seen: EnvTrace) -> Finding:
    """No NaN or infinity."""

    def wrong(subject: Subject, moment: EnvEvent) -> Iterator[str]:
        for leaf in leaves_of(subject.observation_space):
            x = np.asarray(leaf.of(moment.obs))
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                where = tuple(map(int, np.argwhere(~np.isfinite(x))[0]))
                yield f"obs{_path(leaf.path)}{list(where)} is {x[where]} after {moment.where}"
        if moment.step is not None and not np.isfinite(np.asarray(moment.step[0], float)).all():
            yield f"the reward is {moment.step[0]}"

    return none_of(
        once(wrong(subject, moment) for subject, moment in seen.all()),
        f"all observations and rewards of {_count(seen)} are",
        "One NaN reaches every weight: look for a division by zero, a root or logarithm of a negative number, or an "
        "unstable simulation.",
    )


def check_inside(seen: EnvTrace) -> Finding:
    """Observations lie in their space."""

    def wrong(subject: Subject, moment: EnvEvent) -> Iterator[str]:
        for name, space, x in parts(subject.observation_space, moment.obs, "obs"):
            yield from outside(name, space, np.asarray(x))

    return none_of(
        once(wrong(subject, moment) for subject, moment in seen.all()),
        "observations are inside their space",
        "Declare the bounds that hold; infinite ones are allowed. Categories count from the space's start.",
    )


def check_masks(seen: EnvTrace) -> Finding:
    """Masks of allowed actions have the layout of masks.py, come always, and allow something."""
    if not any("action_mask" in moment.info for _, moment in seen.all()):
        return skip('the environment gives no info["action_mask"]')

    def wrong(subject: Subject, moment: EnvEvent) -> Iterator[str]:
        size = masks.size_of(subject.action_space)
        if size is None or "action_mask" not in moment.info:
            kind = type(subject.action_space).__name__
            yield f"there is none after {moment.where}" if size is not None else f"actions are a {kind}, masks unused"
            return
        given = moment.info["action_mask"]
        over = np.zeros(subject.axis or 1, bool) if moment.step is None else np.ravel(np.logical_or(*moment.step[1:]))
        for ended, mask in zip(over, given if subject.axis else [given], strict=True):
            if mask is not None and (flat := flat_mask(mask)).size != size:
                yield f"it has {flat.size} entries, {subject.action_space} takes {size}"
            elif mask is not None and not flat.any() and not ended:  # no action is taken after an episode's end
                yield f"it allows nothing after {moment.where}"

    return none_of(
        once(wrong(subject, moment) for subject, moment in seen.all()),
        "masks come with every observation, fit the actions and allow something",
        'Give info["action_mask"] at every reset and step: 1 for each action that is allowed, for a MultiDiscrete one '
        "component after the other. Where nothing can be done, end the episode; after its end a mask may be all 0.",
    )


def check_tally(seen: EnvTrace) -> Finding:
    """`info["episode_stats"]`, from which statistics are counted, comes always or never."""
    given = ["episode_stats" in moment.info for _, moment in seen.all()]
    if not any(given):
        return skip('the environment gives no info["episode_stats"]')
    missing = [f"there is none after {moment.where}" for _, moment in seen.all() if "episode_stats" not in moment.info]
    return none_of(
        once(iter([problem]) for problem in missing),
        f"it comes with all {len(given)} resets and steps",
        'Give info["episode_stats"] = (reward, over) at every reset and step: episode_return and episode_length are '
        "counted from it alone.",
    )


def check_seeds(seen: EnvTrace) -> Finding:
    """The same seed and actions give the same episode: in another environment of the kind, and in one used before."""
    one, problems = seen.moments[0], []
    first = one[0].obs
    for subject, moments in zip(seen.subjects[1:], seen.moments[1:], strict=True):
        if type(subject.env) is type(seen.subjects[0].env) and not same(first, moments[0].obs):
            problems.append(f"environment {subject.number} begins elsewhere than environment 0 with the same seed")
    if not same(first, seen.again[0].obs):
        problems.append("the first observation differs when it is reset with the same seed again")
    else:
        for t, (a, b) in enumerate(zip(one, seen.again, strict=False)):
            if not (same(a.obs, b.obs) and same(a.step, b.step)):
                problems.append(f"step {t} differs when the same seed and actions are given again")
                break
    return none_of(
        problems,
        f"the same seed gives the same start, and the same actions the same {len(seen.again) - 1} steps",
        "Runs could not be repeated: call super().reset(seed=seed), draw from self.np_random alone, and set everything "
        "back in reset.",
    )


def check_resets(seen: EnvTrace) -> Finding:
    """Episodes begin differently, with other seeds and without."""
    seeded, unseeded = (distinct([moment.obs for moment in group]) for group in (seen.starts, seen.unseeded))
    text = (
        f"{len(seen.starts)} seeds give {seeded} different starts, {len(seen.unseeded)} resets without seed {unseeded}"
    )
    if seeded == unseeded == 1:
        return skip(f"every episode begins alike: {text}")
    return Finding(
        unseeded > 1,
        text,
        float(unseeded),
        "ppax gives seeds once, at the beginning; later resets come without: they must not start the generator anew. "
        "super().reset(seed=seed) does it right.",
    )


def check_episodes(seen: EnvTrace) -> Finding:
    """Episodes end, and what follows is a new one."""
    problems, lengths, ends = [], [], 0
    for subject, moments in zip(seen.subjects, seen.moments, strict=True):
        if subject.vector:  # its environments end one by one, and it resets them itself
            ends += sum(int(np.logical_or(*moment.step[1:]).sum()) for moment in moments if moment.step is not None)
            continue
        length = at_once = 0
        for before, moment in itertools.pairwise(moments):
            length = 0 if moment.step is None else length + 1
            if moment.ended:
                lengths.append(length)
                at_once += before.step is None
        if at_once > 1 and at_once >= len(lengths) - 1 and max(lengths) > 1:
            problems.append(f"after the first episode of environment {subject.number}, the first step ends all others")
        alike = [same(a.obs, b.obs) for a, b in _around_ends(moments)]
        if len(alike) > 1 and all(alike) and not _alike(seen.unseeded):
            problems.append(
                f"the last observation of an episode of environment {subject.number} is the first of the next one"
            )
    if ends:
        return Finding(True, f"{ends} episodes ended", float(ends))
    if not lengths:
        steps = sum(moment.step is not None for moments in seen.moments for moment in moments)
        return skip(f"no episode ended in {steps} steps: if none ever does, give the environment a time limit")
    return none_of(
        problems,
        f"{len(lengths)} episodes ended, after {min(lengths)} to {max(lengths)} steps",
        "reset must set everything back, the counter of steps too; step must return the episode's own last "
        "observation and must not reset: ppax resets.",
    )


def _misshapen(subject: Subject, moment: EnvEvent) -> Iterator[str]:
    for problem in misfits(subject.observation_space, moment.obs, "obs", subject.axis):
        yield f"{problem} ({moment.where})"
    if moment.step is None:
        return
    for name, x in zip(("reward", *FLAGS), moment.step, strict=True):
        given = np.asarray(x)
        if given.shape != subject.axis:
            yield f"{name} has the shape {list(given.shape)}, not {list(subject.axis)}"
        elif given.dtype.kind not in "fiub":
            yield f"{name} is {x!r}, a {type(x).__name__}"


def _mistyped(subject: Subject, moment: EnvEvent) -> Iterator[str]:
    for leaf in leaves_of(subject.observation_space):
        x = leaf.of(moment.obs)
        whole = leaf.given.kind in "iu" and not leaf.shape and np.asarray(x).dtype.kind in "iu"  # Discrete takes any
        if not whole and np.asarray(x).dtype != leaf.given:
            yield f"obs{_path(leaf.path)} is {np.asarray(x).dtype} after {moment.where}, its space {leaf.given}"
    if moment.step is None:
        return
    reward, *flags = (np.asarray(x) for x in moment.step)
    if reward.dtype.kind not in "fiu":
        yield f"reward is {moment.step[0]!r}, not a number"
    for name, flag in zip(FLAGS, flags, strict=True):
        if flag.dtype.kind != "b":
            yield f"{name} is {flag.dtype}, not a bool"


def _alike(moments: tuple[EnvEvent, ...]) -> bool:
    return distinct([moment.obs for moment in moments]) == 1


def _around_ends(moments: tuple[EnvEvent, ...]) -> Iterator[tuple[EnvEvent, EnvEvent]]:
    """The last moment of each episode and the first one of the next."""
    for before, moment in itertools.pairwise(moments):
        if before.ended and moment.step is None:
            yield before, moment


def _count(seen: EnvTrace) -> str:
    steps = sum(moment.step is not None for _, moment in seen.all())
    return f"{steps} steps of {len(seen.subjects)} environment{'s' if len(seen.subjects) > 1 else ''}"


def _path(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step!r}]" for step in path)
