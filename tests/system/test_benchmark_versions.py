"""Benchmarks name a peer that cannot use the installed libraries, before anything is measured."""

import importlib.metadata
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("peers")


@pytest.mark.parametrize("system", ["rejax", "purejaxrl", "purejaxrl-rnn"])
def test_gymnax_1_is_refused(peers, monkeypatch, system):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0.1")
    with pytest.raises(SystemExit, match=f"^{system} needs gymnax below 1, and 1.0.1 is installed: .*pip install"):
        peers.require_versions(["ppax", system])
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.9")
    peers.require_versions(["ppax", system])


def test_a_library_that_is_not_installed(peers, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    peers.require_versions(["ppax", "sb3"])
    with pytest.raises(SystemExit, match=r"^rejax needs gymnax, below 1: pip install"):
        peers.require_versions(["rejax"])


def test_measurements_begin_with_the_check(peers, monkeypatch):
    interleave = importlib.import_module("interleave")
    monkeypatch.setattr(interleave, "Worker", lambda *_: pytest.fail("a worker was started"))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0.1")
    for measure in (
        lambda: interleave.measure(["ppax", "rejax"], None, 1, 1.0),
        lambda: interleave.compile_turns(["ppax", "rejax"], None, 1),
    ):
        with pytest.raises(SystemExit, match="rejax needs gymnax below 1"):
            measure()
