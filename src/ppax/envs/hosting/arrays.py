"""Arrays for observations, actions and flags of host environments, in memory that processes can share.

This file imports nothing else of ppax: worker processes load it too, and must start fast and stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

ALIGN = 64  # bytes; alignment of arrays in shared memory
INFO_MASK = 'info["action_mask"]'  # where environments give their masks
BY_STREAM = ("reward", "terminated", "truncated", "first", "valid", "metrics")  # fields of Arrays, [B, ...]


class Leaf(NamedTuple):
    """Description of one array in the elements of a space: its path in an element, its shape, dtypes and bounds.

    An element is an observation or an action; one of a Dict or Tuple space consists of several arrays. Arrays of 64
    bits are stored with 32 bits.
    """

    path: tuple[str | int, ...]  # keys of Dict, indices of Tuple; () for an element that is one array
    shape: tuple[int, ...]
    dtype: np.dtype
    space_dtype: np.dtype  # dtype of the space
    low: Any = None  # smallest whole number that may be given: first category, least number of `dtype`; None: floats
    high: Any = None  # largest
    categorical: bool = False

    def of(self, element: Any) -> Any:
        """Return the array that this leaf describes in `element`, an element of the space: that at its path."""
        for step in self.path:
            element = element[step]
        return element

    @property
    def wide(self) -> bool:
        """Whether integers of this array are stored as float32, because the bounds of their space exceed 32 bits."""
        return self.dtype.kind == "f" and self.space_dtype.kind in "iu"

    def takes(self, dtype: np.dtype) -> bool:
        """Return whether every number of `dtype` can be stored in this array, so that its numbers need no check.

        It is False if a number of `dtype` may be too large for the array's dtype, and if the array has the categories
        of a discrete space, as a number may be none of these.
        """
        return self.low is None or (not self.categorical and np.can_cast(dtype, self.dtype, "safe"))


def in_32_bits(dtype: np.dtype) -> np.dtype:
    """Return `dtype` with at most 32 bits: float64 as float32, int64 as int32."""
    return np.dtype(f"{dtype.name[:-2]}32") if dtype in (np.float64, np.int64, np.uint64) else dtype


def leaves_of(space: spaces.Space, path: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    """Yield a description of each array in the elements of `space`, in JAX's order of leaves.

    A space without a shape has no arrays. `path` is the place of `space` in the elements of an outer space.
    """
    if isinstance(space, spaces.Dict):
        for key in sorted(space.spaces):
            yield from leaves_of(space.spaces[key], (*path, key))
    elif isinstance(space, spaces.Tuple):
        for i, inner in enumerate(space.spaces):
            yield from leaves_of(inner, (*path, i))
    elif space.shape is not None and space.dtype is not None:
        yield _leaf_of(space, path, tuple(space.shape), np.dtype(space.dtype))


def _leaf_of(space: Any, path: tuple[str | int, ...], shape: tuple[int, ...], given: np.dtype) -> Leaf:
    """Return the description of the one array of an elementary space, such as a Box.

    `path` is the array's place in an element of the outer space, `shape` its shape, and `given` the dtype of the space.
    Integers of 64 bits become integers of 32 bits if the bounds of the space fit into 32 bits, and float32 otherwise:
    networks read float32, while a cast to int32 would give other numbers.
    """
    dtype = in_32_bits(given)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        low, high = space.start, space.start + counts - 1
        if not shape:  # faster to compare
            low, high = int(low), int(high)
        return Leaf(path, shape, dtype, given, low, high, categorical=True)
    if dtype.kind not in "iu":
        return Leaf(path, shape, dtype, given)
    limits = np.iinfo(dtype)
    if dtype != given and isinstance(space, spaces.Box):
        low, high = space.low.min(initial=0), space.high.max(initial=0)
        if low < limits.min or high > limits.max:
            return Leaf(path, shape, np.dtype(np.float32), given)
    return Leaf(path, shape, dtype, given, limits.min, limits.max)


def element_of(space: spaces.Space, leaves: Iterator[Any]) -> Any:
    """Return the element of `space` that has these `leaves`, its arrays in the order of `leaves_of`."""
    if isinstance(space, spaces.Dict):
        parts = {key: element_of(space.spaces[key], leaves) for key in sorted(space.spaces)}
        return {key: parts[key] for key in space.spaces}
    if isinstance(space, spaces.Tuple):
        return tuple(element_of(inner, leaves) for inner in space.spaces)
    return next(leaves)


def group_rows(sizes: Sequence[tuple[str, int]], rows: slice) -> dict[str, slice]:
    """Return, by group of agents, the slice of the group's arrays in which the streams `rows` lie.

    A stream is one agent in one environment. The streams of all groups are ordered by environment, then by group.
    `rows` is a slice of these streams, and consists of whole environments: all streams of each of them. The arrays of a
    group have only the streams of the group's agents. `sizes` are the name and the number of agents of each group.
    """
    agents = sum(size for _, size in sizes)
    return {name: slice(rows.start // agents * size, rows.stop // agents * size) for name, size in sizes}


def each_group(function: Callable[..., Any], mask: Any, *others: Any) -> Any:
    """Return `function(mask, *others)`, or None if `mask` is None; if `mask` is a dict by group, a dict of results.

    All of `others` have the structure of `mask`.
    """
    if isinstance(mask, dict):
        return {name: each_group(function, x, *(other[name] for other in others)) for name, x in mask.items()}
    return None if mask is None else function(mask, *others)


def space_mismatches(space: spaces.Space, element: Any, name: str, axis: Any = ()) -> Iterator[str]:
    """Yield a sentence for each reason why `element` does not belong to `space`: wrong entries, shape or dtype.

    Nothing is yielded for an element that belongs to the space. `name` is what the sentences call the element. If
    `element` is a batch, `axis` is its leading shape, such as (num_envs,); if it is a dict of batches by group, `axis`
    is a dict of their leading shapes. Without this check NumPy would broadcast a wrong shape silently.
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
    if space.shape is None or space.dtype is None:
        return
    shape, dtype = tuple(space.shape), np.dtype(space.dtype)
    try:
        x = np.asarray(element)
    except ValueError:  # lists of several lengths
        x = np.asarray(None)
    if x.dtype == object or isinstance(element, str):
        yield f"{name} is a {type(element).__name__}, not an array {dtype}{list(shape)}"
    elif x.shape != (*axis, *shape):
        yield f"{name} has the shape {list(x.shape)}, its space {[*axis, *shape]}"
    elif not np.can_cast(x.dtype, dtype, "same_kind") and not _fit(element, x, dtype):
        yield f"{name} is {x.dtype}, which cannot be cast to {dtype}, the dtype of its space"


def _fit(element: Any, x: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Return whether `element`, a list or a number, has whole numbers that `dtype` can hold; `x` is its array.

    Python's numbers have no dtype of their own: that of `x` is NumPy's choice.
    """
    whole = x.dtype.kind in "iu" and dtype.kind in "iu" and isinstance(element, int | list | tuple)
    return whole and bool((x.astype(dtype) == x).all())


def number_mismatches(leaf: Leaf, x: np.ndarray, name: str) -> Iterator[str]:
    """Yield a sentence if a number in the array `x` is outside of the bounds that `leaf` describes; nothing otherwise.

    `x` is one array of an observation or of a batch of them, and `name` is what the sentence calls it. Without this
    check a cast to 32 bits would silently turn 2^32 + 7 into 7, and an unknown category would pass.
    """
    if leaf.low is None:
        return
    if type(leaf.low) is int and x.size:  # the usual case, without arrays
        least, most = (x.item(),) * 2 if x.ndim == 0 else (np.minimum.reduce(x, None), np.maximum.reduce(x, None))
        if leaf.low <= least and most <= leaf.high:
            return
    wrong = (x < leaf.low) | (x > leaf.high)
    if not wrong.any():
        return
    place = tuple(map(int, np.argwhere(wrong)[0]))
    low, high = (np.broadcast_to(limit, x.shape)[place] for limit in (leaf.low, leaf.high))
    where = "".join(f"[{step!r}]" for step in leaf.path) + (str(list(place)) if place else "")
    if leaf.categorical:
        yield f"{name}{where} is {x[place]}; must be one of the categories {low} to {high}"
    else:
        remedy = f"give the space bounds that hold, or dtype {np.dtype(np.float32)}"
        yield f"{name}{where} is {x[place]}; must be from {low} to {high}, as the bounds of its space say: {remedy}"


class EpisodeStats(NamedTuple):
    """Rewards and episode ends of B streams that are logged, if learning uses other rewards or ends.

    The environments give them in `info["episode_stats"]`. For example, Atari games learn from clipped rewards and
    single lives, and log the scores of whole games. A stream is one agent in one environment.
    """

    reward: np.ndarray  # [B] float32
    over: np.ndarray  # [B] the logged episode has ended


class Arrays(NamedTuple):
    """Arrays of B streams (one agent in one environment each) that environments and policy exchange.

    They lie in shared memory if there are worker processes.
    """

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
    logged: np.ndarray | None = None  # [B] False: an episode that ends here is not logged (`HostSpec.stagger`)

    def act(self, action: Sequence[np.ndarray]) -> None:
        """Copy `action`, one array for each array of the action space, into the arrays that environments read."""
        for array, given in zip(self.action, action, strict=True):
            array[...] = given

    def results(self) -> list[np.ndarray]:
        """Return the arrays that environments write, in a fixed order; those that are None are left out."""
        masks = self.mask.values() if isinstance(self.mask, dict) else [self.mask]
        by_stream = [getattr(self, name) for name in BY_STREAM]
        some = [x for x in (*masks, self.logged) if x is not None]
        return [*self.obs, *by_stream, *some, *(self.episode_stats or ())]


class HostSpec(NamedTuple):
    """Spaces, agents, sizes of masks, logged metrics and settings that all environments of a HostEnv have in common.

    Spaces, agents and sizes are read from one environment. The shapes of arrays, and so the compiled programs, depend
    on them.
    """

    observation_space: spaces.Space  # of one stream
    action_space: spaces.Space
    mask_size: Any  # entries of an action mask; with groups (name, entries) of those with masks; None: no masks
    has_episode_stats: bool  # the environments give info["episode_stats"]
    agents: int | None  # number of agents in each environment; None: one, without an agent axis
    metrics: tuple[str, ...] = ()  # entries of `info` that are logged, from the last step of each episode
    names: tuple[str, ...] = ()  # of the agents, in the order of the streams
    sizes: tuple[tuple[str, int], ...] = ()  # name and number of agents of each group; () without groups
    turns: bool = False  # agents act in turns: rewards and ends of steps that are not valid count (host/streams.py)
    max_num_envs: int | None = None  # most environments, and longest rollout, that the class declares; None: any
    max_horizon: int | None = None
    clip_actions: tuple[float, float] | None = None  # bounds of a continuous action's element; None: those of the space
    time_limit: int | None = None  # steps of the agent after which episodes are truncated; None: not known
    stagger: int = 0  # largest random length at which the first episode of each environment is truncated; 0: none is


class Layout(NamedTuple):
    """Layout of the `Arrays` of a set of host environments: what determines the shapes of these arrays.

    It is the number of environments, the number of worker processes, and `spec`, with spaces and agents of an
    environment.
    """

    num_envs: int
    workers: int
    repeats: int  # action repeat
    spec: HostSpec

    def places(self, space: spaces.Space, rows: slice) -> list[slice]:
        """Return a slice for each array of the elements of `space`: where the streams `rows` lie in this array.

        A stream is one agent in one environment. `rows` is a slice of the streams of all agents, and with groups of
        agents consists of whole environments. Without groups, each slice is `rows`. With groups, an array has only the
        streams of one group, so that the slices differ (`group_rows`).
        """
        own = group_rows(self.spec.sizes, rows) if self.spec.sizes else {}
        return [own[leaf.path[0]] if own else rows for leaf in leaves_of(space)]  # type: ignore[index]

    def rows(self, arrays: Arrays, rows: slice) -> Arrays:
        """Return views of `arrays` that have only the streams `rows`; a stream is one agent in one environment."""
        views: dict[str, Any] = {
            name: [x[own] for x, own in zip(getattr(arrays, name), self.places(space, rows), strict=True)]
            for name, space in (("obs", self.spec.observation_space), ("action", self.spec.action_space))
        }
        views |= {name: getattr(arrays, name)[rows] for name in BY_STREAM}
        own_rows = group_rows(self.spec.sizes, rows) if self.spec.sizes else rows
        mask = each_group(lambda x, own: x[own], arrays.mask, own_rows)
        stats = arrays.episode_stats and EpisodeStats(*(x[rows] for x in arrays.episode_stats))
        logged = None if arrays.logged is None else arrays.logged[rows]
        return arrays._replace(**views, mask=mask, episode_stats=stats, logged=logged)

    def streams(self, envs: slice) -> slice:
        """Return, as a slice, the streams of the environments `envs`; a stream is one agent in one environment."""
        return slice(envs.start * (self.spec.agents or 1), envs.stop * (self.spec.agents or 1))

    def make(self, memory: Any = None) -> Arrays:
        """Return new arrays of this layout, in `memory` of at least `nbytes()` bytes, or in new memory."""
        memory = bytearray(self.nbytes()) if memory is None else memory
        used = 0

        def place(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            nonlocal used
            array: np.ndarray = np.ndarray(shape, dtype, memory, used)
            used += _padded(array.nbytes)
            return array

        return self._arrays(place)

    def nbytes(self) -> int:
        """Return the memory that arrays of this layout take, in bytes."""
        sizes: list[int] = []
        self._arrays(lambda shape, dtype: sizes.append(_padded(int(np.prod(shape)) * np.dtype(dtype).itemsize)))
        return sum(sizes)

    def _arrays(self, make: Callable[[tuple[int, ...], Any], Any]) -> Arrays:
        """Return Arrays in which each array is the result of `make(shape, dtype)`.

        The calls of `make` are in the order in which the arrays lie in memory.
        """
        spec, streams = self.spec, self.num_envs * (self.spec.agents or 1)

        def elements(space: spaces.Space, kind: str) -> list[Any]:
            rows = self.places(space, slice(0, streams))
            leaves = zip(leaves_of(space), rows, strict=True)
            return [make((own.stop, *leaf.shape), getattr(leaf, kind)) for leaf, own in leaves]

        mask = None
        if spec.mask_size and spec.sizes:
            entries = dict(spec.mask_size)
            mask = {
                name: make((self.num_envs * size, entries[name]), np.bool_) if name in entries else None
                for name, size in spec.sizes
            }
        elif spec.mask_size:
            mask = make((streams, spec.mask_size), np.bool_)
        stats = (
            EpisodeStats(make((streams,), np.float32), make((streams,), np.bool_)) if spec.has_episode_stats else None
        )
        return Arrays(
            obs=elements(spec.observation_space, "dtype"),
            action=elements(spec.action_space, "space_dtype"),
            reward=make((streams,), np.float32),
            terminated=make((streams,), np.bool_),
            truncated=make((streams,), np.bool_),
            first=make((streams,), np.bool_),
            valid=make((streams,), np.bool_),
            mask=mask,
            episode_stats=stats,
            metrics=make((streams, len(spec.metrics)), np.float32),
            stepping=make((self.workers,), np.int32),
            logged=make((streams,), np.bool_) if spec.stagger else None,
        )


def _padded(size: int) -> int:
    return -(-max(size, 1) // ALIGN) * ALIGN


class MaskForm:
    """Callable that converts action masks of a Discrete, MultiDiscrete or MultiBinary space to flat arrays of bool.

    A mask may have one of three forms. Flat, [n]: the choices of all components one after the other (two for each bit
    of a MultiBinary). A tuple or list with one mask for each component. Padded, [components, largest number of
    choices], as for MaskablePPO: entries beyond a component's own choices are not read.
    """

    def __init__(self, space: spaces.Space):
        self.space, self.choices = space, mask_choices(space)
        self.size, largest = sum(self.choices), max(self.choices)
        self._flat = (self.size,)
        self._own = np.arange(largest) < np.array(self.choices)[:, None]  # [components, largest]
        self._padded = self._own.shape, (*(space.shape or (1,)), largest)
        single = len(self.choices) == 1
        parts = f"{[self.size]}, a tuple of masks {list(self.choices)}, or {list(self._own.shape)}"
        self._forms = str([self.size]) if single else parts

    def __call__(self, mask: Any, name: str = INFO_MASK) -> np.ndarray:
        """Return an action mask as a flat array of bool, [n], with True where a choice is allowed.

        Raises ValueError for a mask whose form does not fit the space, and for an entry other than 0 and 1; `name` is
        the mask's name in the error.
        """
        given = mask if type(mask) is np.ndarray and mask.shape == self._flat else self._flattened(mask, name)
        flat = given.astype(bool, copy=False)
        # bytes are compared first: that takes a third of the time
        same = flat is given or flat.astype(given.dtype).tobytes() == given.tobytes()
        if not same and np.any(wrong := given != flat):
            kinds = "1 or True where an action is allowed, 0 or False where not (of logits: logits > -np.inf)"
            raise ValueError(f"{name} has the entry {given[wrong][0]}: must be {kinds}")
        return flat

    def _flattened(self, mask: Any, name: str) -> np.ndarray:
        if isinstance(mask, tuple | list) and len(mask) == len(self.choices) > 1:
            parts = [np.asarray(part).reshape(-1) for part in mask]
            if tuple(part.size for part in parts) == self.choices:
                return np.concatenate(parts)
        try:
            given = np.asarray(mask)
        except ValueError:  # parts of several lengths
            given = np.asarray(None)
        if given.dtype.kind not in "biuf":
            sizes = [np.size(part) for part in mask] if isinstance(mask, tuple | list) else type(mask).__name__
            raise ValueError(f"{name} is {sizes}; the masks of {self.space} are arrays {self._forms}")
        if given.size == self.size == max(given.shape, default=1):  # no more than one axis is longer than 1
            return given.reshape(-1)
        if given.shape in self._padded:
            return given.reshape(self._own.shape)[self._own]
        raise ValueError(f"{name} has the shape {list(given.shape)}; the masks of {self.space} are {self._forms}")


class JointMaskForm:
    """Callable that converts action masks of a Dict or Tuple space to flat arrays: the components' masks, concatenated.

    The mask to convert is a dict or tuple like the action, with a mask for each component; everything is allowed in a
    component whose mask is missing or None. Components are in JAX's order: those of a Dict are sorted by key. A Box
    cannot be masked: it has one entry in the flat mask, which is always True.
    """

    def __init__(self, space: spaces.Dict | spaces.Tuple):
        self.space, self._named = space, isinstance(space, spaces.Dict)
        self.forms = {key: mask_form(inner) for key, inner in components_of(space).items()}
        self.size: int = sum(1 if form is None else form.size for form in self.forms.values())

    def __call__(self, mask: Any, name: str = INFO_MASK) -> np.ndarray:
        """Return an action mask as a flat array of bool, [n], with True where a choice is allowed.

        Raises ValueError for a mask whose form does not fit the space, and for an entry other than 0 and 1; `name` is
        the mask's name in the error.
        """
        given = self.given(mask, name)
        parts = []
        for key, form in self.forms.items():
            one = given.get(key)
            if form is None and one is not None:
                raise ValueError(f"{name}[{key!r}] is given, and a Box of actions has no mask: leave it out")
            allows_all = form is None or one is None
            parts.append(np.ones(form.size if form else 1, bool) if allows_all else form(one, f"{name}[{key!r}]"))
        return np.concatenate(parts)

    def given(self, mask: Any, name: str = INFO_MASK) -> dict[Any, Any]:
        """Return the masks of the components that `mask` has, by key of a Dict or index of a Tuple.

        Raises ValueError unless the mask is a dict or tuple like the action; `name` is the mask's name in the error.
        """
        keys, like = list(self.forms), "dict" if self._named else "tuple"
        if not isinstance(mask, dict if self._named else tuple | list):
            raise ValueError(f"{name} is a {type(mask).__name__}; the masks of {self.space} are a {like} of {keys}")
        found = dict(mask) if self._named else dict(enumerate(mask))
        unknown = [key for key in found if key not in self.forms]
        if unknown or not (self._named or len(found) == len(keys)):
            raise ValueError(f"{name} has the entries {list(found)}; the masks of {self.space} are a {like} of {keys}")
        return found


def components_of(space: spaces.Dict | spaces.Tuple) -> dict[Any, spaces.Space]:
    """Return the spaces inside a Dict, sorted by key, or inside a Tuple, by index: in JAX's order of leaves."""
    if isinstance(space, spaces.Dict):
        return {key: space.spaces[key] for key in sorted(space.spaces)}
    return dict(enumerate(space.spaces))


def mask_form(space: spaces.Space) -> Any:
    """Return the callable that converts action masks of `space` to flat arrays; None if `space` cannot have masks."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        form = JointMaskForm(space)
        return form if any(one is not None for one in form.forms.values()) else None
    return MaskForm(space) if mask_choices(space) else None


def mask_choices(space: spaces.Space) -> tuple[int, ...]:
    """Return the number of choices of each component of a discrete action; () for spaces that have no masks."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(map(int, space.nvec.reshape(-1)))
    return (2,) * int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else ()


def sample_allowed(space: spaces.Space, mask: Any, rng: np.random.Generator) -> Any:
    """Return a random action that the mask allows, with the types of `space.sample()`; without a mask, any action.

    Raises ValueError for something that is no mask of this space.
    """
    form = mask_form(space)
    if mask is None or form is None:
        return space.sample()
    if isinstance(space, spaces.Dict | spaces.Tuple):
        given = form.given(mask)
        parts = {key: sample_allowed(one, given.get(key), rng) for key, one in components_of(space).items()}
        return parts if isinstance(space, spaces.Dict) else tuple(parts.values())
    choices = [np.flatnonzero(part) for part in np.split(form(mask), np.cumsum(form.choices)[:-1])]
    chosen = np.array([int(rng.choice(allowed)) if len(allowed) else 0 for allowed in choices], space.dtype)
    if isinstance(space, spaces.Discrete):
        return chosen.dtype.type(chosen[0] + space.start)
    return chosen.reshape(space.shape) + getattr(space, "start", np.zeros((), space.dtype))


def stack_elements(rows: Sequence[Any]) -> Any:
    """Return the elements `rows` of a space as one batch, in which each of their arrays has a new first axis.

    If the elements are dicts or tuples, so is the batch.
    """
    first = rows[0]
    if isinstance(first, dict):
        return {key: stack_elements([row[key] for row in rows]) for key in first}
    return tuple(map(stack_elements, zip(*rows, strict=True))) if isinstance(first, tuple) else np.stack(rows)


def undeclared(info: dict[str, Any], mask: bool, episode_stats: bool) -> Iterator[str]:
    """Yield an error sentence for each of "action_mask" and "episode_stats" that `info` lacks or has unexpectedly.

    `mask` and `episode_stats` say whether the `info` of the first reset had these entries. Every later `info` must have
    the same ones, because arrays were made for these.
    """
    for name, declared in (("action_mask", mask), ("episode_stats", episode_stats)):
        if (name in info) != declared:
            now, first = ("comes", "did not come") if name in info else ("is missing", "came")
            remedy = "give it at every reset and step, or never"
            yield f'info["{name}"] {now} here and {first} with the first reset: {remedy}'


def metrics_of(info: dict[str, Any], names: Sequence[str]) -> list[float]:
    """Return the entries `names` of the `info` of an episode's last step, as numbers.

    Raises ValueError if one is missing or no number.
    """
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
