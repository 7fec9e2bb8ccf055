"""Several Gymnasium environments stepped one after the other, with next-step autoreset.

Nothing else of ppax is imported: worker processes load this file too, and shall start fast and stay small.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env, spaces

ALIGN = 64  # bytes between the beginnings of arrays in shared memory, at least


class Leaf(NamedTuple):
    """One array of a space's elements: where it stands in them, and what it is here, where float64 is float32."""

    path: tuple[str | int, ...]  # keys of Dict, places in Tuple; () for an element that is one array
    shape: tuple[int, ...]
    dtype: np.dtype
    given: np.dtype  # as the space has it

    def of(self, element: Any) -> Any:
        """Its array in an element."""
        for step in self.path:
            element = element[step]
        return element


def leaves_of(space: spaces.Space, path: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    """All arrays of elements of `space`, in the order in which JAX flattens them; a space without them gives none."""
    if isinstance(space, spaces.Dict):
        for key in sorted(space.spaces):
            yield from leaves_of(space.spaces[key], (*path, key))
    elif isinstance(space, spaces.Tuple):
        for i, inner in enumerate(space.spaces):
            yield from leaves_of(inner, (*path, i))
    elif space.shape is not None and space.dtype is not None:
        narrow = {np.dtype(np.float64): np.float32, np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32}
        given = np.dtype(space.dtype)
        yield Leaf(path, tuple(space.shape), np.dtype(narrow.get(given, given)), given)


def element_of(space: spaces.Space, leaves: Iterator[Any]) -> Any:
    """The element of `space` that is made of `leaves`: the inverse of taking them out."""
    if isinstance(space, spaces.Dict):
        parts = {key: element_of(space.spaces[key], leaves) for key in sorted(space.spaces)}
        return {key: parts[key] for key in space.spaces}
    if isinstance(space, spaces.Tuple):
        return tuple(element_of(inner, leaves) for inner in space.spaces)
    return next(leaves)


class Arrays(NamedTuple):
    """What environments and policy exchange, E environments; in shared memory where there are worker processes."""

    obs: list[np.ndarray]  # [E, ...] each
    action: list[np.ndarray]  # [E, ...] each
    reward: np.ndarray  # [E] float32
    terminated: np.ndarray  # [E] bool
    truncated: np.ndarray  # [E]
    begun: np.ndarray  # [E] this step was a reset: `obs` opens an episode
    mask: np.ndarray | None  # [E, n] allowed actions
    at: np.ndarray  # [workers] int32, which environment is being stepped; -1: none

    def act(self, action: Sequence[np.ndarray]) -> None:
        """Write the next actions."""
        for array, given in zip(self.action, action, strict=True):
            array[...] = given

    def rows(self, rows: slice) -> Arrays:
        """Views of some environments."""
        obs, action = ([x[rows] for x in leaves] for leaves in (self.obs, self.action))
        reward, terminated, truncated, begun = (
            x[rows] for x in (self.reward, self.terminated, self.truncated, self.begun)
        )
        mask = None if self.mask is None else self.mask[rows]
        return Arrays(obs, action, reward, terminated, truncated, begun, mask, self.at)


class Layout(NamedTuple):
    """Shapes of `Arrays`."""

    num_envs: int
    workers: int
    repeats: int  # times that each action is taken
    observation_space: spaces.Space
    action_space: spaces.Space
    mask_size: int | None  # None: the environments give no masks

    def make(self, memory: Any = None) -> Arrays:
        """The arrays, in `memory` or in new memory."""
        memory = bytearray(self.nbytes()) if memory is None else memory
        at, made = 0, []
        for shape, dtype in self._all():
            made.append(np.ndarray(shape, dtype, memory, at))
            at += _padded(made[-1].nbytes)
        obs, action = (sum(1 for _ in leaves_of(space)) for space in (self.observation_space, self.action_space))
        mask = None if self.mask_size is None else made.pop()
        reward, terminated, truncated, begun, at_work = made[obs + action :]
        return Arrays(made[:obs], made[obs : obs + action], reward, terminated, truncated, begun, mask, at_work)

    def nbytes(self) -> int:
        """Memory that they take."""
        return sum(_padded(int(np.prod(shape)) * np.dtype(dtype).itemsize) for shape, dtype in self._all())

    def _all(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        for leaf in leaves_of(self.observation_space):
            yield (self.num_envs, *leaf.shape), leaf.dtype
        for leaf in leaves_of(self.action_space):
            yield (self.num_envs, *leaf.shape), leaf.given
        yield (self.num_envs,), np.float32
        yield from [((self.num_envs,), np.bool_)] * 3
        yield (self.workers,), np.int32
        if self.mask_size is not None:
            yield (self.num_envs, self.mask_size), np.bool_


def _padded(size: int) -> int:
    return -(-max(size, 1) // ALIGN) * ALIGN


class Failure(Exception):
    """An environment raised an exception; `report` says which, when and how."""

    def __init__(self, index: int, verb: str, action: Any, cause: str):
        self.report = {"index": index, "verb": verb, "action": repr(action), "cause": cause}
        super().__init__(describe(self.report))


def describe(report: dict[str, Any]) -> str:
    """A failure as a message."""
    when = "reset" if report["verb"] == "reset" else f"step, action {report['action']}"
    return f"environment {report['index']} failed in {when}\n{report['cause']}"


class Group:
    """Environments with numbers from `first` on, stepped in turn."""

    def __init__(self, factories: Sequence[Callable[[], Env]], first: int, layout: Layout, arrays: Arrays, worker: int):
        self.arrays, self.first, self.worker = arrays, first, worker
        self.leaves, self.action_space = list(leaves_of(layout.observation_space)), layout.action_space
        self.repeats = layout.repeats
        self.discrete = isinstance(layout.action_space, spaces.Discrete)
        self.plain = len(self.leaves) == 1 and not self.leaves[0].path
        self.over = [False] * len(factories)
        self.envs: list[Env] = []
        for i, factory in enumerate(factories):
            try:
                self.envs.append(factory())
            except Exception:
                raise Failure(first + i, "reset", None, traceback.format_exc()) from None
            for name in ("observation_space", "action_space"):
                own, want = getattr(self.envs[-1], name), getattr(layout, name)
                if own != want:
                    text = f"its {name} is {own}; that of the first environment, {want}, must be that of all"
                    raise Failure(first + i, "reset", None, text)

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Begin an episode everywhere."""
        for i, seed in enumerate(seeds):
            self._begin(i, seed)
        self.arrays.at[self.worker] = -1

    def step(self) -> None:
        """One step everywhere; where an episode is over, the next one begins instead."""
        arrays, envs = self.arrays, self.envs
        for i, action in enumerate(self._actions()):
            if self.over[i]:
                self._begin(i, None)
                continue
            arrays.at[self.worker] = self.first + i
            try:
                obs, reward, terminated, truncated, info = envs[i].step(action)
                for _ in range(self.repeats - 1):
                    if terminated or truncated:
                        break
                    obs, more, terminated, truncated, info = envs[i].step(action)
                    reward += more
                self._write(i, obs, info)
                arrays.reward[i] = reward
            except Exception:
                raise Failure(self.first + i, "step", action, traceback.format_exc()) from None
            arrays.terminated[i], arrays.truncated[i], arrays.begun[i] = terminated, truncated, False
            self.over[i] = bool(terminated or truncated)
        arrays.at[self.worker] = -1

    def close(self) -> None:
        """Close every environment; one that fails to close holds up none of the others."""
        for env in self.envs:
            try:
                env.close()
            except Exception:
                traceback.print_exc()

    def _begin(self, i: int, seed: int | None) -> None:
        arrays = self.arrays
        arrays.at[self.worker] = self.first + i
        try:
            obs, info = self.envs[i].reset(seed=seed)
            self._write(i, obs, info)
        except Exception:
            raise Failure(self.first + i, "reset", None, traceback.format_exc()) from None
        arrays.reward[i], arrays.terminated[i], arrays.truncated[i], arrays.begun[i] = 0.0, False, False, True
        self.over[i] = False

    def _write(self, i: int, obs: Any, info: dict[str, Any]) -> None:
        if self.plain:
            self.arrays.obs[0][i] = obs
        else:
            for leaf, array in zip(self.leaves, self.arrays.obs, strict=True):
                array[i] = leaf.of(obs)
        if self.arrays.mask is not None:
            self.arrays.mask[i] = flat_mask(info["action_mask"])

    def _actions(self) -> Iterator[Any]:
        if self.discrete:
            return iter(self.arrays.action[0].tolist())  # as one steps by hand; to check them is cheaper, too
        if isinstance(self.action_space, spaces.Box):
            return iter(self.arrays.action[0].copy())  # an environment may keep what it is given
        rows = zip(*(array.copy() for array in self.arrays.action), strict=True)
        return (element_of(self.action_space, iter(row)) for row in rows)


def flat_mask(mask: Any) -> np.ndarray:
    """A mask, or a tuple of them, one for each component, as one vector."""
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    return np.concatenate([np.asarray(part, bool).reshape(-1) for part in parts])
