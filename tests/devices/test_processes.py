"""Runs of several processes: results of one process, checkpoints for any number, the loss of a process."""

import json
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy

import ppax
from ppax.devices import processes
from support import process_worker

STEPS = 8 * 16 * 20  # 20 iterations of the cases with one agent


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def started(case, run_dir, steps, of):
    port = free_port()
    words = [[process_worker.__file__, case, run_dir, steps, port, process, of] for process in range(of)]
    return [
        subprocess.Popen([sys.executable, *map(str, one)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for one in words
    ]


def run(case, run_dir, steps, of):
    """Train or resume in `of` processes; return the state's arrays of the last checkpoint."""
    ended = [(process, process.communicate(timeout=300)) for process in started(case, run_dir, steps, of)]
    for process, (_, errors) in ended:
        assert process.returncode == 0, errors
    path = sorted((run_dir / "checkpoints").iterdir())[-1]
    return safetensors.numpy.load_file(path / "state.safetensors")


def first_checkpoint(run_dir, running):
    """Wait for the first checkpoint of running processes; return the directory of checkpoints."""
    checkpoints, begin = run_dir / "checkpoints", time.monotonic()
    while not (checkpoints.exists() and any(checkpoints.iterdir())):
        assert all(process.poll() is None for process in running)
        assert time.monotonic() < begin + 300.0
        time.sleep(0.1)
    return checkpoints


def require_close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        # rewards and observations follow the actions: one that is drawn differently would show everywhere
        np.testing.assert_allclose(one[name], other[name], rtol=2e-4, atol=2e-5, err_msg=name)


def test_two_processes_train_as_one(tmp_path):
    require_close(run("memory", tmp_path / "two", STEPS // 4, 2), run("memory", tmp_path / "one", STEPS // 4, 1))
    manifest = json.loads(next((tmp_path / "two").rglob("manifest.json")).read_text())
    assert manifest["origin"]["devices"] == 2  # each has a share, and does not train the whole run


@pytest.mark.nightly
@pytest.mark.parametrize("case", process_worker.CASES)
def test_two_processes_train_as_one_and_either_resumes_the_other(case, tmp_path):
    two = run(case, tmp_path / "two", STEPS, 2)
    one = run(case, tmp_path / "one", STEPS, 1)
    require_close(two, one)
    assert (tmp_path / "two" / "metrics.csv").read_text().count("\n") == (
        tmp_path / "one" / "metrics.csv"
    ).read_text().count("\n")
    after = run(case, tmp_path / "two", 2 * STEPS, 1), run(case, tmp_path / "one", 2 * STEPS, 2)
    assert int(after[0]["iteration"]) > int(two["iteration"])
    require_close(*after)


@pytest.mark.nightly
@pytest.mark.parametrize("lost", [0, 1])
def test_the_loss_of_a_process_ends_all_and_the_run_resumes(lost, tmp_path):
    both = started("plain", tmp_path / "run", STEPS * 10_000, 2)
    checkpoints = first_checkpoint(tmp_path / "run", both)
    both[lost].send_signal(signal.SIGKILL)
    both[lost].communicate()
    _, errors = both[1 - lost].communicate(timeout=200)
    assert both[1 - lost].returncode != 0
    assert "another process of this run has ended" in errors, errors
    done = int(sorted(checkpoints.iterdir())[-1].name)
    state = run("plain", tmp_path / "run", (done + 5) * 8 * 16, 1)
    assert int(state["iteration"]) == done + 5


@pytest.mark.nightly
def test_a_signal_to_one_process_stops_both_with_a_checkpoint(tmp_path):
    both = started("plain", tmp_path / "run", STEPS * 10_000, 2)
    first_checkpoint(tmp_path / "run", both)
    both[1].send_signal(signal.SIGTERM)
    errors = [process.communicate(timeout=200)[1] for process in both]
    assert all("Interrupted: stopped after" in text for text in errors), errors
    assert '"signal"' in (tmp_path / "run" / "stopped.json").read_text()


@pytest.mark.nightly
def test_the_command_trains_in_two_processes(tmp_path):
    port, sizes = free_port(), ["--num-envs", "8", "--num-steps", "16", "--total-steps", str(STEPS)]
    words = ["train", "CartPole-v1", *sizes, "--run-dir", str(tmp_path / "run"), "--eval.episodes", "2"]
    both = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ppax",
                *words,
                "--coordinator",
                f"127.0.0.1:{port}",
                "--process",
                str(i),
                "--of",
                "2",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    said = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "evaluation over 2 episodes" in said[0]
    assert "evaluation" not in said[1]
    assert (tmp_path / "run" / "evaluation.json").exists()


def test_incomplete_arguments_are_refused():
    with pytest.raises(ppax.ConfigError, match="process, of missing; give coordinator, process and of, or none"):
        processes.join("127.0.0.1:1")
    with pytest.raises(ppax.ConfigError, match="process = 2: must be from 0 to 1; nearest valid value: 1"):
        processes.join("127.0.0.1:1", 2, 2)


def test_a_single_process_decides_alone():
    assert processes.leads()
    assert processes.count() == 1
    assert processes.agreed(True)
    assert not processes.any_of(False)
    assert processes.whole((1, "x")) == (1, "x")


def test_host_environments_are_refused_in_several_processes(monkeypatch):
    monkeypatch.setattr(processes, "count", lambda: 2)
    env = ppax.make("gymnasium/CartPole-v1", 2)
    with env, pytest.raises(ppax.ConfigError, match="environments on the host are stepped by one process"):
        ppax.fit(ppax.PPO(ppax.networks.mlp(env, (8,))), env, total_steps=64, num_steps=16)
