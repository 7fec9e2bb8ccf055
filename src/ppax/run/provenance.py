"""Versions, hardware and git commit that a run is made with."""

from __future__ import annotations

import os
import platform
import re
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ppax.program import sharding

COMMIT = re.compile(r"[0-9a-f]{40,64}")
SMALL = 2**16  # bytes of a file of git's at most
PACKAGES = ("ppax", "jax", "jaxlib", "numpy")


def here() -> dict[str, Any]:
    """Time, versions, hardware and commit, as plain data."""
    device = jax.local_devices()[0]
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "git_commit": git_commit(Path.cwd()),
        "system": platform.platform(),
        "cores": sharding.num_cores(),
        "platform": device.platform,
        "device": device.device_kind,
        "local_devices": len(jax.local_devices()),
    }


def git_commit(directory: Path) -> str | None:
    """Commit that is checked out where `directory` is; None outside of a repository.

    Git's files are read and git is not run: a repository's own configuration can make it start other programs.
    """
    for folder in (directory, *directory.parents):
        if os.path.lexists(folder / ".git"):
            try:
                return _commit(folder / ".git")
            except (OSError, ValueError):
                return None
    return None


def _commit(git: Path) -> str | None:
    if git.is_file():  # of a worktree or submodule: the path of the real one
        git = git.parent / _text(git).removeprefix("gitdir: ")
    head = _text(git / "HEAD")
    if not head.startswith("ref: "):
        return head if COMMIT.fullmatch(head) else None
    name = head.removeprefix("ref: ")
    common = git / _text(git / "commondir") if (git / "commondir").exists() else git
    for place in (git / name, common / name):
        if place.is_file():
            found = _text(place)
            return found if COMMIT.fullmatch(found) else None
    packed = common / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    commits = [line.split(" ")[0] for line in lines if line.endswith(f" {name}")]
    return commits[0] if commits and COMMIT.fullmatch(commits[0]) else None


def _text(path: Path) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read(SMALL).strip()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # of a source tree that is not installed
        return getattr({"jax": jax, "numpy": np}.get(name), "__version__", None)
