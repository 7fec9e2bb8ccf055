"""Resumed runs equal uninterrupted ones: after stops, kills, signals, damaged files and disk errors."""

import csv
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import ppax
from ppax.cli import main
from ppax.config import Log
from ppax.networks import Tower, memories, mlp, network
from ppax.run import checkpoint, saving
from ppax.run.directory import RunDirectory
from ppax.storage import safe_files
from ppax.training.loop import MEASURED, STAGES

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
TIMING = (*MEASURED, *STAGES)
NUM_ENVS, NUM_STEPS = 4, 8
ROLLOUT = NUM_ENVS * NUM_STEPS
TOTAL = 80  # rollouts of a run in a process: long enough to be interrupted, short enough to wait for


def rows_of(directory):
    """Rows of metrics.jsonl without times."""
    lines = (Path(directory) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{name: x for name, x in json.loads(line).items() if name not in TIMING} for line in lines]


def table_of(directory):
    """Rows of metrics.csv without times, and the raw bytes."""
    data = (Path(directory) / "metrics.csv").read_bytes()
    table = list(csv.DictReader(data.decode().splitlines()))
    return [{name: x for name, x in row.items() if name not in TIMING} for row in table], data


def final_bytes(directory):
    """Iteration and state file of the newest checkpoint."""
    path, skipped = checkpoint.newest_valid(Path(directory) / "checkpoints")
    assert skipped == []
    return int(path.name), (path / "state.safetensors").read_bytes()


def assert_same_state(one, other):
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert x.dtype == y.dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), jax.tree_util.keystr(path)


@pytest.fixture(autouse=True)
def _cached(cached_programs):
    """All tests here and the processes that they start share a cache of compiled programs."""


def make(name="CartPole-v1", normalize=False):
    env = ppax.make(name, NUM_ENVS)
    return ppax.PPO(mlp(env, (8,)), num_epochs=2, normalize_obs=normalize, normalize_reward=normalize), env


def fit(agent, env, iterations, run_dir, **changes):
    log = Log(every=1, checkpoint_seconds=0.0, console=False)
    arguments = {"num_steps": NUM_STEPS, "log": log, "run_dir": run_dir} | changes
    return ppax.fit(agent, env, iterations * ROLLOUT, **arguments)


def stop_at(iteration):
    return lambda state, row: row["iteration"] >= iteration


# ---------------------------------------------------------------- in one process


@pytest.mark.parametrize(
    ("name", "normalize"),
    [
        ("CartPole-v1", False),
        ("CartPole-v1", True),
        pytest.param("Pendulum-v1", False, marks=pytest.mark.nightly),
        pytest.param("Pendulum-v1", True, marks=pytest.mark.nightly),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, name, normalize):
    """2 N iterations at once, and N + N: every bit of the state and every metric are equal."""
    agent, env = make(name, normalize)
    whole = fit(agent, env, 20, tmp_path / "whole")
    half = fit(agent, env, 20, tmp_path / "half", callbacks=[stop_at(10)])
    assert int(half.state.iteration) == 10
    resumed = ppax.resume(tmp_path / "half", agent, env, console=False)
    assert int(resumed.state.iteration) == 20
    assert_same_state(whole.state, resumed.state)
    assert whole.env_steps == resumed.env_steps
    assert final_bytes(tmp_path / "whole") == final_bytes(tmp_path / "half")
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "half")
    assert table_of(tmp_path / "whole")[0] == table_of(tmp_path / "half")[0]
    assert len(rows_of(tmp_path / "half")) == 20


def test_a_run_resumed_from_its_run_file_equals_one_with_other_chunks(tmp_path):
    """Agent and environment are rebuilt from run.toml; the interval of log rows changes no bit of the state."""
    agent, env = make()
    schedule = ppax.schedules.Linear()
    agent = ppax.PPO(agent.network, num_epochs=2, schedule=schedule)
    whole = fit(agent, env, 12, tmp_path / "whole", log=Log(every=5, console=False))
    assert [row["iteration"] for row in whole.history] == [5, 10, 12]
    fit(agent, env, 12, tmp_path / "half", callbacks=[stop_at(4)])
    resumed = ppax.resume(tmp_path / "half", console=False)
    assert jax.tree.structure(resumed.agent) == jax.tree.structure(whole.agent)
    assert_same_state(whole.state, resumed.state)
    assert [row["iteration"] for row in rows_of(tmp_path / "half")] == list(range(1, 13))


def test_towers_and_stacked_memories_resume_bit_for_bit_from_their_run_file(tmp_path):
    env = ppax.make("CartPole-v1-masked", NUM_ENVS)
    actor = Tower(memory=memories.Stack(memories.LSTM(4), 2, residual=True, norm=True))
    net = network(env, hidden=(6,), actor=actor, critic=Tower(hidden=(5,), memory=memories.GRU(3)), remat=True)
    agent = ppax.PPO(net, num_epochs=2, seq_len=4, minibatch=ppax.minibatches.Shuffle(2))
    whole = fit(agent, env, 6, tmp_path / "whole")
    fit(agent, env, 6, tmp_path / "half", callbacks=[stop_at(3)])
    resumed = ppax.resume(tmp_path / "half", console=False)
    assert resumed.agent.network == net
    assert_same_state(whole.state, resumed.state)
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "half")


def test_a_run_without_a_checkpoint_starts_again(tmp_path):
    agent, env = make()
    whole = fit(agent, env, 4, tmp_path / "run")
    for path in checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints"):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    again = ppax.resume(tmp_path / "run", agent, env, console=False)
    assert_same_state(whole.state, again.state)
    assert [row["iteration"] for row in rows_of(tmp_path / "run")] == [1, 2, 3, 4]


def test_resuming_a_finished_run_trains_nothing(tmp_path):
    agent, env = make()
    whole = fit(agent, env, 4, tmp_path / "run")
    before = final_bytes(tmp_path / "run"), rows_of(tmp_path / "run")
    again = ppax.resume(tmp_path / "run", agent, env, console=False)
    assert again.history == []
    assert_same_state(whole.state, again.state)
    assert (final_bytes(tmp_path / "run"), rows_of(tmp_path / "run")) == before


def test_a_damaged_checkpoint_is_skipped_at_a_resume(tmp_path):
    agent, env = make()
    whole = fit(agent, env, 6, tmp_path / "run")
    before = final_bytes(tmp_path / "run"), rows_of(tmp_path / "run")
    newest = checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints")[-1] / "state.safetensors"
    os.truncate(newest, 100)
    with pytest.warns(UserWarning, match=r"damaged checkpoint.*state\.safetensors"):
        again = ppax.resume(tmp_path / "run", agent, env, console=False)
    assert [row["iteration"] for row in again.history] == [6]
    assert_same_state(whole.state, again.state)
    assert (final_bytes(tmp_path / "run"), rows_of(tmp_path / "run")) == before


@pytest.mark.filterwarnings("ignore:skipped")
def test_if_all_checkpoints_are_damaged_resume_raises(tmp_path):
    agent, env = make()
    fit(agent, env, 4, tmp_path / "run")
    for path in checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints"):
        os.truncate(path / "state.safetensors", 100)
    with pytest.raises(ppax.CheckpointError, match="no checkpoint that can be loaded"):
        ppax.resume(tmp_path / "run", agent, env, console=False)
    assert len(rows_of(tmp_path / "run")) == 4


def test_an_agent_of_another_structure_is_refused(tmp_path):
    agent, env = make()
    fit(agent, env, 4, tmp_path / "run")
    other = ppax.PPO(mlp(env, (9,)))
    with pytest.raises(ppax.CheckpointError, match=r"learner\.params"):
        ppax.resume(tmp_path / "run", other, env, console=False)


def test_resume_uses_the_agent_that_is_passed(tmp_path):
    agent, env = make()
    fit(agent, env, 2, tmp_path / "run")
    mine = ppax.PPO(agent.network, num_epochs=2, gamma=0.5)
    with pytest.warns(UserWarning, match=r"agent\.gamma was 0\.99 and is 0\.5"):
        assert ppax.resume(tmp_path / "run", mine, console=False).agent.gamma == 0.5


# ---------------------------------------------------------------- rows


def test_rows_beyond_the_checkpoint_are_dropped(tmp_path):
    """A killed process has logged further rows and half a line: after the resume each row stands there once."""
    agent, env = make()
    fit(agent, env, 8, tmp_path / "whole")
    fit(agent, env, 8, tmp_path / "run", callbacks=[stop_at(3)])
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(lines[:5]) + lines[5][:40])
    data = (tmp_path / "whole" / "metrics.csv").read_bytes().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.csv").write_bytes(b"".join(data[:6]) + data[6][:30])
    ppax.resume(tmp_path / "run", agent, env, console=False)
    assert rows_of(tmp_path / "run") == rows_of(tmp_path / "whole")
    assert table_of(tmp_path / "run")[0] == table_of(tmp_path / "whole")[0]
    assert sorted(p.name for p in (tmp_path / "run").glob("metrics*")) == ["metrics.csv", "metrics.jsonl"]


HARM = [b"", b"iteration,env_st", b"\0" * 100 + b"\n", b"{}\n", b"x,y\n"]


@pytest.mark.parametrize("harm", [*HARM, b"5\n", b"[1]\n"])
def test_a_run_resumes_despite_damaged_rows(tmp_path, harm):
    agent, env = make()
    fit(agent, env, 3, tmp_path / "run", callbacks=[stop_at(2)])
    if b"iteration" not in harm:
        with open(tmp_path / "run" / "metrics.jsonl", "ab") as file:
            file.write(harm)
    with open(tmp_path / "run" / "metrics.csv", "ab" if b"iteration" not in harm else "wb") as file:
        file.write(harm)
    ppax.resume(tmp_path / "run", agent, env, console=False)
    assert [row["iteration"] for row in rows_of(tmp_path / "run")] == [1, 2, 3]
    assert [row["iteration"] for row in table_of(tmp_path / "run")[0]][-1] == "3"


def test_the_csv_file_has_one_kind_of_line_end(tmp_path):
    agent, env = make()
    fit(agent, env, 3, tmp_path / "run", callbacks=[stop_at(2)])
    ppax.resume(tmp_path / "run", agent, env, console=False)
    _, data = table_of(tmp_path / "run")
    assert data.count(b"\r\n") in (0, data.count(b"\n"))


def test_the_recorded_seconds_continue_after_a_resume(tmp_path):
    agent, env = make()
    fit(agent, env, 4, tmp_path / "run", callbacks=[stop_at(2)])
    ppax.resume(tmp_path / "run", agent, env, console=False)
    seconds = [json.loads(x)["seconds"] for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == 4


# ---------------------------------------------------------------- disk errors


def failing_saves(monkeypatch, which):
    """Let the saves with a number in `which` fail; return the iterations that were saved."""
    original, saved, calls = checkpoint.save, [], []

    def save(directory, state, *arguments, **keywords):
        calls.append(int(state.iteration))
        if len(calls) in which:
            raise OSError(28, "No space left on device")
        saved.append(calls[-1])
        return original(directory, state, *arguments, **keywords)

    monkeypatch.setattr(checkpoint, "save", save)
    return saved


def test_failed_checkpoints_do_not_change_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(safe_files, "FIRST_DELAY", 0.0)
    agent, env = make()
    whole = fit(agent, env, 8, tmp_path / "whole")
    saved = failing_saves(monkeypatch, {2, 3, 5, 6})  # never three in a row
    with pytest.warns(UserWarning, match="checkpoint failed.*No space left") as caught:
        run = fit(agent, env, 8, tmp_path / "run")
    assert len([x for x in caught if "checkpoint failed" in str(x.message)]) == 4
    assert saved[:3] == [1, 4, 7]
    assert_same_state(whole.state, run.state)
    assert final_bytes(tmp_path / "run") == final_bytes(tmp_path / "whole")


@pytest.mark.filterwarnings("ignore:checkpoint failed")
def test_a_disk_that_stays_full_ends_the_run(tmp_path, monkeypatch):
    agent, env = make()
    failing_saves(monkeypatch, set(range(2, 100)))
    clock = itertools.count()
    monkeypatch.setattr(saving.time, "monotonic", lambda: float(next(clock)))  # a second for each call
    monkeypatch.setattr(saving, "PATIENCE", 20.0)
    with pytest.raises(OSError, match="No space left"):
        fit(agent, env, 100, tmp_path / "run")
    assert final_bytes(tmp_path / "run")[0] == 1
    assert 3 < len(rows_of(tmp_path / "run")) < 40


@pytest.mark.filterwarnings("ignore:checkpoint failed")
def test_a_few_failed_checkpoints_do_not_end_a_run(tmp_path, monkeypatch):
    """Rows follow each other in milliseconds: the run ends by the duration of failures, not by their number."""
    agent, env = make()
    saved = failing_saves(monkeypatch, {2, 3, 4, 5})
    run = fit(agent, env, 8, tmp_path / "run")
    assert int(run.state.iteration) == 8
    assert saved[0] == 1
    assert saved[-1] == final_bytes(tmp_path / "run")[0] == 8


def test_the_result_is_returned_if_the_last_checkpoint_fails(tmp_path, monkeypatch):
    agent, env = make()
    monkeypatch.setattr(saving, "LAST_PATIENCE", 0.0)
    failing_saves(monkeypatch, set(range(1, 100)))
    log = Log(every=1, checkpoint_seconds=1e6, console=False)
    with pytest.warns(UserWarning, match=r"last checkpoint could not be saved.*No space left"):
        run = fit(agent, env, 4, tmp_path / "run", log=log)
    assert int(run.state.iteration) == 4
    assert "No space left" in run.unsaved
    assert_same_state(run.state, fit(agent, env, 4, None).state)


@pytest.mark.filterwarnings("ignore")
def test_an_error_of_the_disk_does_not_hide_that_of_an_environment(tmp_path, monkeypatch):
    """Without file handles neither checkpoint nor stopped.json can be written: the first error is raised."""

    class Failing(CartPoleEnv):
        taken = 0

        def step(self, action):
            self.taken += 1
            if self.taken > 40:

                def no_handles(*arguments, **keywords):
                    raise OSError(24, "Too many open files")

                monkeypatch.setattr(os, "open", no_handles)
                raise RuntimeError("the motor is hot")
            return super().step(action)

    env = ppax.envs.host(Failing, 2)
    agent = ppax.PPO(mlp(env, (4,)), num_epochs=1)
    log = Log(every=1, checkpoint_seconds=0.0, console=False)
    with pytest.raises(ppax.envs.EnvError, match="the motor is hot"):
        ppax.fit(agent, env, 800, num_steps=8, run_dir=tmp_path / "run", log=log)


@pytest.mark.filterwarnings("ignore:the last checkpoint")
def test_a_failed_last_checkpoint_has_the_exit_code_of_a_disk_error(tmp_path, monkeypatch, capsys):
    last = []
    original = checkpoint.save

    def save(directory, state, *arguments, **keywords):
        if int(state.iteration) == 2:
            last.append(True)
            raise OSError(28, "No space left on device")
        return original(directory, state, *arguments, **keywords)

    monkeypatch.setattr(checkpoint, "save", save)
    monkeypatch.setattr(saving, "LAST_PATIENCE", 0.0)
    assert main.main(["train", *tiny(tmp_path / "run", total=2), "--log.checkpoint-seconds", "1000"]) == 5
    assert last
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["train", "resume"])
def test_a_file_in_place_of_a_run_directory_is_wrong_usage(tmp_path, capsys, verb):
    (tmp_path / "file").write_text("x")
    if verb == "train":
        assert main.main(["train", *tiny(tmp_path / "file" / "run")]) == 2
        assert "file is a file" in capsys.readouterr().err
        assert main.main(["train", *tiny(tmp_path / "file")]) == 2
    else:
        assert main.main(["resume", str(tmp_path / "file" / "run")]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "x"


# ---------------------------------------------------------------- one owner


def test_a_run_directory_in_use_is_refused(tmp_path):
    agent, env = make()
    fit(agent, env, 2, tmp_path / "run")
    with (
        RunDirectory.open(tmp_path / "run"),
        pytest.raises(ppax.ConfigError, match=f"in use by process {os.getpid()}"),
    ):
        ppax.resume(tmp_path / "run", agent, env, console=False)
    ppax.resume(tmp_path / "run", agent, env, console=False)


def test_an_error_releases_the_lock_of_the_directory(tmp_path):
    agent, env = make()

    def fail(state, row):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fit(agent, env, 2, tmp_path / "run", callbacks=[fail])
    with pytest.warns(UserWarning, match="held a run: it is now"):  # rows without a checkpoint
        fit(agent, env, 2, tmp_path / "run")
    ppax.resume(tmp_path / "run", agent, env, console=False)


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(ppax.ConfigError, match=r"not a run directory.*run\.toml"):
        ppax.resume(tmp_path)
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- real processes


def tiny(run_dir, total=TOTAL, every=1, epochs=1):
    """Arguments of a run of `total` rollouts, saved after each."""
    sizes = ["--num-envs", NUM_ENVS, "--num-steps", NUM_STEPS, "--total-steps", total * ROLLOUT]
    agent = ["--agent.network.hidden", 8, "--agent.num-epochs", epochs, "--eval.episodes", 2]
    log = ["--log.every", every, "--log.checkpoint-seconds", 0, "--no-log.console"]
    return [str(x) for x in ["Pendulum-v1", *sizes, *agent, *log, "--run-dir", run_dir]]


# Process that has imported everything and forks for each command: real processes without their import time
FORKS = """
import json, os, signal, sys
import ppax.cli.main

for line in sys.stdin:
    job = json.loads(line)
    if "wait" in job:
        try:
            pid, status = os.waitpid(job["wait"], os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else None
        except ChildProcessError:
            code = None
        print(json.dumps(code), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        # independent of the handlers that pytest was started with, as in a background job of a script
        signal.signal(signal.SIGINT, signal.SIG_IGN if job["ignored"] else signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if pytest runs under `nohup`
        for stream, file in ((0, os.devnull), (1, job["out"] + ".out"), (2, job["out"] + ".err")):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv = ["ppax", *job["argv"]]
        sys.exit(ppax.cli.main.main())
    print(json.dumps(pid), flush=True)
"""


class Process:
    """A `ppax` command in a process of its own."""

    def __init__(self, ask, out, argv, ignored=False):
        self._ask, self._out, self.code = ask, out, None
        self.pid = ask({"argv": [str(x) for x in argv], "out": str(out), "ignored": ignored})

    def send(self, number):
        os.kill(self.pid, number)

    def poll(self):
        if self.code is None:
            self.code = self._ask({"wait": self.pid})
        return self.code

    def wait(self, seconds=120.0):
        """Exit code; None if the process did not end in time."""
        deadline = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.code

    @property
    def err(self):
        return Path(f"{self._out}.err").read_text()

    @property
    def out(self):
        return Path(f"{self._out}.out").read_text()


@pytest.fixture(scope="module")
def forks(program_cache):
    environment = os.environ | {"XDG_CACHE_HOME": str(program_cache)}
    command = [sys.executable, "-c", FORKS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:

        def ask(job):
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield ask
        server.stdin.close()


@pytest.fixture
def launch(forks, tmp_path):
    started = []

    def begin(*argv, ignored=False):
        started.append(Process(forks, tmp_path / f"process{len(started)}", argv, ignored))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.send(signal.SIGKILL)
            process.wait()


def wait_for_rows(process, directory, count):
    """Wait until metrics.jsonl has `count` lines."""
    deadline = time.monotonic() + 120
    file = Path(directory) / "metrics.jsonl"
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert process.poll() is None, f"ended with {process.code}: {process.err}"
        assert time.monotonic() < deadline, process.err
        time.sleep(0.002)


@pytest.fixture(scope="module")
def uninterrupted(forks, tmp_path_factory):
    """State file, rows and table of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    process = Process(forks, folder / "process", ["train", *tiny(folder / "run")])
    assert process.wait() == 0, process.err
    iteration, data = final_bytes(folder / "run")
    assert iteration == TOTAL
    rows = rows_of(folder / "run")
    assert [row["iteration"] for row in rows] == list(range(1, TOTAL + 1))
    return data, rows, table_of(folder / "run")[0]


def assert_equals(directory, uninterrupted):
    data, rows, table = uninterrupted
    assert final_bytes(directory) == (TOTAL, data)
    assert rows_of(directory) == rows
    assert table_of(directory)[0] == table
    assert [p for p in os.listdir(Path(directory) / "checkpoints") if p.startswith(".tmp")] == []


def test_a_run_that_is_killed_five_times_equals_an_uninterrupted_one(launch, tmp_path, uninterrupted):
    """SIGKILL at random moments: the final state file and the metrics are equal."""
    moments, directory, reached = random.Random(1), tmp_path / "run", 0
    process = launch("train", *tiny(directory))
    for _ in range(5):
        wait_for_rows(process, directory, reached + 6)
        time.sleep(moments.uniform(0.0, 0.05))
        assert process.poll() is None, "the run ended before the kill"
        process.send(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        path, skipped = checkpoint.newest_valid(directory / "checkpoints")
        assert skipped == []
        reached = len((directory / "metrics.jsonl").read_bytes().splitlines())
        assert reached - 1 <= int(path.name) + 1, "more than one interval was lost"
        process = launch("resume", directory)
    assert process.wait() == 0, process.err
    assert_equals(directory, uninterrupted)


def test_a_warm_started_run_that_is_killed_equals_an_uninterrupted_one(launch, tmp_path):
    """The run that it started from is gone when it is resumed."""

    def begin(name):
        return launch("train", *tiny(tmp_path / name, 40), "--init-from", tmp_path / "source")

    assert launch("train", *tiny(tmp_path / "source", 2)).wait() == 0
    assert begin("whole").wait() == 0
    process = begin("killed")
    wait_for_rows(process, tmp_path / "killed", 3)
    process.send(signal.SIGKILL)
    process.wait()
    assert len(rows_of(tmp_path / "killed")) < 40
    shutil.rmtree(tmp_path / "source")
    resumed = launch("resume", tmp_path / "killed")
    assert resumed.wait() == 0, resumed.err
    assert final_bytes(tmp_path / "killed") == final_bytes(tmp_path / "whole")
    assert rows_of(tmp_path / "killed") == rows_of(tmp_path / "whole")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_stopped_by_a_signal_and_resumed_equals_an_uninterrupted_one(launch, tmp_path, uninterrupted, number):
    directory = tmp_path / "run"
    process = launch("train", *tiny(directory))
    wait_for_rows(process, directory, 20)
    process.send(number)
    assert process.wait() == 75, process.err
    assert f"ppax resume {directory}" in process.err
    assert "Traceback" not in process.err
    rows, (iteration, _) = rows_of(directory), final_bytes(directory)
    assert rows[-1]["iteration"] == iteration < TOTAL, "the last logged iteration is saved"
    process = launch("resume", directory)
    assert process.wait() == 0, process.err
    assert_equals(directory, uninterrupted)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_the_process_at_once(launch, tmp_path, number):
    """During a chunk of minutes: the first signal waits for its end, the second does not."""
    directory = tmp_path / "run"
    process = launch("train", *tiny(directory, total=10_000_000, every=10_000_000, epochs=50))
    deadline = time.monotonic() + 60
    while not (directory / "metrics.csv").exists():  # the loggers are opened after compilation
        assert process.poll() is None, process.err
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.3)
    process.send(number)
    time.sleep(0.5)
    assert process.poll() is None, "the first signal waits for the end of the chunk"
    process.send(number)
    assert process.wait(30.0) in (75, -number)
    assert "Traceback" not in process.err


def test_a_signal_ignored_at_the_start_stays_ignored(launch, tmp_path):
    """SIGINT as under `nohup` and in background jobs of scripts; SIGTERM still stops the run."""
    directory = tmp_path / "run"
    process = launch("train", *tiny(directory, total=1_000_000), ignored=True)
    wait_for_rows(process, directory, 1)
    process.send(signal.SIGINT)
    wait_for_rows(process, directory, len(rows_of(directory)) + 3)
    assert process.poll() is None
    process.send(signal.SIGTERM)
    assert process.wait() == 75, process.err


def test_ctrl_c_without_a_run_directory_returns_the_result_so_far():
    agent, env = make()

    def press(state, row):
        if row["iteration"] == 3:
            signal.raise_signal(signal.SIGINT)

    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run = fit(agent, env, 1000, None, callbacks=[press])
    except KeyboardInterrupt:  # would end pytest
        pytest.fail("the result so far is lost")
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert [row["iteration"] for row in run.history] == [1, 2, 3]
    assert "run_dir" in run.stopped
    assert int(run.state.iteration) == 3


IN_TERMINAL = """
import os, pty, signal, sys

pid, terminal = pty.fork()
if pid == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if pytest runs under `nohup`
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.execv(sys.executable, [sys.executable, "-m", "ppax", *sys.argv[1:]])
print(pid, flush=True)
sys.stdin.readline()
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_a_run_whose_terminal_is_closed_saves_and_stops(tmp_path):
    """A dropped connection: the console cannot be written, and the run still saves and exits with 75."""
    directory = tmp_path / "run"
    run = [x for x in tiny(directory, total=1_000_000) if x != "--no-log.console"]
    command = [sys.executable, "-c", IN_TERMINAL, "train", *run, "--log.checkpoint-seconds", "1000"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as terminal:
        pid, deadline = int(terminal.stdout.readline()), time.monotonic() + 120
        file = directory / "metrics.jsonl"
        while not file.exists() or file.read_bytes().count(b"\n") < 3:
            os.kill(pid, 0)
            assert time.monotonic() < deadline
            time.sleep(0.01)
        terminal.stdin.write("\n")
        terminal.stdin.flush()
        assert terminal.stdout.readline() == "75\n"
    assert json.loads((directory / "stopped.json").read_text())["kind"] == "signal"
    assert final_bytes(directory)[0] == rows_of(directory)[-1]["iteration"]


def test_a_run_directory_in_use_by_another_process_is_refused(launch, tmp_path, capsys):
    directory = tmp_path / "run"
    process = launch("train", *tiny(directory, total=1_000_000))
    wait_for_rows(process, directory, 1)
    rows = len(rows_of(directory))
    assert main.main(["resume", str(directory)]) == 2
    assert f"in use by process {process.pid} " in capsys.readouterr().err
    assert main.main(["train", *tiny(directory)]) == 2
    assert str(process.pid) in capsys.readouterr().err
    assert process.poll() is None
    wait_for_rows(process, directory, rows + 2)  # the run goes on
    process.send(signal.SIGKILL)
    process.wait()
    assert main.main(["train", *tiny(directory)]) == 2
    assert f"ppax resume {directory}" in capsys.readouterr().err
    with RunDirectory.open(directory):  # a kill leaves no lock behind
        pass
