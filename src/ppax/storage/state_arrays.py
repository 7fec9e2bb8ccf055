"""Conversion of a run's state to named arrays, for the files of checkpoints, and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppax.core.types import TrainState
from ppax.storage.manifest import CheckpointError


def named_leaves(state: TrainState) -> dict[str, Any]:
    """Return the leaves of a state by dotted path, such as `learner.params.actor.kernel`.

    A dot in the name of an entry, such as that of an observation, is written as `\\.`: "arm.pos" is not "pos" of "arm".
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {".".join(map(_name, path)): leaf for path, leaf in leaves}


def _name(entry: Any) -> str:
    return jax.tree_util.keystr((entry,), simple=True).replace("\\", "\\\\").replace(".", "\\.")


class StateArrays(NamedTuple):
    """State of a run as NumPy arrays by dotted path; `keys` names the implementation of each random key by its path."""

    arrays: dict[str, np.ndarray]
    keys: dict[str, str]  # implementation of the random keys among them


def to_arrays(state: TrainState) -> StateArrays:
    """Return a state as NumPy arrays by dotted path, with the data of each random key in place of the key."""
    arrays, keys = {}, {}
    for name, leaf in named_leaves(state).items():
        if _is_key(leaf):
            keys[name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        arrays[name] = np.array(jax.device_get(leaf), order="C")
    return StateArrays(arrays, keys)


def expected_arrays(like: TrainState) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes, by dotted path, of the arrays that a state with the structure of `like` is saved as."""
    leaves = named_leaves(like).items()
    return {name: jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf for name, leaf in leaves}


def from_arrays(like: TrainState, arrays: dict[str, np.ndarray], keys: dict[str, str]) -> TrainState:
    """Return a state with the structure of `like` from saved arrays by dotted path.

    `keys` has the name of each random key's implementation by the key's path. Raises CheckpointError if an
    implementation is unknown or differs from that in `like`.
    """
    leaves = []
    for name, leaf in named_leaves(like).items():
        array = jnp.asarray(arrays[name])
        if _is_key(leaf):
            impl = keys.get(name) if isinstance(keys, dict) else None
            try:
                array = jax.random.wrap_key_data(array, impl=impl if isinstance(impl, str) else "")
            except (TypeError, ValueError) as error:
                raise CheckpointError(f"{name}: {impl!r} is not an implementation of random keys: {error}") from error
            if array.dtype != leaf.dtype:
                raise CheckpointError(f"{name}: saved with keys {array.dtype}, this process uses {leaf.dtype}")
        leaves.append(array)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def array_differences(expected: dict[str, Any], saved: dict[str, np.ndarray]) -> list[str]:
    """Return a sentence for each array that is missing in `saved`, not in `expected`, or of another shape or dtype."""
    lines = [f"{name}: not in the checkpoint" for name in expected.keys() - saved.keys()]
    lines += [f"{name}: in the checkpoint, but not expected" for name in saved.keys() - expected.keys()]
    for name in expected.keys() & saved.keys():
        wanted, actual = expected[name], saved[name]
        if wanted.shape != actual.shape or wanted.dtype != actual.dtype:
            lines.append(f"{name}: saved {actual.dtype}{actual.shape}, expected {wanted.dtype}{wanted.shape}")
    return sorted(lines)


def num_bytes(x: Any) -> int:
    """Return the size in bytes of an array, or of the array that a ShapeDtypeStruct describes."""
    return int(np.prod(x.shape, dtype=np.int64)) * x.dtype.itemsize


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))
