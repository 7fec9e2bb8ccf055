"""Save and load a run's whole TrainState: data, never code, and never half of it.

A checkpoint is a directory with `state.safetensors` (every leaf under its dotted name) and `manifest.json` (shapes,
kinds of keys, a checksum). It is written beside its final name, flushed to disk and renamed, so it is whole or absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from ppax import counter
from ppax.types import TrainState

FORMAT = 1
STATE, MANIFEST = "state.safetensors", "manifest.json"
MANIFEST_LIMIT = 16 * 2**20  # bytes; far above any real one, far below what could hurt
NAME = re.compile(r"^\d{10}$")


class CheckpointError(Exception):
    """A checkpoint is damaged, or is not of this run; the message says which and what to do."""


def save(directory: Path, state: TrainState, keep: int = 3, notes: dict[str, Any] | None = None) -> Path:
    """Write `state` as `directory/<iteration>`, atomically, and drop all but the newest `keep`.

    `notes` are plain data for the manifest. Raises OSError where the disk fails; then the earlier ones are untouched.
    """
    arrays, keys = _to_arrays(state)
    data = safetensors.numpy.save(arrays)
    sha256 = hashlib.sha256(data).hexdigest()
    manifest = {
        "format": FORMAT,
        "iteration": int(state.iteration),
        "env_steps": counter.to_int(state.env_steps),
        "num_steps": state.num_steps,
        "jax": jax.__version__,
        "bytes": len(data),
        "sha256": sha256,
        "keys": keys,
        "notes": notes or {},
    }
    directory.mkdir(parents=True, exist_ok=True)
    sweep(directory)
    final = directory / f"{int(state.iteration):010d}"
    if final.exists() and _holds(final, sha256):
        return final  # never replace what is good already
    partial = directory / f".tmp-{final.name}"
    partial.mkdir()
    try:
        _write(partial / STATE, data)
        _write(partial / MANIFEST, json.dumps(manifest, indent=1).encode())
        _flush(partial)
        if final.exists():  # damaged, or of another run: out of the way, for what is whole
            os.replace(final, directory / f".tmp-old-{final.name}")
        os.replace(partial, final)
        _flush(directory)
    finally:
        sweep(directory)
    for old in list_checkpoints(directory)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def sweep(directory: Path) -> None:
    """Remove what a writer that was killed has left; the caller holds the run's lock."""
    for leftover in directory.glob(".tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def load(path: Path, like: TrainState) -> TrainState:
    """The state saved at `path`; `like` has the expected structure (arrays or shapes, from `jax.eval_shape`).

    Nothing of the file is ever executed. Raises CheckpointError where it is damaged or has another structure.
    """
    manifest = read_manifest(path)
    expected, _ = _describe(like)
    data = _read_verified(path, manifest, limit=sum(_nbytes(x) for x in expected.values()) + MANIFEST_LIMIT)
    try:
        arrays = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path / STATE} is not a readable safetensors file: {error}") from error
    problems = _differences(expected, arrays)
    if manifest.get("num_steps") != like.num_steps:
        problems.insert(0, f"num_steps: saved {manifest.get('num_steps')}, expected {like.num_steps}")
    if problems:
        raise CheckpointError(f"{path} does not fit this agent and environment:\n  " + "\n  ".join(problems))
    return _from_arrays(like, arrays, manifest.get("keys", {}))


def list_checkpoints(directory: Path) -> list[Path]:
    """Finished checkpoints, oldest first."""
    if not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if NAME.match(p.name) and p.is_dir() and not p.is_symlink())


def newest_valid(directory: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint whose checksum holds, and a sentence for each newer one that had to be passed over."""
    skipped = []
    for path in reversed(list_checkpoints(directory)):
        try:
            _check(path, read_manifest(path))
        except CheckpointError as error:
            skipped.append(str(error))
            continue
        return path, skipped
    return None, skipped


def read_manifest(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    file = path / MANIFEST
    try:
        if not _is_file(file) or file.stat().st_size > MANIFEST_LIMIT:
            raise CheckpointError(f"{file} is not a regular file, or too large to be a manifest")
        manifest = json.loads(file.read_bytes())
        whole = isinstance(manifest, dict) and isinstance(manifest["bytes"], int)
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise CheckpointError(f"{file} is missing or damaged: {error}") from error
    if not whole or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{file}: not a checkpoint of format {FORMAT}")
    return manifest


def _is_file(path: Path) -> bool:
    """A regular file: no link, and no pipe that would never end."""
    return stat.S_ISREG(path.lstat().st_mode)


def _holds(path: Path, sha256: str) -> bool:
    try:
        manifest = read_manifest(path)
        _check(path, manifest)
        return bool(manifest["sha256"] == sha256)
    except CheckpointError:
        return False


def _check(path: Path, manifest: dict[str, Any]) -> None:
    """The checksum, in constant memory."""
    file = path / STATE
    try:
        if not _is_file(file) or file.stat().st_size != manifest["bytes"]:
            raise CheckpointError(f"{file} is not a regular file of the {manifest['bytes']} bytes the manifest says")
        with open(file, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    if digest != manifest.get("sha256"):
        raise CheckpointError(f"{file} is damaged: its checksum is not the one in the manifest")


def _read_verified(path: Path, manifest: dict[str, Any], limit: int) -> bytes:
    if manifest["bytes"] > limit:
        raise CheckpointError(f"{path / STATE} has {manifest['bytes']} bytes, this run's state at most {limit}")
    _check(path, manifest)
    return (path / STATE).read_bytes()


# ---------------------------------------------------------------- trees and named arrays


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def _named_leaves(state: TrainState) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _to_arrays(state: TrainState) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    arrays, keys = {}, {}
    for name, leaf in _named_leaves(state).items():
        if _is_key(leaf):
            keys[name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        arrays[name] = np.array(jax.device_get(leaf), order="C")
    return arrays, keys


def _describe(like: TrainState) -> tuple[dict[str, jax.ShapeDtypeStruct], jax.tree_util.PyTreeDef]:
    expected = {}
    for name, leaf in _named_leaves(like).items():
        expected[name] = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
    return expected, jax.tree.structure(like)


def _from_arrays(like: TrainState, arrays: dict[str, np.ndarray], keys: dict[str, str]) -> TrainState:
    leaves = []
    for name, leaf in _named_leaves(like).items():
        array = jnp.asarray(arrays[name])
        if _is_key(leaf):
            kind = keys.get(name) if isinstance(keys, dict) else None
            try:
                array = jax.random.wrap_key_data(array, impl=kind if isinstance(kind, str) else "")
            except (TypeError, ValueError) as error:
                raise CheckpointError(f"{name}: {kind!r} is not a kind of random key: {error}") from error
            if array.dtype != leaf.dtype:
                raise CheckpointError(f"{name}: saved with keys {array.dtype}, this process uses {leaf.dtype}")
        leaves.append(array)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _differences(expected: dict[str, Any], found: dict[str, np.ndarray]) -> list[str]:
    lines = [f"{name}: not in the checkpoint" for name in expected.keys() - found.keys()]
    lines += [f"{name}: in the checkpoint, but not expected" for name in found.keys() - expected.keys()]
    for name in expected.keys() & found.keys():
        want, have = expected[name], found[name]
        if want.shape != have.shape or want.dtype != have.dtype:
            lines.append(f"{name}: saved {have.dtype}{have.shape}, expected {want.dtype}{want.shape}")
    return sorted(lines)


def _nbytes(x: Any) -> int:
    return int(np.prod(x.shape, dtype=np.int64)) * x.dtype.itemsize


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush(directory: Path) -> None:
    """Make a directory's entries durable, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
