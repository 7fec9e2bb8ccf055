"""Demonstrations: arrays of observations, actions and episode ends, in memory or in an .npz file.

The arrays have the names of Minari's data sets. `read` returns observations with actions, `read_transitions` successive
observations, for which no actions are needed.

A file is data: it is read without pickle, and nothing in it is executed.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np
from gymnasium import spaces

from ppax.core import untrusted
from ppax.core.types import ConfigError, PyTree
from ppax.devices.footprint import available_bytes
from ppax.envs.hosting.arrays import leaves_of
from ppax.storage.zip_directory import require_short_directory

FIELDS = ("observations", "actions", "terminations", "truncations")
OF_TRANSITIONS = ("observations", "terminations", "truncations")
FIELD = "demonstrations"
ONE_ARRAY = b"\x93NUMPY"  # beginning of an .npy file
DIRECTORY = 2**20  # bytes of the directory of an .npz file; an array takes 60
SMALL, RATIO = 2**28, 100  # bytes that a file may unpack to in any case, and how many times its own size
COPIES = 3  # memory while arrays are read and converted: how many times their size
SEPARATOR = "/"  # between the keys of Dict and Tuple spaces in a file: "observations/camera"


class Demonstrations:
    """Demonstrated observations and actions of n steps, [n, ...]; objects with equal checksums compare equal."""

    def __init__(self, obs: PyTree, actions: PyTree, checksum: str):
        """Keep the arrays, which the function `read` has checked, and their checksum."""
        self.obs, self.actions, self.checksum = obs, actions, checksum
        self.size: int = len(jax.tree.leaves(actions)[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Demonstrations) and self.checksum == other.checksum

    def __hash__(self) -> int:
        return hash(self.checksum)

    def __repr__(self) -> str:
        return f"Demonstrations({self.size:,} steps, {self.checksum[:12]})"


class Transitions:
    """Demonstrated pairs of successive observations, each reduced to k chosen elements: two arrays [n, k].

    Objects with equal checksums compare equal.
    """

    def __init__(self, obs: np.ndarray, following: np.ndarray, checksum: str):
        """Keep observations `obs`, the observations one step later, `following`, [n, k] each, and their checksum."""
        self.obs, self.following, self.checksum = obs, following, checksum
        self.size = len(obs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transitions) and self.checksum == other.checksum

    def __hash__(self) -> int:
        return hash(self.checksum)

    def __repr__(self) -> str:
        return f"Transitions({self.size:,} steps, {self.checksum[:12]})"


Loaded = TypeVar("Loaded", Demonstrations, Transitions)


class LazyDemonstrations(Generic[Loaded]):
    """Demonstrations known by their checksum and read at their first use.

    Objects with equal checksums compare equal.
    """

    def __init__(self, checksum: str, load: Callable[[], Loaded], loaded: Loaded | None = None):
        """Keep the demonstrations' checksum and `load`, the function that reads them.

        `loaded` are the demonstrations if they have been read already.
        """
        self.checksum = checksum
        self._load: Callable[[], Loaded] = load
        self._loaded: Loaded | None = loaded

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazyDemonstrations) and self.checksum == other.checksum

    def __hash__(self) -> int:
        return hash(self.checksum)

    def __repr__(self) -> str:
        return f"LazyDemonstrations({self.checksum[:12]})"

    def rows(self) -> Loaded:
        """Return the demonstrations, which the first call reads.

        Raises ConfigError where their checksum is not the one that this object was made with.
        """
        if self._loaded is None:
            self._loaded = self._load()
        if self._loaded.checksum != self.checksum:
            raise ConfigError(
                f"{FIELD}: others than at the run's start (SHA-256 {self._loaded.checksum[:12]}, recorded "
                f"{self.checksum[:12]}): put the first ones back, or remove the option checksum to go on with these"
            )
        return self._loaded


def read(source: Any, observation: spaces.Space, action: spaces.Space) -> Demonstrations:
    """Return the demonstrations of an .npz file, or of a mapping of arrays; ConfigError unless they fit the spaces.

    The array `observations` has one row for each action; it may also have the last observation of each episode, as in
    Minari.
    """
    arrays = _arrays(source, FIELDS)
    ended = _ends(arrays)
    steps = len(ended)
    obs, actions = (
        _leaves(arrays[key], space, key) for key, space in zip(FIELDS[:2], (observation, action), strict=True)
    )
    keep = _rows_of_actions(ended, len(obs[0][1]))
    obs = [(space, x[keep] if len(x) > steps else x, where) for space, x, where in obs]
    for space, x, where in (*obs, *actions):
        _require_fit(space, x, where, steps)
    columns = [np.ascontiguousarray(x.astype(_dtype(space))) for space, x, _ in (*obs, *actions)]
    obs_tree, action_tree = _tree(observation, iter(columns)), _tree(action, iter(columns[len(obs) :]))
    return Demonstrations(obs_tree, action_tree, _checksum(columns))


def read_transitions(source: Any, chosen: Sequence[Chosen]) -> Transitions:
    """Return the pairs of successive observations in an .npz file, or in a mapping of arrays.

    `chosen` selects the elements of an observation that are read. An array of the file may have all elements, or only
    the chosen ones, in the order of their indices. Of an episode whose last observation is not in the file, there is
    one pair fewer. Raises ConfigError where an array is missing, has another shape, or has numbers that are not finite,
    and where no episode has two observations.
    """
    arrays = _arrays(source, OF_TRANSITIONS)
    ended = _ends(arrays)
    columns = [_chosen_columns(arrays["observations"], one) for one in chosen]
    counts = {len(x) for x in columns}
    if len(counts) != 1:
        raise ConfigError(f"{FIELD}: observations have {sorted(counts)} rows; all arrays must have equally many")
    obs = np.concatenate(columns, axis=1)
    rows = _rows_of_actions(ended, len(obs))
    if len(obs) == len(ended):
        rows = np.flatnonzero(~ended[:-1])
    if not len(rows):
        raise ConfigError(f"{FIELD}: no episode has two observations; must have one at least")
    before, after = (np.ascontiguousarray(x) for x in (obs[rows], obs[rows + 1]))
    return Transitions(before, after, _checksum((before, after)))


class Chosen(NamedTuple):
    """Selection of elements of one array of an observation: the array's name and shape, and the flat indices."""

    name: str  # "camera/left" inside Dict and Tuple spaces; "" for an observation that is one array
    shape: tuple[int, ...]
    places: tuple[int, ...]


def _chosen_columns(observations: Any, chosen: Chosen) -> np.ndarray:
    """Return the chosen elements of one array of m demonstrated observations, float32 [m, k]."""
    where = SEPARATOR.join(filter(None, ("observations", chosen.name)))
    for key in filter(None, chosen.name.split(SEPARATOR)):
        if not isinstance(observations, Mapping) or key not in observations:
            raise ConfigError(f"{FIELD}: has no array {where}; observations have {_listed(observations)}")
        observations = observations[key]
    x = np.asarray(observations)
    if x.dtype.kind not in "fiub":
        raise ConfigError(f"{FIELD}: {where} is an array of {x.dtype}; must be one of numbers")
    if x.shape[1:] == chosen.shape:
        x = x.reshape(len(x), -1)[:, list(chosen.places)]
    elif x.ndim != 2 or x.shape[1] != len(chosen.places):
        whole, alone = ["n", *chosen.shape], ["n", len(chosen.places)]
        text = "" if whole == alone else f" or, of the chosen entries alone, [{', '.join(map(str, alone))}]"
        raise ConfigError(f"{FIELD}: {where} has shape {list(x.shape)}; must be [{', '.join(map(str, whole))}]{text}")
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    if not np.isfinite(x).all():
        raise ConfigError(f"{FIELD}: {where} has a number that is not finite in float32")
    return x


def _arrays(source: Any, fields: Sequence[str]) -> dict[str, Any]:
    """Return the arrays `fields` of an .npz file or a mapping, by name; ConfigError where one is missing."""
    name = repr(source) if isinstance(source, str) else "the mapping"
    arrays = _from_file(source, fields) if isinstance(source, str) else _nested(source, fields)
    lacking = [key for key in fields if key not in arrays]
    if lacking:
        raise ConfigError(
            f"{FIELD}: {name} has no {lacking[0]}; must have {', '.join(fields)}; it has {_listed(arrays)}"
        )
    return arrays


def _ends(arrays: Mapping[str, Any]) -> np.ndarray:
    """Return flags [n], True for the last steps of episodes, from the arrays `terminations` and `truncations`."""
    terminated, truncated = (_flags(arrays[key], key) for key in FIELDS[2:])
    if not len(terminated) or len(truncated) != len(terminated):
        raise ConfigError(
            f"{FIELD}: terminations has {len(terminated)} rows, truncations {len(truncated)}; must be equal, above 0"
        )
    ended: np.ndarray = terminated | truncated
    return ended


def _checksum(arrays: Iterable[np.ndarray]) -> str:
    """Return the SHA-256 of arrays, with their dtypes and shapes."""
    digest = hashlib.sha256()
    for x in arrays:
        digest.update(f"{x.dtype} {x.shape}".encode())
        digest.update(x.data)
    return digest.hexdigest()


def _from_file(path: str, fields: Sequence[str]) -> dict[str, Any]:
    """Return the arrays of an .npz file by name; ConfigError where there is no file, or it is no valid .npz file.

    Only arrays that belong to `fields`, names such as "observations", are read; all others are empty in the result,
    which has them so that messages can list their names. An array with the name "a/b" is in a mapping "a" under "b".
    Arrays of Python objects are refused, as reading them could execute code.
    """
    if not os.path.isfile(path):
        raise ConfigError(f"{FIELD} = {path!r}: is no file; must be an .npz file with {', '.join(fields)}")
    try:
        with open(path, "rb") as file:
            if file.read(len(ONE_ARRAY)) == ONE_ARRAY:
                raise ConfigError(f"{FIELD} = {path!r}: one array; must be an .npz file with {', '.join(fields)}")
            names = _read_sizes(path, file, fields)
        with np.load(path, allow_pickle=False) as arrays:
            return _nested({name: arrays[name] if _is_field(name, fields) else np.zeros(0) for name in names}, fields)
    except (OSError, zipfile.BadZipFile, zlib.error, struct.error, *untrusted.MALFORMED) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{FIELD} = {path!r}: is no readable .npz file of plain arrays: {error}") from error


def _read_sizes(path: str, file: IO[bytes], fields: Sequence[str]) -> list[str]:
    """Return the names of all arrays in an .npz file, after a check of the sizes of those that belong to `fields`.

    Raises ConfigError, which names the file by its `path`, if reading these would take more memory than is free, or if
    they are far larger than the file, as in a zip bomb.
    """
    require_short_directory(file, DIRECTORY)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
    if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
        raise ConfigError(f"{FIELD} = {path!r}: is not compressed as NumPy does; save it by np.savez_compressed")
    sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in entries}
    total, packed = sum(size for name, size in sizes.items() if _is_field(name, fields)), os.path.getsize(path)
    if total > max(SMALL, RATIO * packed):
        raise ConfigError(
            f"{FIELD} = {path!r}: its {packed:,} bytes unpack to {total:,}; must be at most {RATIO} times as many, or "
            f"{SMALL:,}. If you trust the file, save its arrays without compression, by np.savez"
        )
    free = available_bytes()
    if free is not None and total > free // COPIES:
        raise ConfigError(
            f"{FIELD} = {path!r}: has {total:,} bytes of arrays, which take {COPIES} times as many while they are "
            f"read, and {free:,} are free: must be at most {free // COPIES:,}"
        )
    return list(sizes)


def _is_field(name: str, fields: Sequence[str]) -> bool:
    return name.partition(SEPARATOR)[0] in fields


def _nested(arrays: Any, fields: Sequence[str] = FIELDS) -> dict[str, Any]:
    """Return `arrays` with every "a/b" in a mapping "a" under "b"; ConfigError if `arrays` is no mapping.

    `fields` are the names of the arrays that the error's message asks for.
    """
    if not isinstance(arrays, Mapping):
        kind = type(arrays).__name__
        raise ConfigError(f"{FIELD}: a {kind}; must be the path of an .npz file, or a mapping of {', '.join(fields)}")
    out: dict[str, Any] = {}
    for name, x in arrays.items():
        key, _, rest = str(name).partition(SEPARATOR)
        if rest:
            out.setdefault(key, {})[rest] = x
        else:
            out[key] = x
    return {key: _nested(x) if isinstance(x, Mapping) else x for key, x in out.items()}


def _flags(x: Any, name: str) -> np.ndarray:
    flags = np.asarray(x)
    if flags.ndim != 1 or flags.dtype.kind not in "bui":
        raise ConfigError(f"{FIELD}: {name} is {flags.dtype} {list(flags.shape)}; must be one boolean a step, [n]")
    return flags.astype(bool)


def _leaves(x: Any, space: spaces.Space, where: str) -> list[tuple[spaces.Space, np.ndarray, str]]:
    """Return (space, array, name) for each elementary space inside `space`, in the order of `jax.tree.leaves`.

    An elementary space is any but Dict and Tuple. `x` has the arrays, in mappings for Dict and Tuple spaces; `where` is
    the name of `x` in messages. Raises ConfigError where an array is missing, or where its dtype is not numeric.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = _entries(space)
        if not isinstance(x, Mapping) or set(map(str, x)) != set(inner):
            raise ConfigError(f"{FIELD}: {where} has {_listed(x)}; must have an array for each of {', '.join(inner)}")
        named = {str(key): value for key, value in x.items()}
        return [leaf for key, one in inner.items() for leaf in _leaves(named[key], one, f"{where}{SEPARATOR}{key}")]
    array = np.asarray(x)
    if array.dtype.kind not in "fiub":
        raise ConfigError(f"{FIELD}: {where} is an array of {array.dtype}; must be one of numbers")
    return [(space, array, where)]


def _entries(space: Any) -> dict[str, spaces.Space]:
    """Return the spaces inside a Dict space by key, or inside a Tuple space by "0", "1", ...

    They are in the order of `jax.tree.leaves`.
    """
    if isinstance(space, spaces.Dict):
        return {key: space.spaces[key] for key in sorted(space.spaces)}
    return {str(place): one for place, one in enumerate(space.spaces)}


def _tree(space: spaces.Space, columns: Any) -> PyTree:
    if isinstance(space, spaces.Dict):
        return {key: _tree(one, columns) for key, one in _entries(space).items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(one, columns) for one in space.spaces)
    return next(columns)


def _rows_of_actions(ended: np.ndarray, observations: int) -> np.ndarray:
    """Return the indices [n] of the observations in which an action was taken, among those of whole episodes.

    Whole episodes have one observation more than actions, the last one. `ended` [n] is True for the last actions of
    episodes. `observations` is the number of observations: n plus the number of episodes. If it is n, the last
    observation of each episode is missing, an action was taken in each of the others, and the result means nothing:
    callers must not use it. Raises ConfigError for any other number.
    """
    steps, episodes = len(ended), int(ended.sum()) + int(not ended[-1])
    if observations not in (steps, steps + episodes):
        raise ConfigError(
            f"{FIELD}: {observations} observations for {steps} actions of {episodes} episodes; must be {steps}, one "
            f"for each action, or {steps + episodes}, with the last one of each episode"
        )
    before = np.cumsum(ended) - ended  # episodes that ended before each step
    return np.arange(steps) + before


def _require_fit(space: Any, x: np.ndarray, where: str, steps: int) -> None:
    """Raise ConfigError unless the array `x` holds `steps` elements of `space`; `where` is its name in the message.

    `space` is elementary, neither a Dict nor a Tuple.
    """
    shape = (steps, *(space.shape or ()))
    if x.shape != shape:
        raise ConfigError(f"{FIELD}: {where} has shape {list(x.shape)}; must be {list(shape)}, for {space}")
    kind = np.dtype(space.dtype).kind
    if kind in "iu" and x.dtype.kind == "f":
        raise ConfigError(f"{FIELD}: {where} is an array of {x.dtype}; must be whole numbers, for {space}")
    with np.errstate(over="ignore"):
        finite = np.isfinite(x.astype(_dtype(space))).all()
    if not finite:
        raise ConfigError(f"{FIELD}: {where} has a number that is not finite in float32; must be of {space}")
    low, high = _limits(space)
    beyond = (x < low) | (x > high)
    if beyond.any():
        raise ConfigError(f"{FIELD}: {where} has the number {x[beyond][0]}; must be of {space}")


def _limits(space: Any) -> tuple[Any, Any]:
    """Return the smallest and largest number of a space; for floats with slack for rounding.

    `space` is elementary, neither a Dict nor a Tuple. For a Box or MultiDiscrete the limits are arrays, one number for
    each element.
    """
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    slack = 1e-4 if np.dtype(space.dtype).kind == "f" else 0  # rounding
    return space.low - slack, space.high + slack


def _dtype(space: Any) -> np.dtype:
    """Return the dtype that elements of a space have in ppax, such as float32 for a Box of float64.

    `space` is elementary, neither a Dict nor a Tuple.
    """
    return next(leaves_of(space)).dtype


def _listed(x: Any) -> str:
    return ", ".join(sorted(map(str, x))) if isinstance(x, Mapping) else f"one {type(x).__name__}"
