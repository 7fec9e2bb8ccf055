"""Host environments as they show themselves: a few of them stepped by hand with random actions, before any training."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVectorEnv

from ppax.arrays import masks
from ppax.envs import HostEnv
from ppax.envs.hosting.arrays import flat_mask
from ppax.envs.hosting.faults import exit_is_a_fault
from ppax.envs.hosting.gym_vector import mode_of
from ppax.envs.hosting.parallel_env import Team

FEW = 3  # environments that are looked at
SECONDS = 10.0  # for all of them


class EnvEvent(NamedTuple):
    """What one environment gave: at a reset, or for an action."""

    obs: Any
    info: Any
    step: tuple[Any, Any, Any] | None = None  # reward, terminated, truncated; None: a reset

    @property
    def where(self) -> str:
        """For messages."""
        return "reset" if self.step is None else "step"

    @property
    def ended(self) -> bool:
        """Whether the episode is over; of several agents, that of all."""
        if self.step is None:
            return False
        over = self.info["over"] if "agent_first" in self.info else np.all(np.logical_or(self.step[1], self.step[2]))
        return bool(over)


class ProtocolError(Exception):
    """What came back is no step, or no reset."""


class Subject:
    """One environment; of several agents, or a vector of environments, with an axis of them before all others."""

    def __init__(self, env: Any, number: int):
        self.env, self.number = env, number
        vector = isinstance(env, GymVectorEnv)
        self.observation_space = env.single_observation_space if vector else env.observation_space
        # a copy: its random state is the user's
        self.action_space = copy.deepcopy(env.single_action_space if vector else env.action_space)
        count = env.num_envs if vector else env.num_agents if isinstance(env, Team) else None
        self.axis: tuple[int, ...] = () if count is None else (count,)
        self.vector, self._mode = vector, mode_of(env) if vector else None

    def reset(self, seed: int | None) -> EnvEvent:
        """Begin an episode. Wrong where that is none."""
        out = self.env.reset() if seed is None else self.env.reset(seed=seed)
        if not isinstance(out, tuple) or len(out) != 2 or not isinstance(out[1], dict):
            raise ProtocolError(f"reset returns {_kind(out)}, not (obs, info), info a dict")
        return EnvEvent(*out)

    def step(self, action: Any) -> EnvEvent:
        """One step. Wrong where that is none."""
        out = self.env.step(action)
        if not isinstance(out, tuple) or len(out) != 5 or not isinstance(out[4], dict):
            raise ProtocolError(
                f"step returns {_kind(out)}, not (obs, reward, terminated, truncated, info), info a dict"
            )
        return EnvEvent(out[0], out[4], tuple(out[1:4]))

    def renew(self, last: EnvEvent) -> EnvEvent | None:
        """The reset that must follow where an episode is over; None where none must."""
        if self._mode is None:
            return self.reset(None) if last.ended else None
        if self._mode is not AutoresetMode.DISABLED or last.step is None:
            return None
        over = np.logical_or(last.step[1], last.step[2])
        return EnvEvent(*self.env.reset(options={"reset_mask": over})) if over.any() else None

    def draw(self, info: dict[str, Any], rng: np.random.Generator) -> Any:
        """A random action that is allowed."""
        mask = None if masks.size_of(self.action_space) is None else info.get("action_mask")
        if not self.axis:
            return _allowed(self.action_space, mask, rng)
        each = [None] * self.axis[0] if mask is None else mask
        rows = [_allowed(self.action_space, one, rng) for one in each]
        return rows if self._mode is None else _joined(rows)


class EnvTrace(NamedTuple):
    """What was seen of a few environments."""

    subjects: tuple[Subject, ...]
    moments: tuple[tuple[EnvEvent, ...], ...]  # of each; the first one is a reset with a seed
    again: tuple[EnvEvent, ...]  # of the first one, as long as its moments: from the same seed, with the same actions
    starts: tuple[EnvEvent, ...]  # resets with other seeds
    unseeded: tuple[EnvEvent, ...]  # resets without one

    def all(self) -> Iterator[tuple[Subject, EnvEvent]]:
        """All that was seen, with whose it is."""
        for subject, seen in zip(self.subjects, self.moments, strict=True):
            yield from ((subject, moment) for moment in seen)
        yield from ((self.subjects[0], moment) for moment in (*self.again, *self.starts, *self.unseeded))


def subjects_of(env: HostEnv, count: int) -> tuple[tuple[Subject, ...], bool]:
    """`count` environments at least, one of each kind; and whether they are the user's own, not to be closed."""
    made = list(env.host.factories[: max(count, FEW)])
    if not env.host.unique:
        made += [made[0]] * max(0, count - len(made))
    with exit_is_a_fault():
        return tuple(Subject(factory(), number) for number, factory in enumerate(made)), env.host.unique


def first_look(subjects: Sequence[Subject]) -> EnvTrace:
    """A reset and a step of each: the least that says anything."""
    rng, seen = np.random.default_rng(0), []
    for subject in subjects:
        begin = subject.reset(0)
        seen.append((begin, subject.step(subject.draw(begin.info, rng))))
    return EnvTrace(tuple(subjects), tuple(seen), (), (), ())


def watch(subjects: Sequence[Subject], steps: int, resets: int, seed: int) -> EnvTrace:
    """Episodes of each, `steps` steps of all together; then again, and `resets` resets of both kinds, of the first."""
    until, seen, kept = time.monotonic() + SECONDS, [], []
    for subject in subjects:
        rng = np.random.default_rng(seed)
        subject.action_space.seed(seed)
        moments, actions = [subject.reset(seed)], []
        for _ in range(steps // len(subjects)):
            if (begin := subject.renew(moments[-1])) is not None:
                moments.append(begin)
            actions.append(subject.draw(moments[-1].info, rng))
            moments.append(subject.step(actions[-1]))
            if time.monotonic() > until and len(moments) > 2:
                break
        seen.append(tuple(moments))
        kept.append(actions)
    one = subjects[0]
    again = [one.reset(seed)]
    for action in kept[0][: steps // 4]:
        again.append(one.step(action))
        if one.renew(again[-1]) is not None:
            break
    starts = tuple(one.reset(seed + 1 + i) for i in range(resets))
    return EnvTrace(tuple(subjects), tuple(seen), tuple(again), starts, tuple(one.reset(None) for _ in range(resets)))


def _allowed(space: spaces.Space, mask: Any, rng: np.random.Generator) -> Any:
    """A random element that the mask allows, in the layout of masks.py; without one, any."""
    if mask is None or isinstance(space, spaces.Box):
        return space.sample()
    flat = flat_mask(mask)
    if isinstance(space, spaces.Discrete):
        return space.start + _choice(flat, rng)
    if isinstance(space, spaces.MultiDiscrete):
        edges = np.cumsum(space.nvec.reshape(-1))[:-1]
        chosen = np.array([_choice(part, rng) for part in np.split(flat, edges)], space.dtype)
        return chosen.reshape(space.shape) + space.start
    return np.array([_choice(part, rng) for part in flat.reshape(-1, 2)], space.dtype).reshape(space.shape)


def _choice(allowed: np.ndarray, rng: np.random.Generator) -> np.int64:
    there = np.flatnonzero(allowed)
    return np.int64(rng.choice(there)) if len(there) else np.int64(0)


def _joined(rows: Sequence[Any]) -> Any:
    first = rows[0]
    if isinstance(first, dict):
        return {key: _joined([row[key] for row in rows]) for key in first}
    return tuple(map(_joined, zip(*rows, strict=True))) if isinstance(first, tuple) else np.stack(rows)


def _kind(out: Any) -> str:
    if isinstance(out, tuple):
        return f"a tuple of {len(out)}: {', '.join(type(x).__name__ for x in out)}"
    return f"a {type(out).__name__}"
