"""Checks of environments on the host: recorded resets and steps against their spaces and Gymnasium's conventions."""

from __future__ import annotations

import copy
import itertools
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVectorEnv

from ppax.checks import environment
from ppax.checks.magnitudes import largest_entries, magnitude
from ppax.checks.report import Check, CheckResult, attempt, last_lines, none_of, not_tried, skip
from ppax.core.types import ConfigError, Key
from ppax.envs import EnvError, HostEnv
from ppax.envs.hosting.arrays import (
    leaves_of,
    mask_form,
    sample_allowed,
    space_mismatches,
    stack_elements,
)
from ppax.envs.hosting.conventions import adapted, generators_of, unread
from ppax.envs.hosting.faults import RAISED, close_all
from ppax.envs.hosting.gym_vector import autoreset_mode_of
from ppax.envs.hosting.spec import env_errors, new_env
from ppax.envs.hosting.team import Team

FEW = 3  # environments in a trace
READ = ("action_mask", "episode_stats", "agent_first", "over")  # entries of `info` that are checked
SECONDS = 10.0  # time limit for all of them
CLOSE = 1e-5  # relative tolerance, between two runs of the same episode


class EnvEvent(NamedTuple):
    """Recorded result of one reset or step of one environment.

    Arrays are copies, because the environment may overwrite its arrays later.
    """

    obs: Any
    info: Any
    step: tuple[Any, Any, Any] | None = None  # reward, terminated, truncated; None: a reset

    @property
    def where(self) -> str:
        """Name of the call that gave the result, "reset" or "step", for messages."""
        return "reset" if self.step is None else "step"

    @property
    def ended(self) -> bool:
        """Whether the episode has ended with this step; with several agents: for all of them. False for a reset."""
        if self.step is None:
            return False
        over = self.info["over"] if "agent_first" in self.info else np.all(np.logical_or(self.step[1], self.step[2]))
        return bool(over)


class ProtocolError(Exception):
    """Exception raised when `reset` or `step` of an environment returns no tuple of the required length."""


class NoMask(Exception):
    """Exception raised when info["action_mask"] is not a valid mask; the check "masks" reports it."""


class Subject:
    """One environment that is checked.

    With several agents, and in a vector environment, its rewards and flags have the leading shape `axis`: the number of
    agents or of environments.
    """

    def __init__(self, env: Any, number: int, factory: Any = None):
        self.env, self.number, self.factory = env, number, factory
        vector = isinstance(env, GymVectorEnv)
        self.observation_space = env.single_observation_space if vector else env.observation_space
        # a copy: its random state is the user's
        self.action_space = copy.deepcopy(env.single_action_space if vector else env.action_space)
        count = env.num_envs if vector else env.num_agents if isinstance(env, Team) else None
        self.axis: tuple[int, ...] = () if count is None else (count,)
        self._sizes = env.sizes if isinstance(env, Team) else ()
        # axis of observations; by group with groups of agents
        self.obs_axis: Any = {name: (size,) for name, size in self._sizes} or self.axis
        self.vector, self._mode = vector, autoreset_mode_of(env) if vector else None

    def reset(self, seed: int | None) -> EnvEvent:
        """Reset the environment and return the result; ProtocolError if the environment does not return (obs, info)."""
        out = self.env.reset() if seed is None else self.env.reset(seed=seed)
        if not isinstance(out, tuple) or len(out) != 2 or not isinstance(out[1], dict):
            raise ProtocolError(f"reset returns {_kind(out)}, not (obs, info), info a dict")
        return EnvEvent(copy.deepcopy(out[0]), _read(out[1]))

    def step(self, action: Any) -> EnvEvent:
        """Make one step of the environment and return the result; ProtocolError if it does not return five values."""
        out = self.env.step(copy.deepcopy(action))  # it may write into its action, which is given again
        if not isinstance(out, tuple) or len(out) != 5 or not isinstance(out[4], dict):
            raise ProtocolError(
                f"step returns {_kind(out)}, not (obs, reward, terminated, truncated, info), info a dict"
            )
        return EnvEvent(copy.deepcopy(out[0]), _read(out[4]), copy.deepcopy(tuple(out[1:4])))

    def reset_if_ended(self, last: EnvEvent) -> EnvEvent | None:
        """Reset the environment if the step `last` ended an episode, and return the result; else return None.

        An environment that resets itself (autoreset) is never reset here.
        """
        if self._mode is None:
            return self.reset(None) if last.ended else None
        if self._mode is not AutoresetMode.DISABLED or last.step is None:
            return None
        ended = np.logical_or(last.step[1], last.step[2])
        if not ended.any():
            return None
        obs, info = self.env.reset(options={"reset_mask": ended})
        return EnvEvent(copy.deepcopy(obs), _read(info))

    def random_action(self, info: dict[str, Any], rng: np.random.Generator) -> Any:
        """Return a random action that info["action_mask"] allows; raise NoMask if that is not a valid mask."""
        try:
            rows = [sample_allowed(space, mask, rng) for space, mask in self.masks_of(info)]
        except ValueError as error:
            raise NoMask(str(error)) from None
        if not self.axis:
            return rows[0]
        return rows if self._mode is None else stack_elements(rows)

    def masks_of(self, info: dict[str, Any]) -> list[tuple[spaces.Space, Any]]:
        """Return pairs (action space, mask), one per agent or per environment of a vector; mask None: there is none."""
        given, space = info.get("action_mask"), self.action_space
        if not self.axis:
            return [(space, given)]
        if not self._sizes:
            each = [None] * self.axis[0] if given is None else given
            return [(space, mask) for mask in each]
        agents = [space[name] for name, size in self._sizes for _ in range(size)]  # type: ignore[index]
        return list(zip(agents, self.env.masks_of(info), strict=True))


class EnvTrace(NamedTuple):
    """Resets and steps of a few environments, recorded for the checks.

    `events` are those of each environment, `repeated` those of the first environment again with the same seed and
    actions, `starts` its resets with other seeds, `unseeded` its resets without a seed.
    """

    subjects: tuple[Subject, ...]
    events: tuple[tuple[EnvEvent, ...], ...]  # copies, of each subject, from a reset with a seed on
    repeated: tuple[EnvEvent, ...]  # of the first subject, once more with the same seed and actions
    starts: tuple[EnvEvent, ...]  # resets of the first subject with other seeds
    unseeded: tuple[EnvEvent, ...]  # resets of the first subject without seed

    def all(self) -> Iterator[tuple[Subject, EnvEvent]]:
        """Yield every recorded reset and step of the trace, with the environment that made it."""
        for subject, events in zip(self.subjects, self.events, strict=True):
            yield from ((subject, event) for event in events)
        yield from ((self.subjects[0], event) for event in (*self.repeated, *self.starts, *self.unseeded))


def subjects_of(env: HostEnv, count: int) -> tuple[tuple[Subject, ...], bool]:
    """Return at least `count` environments to check, and whether they are the user's own, not to be closed afterwards.

    New environments are made by the first max(`count`, 3) constructors of `env`, or by all if it has fewer, one by
    each; further ones are made by the first constructor until there are `count`. If the user passed in an existing
    environment, the result has only this one, whatever `count` is.
    """
    made = list(env.host.factories[: max(count, FEW)])
    if not env.host.unique:
        made += [made[0]] * max(0, count - len(made))
    unique = env.host.unique
    with env_errors(env.name, "constructor"):
        return tuple(Subject(one() if unique else new_env(one), i, one) for i, one in enumerate(made)), unique


def short_trace(subjects: Sequence[Subject]) -> EnvTrace:
    """Return a record of one reset and one step of each environment.

    If a reset gives an invalid action mask, the record has the reset alone.
    """
    rng = np.random.default_rng(0)
    events: list[tuple[EnvEvent, ...]] = []
    for subject in subjects:
        subject.action_space.seed(0)
        begin = subject.reset(0)
        try:
            events.append((begin, subject.step(subject.random_action(begin.info, rng))))
        except NoMask:
            events.append((begin,))
    return EnvTrace(tuple(subjects), tuple(events), (), (), ())


def record_trace(subjects: Sequence[Subject], steps: int, resets: int, seed: int) -> EnvTrace:
    """Return a record of `steps` steps with random actions, divided equally among the environments.

    The first environment is also reset and stepped again with the same `seed`, and reset `resets` times with other
    seeds and `resets` times without one. Recording stops early after SECONDS seconds.
    """
    deadline, all_events, all_actions = time.monotonic() + SECONDS, [], []
    for subject in subjects:
        rng = np.random.default_rng(seed)
        subject.action_space.seed(seed)
        events, actions = [subject.reset(seed)], []
        for _ in range(steps // len(subjects)):
            if (begin := subject.reset_if_ended(events[-1])) is not None:
                events.append(begin)
            try:
                actions.append(subject.random_action(events[-1].info, rng))
            except NoMask:
                break
            events.append(subject.step(actions[-1]))
            if time.monotonic() > deadline and len(events) > 2:
                break
        all_events.append(tuple(events))
        all_actions.append(actions)
    one = subjects[0]
    repeated = [one.reset(seed)]
    for action in all_actions[0][: steps // 4]:
        repeated.append(one.step(action))
        if one.reset_if_ended(repeated[-1]) is not None:
            break
    starts = tuple(one.reset(seed + 1 + i) for i in range(resets))
    unseeded = tuple(one.reset(None) for _ in range(resets))
    return EnvTrace(tuple(subjects), tuple(all_events), tuple(repeated), starts, unseeded)


def _read(info: dict[str, Any]) -> dict[str, Any]:
    """Return copies of those entries of `info` that are checked; all others, which may be of any type, are left out."""
    return {name: copy.deepcopy(info[name]) for name in READ if name in info}


def _kind(out: Any) -> str:
    if isinstance(out, tuple):
        return f"a tuple of {len(out)}: {', '.join(type(x).__name__ for x in out)}"
    return f"a {type(out).__name__}"


FLAGS = ("terminated", "truncated")


def check_shapes(trace: EnvTrace) -> CheckResult:
    """Check shapes and structure of observations, rewards and flags."""
    problems = _once(_misshapen(subject, event) for subject, event in trace.all())
    return none_of(
        problems,
        f"observations, rewards and flags of {_count(trace)} are as declared",
        "Return observations as declared, one number for the reward and one flag each; or declare the returned shapes. "
        "NumPy would broadcast a wrong shape without an error.",
    )


def check_types(trace: EnvTrace) -> CheckResult:
    """Check that observations, rewards and flags have the declared dtypes, so that other libraries need not cast them.

    ppax itself casts them without harm.
    """
    problems = _once(_mistyped(subject, event) for subject, event in trace.all())
    return none_of(
        problems,
        "observations have the types of their spaces, rewards are floats and flags are bools",
        "Return np.asarray(obs, space.dtype), float(reward), bool(terminated), bool(truncated).",
    )


def check_finite(trace: EnvTrace) -> CheckResult:
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
        _once(problems_of(subject, event) for subject, event in trace.all()),
        f"all observations and rewards of {_count(trace)} are",
        "One NaN reaches every weight: look for a division by zero, a root or logarithm of a negative number, or an "
        "unstable simulation.",
    )


def check_magnitude(trace: EnvTrace) -> CheckResult:
    """Check that observations do not grow by orders of magnitude within an episode and are not huge (above 1e12)."""

    def largest(subject: Subject, event: EnvEvent) -> float:
        leaves = [leaf.of(event.obs) for leaf in leaves_of(subject.observation_space)]
        return float(largest_entries(leaves, 0))

    def of_subject(subject: Subject, events: tuple[EnvEvent, ...]) -> CheckResult:
        entries = np.array([largest(subject, event) for event in events])[:, None]
        first = np.array([event.step is None for event in events])[:, None]
        return magnitude(entries, first, np.ones_like(first))

    each = [of_subject(*pair) for pair in zip(trace.subjects, trace.events, strict=True)]
    return max(each, key=lambda found: (not found.passed, found.number))


def check_inside(trace: EnvTrace) -> CheckResult:
    """Check that observations are inside their space."""

    def problems_of(subject: Subject, event: EnvEvent) -> Iterator[str]:
        for name, space, x in _parts(subject.observation_space, event.obs, "obs"):
            yield from _outside(name, space, np.asarray(x))

    return none_of(
        _once(problems_of(subject, event) for subject, event in trace.all()),
        "observations are inside their space",
        "Declare the bounds that hold; infinite ones are allowed. Categories count from the space's start.",
    )


def check_masks(trace: EnvTrace) -> CheckResult:
    """Check that action masks fit the actions, come with every observation, and allow an action."""
    if all(mask is None for subject, event in trace.all() for _, mask in subject.masks_of(event.info)):
        return skip('the environment gives no info["action_mask"], and has no method action_masks()')

    def problems_of(subject: Subject, event: EnvEvent) -> Iterator[str]:
        each = subject.masks_of(event.info)
        usable = [space for space, _ in each if mask_form(space) is not None]
        if not usable or "action_mask" not in event.info:
            kind = type(subject.action_space).__name__
            yield f"there is none after {event.where}" if usable else f"actions are a {kind}, masks unused"
            return
        over = np.zeros(subject.axis or 1, bool) if event.step is None else np.ravel(np.logical_or(*event.step[1:]))
        for ended, (space, mask) in zip(over, each, strict=True):
            try:
                form = mask_form(space)
                flat = None if mask is None or form is None else form(mask)
            except ValueError as wrong:
                yield str(wrong)
                continue
            if flat is not None and not flat.any() and not ended:  # after an episode's end no action is needed
                yield f"it allows nothing after {event.where}"

    return none_of(
        _once(problems_of(subject, event) for subject, event in trace.all()),
        "masks come with every observation, fit the actions and allow at least one",
        'Give info["action_mask"] at every reset and step: 1 for each action that is allowed, for a MultiDiscrete one '
        "component after the other. Where no action is possible, end the episode; after its end a mask may be all 0.",
    )


def check_episode_stats(trace: EnvTrace) -> CheckResult:
    """Check that `info["episode_stats"]` comes with every reset and step, if it comes with any."""
    given = ["episode_stats" in event.info for _, event in trace.all()]
    if not any(given):
        return skip('the environment gives no info["episode_stats"]')
    missing = [f"there is none after {event.where}" for _, event in trace.all() if "episode_stats" not in event.info]
    return none_of(
        _once(iter([problem]) for problem in missing),
        f"it comes with all {len(given)} resets and steps",
        'Give info["episode_stats"] = (reward, ended) at every reset and step: episode_return and episode_length are '
        "computed from it alone.",
    )


def check_seeds(trace: EnvTrace) -> CheckResult:
    """Check that the same seed and actions give the same episode again, in the same environment and in another one."""
    one, problems = trace.events[0], [*_shared_generators(trace)]
    first = one[0].obs
    for subject, events in zip(trace.subjects[1:], trace.events[1:], strict=True):
        if subject.factory is trace.subjects[0].factory and not _same(first, events[0].obs):
            problems.append(f"environment {subject.number} starts differently from environment 0 with the same seed")
    if not _same(first, trace.repeated[0].obs):
        problems.append("the first observation differs when it is reset with the same seed again")
    else:
        for t, (a, b) in enumerate(zip(one, trace.repeated, strict=False)):
            if not (_same(a.obs, b.obs) and _same(a.step, b.step)):
                problems.append(f"step {t} differs when the same seed and actions are given again")
                break
    return none_of(
        problems,
        f"the same seed gives the same start, and the same actions the same {len(trace.repeated) - 1} steps",
        "Runs are not reproducible: call super().reset(seed=seed), draw from self.np_random alone, and reset all state "
        "in reset.",
    )


def check_resets(trace: EnvTrace) -> CheckResult:
    """Check that episodes do not all start in the same way, neither with different seeds nor without a seed."""
    seeded, unseeded = (_distinct([event.obs for event in group]) for group in (trace.starts, trace.unseeded))
    starts = len(trace.starts)
    text = f"{starts} seeds give {seeded} different starts, {len(trace.unseeded)} resets without seed {unseeded}"
    if seeded == unseeded == 1:
        return skip(f"all episodes start alike: {text}")
    return CheckResult(
        unseeded > 1,
        text,
        float(unseeded),
        "ppax passes a seed only to the first reset: later resets, without seed, must not restart the generator. "
        "super().reset(seed=seed) handles both.",
    )


def check_episodes(trace: EnvTrace) -> CheckResult:
    """Check that episodes end, and that reset starts new ones."""
    problems, ends = [], 0
    lengths: list[int] = []  # of all episodes
    for subject, events in zip(trace.subjects, trace.events, strict=True):
        if subject.vector:  # a vector autoresets its environments one by one
            ends += sum(int(np.logical_or(*event.step[1:]).sum()) for event in events if event.step is not None)
            continue
        length = at_once = 0
        known = len(lengths)  # of the other environments
        for before, event in itertools.pairwise(events):
            length = 0 if event.step is None else length + 1
            if event.ended:
                lengths.append(length)
                at_once += before.step is None
        own = lengths[known:]
        if at_once > 1 and at_once >= len(own) - 1 and max(own) > 1:
            problems.append(f"after the first episode of environment {subject.number}, the first step ends all others")
        alike = [_same(a.obs, b.obs) for a, b in _around_ends(events)]
        if len(alike) > 1 and all(alike) and not _alike(trace.unseeded):
            problems.append(
                f"the last observation of an episode of environment {subject.number} is the first of the next one"
            )
    if ends:
        return CheckResult(True, f"{ends} episodes ended", float(ends))
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
    """Yield messages about random generators that two environments share, so that a seed for one changes the other."""
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
    return _distinct([event.obs for event in events]) == 1


def _around_ends(events: tuple[EnvEvent, ...]) -> Iterator[tuple[EnvEvent, EnvEvent]]:
    """Yield the last step of each episode together with the reset after it."""
    for before, event in itertools.pairwise(events):
        if before.ended and event.step is None:
            yield before, event


def _count(trace: EnvTrace) -> str:
    steps = sum(event.step is not None for _, event in trace.all())
    return f"{steps} steps of {len(trace.subjects)} environment{'s' if len(trace.subjects) > 1 else ''}"


def _path(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step!r}]" for step in path)


def _parts(space: spaces.Space, element: Any, name: str) -> Iterator[tuple[str, spaces.Space, Any]]:
    """Yield (name, space, value) for each simple space, such as a Box, nested in a Dict or Tuple space.

    `element` is the value of the whole `space`, and `name` is its name, from which the others are made, as
    "obs['image']".
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, inner in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            yield from _parts(inner, element[key], f"{name}[{key!r}]")
    else:
        yield name, space, element


def _outside(name: str, space: spaces.Space, x: np.ndarray) -> Iterator[str]:
    """Yield a message about the first number of `x` that is outside `space`; `x` may have leading batch axes."""
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        low, high = 0, 1
    else:
        return
    beyond = (x < low) | (x > high)
    if beyond.any():
        where = tuple(map(int, np.argwhere(beyond)[0]))
        lowest, highest = (np.broadcast_to(bound, x.shape)[where] for bound in (low, high))
        place = list(where) if where else ""
        yield f"{name}{place} = {x[where]:g} is outside [{lowest:g}, {highest:g}]"


def _once(problems: Iterator[Iterator[str]]) -> list[str]:
    """Return the messages without repetitions; of messages that differ only after " = " the first is returned.

    `problems` has an iterator of messages for each reset or step.
    """
    first: dict[str, str] = {}
    for messages in problems:
        for message in messages:
            first.setdefault(message.partition(" = ")[0], message)
    return list(first.values())


def _same(one: Any, other: Any) -> bool:
    """Return True if two trees hold the same numbers, up to rounding."""
    if one is None or other is None:
        return one is other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape:
        return False
    return bool(np.allclose(a, b, CLOSE, CLOSE, equal_nan=True)) if a.dtype.kind == "f" else bool((a == b).all())


def _distinct(elements: list[Any]) -> int:
    """Return the number of distinct elements, which are trees; elements that are equal up to rounding count once."""
    kept: list[Any] = []
    for element in elements:
        if not any(_same(element, other) for other in kept):
            kept.append(element)
    return len(kept)


STEPS, RESETS = 1000, 8
CHECKS = {
    "shapes": check_shapes,
    "types": check_types,
    "finite": check_finite,
    "magnitude": check_magnitude,
    "spaces": check_inside,
    "masks": check_masks,
    "episode_stats": check_episode_stats,
    "seeds": check_seeds,
    "resets": check_resets,
    "episodes": check_episodes,
}
INTERFACE = "See help(gymnasium.Env): reset returns (obs, info), step returns five values."


def all_checks(env: HostEnv | gymnasium.Env, key: Key) -> list[Check]:
    """Return the results of all checks of an environment on the host, for which a few episodes are recorded."""
    traces: list[EnvTrace] = []
    subjects: tuple[Subject, ...] = ()
    if isinstance(env, gymnasium.Env):
        subjects, users_own = (Subject(adapted(env), 0),), True
    else:  # of one environment, as of a robot, there may be no second one
        try:
            subjects, users_own = subjects_of(env, min(FEW, env.num_envs))
        except ConfigError as error:
            return not_created(error)

    def play() -> CheckResult:
        try:
            traces.append(record_trace(subjects, STEPS, RESETS, int(jax.random.bits(key)) >> 1))
        except ProtocolError as error:
            return CheckResult(False, str(error), None, INTERFACE)
        count = sum(len(events) for events in traces[0].events)
        return CheckResult(True, f"{count} resets and steps of {len(subjects)} with random actions", float(count))

    try:
        checks = [attempt("declared", environment.check_declared, subjects[0]), attempt("interface", play)]
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
    """Return the results of the checks that `fit` makes before training: of declared spaces, one reset and one step.

    If the user has passed in existing environments, no check is made and the result is []: it would need a second
    environment, which may be impossible, for example of a robot. Raises EnvError if an environment raises an exception
    in its constructor, reset or step.
    """
    if env.host.running:
        return []
    subjects, users_own = subjects_of(env, 1)
    try:
        declared = [attempt("declared", environment.check_declared, subject) for subject in subjects]
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
    """Return the report's results for an environment whose constructor or first reset raised `error`.

    The check "interface" fails with the error, and all others could not be tried.
    """
    said, cause = str(error).partition("\n")[0], getattr(error, "cause", None)
    text = said if cause is None else f"{said}: {type(cause).__name__}: {' '.join(str(cause).split())}"
    failed = Check("interface", False, text, None, str(error) if cause is None else last_lines(cause))
    return [not_tried("declared"), failed, *map(not_tried, CHECKS)]


def _close(subjects: Any, users_own: bool) -> None:
    close_all([subject.env.close for subject in (() if users_own else subjects)])
