"""Checkpoints: save and load a whole TrainState, atomically and without executable data.

A checkpoint is a directory with `state.safetensors` (every leaf under its dotted name) and `manifest.json` (types of
random keys, origin, checksums of the state and of the manifest). It is written under a temporary name, flushed to disk
and renamed, so it is complete or absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from ppax.arrays import counter
from ppax.core import untrusted
from ppax.core.types import TrainState
from ppax.storage import manifest as manifests
from ppax.storage import safe_files, state_arrays
from ppax.storage.manifest import FORMAT, MANIFEST, MANIFEST_LIMIT, open_regular, sealed
from ppax.storage.manifest import CheckpointError as CheckpointError
from ppax.storage.manifest import DamagedCheckpoint as DamagedCheckpoint
from ppax.storage.manifest import read_manifest as read_manifest

Read = TypeVar("Read")

STATE = "state.safetensors"
NAME = re.compile(r"^\d{10}$")
LEARNER, CURRENT = "learner.", "current."  # prefixes of the names of arrays; the second with self-play
LISTINGS = 100  # attempts to list a directory whose checkpoints a running process replaces meanwhile


def save(
    directory: Path,
    state: TrainState,
    keep: int | None = 3,
    notes: dict[str, Any] | None = None,
    origin: dict[str, Any] | None = None,
) -> Path:
    """Write `state` to `directory/<iteration>`, atomically, and return that path.

    Of the checkpoints up to this iteration the newest `keep` stay (None: all). `notes` and `origin` (id of the run,
    configuration, devices) are plain data for the manifest. Raises OSError where the disk fails; the earlier
    checkpoints are then untouched.
    """
    arrays, keys = state_arrays.to_arrays(state)
    data = safetensors.numpy.save(arrays)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "iteration": int(state.iteration),
        "env_steps": counter.to_int(state.env_steps),
        "num_steps": state.num_steps,
        "jax": jax.__version__,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "keys": keys,
        "notes": notes or {},
        "origin": origin or {},
    }
    directory.mkdir(parents=True, exist_ok=True)
    final = directory / f"{int(state.iteration):010d}"
    if final.exists() and _holds(final, manifest["sha256"]):
        return final  # the same state is saved already
    replace(final, {STATE: data, MANIFEST: json.dumps(sealed(manifest), indent=1).encode()})
    # Higher iterations are damaged checkpoints that a resume skipped; they are replaced when the run reaches them
    older = [path for path in list_checkpoints(directory) if path.name <= final.name]
    for old in older[: -keep if keep else 0]:
        remove(old)
    return final


def remove(path: Path) -> None:
    """Remove the checkpoint at `path`; other processes, which may be reading the directory, see it whole or not at all.

    The caller must hold the run's lock.
    """
    vanished = path.with_name(f".tmp-old-{path.name}")
    try:
        os.replace(path, vanished)
    except OSError:  # as on Windows, while another process reads it
        vanished = path
    shutil.rmtree(vanished, ignore_errors=True)


def replace(final: Path, files: dict[str, bytes]) -> None:
    """Write the directory `final` with `files` (content by name), atomically; an existing one is replaced."""
    directory = final.parent
    remove_temporary(directory)  # of a process that was killed
    partial = directory / f".tmp-{final.name}"
    partial.mkdir()
    try:
        for name, data in files.items():
            safe_files.create(partial / name, data)
        safe_files.flush_directory(partial)
        if final.exists():  # damaged or of another run: move it away
            os.replace(final, directory / f".tmp-old-{final.name}")
        os.replace(partial, final)
        safe_files.flush_directory(directory)
    finally:
        remove_temporary(directory)


def remove_temporary(directory: Path) -> None:
    """Remove temporary folders (.tmp-*) of unfinished or replaced checkpoints from `directory`.

    The caller must hold the run's lock, so that no other process is writing there.
    """
    for leftover in directory.glob(".tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def load(path: Path, like: TrainState, run_id: str | None = None) -> TrainState:
    """Return the state saved at `path`; `like` has the expected structure (arrays, or shapes of `jax.eval_shape`).

    Executes nothing from the file. Raises DamagedCheckpoint if it is damaged or belongs to another run than `run_id`
    (None: any run), CheckpointError if it has another structure.
    """
    return load_with_manifest(path, like, run_id).state


class Checkpoint(NamedTuple):
    """State and manifest of a checkpoint."""

    state: TrainState
    manifest: dict[str, Any]


def load_with_manifest(path: Path, like: TrainState, run_id: str | None = None) -> Checkpoint:
    """Return state and manifest of the checkpoint at `path`; arguments and errors are those of `load`.

    Both files are opened first, so that they can be read even if they are removed meanwhile.
    """
    expected = state_arrays.expected_arrays(like)
    limit = sum(state_arrays.num_bytes(x) for x in expected.values()) + MANIFEST_LIMIT
    arrays, manifest = read_arrays(path, run_id, limit)
    return Checkpoint(_state(path, like, manifest, arrays), manifest)


class SavedArrays(NamedTuple):
    """Arrays of a checkpoint by dotted name, and its manifest."""

    arrays: dict[str, np.ndarray]
    manifest: dict[str, Any]


def read_arrays(path: Path, run_id: str | None = None, limit: int | None = None) -> SavedArrays:
    """Return all arrays of the checkpoint at `path`, and its manifest.

    Raises DamagedCheckpoint if the checksum is wrong or the checkpoint is not of the run `run_id` (None: any run), and
    CheckpointError if the arrays have more than `limit` bytes together (None: no limit).
    """
    with contextlib.ExitStack() as stack:
        manifest_file, state_file = (stack.enter_context(open_regular(path / name)) for name in (MANIFEST, STATE))
        manifest = manifests.parse_manifest(path, manifest_file)
        if limit is not None and manifest["bytes"] > limit:
            raise CheckpointError(f"{path / STATE} has {manifest['bytes']} bytes; there may be at most {limit}")
        data = _verified(path, manifest, state_file)
    saved_by = manifest["origin"].get("run")
    if run_id and saved_by and saved_by != run_id:
        raise DamagedCheckpoint(f"{path} is of another run ({saved_by!r}), not of this one ({run_id!r})")
    try:
        return SavedArrays(untrusted.arrays_of(data), manifest)
    except ValueError as error:
        raise DamagedCheckpoint(f"{path / STATE} is not a readable safetensors file: {error}") from error


def _state(path: Path, like: TrainState, manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> TrainState:
    """Return the state with the structure of `like`, made from the arrays and the manifest of the checkpoint at `path`.

    Raises CheckpointError if the arrays do not fit `like`, DamagedCheckpoint if their iteration differs from the
    manifest's.
    """
    problems = state_arrays.array_differences(state_arrays.expected_arrays(like), arrays)
    if manifest.get("num_steps") != like.num_steps:
        problems.insert(0, f"num_steps: saved {manifest.get('num_steps')}, expected {like.num_steps}")
    if problems:
        raise CheckpointError(f"{path} does not fit this agent and environment:\n  " + "\n  ".join(problems))
    if int(arrays["iteration"]) != manifest["iteration"]:
        raise DamagedCheckpoint(f"{path / STATE} is of iteration {int(arrays['iteration'])}, not of the manifest's")
    return state_arrays.from_arrays(like, arrays, manifest.get("keys", {}))


def newest(directory: Path, read: Callable[[Path], Read]) -> tuple[Read | None, list[str]]:
    """Return `read(path)` of the newest undamaged checkpoint in `directory`, and a message per damaged one skipped.

    `read` raises DamagedCheckpoint for a damaged checkpoint. The first result is None where there is no undamaged one.
    A running process removes old checkpoints: if one disappears before it is read, the directory is listed again.
    """
    for _ in range(LISTINGS):
        skipped: list[str] = []
        for path in reversed(list_checkpoints(directory)):
            try:
                return read(path), skipped
            except DamagedCheckpoint as error:
                if not path.is_dir():
                    break
                skipped.append(str(error))
        else:
            break
    return None, skipped


def non_finite_leaves(state: TrainState) -> list[str]:
    """Return names of the learner's arrays in `state` that are not finite (in optimiser states: that have NaN).

    Environment states are not examined: there infinities are valid, as for a best time that is not set yet.
    """
    leaves = state_arrays.named_leaves(state)
    return arrays_not_finite({name: x for name, x in leaves.items() if name.startswith(LEARNER)})


def arrays_not_finite(learner: Mapping[str, Any]) -> list[str]:
    """Return names of a learner's arrays (by name) that are not finite.

    In optimiser states only NaN counts: a state may hold infinity on purpose, such as a limit that is not set yet.
    """
    return [
        name
        for name, x in learner.items()
        if jnp.issubdtype(x.dtype, jnp.floating)
        and bool((np.isnan(x) if "opt_state" in name.split(".") else ~np.isfinite(x)).any())
    ]


def learner_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the learner's arrays among those of a training state, by their names in the learner.

    With self-play, whose state also has a pool of past selves, these are the arrays of the current learners.
    """
    own = {name.removeprefix(LEARNER): x for name, x in arrays.items() if name.startswith(LEARNER)}
    if "num_snapshots" not in own:  # a field that only SelfPlayState has
        return own
    return {name.removeprefix(CURRENT): x for name, x in own.items() if name.startswith(CURRENT)}


def list_checkpoints(directory: Path) -> list[Path]:
    """Return paths of the complete checkpoints in `directory`, oldest first; [] if it does not exist."""
    if not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if NAME.match(p.name) and p.is_dir() and not p.is_symlink())


def newest_valid(directory: Path) -> tuple[Path | None, list[str]]:
    """Return the path of the newest checkpoint with a valid checksum (or None), and a message per newer one skipped."""

    def check(path: Path) -> Path:
        _check(path)
        return path

    return newest(directory, check)


def require_format(run_dir: Path) -> None:
    """Raise CheckpointError if the newest checkpoint of a run has the format of an earlier ppax, which cannot be read.

    The run file of such a run has options that no longer exist. A run without checkpoints passes.
    """
    newest(run_dir / "checkpoints", read_manifest)


def _holds(path: Path, sha256: str) -> bool:
    try:
        return bool(_check(path)["sha256"] == sha256)
    except CheckpointError:
        return False


def _check(path: Path) -> dict[str, Any]:
    """Return the manifest of the checkpoint at `path`, whose state must have the right size and checksum.

    Raises DamagedCheckpoint where it does not. Uses constant memory.
    """
    with open_regular(path / MANIFEST) as manifest_file, open_regular(path / STATE) as state_file:
        manifest = manifests.parse_manifest(path, manifest_file)
        _require_size(path, manifest, state_file)
        _require_digest(path, manifest, hashlib.file_digest(state_file, "sha256").hexdigest())
        return manifest


def _verified(path: Path, manifest: dict[str, Any], file: BufferedReader) -> bytes:
    _require_size(path, manifest, file)
    data = file.read()
    _require_digest(path, manifest, hashlib.sha256(data).hexdigest())
    return data


def _require_size(path: Path, manifest: dict[str, Any], file: BufferedReader) -> None:
    size = os.fstat(file.fileno()).st_size
    if size != manifest["bytes"]:
        raise DamagedCheckpoint(f"{path / STATE} has {size} bytes; its manifest says {manifest['bytes']}")


def _require_digest(path: Path, manifest: dict[str, Any], digest: str) -> None:
    if digest != manifest.get("sha256"):
        raise DamagedCheckpoint(f"{path / STATE} is damaged: its checksum differs from that in the manifest")
