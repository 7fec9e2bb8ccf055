"""Traces of host environments: resets and steps of a few of them with random actions, before any training."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVectorEnv

from ppax.envs import HostEnv
from ppax.envs.hosting.gym_vector import mode_of
from ppax.envs.hosting.parallel_env import Team
from ppax.envs.hosting.sampling import joined, sampled
from ppax.envs.hosting.spec import env_errors, new_env

FEW = 3  # environments in a trace
READ = ("action_mask", "episode_stats", "agent_first", "over")  # entries of `info` that are checked
SECONDS = 10.0  # time limit for all of them


class EnvEvent(NamedTuple):
    """Return values of one reset or step of one environment, copied: it may write into its arrays later."""

    obs: Any
    info: Any
    step: tuple[Any, Any, Any] | None = None  # reward, terminated, truncated; None: a reset

    @property
    def where(self) -> str:
        """Name of the call, for messages."""
        return "reset" if self.step is None else "step"

    @property
    def ended(self) -> bool:
        """Whether the episode has ended, with several agents for all of them."""
        if self.step is None:
            return False
        over = self.info["over"] if "agent_first" in self.info else np.all(np.logical_or(self.step[1], self.step[2]))
        return bool(over)


class ProtocolError(Exception):
    """`reset` or `step` returned no tuple of the required length."""


class NoMask(Exception):
    """Error of an `info["action_mask"]` in none of the forms of a mask; the check of masks reports it."""


class Subject:
    """One environment under check. With several agents, or as a vector of environments, arrays have `axis` in front."""

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
        self.vector, self._mode = vector, mode_of(env) if vector else None

    def reset(self, seed: int | None) -> EnvEvent:
        """Start an episode. Raises ProtocolError where the result is not (obs, info)."""
        out = self.env.reset() if seed is None else self.env.reset(seed=seed)
        if not isinstance(out, tuple) or len(out) != 2 or not isinstance(out[1], dict):
            raise ProtocolError(f"reset returns {_kind(out)}, not (obs, info), info a dict")
        return EnvEvent(copy.deepcopy(out[0]), _read(out[1]))

    def step(self, action: Any) -> EnvEvent:
        """Make one step. Raises ProtocolError where the result is not five values."""
        out = self.env.step(copy.deepcopy(action))  # it may write into its action, which is given again
        if not isinstance(out, tuple) or len(out) != 5 or not isinstance(out[4], dict):
            raise ProtocolError(
                f"step returns {_kind(out)}, not (obs, reward, terminated, truncated, info), info a dict"
            )
        return EnvEvent(copy.deepcopy(out[0]), _read(out[4]), copy.deepcopy(tuple(out[1:4])))

    def reset_if_ended(self, last: EnvEvent) -> EnvEvent | None:
        """Reset where the last step ended an episode and the environment does not autoreset; else None."""
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
        """Sample an action that info["action_mask"] allows. Raises NoMask for something that is no mask."""
        try:
            rows = [sampled(space, mask, rng) for space, mask in self.masks_of(info)]
        except ValueError as error:
            raise NoMask(str(error)) from None
        if not self.axis:
            return rows[0]
        return rows if self._mode is None else joined(rows)

    def masks_of(self, info: dict[str, Any]) -> list[tuple[spaces.Space, Any]]:
        """Return the action space of each agent, or environment of a vector, and its mask in `info`; None: none."""
        given, space = info.get("action_mask"), self.action_space
        if not self.axis:
            return [(space, given)]
        if not self._sizes:
            each = [None] * self.axis[0] if given is None else given
            return [(space, mask) for mask in each]
        agents = [space[name] for name, size in self._sizes for _ in range(size)]  # type: ignore[index]
        return list(zip(agents, self.env.masks_of(info), strict=True))


class EnvTrace(NamedTuple):
    """Recorded resets and steps of a few environments."""

    subjects: tuple[Subject, ...]
    events: tuple[tuple[EnvEvent, ...], ...]  # copies, of each subject, from a reset with a seed on
    repeated: tuple[EnvEvent, ...]  # of the first subject, once more with the same seed and actions
    starts: tuple[EnvEvent, ...]  # resets of the first subject with other seeds
    unseeded: tuple[EnvEvent, ...]  # resets of the first subject without seed

    def all(self) -> Iterator[tuple[Subject, EnvEvent]]:
        """Yield every event with its subject."""
        for subject, events in zip(self.subjects, self.events, strict=True):
            yield from ((subject, event) for event in events)
        yield from ((self.subjects[0], event) for event in (*self.repeated, *self.starts, *self.unseeded))


def subjects_of(env: HostEnv, count: int) -> tuple[tuple[Subject, ...], bool]:
    """Return at least `count` environments, one of each kind; and whether they are the user's, not to be closed."""
    made = list(env.host.factories[: max(count, FEW)])
    if not env.host.unique:
        made += [made[0]] * max(0, count - len(made))
    unique = env.host.unique
    with env_errors(env.name, "constructor"):
        return tuple(Subject(one() if unique else new_env(one), i, one) for i, one in enumerate(made)), unique


def short_trace(subjects: Sequence[Subject]) -> EnvTrace:
    """Record one reset and one step of each subject."""
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
    """Record `steps` steps in all with random actions; of the first also repeated steps, seeded and unseeded resets."""
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
    """Return copies of the entries that are checked; others may be of any type."""
    return {name: copy.deepcopy(info[name]) for name in READ if name in info}


def _kind(out: Any) -> str:
    if isinstance(out, tuple):
        return f"a tuple of {len(out)}: {', '.join(type(x).__name__ for x in out)}"
    return f"a {type(out).__name__}"
