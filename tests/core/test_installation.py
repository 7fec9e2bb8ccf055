"""Broken installations: one sentence with the remedy, in Python and on the command line."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ppax_command
from ppax.core import installation

ROOT = Path(__file__).parents[2]


def declared():
    """Dependencies of pyproject.toml by name."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return dict(re.fullmatch(r"([\w-]+)(.*)", line).groups() for line in lines)


def test_packages_and_versions_are_those_of_the_project():
    dependencies = declared()
    assert set(installation.NEEDED) == {name.replace("-", "_") for name in dependencies} | {"jaxlib"}
    oldest, beyond = (".".join(map(str, version)) for version in (installation.OLDEST, installation.BEYOND))
    assert {f">={oldest}", f"<{beyond}"} <= set(dependencies["jax"].split(","))


def imported(folder, code="import ppax", **variables):
    """Exit code and last line of what Python says in `folder`."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | variables, timeout=100
    )
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize("name", ["jax.py", "numpy/__init__.py"])
@pytest.mark.parametrize("text", ["raise RuntimeError('mine')", "x = 1"])
def test_a_file_with_the_name_of_a_package_is_named(tmp_path, name, text):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    code, said = imported(tmp_path)
    assert code == 1
    assert said.startswith(f"ImportError: {tmp_path / name} has the name of a package, and is imported in its place: ")


def test_another_failure_of_an_import_accuses_no_file(tmp_path):
    (tmp_path / "test.py").write_text("")  # Python has a package of this name, which nobody imports
    code, said = imported(tmp_path, "import jaxlib; del jaxlib.version; jaxlib.__path__ = []; import ppax")
    assert (code, "jaxlib" in said, "has the name of" in said) == (1, True, False)
    assert said.startswith("ImportError: JAX cannot be imported: ")
    assert "-m pip install --upgrade ppax jax jaxlib" in said


@pytest.fixture
def version(monkeypatch):
    """Function that gives JAX another version."""
    import jax

    return lambda text: monkeypatch.setattr(jax, "__version__", text)


@pytest.mark.parametrize("old", ["0.10.1", "0.4.30", "0.9"])
def test_an_old_jax_is_refused(version, old):
    version(old)
    with pytest.raises(ImportError, match=r"^ppax needs jax 0\.10\.2 or newer, and this is jax .*pip install"):
        installation.require_jax()


@pytest.mark.parametrize("good", ["0.10.2", "0.11.1", "0.12.0.1", "0.12.0.dev20260101"])
def test_versions_that_were_tried_say_nothing(version, good):
    version(good)
    installation.require_jax()


@pytest.mark.parametrize("new", ["0.13.0", "1.0"])
def test_a_jax_newer_than_those_tried_is_a_warning(version, new):
    version(new)
    with pytest.warns(UserWarning, match=rf'jax {re.escape(new)} is newer .* pip install "jax<0\.13"'):
        installation.require_jax()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(installation, "NEEDED", ("jax", "no_such_package"))
    with pytest.raises(ImportError, match=r"^ppax needs no_such_package, not installed for this Python: .* -m pip"):
        installation.require_jax()


def test_the_command_ends_in_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ppax.cli.main", None)  # as where an import fails
    monkeypatch.setattr(sys, "argv", ["ppax", "train", "CartPole-v1"])
    assert ppax_command.main() == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), said.startswith("ppax: ")) == (1, True)
