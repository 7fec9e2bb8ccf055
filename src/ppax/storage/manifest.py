"""Manifest of a checkpoint: its iteration and origin, and checksums of the state and of the manifest itself."""

from __future__ import annotations

import hashlib
import json
import os
from io import BufferedReader
from pathlib import Path
from typing import Any

from ppax.core import untrusted
from ppax.core.types import Quoting

FORMAT = 3
MANIFEST = "manifest.json"
MANIFEST_LIMIT = 2**22  # bytes; far above any valid manifest, small enough to read into memory


class CheckpointError(Quoting):
    """Error of a checkpoint that cannot be used, such as a damaged one or one of another run; the message says why."""


class DamagedCheckpoint(CheckpointError):
    """Error of a checkpoint that is damaged, not finite, or of another run: a loader may try an older one."""


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of the checkpoint directory `path`, verified; DamagedCheckpoint if it is missing or invalid.

    Raises CheckpointError for a manifest in the format of another version of ppax. Callers then do not try an older
    checkpoint, as they do after DamagedCheckpoint.
    """
    with open_regular(path / MANIFEST) as file:
        return parse_manifest(path, file)


def sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return `manifest` with the checksum of its entries as the entry "checksum"."""
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    return rest | {"checksum": hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def parse_manifest(path: Path, file: BufferedReader) -> dict[str, Any]:
    """Return the manifest of a checkpoint from its open file, verified; DamagedCheckpoint if it is invalid.

    `path` is the checkpoint's directory. Raises CheckpointError for a manifest in the format of another version of
    ppax.
    """
    where = path / MANIFEST
    try:
        untrusted.require_size(where, file, MANIFEST_LIMIT)
        manifest = untrusted.from_json(file.read(MANIFEST_LIMIT))
        if manifest["checksum"] != sealed(manifest)["checksum"]:
            raise DamagedCheckpoint(f"{where} is damaged: its checksum does not match its entries")
        if manifest["format"] != FORMAT:
            raise CheckpointError(
                f"{where} has format {manifest['format']!r}, and this ppax reads format {FORMAT}: continue the run "
                "with the version of ppax that has saved it, or train again"
            )
        types = {"bytes": int, "iteration": int, "origin": dict, "notes": dict}
        complete = all(type(manifest[name]) is kind for name, kind in types.items())
    except (OSError, *untrusted.MALFORMED) as error:
        raise DamagedCheckpoint(f"{where} is missing or damaged: {error}") from error
    if not complete:
        raise DamagedCheckpoint(f"{where}: an entry of {', '.join(types)} is of another type")
    if f"{manifest['iteration']:010d}" != path.name:
        raise DamagedCheckpoint(f"{where} is of iteration {manifest['iteration']}, but its directory is {path.name}")
    return dict(manifest)


def open_regular(file: Path) -> BufferedReader:
    """Return `file`, open for reading bytes; DamagedCheckpoint if it is missing or not a regular file."""
    try:
        return os.fdopen(untrusted.open_to_read(file), "rb")
    except OSError as error:
        raise DamagedCheckpoint(f"{file} cannot be read: {error.strerror}") from error
