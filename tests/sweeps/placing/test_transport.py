"""Snapshots of run directories: what has changed, in an order in which a kill leaves what can be resumed."""

import itertools
import os
import shutil

import pytest

import ppax
from ppax.core import untrusted
from ppax.sweeps.placing import transport
from ppax.sweeps.placing.transport import Outbox, Snapshot

STATE = "checkpoints/{:010d}/state.safetensors"


def write(root, name, data):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def contents(root):
    return {x.relative_to(root).as_posix(): x.read_bytes() for x in root.rglob("*") if x.is_file()} if root else {}


@pytest.fixture
def worker(tmp_path):
    """Run directories 000 and 001, after a checkpoint at iteration 3."""
    root = tmp_path / "worker"
    for run in ("000", "001"):
        for name, data in {"run.toml": b"a", "metrics.jsonl": b"3\n", STATE.format(3): b"three"}.items():
            write(root, f"{run}/{name}", data)
    return root


@pytest.fixture
def driver(tmp_path):
    return tmp_path / "driver"


def files_of(root):
    return {name: data for name, data in contents(root).items() if not name.endswith(".lock")}


def test_a_snapshot_makes_the_same_files(worker, driver):
    outbox = Outbox(worker)
    write(worker, "000/.tmp-0/x", b"unfinished")
    write(worker, "000/.owner", b"")
    transport.apply(driver, ["000", "001"], outbox.take())
    expected = files_of(worker)
    assert files_of(driver) == {name: x for name, x in expected.items() if ".tmp-" not in name and ".owner" not in name}
    assert len(files_of(driver)) == 6


def test_a_later_snapshot_has_only_what_changed_and_removes_what_is_gone(worker, driver):
    outbox = Outbox(worker)
    assert outbox.due
    transport.apply(driver, ["000", "001"], outbox.take())
    assert not outbox.due
    write(worker, "000/metrics.jsonl", b"3\n6\n")
    assert not outbox.due  # rows alone are sent with the next checkpoint
    write(worker, "000/" + STATE.format(6), b"six")
    (worker / "000" / STATE.format(3)).unlink()
    (worker / "000" / STATE.format(3)).parent.rmdir()
    assert outbox.due
    snapshot = outbox.take()
    assert sorted(snapshot.files) == ["000/" + STATE.format(6), "000/metrics.jsonl"]
    transport.apply(driver, ["000", "001"], snapshot)
    assert files_of(driver) == files_of(worker)
    assert not (driver / "000" / STATE.format(3)).parent.exists()


def test_a_worker_that_begins_with_files_sends_only_others(worker):
    outbox = Outbox(worker)
    outbox.sent()
    assert not outbox.due
    assert outbox.take().files == {}


def test_no_snapshot_is_taken_while_checkpoints_come_and_go(worker, monkeypatch):
    """Read while the run goes on: another member might have lost the checkpoint that this one still has."""
    outbox, read = Outbox(worker), untrusted.read

    def reading(path, limit=None):
        if path.name == "run.toml" and path.parent.name == "001":
            write(worker, "000/" + STATE.format(6), b"six")
        return read(path, limit)

    with monkeypatch.context() as patch:
        patch.setattr(untrusted, "read", reading)
        assert outbox.take() is None
    assert outbox.due
    assert len(outbox.take().files) == 7


class Killed(BaseException):
    pass


def test_a_kill_while_a_snapshot_is_written_leaves_what_can_be_resumed(worker, driver, monkeypatch):
    """After any number of writes each run has a checkpoint that all have, with its rows, and no end without it."""
    runs = ["000", "001"]
    outbox = Outbox(worker)
    transport.apply(driver, runs, outbox.take())
    for run in runs:
        write(worker, f"{run}/metrics.jsonl", b"3\n6\n")
        write(worker, f"{run}/best/{6:010d}/state.safetensors", b"best")
        write(worker, f"{run}/{STATE.format(6)}", b"six")
        write(worker, f"{run}/stopped.json", b"{}")
        write(worker, f"{run}/evaluation.json", b"{}")
        (worker / run / STATE.format(3)).unlink()
        (worker / run / STATE.format(3)).parent.rmdir()
    snapshot, killed, replace = outbox.take(), 0, os.replace
    for kill in range(20):
        copy = shutil.copytree(driver, driver.parent / f"copy{kill}")
        count = itertools.count()

        def replacing(*paths, count=count, kill=kill):
            if next(count) == kill:
                raise Killed
            replace(*paths)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replacing)
            try:
                transport.apply(copy, runs, snapshot)
            except Killed:
                killed += 1
        found = {run: {int(path.name) for path in (copy / run / "checkpoints").glob("0*")} for run in runs}
        assert found["000"] & found["001"]
        for run, iterations in found.items():
            assert iterations <= set(map(int, (copy / run / "metrics.jsonl").read_bytes().split()))
            assert 6 not in iterations or (copy / run / "best" / f"{6:010d}").exists()
            assert not (copy / run / "stopped.json").exists() or all(6 in own for own in found.values())
            assert not (copy / run / "evaluation.json").exists() or (copy / run / "stopped.json").exists()
    assert killed > 8
    assert files_of(copy) == files_of(worker)


@pytest.mark.parametrize("name", ["002/run.toml", "../x", "000/../../x", "run.toml", "/tmp/x"])
def test_files_outside_of_the_run_directories_are_refused(driver, name):
    with pytest.raises(ppax.ConfigError, match="in none of its run directories"):
        transport.apply(driver, ["000", "001"], Snapshot({name: b""}, frozenset([name])))
    assert contents(driver) == {}
