"""Peers of the benchmarks: an old gymnax in a folder of its own, and a sentence for each that does not run here."""

import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("peers")


def package(folder, version):
    """Write an installed gymnax of a version, which says it."""
    for name, text in {
        f"gymnax-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: gymnax\nVersion: {version}\n",
        "gymnax/__init__.py": f"VERSION = {version!r}\n",
    }.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("installed", ["0.0.8", "1.0.1"])
def test_peers_import_gymnax_below_1(peers, monkeypatch, tmp_path, installed):
    package(tmp_path / "site", installed)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setattr(peers, "OLD_GYMNAX", tmp_path / "own")
    commands = []

    def install(command, check):
        commands.append(command)
        package(tmp_path / "own", "0.0.9")

    monkeypatch.setattr(subprocess, "run", install)
    version = "0.0.8" if installed == "0.0.8" else "0.0.9"
    for _ in range(2):  # installed once, if at all
        peers.use_old_gymnax()
        assert peers.gymnax_version() == version
    assert [command[-3:] for command in commands] == (
        [] if version == "0.0.8" else [["--target", str(tmp_path / "own"), "gymnax<1"]]
    )
    monkeypatch.delitem(sys.modules, "gymnax", raising=False)
    assert version == importlib.import_module("gymnax").VERSION
    monkeypatch.delitem(sys.modules, "gymnax")


def test_an_installation_that_fails_is_one_sentence(peers, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(peers, "OLD_GYMNAX", tmp_path / "own")
    monkeypatch.setattr(sys, "executable", "no-such-python")
    monkeypatch.setenv("PATH", "")  # no uv
    with pytest.raises(SystemExit, match=r"install .*gymnax<1.* failed, which rejax and PureJaxRL need"):
        peers.use_old_gymnax()
    assert not (tmp_path / "own").exists()


def test_a_peer_that_does_not_run_is_named_and_left_out(peers, monkeypatch, tmp_path, capfd):
    (tmp_path / "rejax.py").write_text("raise ImportError('rejax asks for another JAX')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PUREJAXRL", str(tmp_path))  # an empty folder
    package(tmp_path, "0.0.9")
    found = importlib.import_module("interleave").present(["purejaxrl", "ppax", "rejax"])
    assert found == ["ppax"]
    said = capfd.readouterr()
    assert [line.partition(" is left out: ")[0] for line in said.out.splitlines()] == ["purejaxrl", "rejax"]
    assert "there is no purejaxrl/ppo.py" in said.out
    assert said.out.splitlines()[1].endswith("ImportError: rejax asks for another JAX")
    assert "Traceback" not in said.out + said.err
