"""Paths that a caller names: what is no path, and where nothing can be written."""

from pathlib import Path

import pytest

from ppax.core.types import ConfigError
from ppax.storage.paths import require_place, to_directory, to_path


def test_paths(tmp_path):
    assert to_path(str(tmp_path), "run") == to_path(tmp_path, "run") == tmp_path
    with pytest.raises(ConfigError, match=r"^run = b'x': must be a path"):
        to_path(b"x", "run")
    with pytest.raises(ConfigError, match=r"^run = '': must be a path.*the current directory is '\.'$"):
        to_path("", "run")


def test_a_tilde_is_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert to_path("~/runs/mine", "run") == to_path(Path("~/runs/mine"), "run") == tmp_path / "runs/mine"


def test_directories(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    for free in (tmp_path, tmp_path / "new" / "newer", "new", "."):
        to_directory(free, "run_dir")
    for taken in ("file", tmp_path / "file" / "inside" / "of it"):
        with pytest.raises(ConfigError, match=r"run_dir = .*file is a file; must be a new directory"):
            to_directory(taken, "run_dir")


def test_places_of_new_files(tmp_path):
    (tmp_path / "old.zip").write_text("")
    require_place(tmp_path / "new.zip", "x.zip")
    require_place(tmp_path / "old.zip", "x.zip")
    with pytest.raises(ConfigError, match=r"is a directory; must be a file; nearest valid value: .*/x\.zip$"):
        require_place(tmp_path, "x.zip")
    with pytest.raises(ConfigError, match=r"there is no directory .*nowhere; nearest valid value: a\.zip$"):
        require_place(tmp_path / "nowhere" / "a.zip", "x.zip")
