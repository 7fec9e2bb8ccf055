"""Arrays for observations, actions and flags of host environments, in memory that processes can share.

This file imports nothing else of ppax: worker processes load it too, and must start fast and stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

ALIGN = 64  # bytes; alignment of arrays in shared memory
FLAGS = ("reward", "terminated", "truncated", "first", "valid", "metrics")  # fields of Arrays of all streams, [B, ...]


class Leaf(NamedTuple):
    """One array of a space's elements: its path in an element, its shape, and its dtypes (64 bits become 32 here)."""

    path: tuple[str | int, ...]  # keys of Dict, indices of Tuple; () for an element that is one array
    shape: tuple[int, ...]
    dtype: np.dtype
    space_dtype: np.dtype  # dtype of the space

    def of(self, element: Any) -> Any:
        """Return this array of an element."""
        for step in self.path:
            element = element[step]
        return element


def in_32_bits(dtype: np.dtype) -> np.dtype:
    """Return `dtype` with at most 32 bits, with JAX_ENABLE_X64 or without."""
    return np.dtype(f"{dtype.name[:-2]}32") if dtype in (np.float64, np.int64, np.uint64) else dtype


def leaves_of(space: spaces.Space, path: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    """Yield all arrays of elements of `space`, in JAX's order of leaves; none for spaces without a shape."""
    if isinstance(space, spaces.Dict):
        for key in sorted(space.spaces):
            yield from leaves_of(space.spaces[key], (*path, key))
    elif isinstance(space, spaces.Tuple):
        for i, inner in enumerate(space.spaces):
            yield from leaves_of(inner, (*path, i))
    elif space.shape is not None and space.dtype is not None:
        given = np.dtype(space.dtype)
        yield Leaf(path, tuple(space.shape), in_32_bits(given), given)


def element_of(space: spaces.Space, leaves: Iterator[Any]) -> Any:
    """Build the element of `space` with these `leaves`, in the order of `leaves_of`."""
    if isinstance(space, spaces.Dict):
        parts = {key: element_of(space.spaces[key], leaves) for key in sorted(space.spaces)}
        return {key: parts[key] for key in space.spaces}
    if isinstance(space, spaces.Tuple):
        return tuple(element_of(inner, leaves) for inner in space.spaces)
    return next(leaves)


def group_rows(sizes: Sequence[tuple[str, int]], rows: slice) -> dict[str, slice]:
    """Return the rows that the streams `rows`, of whole environments, have in each group's own arrays [E * A_g, ...].

    `sizes` are the name and the number of agents of each group; streams are ordered by environment, then by group.
    """
    agents = sum(size for _, size in sizes)
    return {name: slice(rows.start // agents * size, rows.stop // agents * size) for name, size in sizes}


def each_group(function: Callable[..., Any], mask: Any, *others: Any) -> Any:
    """Apply `function` to a mask, or to those of all groups in a dict; None stays None. `others` have its structure."""
    if isinstance(mask, dict):
        return {name: each_group(function, x, *(other[name] for other in others)) for name, x in mask.items()}
    return None if mask is None else function(mask, *others)


def space_mismatches(space: spaces.Space, element: Any, name: str, axis: Any = ()) -> Iterator[str]:
    """Yield the reasons why an element does not belong to `space`: entries, shapes, dtypes; one sentence each.

    `axis` is the shape of the batch, if `element` is one; a dict of them by group for a dict of batches. NumPy would
    broadcast a wrong shape silently.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        kind: Any = dict if isinstance(space, spaces.Dict) else tuple
        parts = space.spaces if kind is dict else dict(enumerate(space.spaces))
        if not isinstance(element, kind | list if kind is tuple else kind):
            yield f"{name} is a {type(element).__name__}, and its space a {type(space).__name__}: a {kind.__name__}"
            return
        keys = list(element) if kind is dict else list(range(len(element)))
        if sorted(map(str, keys)) != sorted(map(str, parts)):
            yield f"{name} has the entries {keys}, and its space {list(parts)}"
            return
        for key, inner in parts.items():
            own_axis = axis[key] if isinstance(axis, dict) else axis
            yield from space_mismatches(inner, element[key], f"{name}[{key!r}]", own_axis)
        return
    for leaf in leaves_of(space):
        try:
            x = np.asarray(element)
        except ValueError:  # lists of several lengths
            x = np.asarray(None)
        if x.dtype == object:
            yield f"{name} is a {type(element).__name__}, not an array {leaf.space_dtype}{list(leaf.shape)}"
        elif x.shape != (*axis, *leaf.shape):
            yield f"{name} has the shape {list(x.shape)}, its space {[*axis, *leaf.shape]}"
        elif not np.can_cast(x.dtype, leaf.space_dtype, "same_kind"):
            yield f"{name} is {x.dtype}, which cannot be cast to {leaf.space_dtype}, the dtype of its space"


class EpisodeStats(NamedTuple):
    """Reward and episode end that are logged, if learning uses others: `info["episode_stats"]` of an environment."""

    reward: np.ndarray  # [B] float32
    over: np.ndarray  # [B] the logged episode has ended


class Arrays(NamedTuple):
    """Arrays of B streams that environments and policy exchange; in shared memory if there are worker processes."""

    obs: list[np.ndarray]  # [B, ...] each; with groups of agents, those of one group each, [E * A_g, ...]
    action: list[np.ndarray]  # [B, ...] each
    reward: np.ndarray  # [B] float32
    terminated: np.ndarray  # [B] bool
    truncated: np.ndarray  # [B]
    first: np.ndarray  # [B] `obs` is the first of an episode
    valid: np.ndarray  # [B] the action was applied: no reset, and no absent agent
    mask: Any  # [B, n] allowed actions; by group with groups; None: all
    episode_stats: EpisodeStats | None
    metrics: np.ndarray  # [B, k] float32, written at each episode's last step: entries `Layout.metrics` of info
    stepping: np.ndarray  # [workers] int32, index of the environment that is being stepped; -1: none

    def act(self, action: Sequence[np.ndarray]) -> None:
        """Write the next actions."""
        for array, given in zip(self.action, action, strict=True):
            array[...] = given


class Layout(NamedTuple):
    """Shapes of `Arrays`."""

    num_envs: int
    workers: int
    repeats: int  # action repeat
    observation_space: spaces.Space  # of one stream
    action_space: spaces.Space
    mask_size: Any  # entries of an action mask; with groups (name, entries) of those with masks; None: no masks
    has_episode_stats: bool  # the environments give info["episode_stats"]
    agents: int | None  # number of agents in each environment; None: one, without an agent axis
    metrics: tuple[str, ...] = ()  # entries of `info` that are logged, from the last step of each episode
    names: tuple[str, ...] = ()  # of the agents
    sizes: tuple[tuple[str, int], ...] = ()  # name and number of agents of each group; () without groups
    turns: bool = False  # agents act in turns

    def places(self, space: spaces.Space, rows: slice) -> list[slice]:
        """Return the rows of some streams in each array of elements of `space`."""
        own = group_rows(self.sizes, rows) if self.sizes else {}
        return [own[leaf.path[0]] if own else rows for leaf in leaves_of(space)]  # type: ignore[index]

    def rows(self, arrays: Arrays, rows: slice) -> Arrays:
        """Return views of some streams."""
        views: dict[str, Any] = {
            name: [x[own] for x, own in zip(getattr(arrays, name), self.places(space, rows), strict=True)]
            for name, space in (("obs", self.observation_space), ("action", self.action_space))
        }
        views |= {name: getattr(arrays, name)[rows] for name in FLAGS}
        own_rows = group_rows(self.sizes, rows) if self.sizes else rows
        mask = each_group(lambda x, own: x[own], arrays.mask, own_rows)
        stats = arrays.episode_stats and EpisodeStats(*(x[rows] for x in arrays.episode_stats))
        return arrays._replace(**views, mask=mask, episode_stats=stats)

    def streams(self, envs: slice) -> slice:
        """Return the streams of some environments."""
        return slice(envs.start * (self.agents or 1), envs.stop * (self.agents or 1))

    def make(self, memory: Any = None) -> Arrays:
        """Create the arrays in `memory`, or in new memory."""
        memory = bytearray(self.nbytes()) if memory is None else memory
        offset, made = 0, []
        for shape, dtype in self._all():
            made.append(np.ndarray(shape, dtype, memory, offset))
            offset += _padded(made[-1].nbytes)
        obs, action = (sum(1 for _ in leaves_of(space)) for space in (self.observation_space, self.action_space))
        rest = made[obs + action :]
        stepping, metrics = rest.pop(0), rest.pop(0)
        flags: Any = [rest.pop(0) for _ in range(5)]
        episode_stats = EpisodeStats(rest.pop(0), rest.pop(0)) if self.has_episode_stats else None
        masks = dict(zip([name for name, _, _ in self._masks()], rest, strict=True))
        mask = {name: masks.get(name) for name, _ in self.sizes} if masks and self.sizes else masks.get("")
        return Arrays(*[made[:obs], made[obs : obs + action], *flags, mask, episode_stats, metrics, stepping])

    def nbytes(self) -> int:
        """Return the memory that the arrays take, in bytes."""
        return sum(_padded(int(np.prod(shape)) * np.dtype(dtype).itemsize) for shape, dtype in self._all())

    def _all(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        streams = self.num_envs * (self.agents or 1)
        for space, kind in ((self.observation_space, "dtype"), (self.action_space, "space_dtype")):
            for leaf, own in zip(leaves_of(space), self.places(space, slice(0, streams)), strict=True):
                yield (own.stop, *leaf.shape), getattr(leaf, kind)
        yield (self.workers,), np.int32
        yield (streams, len(self.metrics)), np.float32
        yield from [((streams,), np.float32), *[((streams,), np.bool_)] * 4]
        if self.has_episode_stats:
            yield from [((streams,), np.float32), ((streams,), np.bool_)]
        yield from (((rows, entries), np.bool_) for _, rows, entries in self._masks())

    def _masks(self) -> list[tuple[str, int, int]]:
        """Group, rows and entries of each mask array."""
        agents, one = dict(self.sizes) or {"": self.agents or 1}, self.mask_size and (("", self.mask_size),)
        return [(name, self.num_envs * agents[name], n) for name, n in (self.mask_size if self.sizes else one) or ()]


def _padded(size: int) -> int:
    return -(-max(size, 1) // ALIGN) * ALIGN


def flat_mask(mask: Any, size: int | None = None) -> np.ndarray:
    """Flatten a mask, or a tuple with one mask for each component; ValueError for another size, or entry than 0, 1."""
    parts = [np.asarray(part).reshape(-1) for part in (mask if isinstance(mask, tuple | list) else (mask,))]
    given = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if size is not None and given.size != size:  # NumPy would broadcast a single entry to all actions
        raise ValueError(f'info["action_mask"] has {given.size} entries; the action space has {size}')
    flat = given.astype(bool, copy=False)
    # bytes are compared first: that takes a third of the time
    if flat is not given and flat.astype(given.dtype).tobytes() != given.tobytes() and np.any(wrong := given != flat):
        kinds = "1 or True where an action is allowed, 0 or False where not (of logits: logits > -np.inf)"
        raise ValueError(f'info["action_mask"] has the entry {given[wrong][0]}: must be {kinds}')
    return flat


def undeclared(info: dict[str, Any], mask: bool, episode_stats: bool, axis: tuple[int, ...] = ()) -> Iterator[str]:
    """Yield the entries of `info` that come only now or came only with the first reset; one sentence each."""
    for name, declared in (("action_mask", mask), ("episode_stats", episode_stats)):
        if (name in info) != declared:
            now, first = ("comes", "did not come") if name in info else ("is missing", "came")
            remedy = "give it at every reset and step, or never"
            yield f'info["{name}"] {now} here and {first} with the first reset: {remedy}'


def metrics_of(info: dict[str, Any], names: Sequence[str]) -> list[float]:
    """Return the entries `names` of the `info` of an episode's last step; ValueError if one is no number or missing."""
    found = []
    for name in names:
        x = np.asarray(info.get(name))
        if x.size != 1 or x.dtype.kind not in "fiub":
            given = f"is {info[name]!r}, not a number," if name in info else "is missing"
            raise ValueError(
                f'info["{name}"] {given} at the end of an episode: give it there, or leave it out of info_metrics'
            )
        found.append(float(x.item()))
    return found
