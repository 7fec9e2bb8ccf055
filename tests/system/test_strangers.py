"""Files of strangers: what they name outside of themselves is neither read, written, asked nor run without trust."""

import resource
import sys

import pytest

from ppax.cli import main
from ppax.core import imports
from support import hostile

ASKED = "a configuration may come from a stranger, and this lies outside of it. Nothing was read or sent."
OTHERS = {  # messages of the cases in which there is nothing to ask for
    "run file, package of gymnasium": "river",
    "run file, text that is not printable": "characters that cannot be printed",
    "run directory, package beside the user": "No module named 'river'",
    "sweep directory, package beside the user": "No module named 'river'",
    "sweep directory, journal that removes a file": "SQLite would remove a file",
    "sweep directory, database that is a file of the user": "another name of a file",
    "sweep directory, lock that is a file of the user": "another name of a file",
}
MEMORY = 2**28  # bytes that refusing a file may take


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Directory of the user, with files that must stay as they are."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PPAX_SETTINGS", str(tmp_path / "settings.toml"))
    monkeypatch.setattr(imports, "_trusted", set())
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.mark.parametrize("name", hostile.CASES)
def test_a_strangers_file_chooses_nothing_outside(name, home, tmp_path, capsys):
    before = hostile.victim(home)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    arguments = hostile.CASES[name](theirs, home)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with hostile.traced(home) as trace:
        code = main.main([*arguments, "--no-cache"])
    error = capsys.readouterr().err
    assert code in (2, 5), error
    assert OTHERS.get(name, ASKED) in error
    assert trace.events == []
    assert not (home / hostile.MARKER).exists()
    assert hostile.contents(home) == before
    assert "river" not in sys.modules
    assert "Traceback" not in error
    assert error.isascii() or error.isprintable()
    assert "secret" not in error
    unit = 1 if sys.platform == "darwin" else 2**10
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * unit < MEMORY
