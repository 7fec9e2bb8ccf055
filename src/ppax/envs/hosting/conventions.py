"""Adapters that give new environments the conventions of ppax: action masks and episode statistics are in `info`.

Other libraries give action masks by methods or in observations, and the statistics of episodes by wrappers that record
them, as Gymnasium's RecordEpisodeStatistics. A function that returns the same environment twice is refused. This file
imports only arrays.py of ppax: worker processes load it too.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics
from gymnasium.wrappers import vector as of_vectors

from ppax.envs.hosting.arrays import mask_form

METHOD, ENTRY, STATS = "action_masks", "action_mask", "episode_stats"
# methods and attributes whose masks are not read: some need arguments, some have 1 where an action is forbidden
METHODS = (
    *(METHOD, "action_mask", "get_action_mask", "get_action_masks", "valid_action_mask", "valid_action_masks"),
    *("get_valid_action_mask", "get_valid_action_masks", "invalid_action_mask", "invalid_action_masks"),
    *("valid_actions", "get_valid_actions", "legal_actions", "get_legal_actions", "avail_actions", "get_avail_actions"),
    "get_avail_agent_actions",
)
ENTRIES = ("action_masks", "valid_action_mask", "valid_actions", "legal_actions", "avail_actions")
REMEDY = 'give it as info["action_mask"], or by a method action_masks() without arguments, with 1 for allowed actions'
NORMALIZED = (
    "NormalizeObservation has statistics of its own in every environment: evaluations and the exported policy see "
    "other numbers than training did; leave it out and pass normalize_obs=True to ppax.PPO (agent.normalize_obs), "
    "whose statistics are saved with the policy"
)
SCALED = (
    "NormalizeReward changes episode_return: leave it out and pass normalize_reward=True to ppax.PPO "
    "(agent.normalize_reward), or put RecordEpisodeStatistics inside of it, whose returns are then reported"
)

_made: dict[int, weakref.ref[Any]] = {}  # environments that functions have returned in this process, by id


class SharedEnv(Exception):
    """Error of a function that returned an environment again, itself or inside of another one, instead of a new one."""


def new_adapted(factory: Callable[[], Any]) -> Any:
    """Return a new environment made by `factory`, with action masks and recorded episode statistics in `info`.

    Raises SharedEnv if `factory` has returned the environment, or one that it wraps, before.
    """
    env = factory()
    refuse_shared([env])
    return adapted(env)


def adapted(env: Any) -> Any:
    """Return `env`, wrapped if needed so that its action masks and recorded episode statistics are in `info`.

    Other libraries give them by methods, in observations or by wrappers that record episodes.
    """
    if not isinstance(env, gymnasium.Env):
        return env
    mask: Callable[[Any], Any] | None = None
    # of sb3-contrib, also by its ActionMasker; through wrappers
    if env.has_wrapper_attr(METHOD) and _without_arguments(env.get_wrapper_attr(METHOD)):

        def mask(obs: Any) -> Any:
            return env.get_wrapper_attr(METHOD)()

    elif has_mask_entry(env.observation_space, env.action_space):
        mask = _entry
    recorder = recorder_of(env)
    return env if mask is None and recorder is None else AdaptedEnv(env, mask, recorder)


class AdaptedEnv(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Wrapper that puts action masks and recorded episode statistics of an environment into `info`, for ppax.

    `mask` returns the action mask that belongs to an observation; it is None if masks are in `info` already or there
    are none. `recorder` is the wrapper inside of `env` that records episodes, or None. `info["episode_stats"]` has the
    rewards that the recorder sees, so that wrappers around it, which change rewards or end episodes early, do not
    change the reported returns.
    """

    def __init__(self, env: Any, mask: Callable[[Any], Any] | None, recorder: Any):
        super().__init__(env)
        self._mask, self._recorder, self._known, self._open = mask, recorder, 0.0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return observation and info of a new episode; info also reports if a recorded episode has been cut short.

        A wrapper outside of the recorder (the wrapper that records episodes) may end an episode that is still running
        for the recorder. If the recorder then begins a new episode, `info["episode_stats"]` reports the end of the
        unfinished one. If it continues the same episode, for example after the loss of one of several lives, no end is
        reported; nor is one at a reset with a `seed`.
        """
        obs, info = self.env.reset(seed=seed, options=options)
        more: dict[str, Any] = {}
        if self._recorder is not None:
            self._recorder = recorder_of(self.env)  # a new one, where each episode has a new environment
            begun = _length(self._recorder) == 0  # else only a life was lost, and the recorded episode goes on
            total = self._known if begun else _return(self._recorder)
            more[STATS] = (total - self._known, begun and self._open and seed is None)
            self._known, self._open = (0.0, False) if begun else (total, True)
        return obs, _with_mask(self._mask, obs, info) | more

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return the result of a step, with the action mask and the recorded reward in `info`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._recorder is not None:
            recorded = info.get(_key(self._recorder))
            total = _return(self._recorder) if recorded is None else float(recorded["r"])
            info = info | {STATS: (total - self._known, recorded is not None)}
            self._known, self._open = (total, True) if recorded is None else (0.0, False)
        return obs, reward, terminated, truncated, _with_mask(self._mask, obs, info)


def adapted_vector(vector: VectorEnv) -> VectorEnv:
    """Return `vector`, wrapped if needed so that action masks and recorded episode statistics are in `info`.

    Other libraries give them by methods, in observations or by wrappers that record episodes.
    """
    mask: Callable[[Any], Any] | None = None
    returns: Callable[[], Any] | None = None
    lengths: Callable[[], Any] | None = None
    key = "episode"
    whole = next((one for one in wrappers_of(vector) if callable(getattr(one, METHOD, None))), None)
    if whole is not None:

        def mask(obs: Any) -> Any:
            return getattr(whole, METHOD)()

    elif _each_has(vector, METHOD) and all(
        _without_arguments(env.get_wrapper_attr(METHOD)) for env in getattr(vector.unwrapped, "envs", ())
    ):

        def mask(obs: Any) -> Any:
            return vector.unwrapped.call(METHOD)

    elif has_mask_entry(vector.single_observation_space, vector.single_action_space):
        mask = _entry
    recorder = next((one for one in wrappers_of(vector) if isinstance(one, of_vectors.RecordEpisodeStatistics)), None)
    if recorder is not None:
        key = _key(recorder)

        def returns() -> Any:
            return recorder.episode_returns

        def lengths() -> Any:
            return recorder.episode_lengths

    elif _each_has(vector, "return_queue"):  # a RecordEpisodeStatistics in every environment
        key = vector.unwrapped.get_attr("_stats_key")[0]

        def returns() -> Any:
            return vector.unwrapped.get_attr("episode_returns")

        def lengths() -> Any:
            return vector.unwrapped.get_attr("episode_lengths")

    return vector if mask is None and returns is None else AdaptedVector(vector, mask, returns, lengths, key)


class AdaptedVector(VectorWrapper):
    """Wrapper that puts action masks and recorded episode statistics of a vector's environments into `info`.

    `mask` returns the action masks that belong to a batch of observations; it is None if masks are in `info` already or
    there are none. `returns` and `lengths` give the returns and lengths so far of the episodes that a wrapper is
    recording; they are None if no wrapper records. `key` is the entry of `info` with the episodes that have ended.

    A wrapper outside of the recorder may end an episode that is still running for the recorder. If the recorder then
    begins a new episode, the end of the unfinished one is reported where that is seen, at the latest at the reset. In
    autoreset mode SAME_STEP the recorder has forgotten the last reward by then: it is that of `step`.
    """

    def __init__(
        self,
        env: VectorEnv,
        mask: Callable[[Any], Any] | None,
        returns: Callable[[], Any] | None,
        lengths: Callable[[], Any] | None,
        key: str,
    ):
        super().__init__(env)
        self._mask, self._returns, self._lengths, self._key = mask, returns, lengths, key
        self._known = np.zeros(env.num_envs)
        self._cut = np.zeros(env.num_envs, bool)  # episodes that have ended, but not for the recorder

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return observations and `info` after a reset, with action masks and recorded rewards of 0 in `info`."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._returns is not None:
            begun = self._begun() & (seed is None)
            self._known, self._cut = np.array(self._returns(), float), np.zeros(self.num_envs, bool)
            info = info | {STATS: (np.zeros(self.num_envs, np.float32), begun)}
        return obs, _with_mask(self._mask, obs, info)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return the result of a step, with action masks and recorded rewards in `info`."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        if self._returns is not None:
            total, over = np.array(self._returns(), float), np.zeros(self.num_envs, bool)
            # SAME_STEP: the statistics of the environments themselves are in `final_info`
            for ended in (info, info.get("final_info", {})):
                if self._key in ended:
                    over = np.asarray(ended[f"_{self._key}"], bool)
                    total = np.where(over, np.asarray(ended[self._key]["r"], float), total)
            ended = np.asarray(terminated, bool) | np.asarray(truncated, bool)
            self._cut = (self._cut | ended) & ~over
            begun = self._begun()
            total = np.where(begun, self._known + np.where(ended, reward, 0.0), total)
            over, self._cut = over | begun, self._cut & ended & ~begun
            info = info | {STATS: ((total - self._known).astype(np.float32), over)}
            self._known = np.where(over, 0.0, total)
        return obs, reward, terminated, truncated, _with_mask(self._mask, obs, info)

    def _begun(self) -> np.ndarray:
        """Return in which environments the recorder has begun a new episode after one that was cut, [E].

        Else only a life was lost, and the recorded episode goes on. Processes are asked only where an episode was cut.
        """
        if self._lengths is None or not self._cut.any():
            return np.zeros(self.num_envs, bool)
        return self._cut & (np.asarray(self._lengths()) == 0)


def _with_mask(mask: Callable[[Any], Any] | None, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
    return info if mask is None or ENTRY in info else info | {ENTRY: mask(obs)}


def has_mask_entry(seen: Any, space: spaces.Space) -> bool:
    """Return whether the observation space `seen` is a Dict with an entry "action_mask" for actions of `space`.

    The entry must have the shape of such a mask: a flag for each choice of a Discrete action, and for several
    components one of the shapes that `MaskForm` reads.
    """
    if not isinstance(seen, spaces.Dict) or ENTRY not in seen.spaces:
        return False
    form = mask_form(space)
    if form is None:
        return False
    try:
        form(np.zeros(seen.spaces[ENTRY].shape or (), bool))
    except ValueError:
        return False
    return True


def _entry(obs: Any) -> Any:
    return obs[ENTRY]


def _without_arguments(method: Any) -> bool:
    """Return whether `method` can be called without arguments; False for something that cannot be called."""
    needed = inspect.signature(method).parameters.values() if callable(method) else ()
    return callable(method) and all(
        x.default is not x.empty or x.kind in (x.VAR_POSITIONAL, x.VAR_KEYWORD) for x in needed
    )


def _each_has(vector: VectorEnv, name: str) -> bool:
    """Return whether every environment of a SyncVectorEnv or AsyncVectorEnv has the attribute `name`; else False.

    It is also False for any other class of vector, whose environments cannot be asked.
    """
    # a worker of AsyncVectorEnv ends at a call of an attribute that its environment lacks
    known = isinstance(vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
    return known and all(vector.unwrapped.call("has_wrapper_attr", name))


def unread(env: Any, info: dict[str, Any]) -> Iterator[str]:
    """Yield a warning for action masks under a name that ppax does not read, and for wrappers that normalise values.

    Masks are missed if they are in other methods, attributes or entries of info and observations than ppax reads, such
    as `valid_actions`. Wrappers that normalise observations or rewards keep their own statistics, which ppax does not
    save with the policy; it has options instead. Each warning is one sentence. `env` is an environment of Gymnasium or
    a vector, and `info` that of its first reset.
    """
    vector = isinstance(env, VectorEnv)
    inside = env.unwrapped.envs[:1] if isinstance(env.unwrapped, SyncVectorEnv) else []
    name = type((inside or [env])[0].unwrapped).__name__
    space = env.single_action_space if vector else env.action_space
    seen = env.single_observation_space if vector else env.observation_space
    if ENTRY not in info and mask_form(space) is not None:
        has = (lambda one: _each_has(env, one)) if vector else env.has_wrapper_attr
        places = [f"a method or attribute {one}" for one in METHODS if has(one)]
        places += [f'info["{one}"]' for one in ENTRIES if one in info]
        places += [f'obs["{one}"]' for one in (ENTRY, *ENTRIES) if isinstance(seen, spaces.Dict) and one in seen.spaces]
        if places:
            yield f"{name} has {places[0]}, which is not read, and so trains without action masks: {REMEDY}"
    kinds = [_kind(wrapper) for one in (env, *inside) for wrapper in wrappers_of(one)]
    if "normalises observations" in kinds or (vector and _each_has(env, "obs_rms")):
        yield f"{name}: {NORMALIZED}"
    if isinstance(env.unwrapped, AsyncVectorEnv) and _each_has(env, "return_queue"):
        kinds.append("records")
    if "normalises rewards" in kinds and "records" not in kinds[kinds.index("normalises rewards") :]:
        yield f"{name}: {SCALED}"


def _kind(wrapper: Any) -> str:
    if isinstance(wrapper, NormalizeObservation | of_vectors.NormalizeObservation):
        return "normalises observations"
    if isinstance(wrapper, NormalizeReward | of_vectors.NormalizeReward):
        return "normalises rewards"
    return "records" if _records(wrapper) or isinstance(wrapper, of_vectors.RecordEpisodeStatistics) else ""


def recorder_of(env: Any) -> Any:
    """Return the wrapper in `env` that records episodes, of Gymnasium or Stable-Baselines3; None if there is none."""
    return next((one for one in wrappers_of(env) if _records(one)), None)


def _records(wrapper: Any) -> bool:
    monitor = getattr(sys.modules.get("stable_baselines3.common.monitor"), "Monitor", RecordEpisodeStatistics)
    return isinstance(wrapper, RecordEpisodeStatistics | monitor)


def _key(recorder: Any) -> str:
    """Return the name of the entry of `info` in which `recorder` reports a finished episode.

    A recorder is a wrapper that records episodes.
    """
    return str(getattr(recorder, "_stats_key", "episode"))


def _return(recorder: Any) -> float:
    """Return the sum of rewards so far in the episode that `recorder` is recording.

    A recorder is a wrapper that records episodes.
    """
    return float(recorder.episode_returns if hasattr(recorder, "_stats_key") else sum(recorder.rewards))


def _length(recorder: Any) -> int:
    return int(recorder.episode_lengths if hasattr(recorder, "_stats_key") else len(recorder.rewards))


def wrappers_of(env: Any) -> Iterator[Any]:
    """Yield `env`, of Gymnasium or PettingZoo, and the environments inside of it, from the outside inwards."""
    seen: list[Any] = []
    while env is not None and not any(env is one for one in seen):
        seen.append(env)
        yield env
        inside = (vars(env).get(name) for name in ("env", "aec_env", "par_env")) if hasattr(env, "__dict__") else ()
        env = next((one for one in inside if hasattr(one, "reset") and hasattr(one, "step")), None)


def refuse_shared(envs: Iterable[Any], made: dict[int, weakref.ref[Any]] = _made) -> None:
    """Raise SharedEnv if an earlier call of the user's function returned an environment of `envs`, or one inside of it.

    Streams would share the state of such an environment. `made` has the environments that users' functions have
    returned so far, by id, by default all in this process; those of `envs` are added.
    """
    for env in envs:
        for one in wrappers_of(env):
            known = made.get(id(one))
            if known is not None and known() is one:
                kind = type(one).__name__
                outside = "" if one is env else f"a {type(env).__name__} of "
                raise SharedEnv(
                    f"the function has returned {outside}an environment of type {kind} that it had returned before, "
                    "and streams would share its state: pass a function that makes a new one at each call, as "
                    f"ppax.envs.host({kind}, num_envs=8), or one existing environment as "
                    "gymnasium.vector.SyncVectorEnv([lambda: env])"
                )
        for one in wrappers_of(env):
            place = id(one)
            with contextlib.suppress(TypeError):  # a class with slots
                made[place] = weakref.ref(one, partial(_forget, made, place))


def _forget(made: dict[int, weakref.ref[Any]], place: int, gone: weakref.ref[Any]) -> None:
    made.pop(place, None)


def generators_of(env: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, generator) for each attribute of `env`, or of an environment inside it, that is a random generator.

    Generators are NumPy's; class attributes count, too. The check of seeds searches for a generator that two
    environments share, as a seed for one of them then changes the other.
    """
    for one in wrappers_of(env):
        for holder in (one, *type(one).__mro__):
            for name, x in getattr(holder, "__dict__", {}).items():
                if isinstance(x, np.random.Generator | np.random.RandomState):
                    yield name, x
