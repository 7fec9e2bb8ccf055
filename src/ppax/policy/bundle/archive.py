"""Zip archive of a bundle, with files under known names, not compressed, and their sizes and checksums.

A bundle may come from a stranger. Nothing is unpacked to disk, names are compared with those of FILES, and as nothing
is compressed, the content is never larger than the archive itself.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppax.core import untrusted
from ppax.policy.bundle.numpy_policy import DIRECTORY
from ppax.storage.manifest import CheckpointError, sealed
from ppax.storage.zip_directory import require_short_directory

DESCRIPTION, WEIGHTS, PROGRAM = "policy.json", "weights.safetensors", "program.json"
READER, STABLEHLO, ONNX = "numpy_policy.py", "policy.stablehlo", "policy.onnx"
FILES = (DESCRIPTION, WEIGHTS, PROGRAM, READER, STABLEHLO, ONNX)
KIND, FORMAT = "ppax policy", 1
LIMIT, JSON_LIMIT = 2**33, 2**24  # bytes of an archive, and of a text in it
DATE = (1980, 1, 1, 0, 0, 0)  # the same for every file, so that equal bundles are equal files
NOT_FINITE = ("inf", "-inf", "nan")
ENCRYPTED = 1  # bit of a zip entry's flags


class DamagedBundle(CheckpointError):
    """Error of a file that is no bundle (exported policy), or of a damaged or malicious one; the message says where."""


def archive_bytes(description: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a bundle: `files` by name, and `description` with their sizes and checksums added."""
    entries = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    head = {"kind": KIND, "format": FORMAT, **description, "files": entries}
    text = json.dumps(sealed(head), indent=1, allow_nan=False).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {DESCRIPTION: text, **files}.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return out.getvalue()


def read_archive(path: Path, limit: int = LIMIT) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return description and verified files of the bundle `path`; DamagedBundle where its form or a checksum is wrong.

    A bundle of more than `limit` bytes is not read.
    """
    try:
        with os.fdopen(untrusted.open_to_read(path), "rb") as file:
            untrusted.require_size(path, file, min(limit, LIMIT))
            require_short_directory(file, DIRECTORY)
            with zipfile.ZipFile(file) as archive:
                _require_plain(path, archive, os.fstat(file.fileno()).st_size)
                files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedBundle(f"{path} cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, struct.error) as error:
        raise DamagedBundle(f"{path} is not a readable bundle: {error}") from error
    description = _parsed(path, files.pop(DESCRIPTION))
    listed = description["files"]
    if set(listed) != set(files):
        raise DamagedBundle(f"{path}: {DESCRIPTION} lists {_names(listed)}, but it holds {_names(files)}")
    for name, content in files.items():
        if listed[name] != {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}:
            raise DamagedBundle(f"{path}: {name} is damaged: its checksum differs from that in {DESCRIPTION}")
    return description, files


def parse_json(path: Path, name: str, data: bytes) -> Any:
    """Return the content of the JSON file `name` of a bundle; DamagedBundle if `data` is not JSON."""
    try:
        return untrusted.from_json(data)
    except ValueError as error:
        raise DamagedBundle(f"{path}: {name} is not JSON: {error}") from error


def _require_plain(path: Path, archive: zipfile.ZipFile, size: int) -> None:
    """Raise DamagedBundle if an entry of the archive is unknown, listed twice, compressed, encrypted or too large.

    `size` is the number of bytes of the whole bundle.
    """
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    for entry in entries:
        if entry.filename not in FILES or names.count(entry.filename) > 1:
            allowed = ", ".join(FILES)
            raise DamagedBundle(f"{path} holds {entry.filename!a}: a bundle holds each of {allowed} at most once")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & ENCRYPTED:
            raise DamagedBundle(f"{path}: {entry.filename} is compressed or encrypted; in a bundle nothing is")
        if entry.file_size != entry.compress_size or entry.file_size > size:
            raise DamagedBundle(f"{path}: {entry.filename} claims {entry.file_size} bytes; the bundle has {size}")
        if entry.filename in (DESCRIPTION, PROGRAM, READER) and entry.file_size > JSON_LIMIT:
            raise DamagedBundle(f"{path}: {entry.filename} has {entry.file_size} bytes, more than {JSON_LIMIT}")
    if DESCRIPTION not in names or WEIGHTS not in names:
        raise DamagedBundle(f"{path} is not a bundle: it has no {DESCRIPTION}, or no {WEIGHTS}")


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    """Return the description of a bundle from its bytes; DamagedBundle if its form or checksum is wrong."""
    description = parse_json(path, DESCRIPTION, data)
    if not isinstance(description, dict) or description.get("kind") != KIND:
        raise DamagedBundle(f"{path}: {DESCRIPTION} does not describe a ppax policy")
    if description.get("format") != FORMAT:
        version = ascii(description.get("ppax"))
        raise DamagedBundle(f"{path}: not a bundle of format {FORMAT}; ppax {version} may have written it")
    if description.get("checksum") != sealed(description)["checksum"]:
        raise DamagedBundle(f"{path}: {DESCRIPTION} is damaged: its checksum does not match its entries")
    if not isinstance(description.get("files"), dict):
        raise DamagedBundle(f"{path}: {DESCRIPTION} lists no files")
    return description


def _names(files: Mapping[str, Any]) -> str:
    return ", ".join(ascii(name) for name in sorted(map(str, files))[:10]) or "no files"


def to_json(x: Any) -> Any:
    """Return `x`, nested plain data, as JSON can hold it: infinities and NaN as texts, tuples as lists."""
    if isinstance(x, dict):
        return {name: to_json(inner) for name, inner in x.items()}
    if isinstance(x, list | tuple):
        return [to_json(inner) for inner in x]
    return str(x) if isinstance(x, float) and str(x) in NOT_FINITE else x


def undo_json(x: Any) -> Any:
    """Return the data from which `to_json` made `x`: texts of infinities and NaN become numbers again."""
    if isinstance(x, dict):
        return {name: undo_json(inner) for name, inner in x.items()}
    if isinstance(x, list):
        return [undo_json(inner) for inner in x]
    return float(x) if isinstance(x, str) and x in NOT_FINITE else x


def is_bundle(path: Path) -> bool:
    """Return whether `path` is to be read as a bundle: an existing file, or a name that ends in .zip."""
    return path.suffix == ".zip" or os.path.isfile(path)
