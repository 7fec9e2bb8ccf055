"""Batch of environments that are stepped one after the other, with next-step autoreset.

This file imports only files of ppax that need no JAX: worker processes load it too.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, spaces
from gymnasium.error import UnregisteredEnv

from ppax.envs.hosting.arrays import (
    Arrays,
    HostSpec,
    Layout,
    element_of,
    group_rows,
    leaves_of,
    mask_form,
    metrics_of,
    number_mismatches,
    space_mismatches,
    undeclared,
)
from ppax.envs.hosting.conventions import SharedEnv, new_adapted
from ppax.envs.hosting.faults import RAISED, Failure, close_all

NUMBERS = frozenset((float, int, np.float64, np.float32))  # types of a reward that need no further check
REGISTERED = (
    "an id that a script registers is not registered in other processes: pass its specification, "
    "ppax.envs.host(lambda spec=gymnasium.spec(ID): gymnasium.make(spec), ...), or name it, ppax.make('gymnasium/ID')"
)
WHOLE = frozenset((int, np.int64))  # types of a whole number that needs no check but that of its size
FLAGS = frozenset((bool, np.bool_))  # types of a flag that need no further check


class EnvBatch:
    """Batch of environments that this process steps one after the other.

    Their indices among all environments are `offset`, `offset + 1`, ... `arrays` are those of the batch's streams (one
    agent in one environment each). `worker` is the number of the process that steps the batch.
    """

    def __init__(
        self, factories: Sequence[Callable[[], Env]], offset: int, layout: Layout, arrays: Arrays, worker: int
    ):
        self.arrays, self.offset, self.worker, self.layout = arrays, offset, worker, layout
        self.spec = spec = layout.spec
        self.leaves, self.action_space = list(leaves_of(spec.observation_space)), spec.action_space
        self.single_array = len(self.leaves) == 1 and not self.leaves[0].path
        # with groups the info has an entry for each of them, None without masks
        self.has_masks, self.has_stats = bool(spec.sizes) or arrays.mask is not None, arrays.episode_stats is not None
        # of observations and masks, and forms of masks; with groups both are dicts by group
        self.axis: Any = () if spec.agents is None else (spec.agents,)
        self.forms: Any = None
        if spec.sizes:
            self.axis = {name: (size,) for name, size in spec.sizes}
            self.forms = {name: mask_form(spec.action_space[name]) for name, _ in spec.mask_size or ()}  # type: ignore[index]
        elif arrays.mask is not None:
            self.forms = mask_form(spec.action_space)
        self.fast_path = self.single_array and not self.axis and arrays.mask is None and arrays.episode_stats is None
        # dtypes that are known to fit each leaf, with any number
        self.dtypes = [{leaf.space_dtype} if leaf.takes(leaf.space_dtype) else set() for leaf in self.leaves]
        self.over, self.steps = [False] * len(factories), 0  # steps since `reset`
        # steps until the first episode is truncated, 0: it is not; and which environments have just been truncated
        self.left, self.cut = np.zeros(len(factories), int), [False] * len(factories)
        count = len(factories)
        # rows of each environment in the arrays: one, or one for each of its agents
        self.places: list[Any] = [i if spec.agents is None else layout.streams(slice(i, i + 1)) for i in range(count)]
        self.own_places = [self._own_places(place) for place in self.places]
        self.envs: list[Any] = []
        for i, factory in enumerate(factories):
            try:
                self.envs.append(new_adapted(factory))
            except SharedEnv as shared:
                raise Failure(offset + i, "its constructor", None, str(shared)) from None
            except UnregisteredEnv as unknown:
                raise Failure(offset + i, "its constructor", None, f"{unknown}: {REGISTERED}") from None
            except RAISED:
                raise Failure(offset + i, "its constructor", None, traceback.format_exc()) from None
            for name in ("observation_space", "action_space"):
                own, want = getattr(self.envs[-1], name), getattr(spec, name)
                if own != want:
                    text = f"its {name} is {own}; that of the first environment, {want}, must be that of all"
                    raise Failure(offset + i, "its constructor", None, text)

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Reset all environments of the batch, one seed each (None: no seed), and write the results into its arrays."""
        self.steps = 0
        for i, seed in enumerate(seeds):
            self._begin(i, seed)
        if self.arrays.logged is not None:
            self.arrays.logged[:] = True
            self.left[:] = [0 if seed is None else first_length(seed, self.spec.stagger) for seed in seeds]
        self.arrays.stepping[self.worker] = -1

    def step(self) -> None:
        """Step all environments of the batch with the actions in its arrays, and write the results into them.

        Environments whose episode has ended are reset instead.
        """
        self.steps += 1
        # this loop is the overhead of small environments: do attribute look-ups and writes once, outside of it
        arrays, envs, alone, once = self.arrays, self.envs, self.spec.agents is None, self.layout.repeats == 1
        rewards, terminations, truncations = arrays.reward, arrays.terminated, arrays.truncated
        over, places, at, write = self.over, self.places, arrays.stepping, self._write
        simple = arrays.obs[0] if self.fast_path else None
        shape, dtypes, names = self.leaves[0].shape, self.dtypes[0], self.spec.metrics
        if alone:
            arrays.first[:], arrays.valid[:], terminations[:], truncations[:] = False, True, False, False
        for i, action in enumerate(self._actions()):
            if over[i]:
                self._begin(i, None)
                continue
            at[self.worker], place = self.offset + i, places[i]
            try:
                obs, reward, terminated, truncated, info = envs[i].step(action) if once else self._repeated(i, action)
                if simple is None:
                    if not self._fits(obs):
                        self._check_obs(i, obs, "step", action)
                    write(i, obs, info, "step", action)
                else:  # the same, without function calls
                    plain = type(obs) is np.ndarray and obs.shape == shape and obs.dtype in dtypes
                    if not plain and not self._fits(obs):
                        self._check_obs(i, obs, "step", action)
                    if "action_mask" in info or "episode_stats" in info:
                        self._check_info(i, info, "step", action)
                    simple[place] = obs
                if alone and not (type(reward) in NUMBERS and type(terminated) in FLAGS and type(truncated) in FLAGS):
                    self._check_scalars(i, action, reward=reward, terminated=terminated, truncated=truncated)
                rewards[place] = reward
                if not alone:
                    terminations[place], truncations[place] = terminated, truncated
                    arrays.first[place], arrays.valid[place], over[i] = info["agent_first"], info["valid"], info["over"]
                    for agent in np.flatnonzero(terminated | truncated) if names else ():
                        arrays.metrics[place][agent] = metrics_of(info["agent_infos"][agent], names)
                elif terminated or truncated:
                    terminations[place], truncations[place], over[i] = terminated, truncated, True
                    if names:
                        self._write_metrics(place, info)
            except Failure:
                raise
            except RAISED:
                raise self._failure(i, "step", action, traceback.format_exc()) from None
        if arrays.logged is not None:
            self._truncate_first()
        arrays.stepping[self.worker] = -1

    def _truncate_first(self) -> None:
        """Truncate, for all agents, first episodes that have reached the random length at which `stagger` ends them.

        These episodes are marked as not to be logged.
        """
        arrays = self.arrays
        arrays.logged[:] = True  # type: ignore[index]
        due, self.left = np.flatnonzero(self.left == 1), np.maximum(self.left - 1, 0)
        for i in due:
            place = self.places[i]
            running = ~(arrays.terminated[place] | arrays.truncated[place])
            if not self.spec.turns:  # else agents that wait have an episode, too
                running &= arrays.valid[place]
            arrays.truncated[place] |= running
            arrays.logged[place] = ~running  # type: ignore[index]
            if arrays.episode_stats is not None:  # sums of a recorded episode start anew
                arrays.episode_stats.over[place] |= running
            self.cut[i] = not self.over[i]
            self.over[i] = True

    def close(self) -> None:
        """Close every environment of the batch, even if one of them fails to close."""
        close_all([env.close for env in self.envs])

    def _repeated(self, i: int, action: Any) -> Any:
        """Step environment `i` with the same action `layout.repeats` times, or until an episode ends.

        Returns the last step's result, with the rewards summed.
        """
        out = self.envs[i].step(copy.deepcopy(action))  # an environment may write into its action
        for _ in range(self.layout.repeats - 1):
            _, reward, terminated, truncated, info = out
            if np.any(terminated) or np.any(truncated) or np.any(info.get("agent_first", False)):
                break
            obs, next_reward, terminated, truncated, next_info = self.envs[i].step(copy.deepcopy(action))
            if "episode_stats" in info:
                (logged_reward, _), (next_logged, over) = info["episode_stats"], next_info["episode_stats"]
                next_info = next_info | {"episode_stats": (logged_reward + next_logged, over)}
            out = obs, reward + next_reward, terminated, truncated, next_info
        return out

    def _begin(self, i: int, seed: int | None) -> None:
        arrays, place = self.arrays, self.places[i]
        arrays.stepping[self.worker] = self.offset + i
        try:
            obs, info = self.envs[i].reset(seed=seed)
            self._check_obs(i, obs, "reset", None)
            self._write(i, obs, info, "reset", None)
            arrays.reward[place], arrays.terminated[place], arrays.truncated[place] = 0.0, False, False
            arrays.first[place], arrays.valid[place] = info.get("agent_first", True), False
        except Failure:
            raise
        except RAISED:
            raise self._failure(i, "reset", None, traceback.format_exc()) from None
        if arrays.episode_stats is not None and np.any(arrays.episode_stats.over[place]):
            # a recorder inside of a time limit reports here the end of the episode that the limit has cut
            if self.cut[i]:
                arrays.episode_stats.over[place] = False
            elif self.spec.metrics and np.isnan(arrays.metrics[place]).any():
                names = ", ".join(self.spec.metrics)
                text = f"info lacks one of {names} at the end of an episode that a time limit cut"
                raise self._failure(i, "step", None, f"{text}: give it there, or leave it out of info_metrics")
        self.over[i], self.cut[i], self.left[i] = False, False, 0

    def _failure(self, i: int, verb: str, action: Any, cause: str) -> Failure:
        return Failure(self.offset + i, verb, action, cause, self.steps)

    def _check_obs(self, i: int, obs: Any, verb: str, action: Any) -> None:
        """Raise Failure if the observation `obs` of environment `i` does not belong to its space.

        NumPy would broadcast a wrong shape silently. `verb` is the call that returned the observation, "reset" or
        "step", and `action` the step's action, both for the error.
        """
        for problem in space_mismatches(self.spec.observation_space, obs, "its observation", self.axis):
            raise self._failure(i, verb, action, problem)
        for leaf, dtypes in zip(self.leaves, self.dtypes, strict=True):
            x = np.asarray(leaf.of(obs))
            for problem in number_mismatches(leaf, x, "its observation"):
                raise self._failure(i, verb, action, problem)
            if leaf.takes(x.dtype):
                dtypes.add(x.dtype)

    def _fits(self, obs: Any) -> bool:
        """Return True if the observation certainly belongs to its space; if False, `_check_obs` has to decide.

        This is a fast test, which is made at every step.
        """
        for leaf, dtypes in zip(self.leaves, self.dtypes, strict=True):
            x, axis = leaf.of(obs), self.axis[leaf.path[0]] if self.spec.sizes else self.axis
            if type(x) in WHOLE and leaf.space_dtype.kind in "iu" and not (leaf.shape or axis):
                if leaf.low is None or leaf.low <= x <= leaf.high:
                    continue
                return False
            if getattr(x, "shape", None) != (*axis, *leaf.shape) or x.dtype not in dtypes:
                return False
        return True

    def _check_scalars(self, i: int, action: Any, **given: Any) -> None:
        """Raise Failure if reward or flags of environment `i`, given by name, are not single real numbers."""
        for name, x in given.items():
            array = np.asarray(x)
            if array.shape != () or array.dtype.kind not in "fiub":
                text = f"its {name} is {array.dtype}{list(array.shape)}: {x!r}; it must be one number"
                raise self._failure(i, "step", action, text)

    def _check_info(self, i: int, info: dict[str, Any], verb: str, action: Any) -> None:
        """Raise Failure if `info` has an action mask or episode statistics and the first reset had none, or vice versa.

        The first reset has decided whether the arrays have room for them. `verb` is the call that returned `info`,
        "reset" or "step", and `action` the step's action, both for the error.
        """
        for problem in undeclared(info, self.has_masks, self.has_stats):
            raise self._failure(i, verb, action, problem)
        for name, _ in self.spec.sizes:
            if info["action_mask"][name] is not None and (self.arrays.mask or {}).get(name) is None:
                text = f"group {name!r} has action masks here and had none after the first reset: give them always"
                raise self._failure(i, verb, action, text)

    def _write(self, i: int, obs: Any, info: dict[str, Any], verb: str, action: Any) -> None:
        arrays, place = self.arrays, self.places[i]
        self._check_info(i, info, verb, action)
        if self.single_array:
            arrays.obs[0][place] = obs
        else:
            own_places, _ = self.own_places[i]
            for leaf, array, own in zip(self.leaves, arrays.obs, own_places, strict=True):
                array[own] = leaf.of(obs)
        if self.spec.sizes:
            for name, form in self.forms.items():
                given, own = info["action_mask"][name], arrays.mask[name]
                own[self.own_places[i][1][name]] = True if given is None else _stacked(form, given)  # None: absent
        elif arrays.mask is not None:
            given = info["action_mask"]
            arrays.mask[place] = _stacked(self.forms, given) if self.axis else self.forms(given)
        if arrays.episode_stats is not None:
            arrays.episode_stats.reward[place], arrays.episode_stats.over[place] = info["episode_stats"]

    def _write_metrics(self, place: Any, info: dict[str, Any]) -> None:
        """Write the metrics in the `info` of an episode's last step to the row `place` of the arrays.

        If a recorder of episodes inside of a time limit has not seen this end, it reports it at the reset that follows,
        whose row then has these metrics. The end may also be a loss of a life, at which `info` may lack them: they are
        then NaN.
        """
        try:
            self.arrays.metrics[place] = metrics_of(info, self.spec.metrics)
        except ValueError:
            if info.get("episode_stats", (0.0, True))[1]:
                raise
            self.arrays.metrics[place] = np.nan

    def _own_places(self, place: Any) -> tuple[list[Any], Any]:
        """Return where one environment's data lie, in each array of observations (a list) and in the arrays of masks.

        `place` is the environment's index in arrays of all streams, or with several agents the slice of its streams.
        Without groups of agents, all entries of the list and the second result are equal to `place`. With groups, an
        array of observations or masks has only the streams of one group: the list has different slices, and the second
        result is a dict of slices by group.
        """
        if self.spec.sizes:
            return self.layout.places(self.spec.observation_space, place), group_rows(self.spec.sizes, place)
        return [place] * len(self.leaves), place

    def _actions(self) -> Iterator[Any]:
        """Return an iterator over the actions of the environments, one each.

        With an agent axis each of them is a list of the agents' actions.
        """
        space, arrays = self.action_space, self.arrays.action
        if self.spec.agents is None:
            return _elements(space, arrays)
        if not self.spec.sizes:
            each = _elements(space, arrays)
            return ([next(each) for _ in range(self.spec.agents)] for _ in self.envs)  # type: ignore[arg-type]
        owners = [leaf.path[0] for leaf in leaves_of(space)]
        groups = []
        for name, size in self.spec.sizes:
            own = [array for owner, array in zip(owners, arrays, strict=True) if owner == name]
            groups.append((_elements(space[name], own), size))  # type: ignore[index]
        return ([next(each) for each, size in groups for _ in range(size)] for _ in self.envs)


def open_batches(task: bytes, memory: Any = None) -> Iterator[EnvBatch]:
    """Yield one by one the new batches of environments of this process, which `task` (workers.pickled) describes.

    The arrays of the batches lie in `memory`, or in new memory if it is None.
    """
    import cloudpickle

    (num_envs, workers, repeats), spec, worker, owned = cloudpickle.loads(task)
    layout = Layout(num_envs, workers, repeats, HostSpec(*spec))
    arrays = layout.make(memory)  # rows of all streams, so that indices are global; only those of `owned` are used
    for envs, factories in owned:
        yield EnvBatch(factories, envs.start, layout, layout.rows(arrays, layout.streams(envs)), worker)


def first_length(seed: int, longest: int) -> int:
    """Return the random length, from 1 to `longest`, at which an environment's first episode is truncated, by its seed.

    With such lengths environments that start together do not end their episodes together.
    """
    # the second number: other draws than those of an environment, which is given the seed alone
    return int(np.random.default_rng([seed, 1]).integers(1, longest + 1))


def _stacked(form: Any, masks: Sequence[Any]) -> np.ndarray:
    """Return the action masks of A agents, which `form` converts to flat ones, as one array [A, n].

    None in place of a mask allows everything.
    """
    return np.stack([np.ones(form.size, bool) if mask is None else form(mask) for mask in masks])


def _elements(space: spaces.Space, arrays: list[np.ndarray]) -> Iterator[Any]:
    """Yield one action of `space` for each stream, with the types of `space.sample()`.

    `arrays` are the actions of n streams, one array [n, ...] for each array in an element of `space`, in the order of
    `leaves_of(space)`: a Dict or Tuple space has several.
    """
    if isinstance(space, spaces.Discrete | spaces.Box):
        return iter(arrays[0].copy())  # a copy: an environment may keep its action
    rows = zip(*(array.copy() for array in arrays), strict=True)
    return (element_of(space, iter(row)) for row in rows)
