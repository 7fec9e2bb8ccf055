"""Gymnasium spaces as plain data, for JSON files, and back. Nothing in the data is executed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from ppax.core import untrusted
from ppax.core.types import ConfigError

FLOATS = ("float16", "float32", "float64")
DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), *FLOATS)
LARGEST = 2**24  # numbers in all arrays of a space; far above any observation, far below the memory
MOST = 2**12  # spaces inside a space
DEEPEST = 16  # limit on the nesting of spaces


def to_data(space: spaces.Space) -> dict[str, Any]:
    """Return `space` as a JSON-compatible dict; ConfigError for a kind of space that ppax does not train on."""
    if isinstance(space, spaces.Dict):
        return {"space": "Dict", "spaces": {str(name): to_data(inner) for name, inner in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"space": "Tuple", "spaces": [to_data(inner) for inner in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"space": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiDiscrete):
        numbers = {"nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
        return {"space": "MultiDiscrete", **numbers, "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        return {"space": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _bounds(space.low), "high": _bounds(space.high)}
        return {"space": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    raise ConfigError(
        f"{space}: only Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these have a form as data"
    )


def from_data(data: Any, where: str = "space", depth: int = 0) -> spaces.Space:
    """Return the space that `data` describes, the inverse of `to_data`; ConfigError, naming `where`, if invalid."""
    try:
        if depth == 0:  # before anything is allocated
            _require_small(list(itertools.islice(_sizes(data, where), MOST + 1)), where)
        return _from_data(data, where, depth)
    except ConfigError:
        raise
    except untrusted.MALFORMED as error:
        raise ConfigError(f"{where}: not a space as ppax writes it: {type(error).__name__}: {error}") from error


def _sizes(data: Any, where: str, depth: int = 0) -> Iterator[int]:
    """Yield how many numbers each elementary space in `data` has; of what is no space, nothing."""
    if not isinstance(data, Mapping) or depth > DEEPEST:
        return
    if data.get("space") in ("Dict", "Tuple"):
        inner = data["spaces"]
        for one in inner.values() if isinstance(inner, Mapping) else inner:
            yield from _sizes(one, where, depth + 1)
    else:  # the numbers of other spaces than Box stand in the file itself
        yield math.prod(_shape(data, where)) if data.get("space") == "Box" else 1


def _require_small(sizes: list[int], where: str) -> None:
    if len(sizes) > MOST or sum(sizes) > LARGEST:
        raise ConfigError(f"{where}: must be at most {MOST:,} spaces, of together at most {LARGEST:,} numbers")


def _from_data(data: Any, where: str, depth: int) -> spaces.Space:
    if not isinstance(data, Mapping) or depth > DEEPEST:
        raise ConfigError(f"{where}: must be a table, at most {DEEPEST} deep")
    kind = data.get("space")
    if kind == "Dict":
        named = data["spaces"].items()
        # pairs: Gymnasium sorts the entries of a dict
        return spaces.Dict([(str(name), from_data(x, f"{where}[{name!r}]", depth + 1)) for name, x in named])
    if kind == "Tuple":
        return spaces.Tuple([from_data(x, f"{where}[{i}]", depth + 1) for i, x in enumerate(data["spaces"])])
    if kind == "Discrete":
        return spaces.Discrete(int(data["n"]), start=int(data["start"]), dtype=_dtype(data, where))
    if kind == "MultiDiscrete":
        nvec = np.array(data["nvec"], np.int64)
        return spaces.MultiDiscrete(nvec, start=np.array(data["start"], np.int64), dtype=_dtype(data, where))
    if kind == "MultiBinary":
        shape = _shape({"shape": [data["n"]] if isinstance(data["n"], int) else data["n"]}, where)
        return spaces.MultiBinary(data["n"] if isinstance(data["n"], int) else shape)
    if kind == "Box":
        shape, dtype = _shape(data, where), _dtype(data, where)
        low, high = (_array(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype)
    raise ConfigError(f"{where}: space = {kind!r}: must be Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple")


def _bounds(x: np.ndarray) -> Any:
    """Return a bound as one number if all are equal, else as nested lists; infinities as text, which JSON lacks."""
    same = x.size > 0 and bool((x == x.flat[0]).all())
    return _number(x.flat[0].item()) if same else _nested(x.tolist())


def _nested(x: Any) -> Any:
    return [_nested(inner) for inner in x] if isinstance(x, list) else _number(x)


def _number(x: Any) -> Any:
    return str(x) if isinstance(x, float) and math.isinf(x) else x


def _array(data: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    kind: Any = float if np.dtype(dtype).kind == "f" else int
    flat = [kind(x) for x in np.asarray(data, object).ravel().tolist()]
    numbers = np.array(flat, dtype)
    return np.full(shape, numbers[0], dtype) if len(numbers) == 1 else numbers.reshape(shape)


def _shape(data: Any, where: str) -> tuple[int, ...]:
    shape = tuple(int(n) for n in data["shape"])
    if min(shape, default=0) < 0 or math.prod(shape) > LARGEST:
        raise ConfigError(f"{where}: shape = {list(shape)}: must be sizes of together at most {LARGEST} numbers")
    return shape


def _dtype(data: Any, where: str) -> Any:
    if data["dtype"] not in DTYPES:
        raise ConfigError(f"{where}: dtype = {data['dtype']!r}: must be one of {', '.join(DTYPES)}")
    return np.dtype(data["dtype"]).type
