"""Atomic writes; links, pipes and large files are refused."""

import os
import threading

import pytest

from ppax.core import untrusted
from ppax.storage import safe_files


def read(path):
    return untrusted.read(path, 10)


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("precious")
    yield path
    assert path.read_text() == "precious"


def test_a_file_is_replaced_atomically(tmp_path):
    safe_files.write(tmp_path / "file", b"one")
    safe_files.write_text(tmp_path / "file", "zwölf")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "zwölf"
    assert os.listdir(tmp_path) == ["file"]
    (tmp_path / "plain").write_text("")  # permissions follow the umask, as for any file
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_is_replaced_and_not_followed(tmp_path, victim):
    (tmp_path / "file").symlink_to(victim)
    safe_files.write(tmp_path / "file", b"mine")
    assert not (tmp_path / "file").is_symlink()
    assert untrusted.read(tmp_path / "file", 10) == b"mine"


def test_create_refuses_existing_files_and_links(tmp_path, victim):
    (tmp_path / "link").symlink_to(victim)
    os.link(victim, tmp_path / "second")
    for name in ("link", "second", "victim"):
        with pytest.raises(FileExistsError):
            safe_files.create(tmp_path / name, b"mine")


def test_links_are_not_opened(tmp_path, victim):
    (tmp_path / "link").symlink_to(victim)
    for function in (safe_files.open_to_append, untrusted.open_to_read, read):
        with pytest.raises(OSError, match="link"):
            function(tmp_path / "link")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("function", [safe_files.open_to_append, read])
def test_pipes_are_refused_without_waiting(tmp_path, function):
    os.mkfifo(tmp_path / "pipe")
    errors = []

    def attempt():
        try:
            function(tmp_path / "pipe")
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(20.0)
    assert len(errors) == 1


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    safe_files.write(tmp_path / "file", b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="No space") as caught:
                safe_files.write(tmp_path / "file", b"new")
        assert (caught.value.errno, caught.value.filename) == (28, str(tmp_path / "file"))
        assert os.listdir(tmp_path) == ["file"]
        assert untrusted.read(tmp_path / "file", 10) == b"old"


def test_files_above_the_limit_are_not_read(tmp_path):
    safe_files.write(tmp_path / "file", b"12345")
    assert untrusted.read(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="has 5 bytes; must have at most 4"):
        untrusted.read(tmp_path / "file", 4)


def test_unusual_lists_links_in_all_folders(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").write_text("x")
    (tmp_path / "a" / "b" / "to nowhere").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert safe_files.unusual(tmp_path) == ["a/b/to nowhere", "loop"]


def test_errors_name_the_file_that_was_to_be_written(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        safe_files.write(tmp_path / "nowhere" / "file", b"x")
    assert caught.value.filename == str(tmp_path / "nowhere" / "file")
    with pytest.raises(OSError, match="of its own") as caught, safe_files.replacing(tmp_path / "file"):
        raise OSError("of its own")  # of a library, without a number
    with pytest.raises(PermissionError) as caught, safe_files.replacing(tmp_path / "file"):
        raise PermissionError(13, "denied", "another")
    assert caught.value.filename == "another"
    assert os.listdir(tmp_path) == []
