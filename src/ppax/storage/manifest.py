"""Manifest of a checkpoint: what its state is of, with a checksum of the state and one of itself."""

from __future__ import annotations

import hashlib
import json
import os
from io import BufferedReader
from pathlib import Path
from typing import Any

from ppax.storage import safe_files

FORMAT = 2
MANIFEST = "manifest.json"
MANIFEST_LIMIT = 16 * 2**20  # bytes; far above any real one, far below what could hurt


class CheckpointError(Exception):
    """A checkpoint is damaged, or is not of this run; the message says which and what to do."""


class DamagedCheckpoint(CheckpointError):
    """A checkpoint that an older one may stand in for: damaged, not finite, or of another run."""


def read_manifest(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    with open_regular(path / MANIFEST) as file:
        return parse(path, file)


def sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    """`manifest` with the checksum of all its other entries."""
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    return rest | {"checksum": hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def parse(path: Path, file: BufferedReader) -> dict[str, Any]:
    """The manifest of the checkpoint `path`, whose open file is `file`."""
    where = path / MANIFEST
    try:
        if os.fstat(file.fileno()).st_size > MANIFEST_LIMIT:
            raise DamagedCheckpoint(f"{where} is too large to be a manifest")
        manifest = json.loads(file.read())
        version = manifest["format"]
        if version == FORMAT and manifest["checksum"] != sealed(manifest)["checksum"]:
            raise DamagedCheckpoint(f"{where} is damaged: its checksum is not that of its entries")
        kinds = {"bytes": int, "iteration": int, "origin": dict, "notes": dict}
        whole = all(type(manifest[name]) is kind for name, kind in kinds.items()) if version == FORMAT else False
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{where} is missing or damaged: {error}") from error
    if not whole:
        raise DamagedCheckpoint(
            f"{where}: not a checkpoint of format {FORMAT}; another version of ppax may have saved it"
        )
    if f"{manifest['iteration']:010d}" != path.name:
        raise DamagedCheckpoint(f"{where} is of iteration {manifest['iteration']}: its directory has another's name")
    return dict(manifest)


def open_regular(file: Path) -> BufferedReader:
    """`file` for reading; DamagedCheckpoint where it is not there, or no regular file."""
    try:
        return os.fdopen(safe_files.open_to_read(file), "rb")
    except OSError as error:
        raise DamagedCheckpoint(f"{file} cannot be read: {error.strerror}") from error
