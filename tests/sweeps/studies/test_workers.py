"""Workers of one study in processes of their own, on a PostgreSQL database that the test starts; one is killed."""

import collections
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppax.sweeps import directory

optuna = pytest.importorskip("optuna")
pytestmark = pytest.mark.nightly

TRIALS, BATCH, SEEDS = 12, 2, 2
FILE = """
env = "CartPole-v1"
num_envs = 8
num_steps = 32
total_steps = 20_480
eval.episodes = 16
log.console = false
log.checkpoint_seconds = 1.0

[sweep]
seeds = 2
"agent.learning_rate" = { part = "log_uniform", low = 1e-6, high = 1e-1 }
"""


def program(name):
    """Path of a program of PostgreSQL; the test is skipped where there is none."""
    places = [os.environ["PATH"], *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    path = shutil.which(name, path=os.pathsep.join(places))
    return path or pytest.skip(f"{name} of PostgreSQL is not installed")


@pytest.fixture
def database(tmp_path_factory):
    """URL of a database of a server of its own."""
    pytest.importorskip("psycopg")
    path = tmp_path_factory.mktemp("postgresql")
    user = "postgres" if os.getuid() == 0 else None  # the server refuses to be root's
    for folder in (path, *path.parents[:2]):
        folder.chmod(0o755)
    if user is not None:
        shutil.chown(path, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    make = [program("initdb"), "-D", str(path / "data"), "-E", "UTF8", "--auth", "trust", "-U", "postgres"]
    subprocess.run(make, user=user, check=True, stdout=subprocess.DEVNULL, cwd=path)
    options = ["-p", str(port), "-k", str(path), "-c", "listen_addresses=127.0.0.1"]
    with (path / "log").open("w") as log:
        server = subprocess.Popen(
            [program("postgres"), "-D", str(path / "data"), *options], user=user, stdout=log, stderr=log, cwd=path
        )
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            time.sleep(0.1)
        yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)  # its fast shutdown; SIGTERM waits for all connections to end
        server.wait(60)


def worker(file, path, url):
    options = {"trials": TRIALS, "batch": BATCH, "storage": url, "patience": 8}
    flags = [text for name, value in options.items() for text in (f"--search.{name}", str(value))]
    command = [sys.executable, "-m", "ppax", "sweep", str(file), "--search", "optuna", *flags, "--run-dir", str(path)]
    with path.with_suffix(".txt").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def trials_of(url):
    """Trials; none while there is no study yet."""
    try:
        storage = optuna.storages.RDBStorage(url, skip_table_creation=True, skip_compatibility_check=True)
    except Exception:
        return []
    try:
        return optuna.load_study(study_name="ppax", storage=storage).get_trials()
    except Exception:
        return []
    finally:
        storage.remove_session()
        storage.engine.dispose()


@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_loses_no_trial_and_none_counts_twice(database, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(FILE)
    paths = tmp_path / "first", tmp_path / "second"
    workers = [worker(file, path, database) for path in paths]
    try:
        while True:  # until the first has told a trial, and trains others
            owned = [t for t in trials_of(database) if str(paths[0]) in t.user_attrs.get("ppax.owner", "")]
            states = collections.Counter(trial.state.name for trial in owned)
            if states["COMPLETE"] >= 1 and states["RUNNING"] >= 1:
                break
            assert workers[0].poll() is None, paths[0].with_suffix(".txt").read_text()
            time.sleep(0.2)
        workers[0].kill()
        assert workers[1].wait(900) == 0, paths[1].with_suffix(".txt").read_text()
    finally:
        for one in workers:
            one.kill()
    trials = trials_of(database)
    done = [trial for trial in trials if trial.state.name == "COMPLETE"]
    lost = [trial for trial in trials if trial.state.name == "FAIL" and "ppax.why" not in trial.user_attrs]
    assert {trial.state.name for trial in trials} <= {"COMPLETE", "FAIL"}
    assert len(done) == TRIALS
    assert lost
    for trial in lost:
        (again,) = [one for one in done if one.user_attrs.get("ppax.repeats") == trial.number]
        assert again.params == trial.params
    assert len({trial.params["agent.learning_rate"] for trial in done}) == TRIALS
    assert len({trial.user_attrs["ppax.run"] for trial in done}) == TRIALS
    best = max(done, key=lambda trial: trial.value)
    assert best.value > 100.0  # an untrained policy has about 20
    assert f"best trial of the study: {best.number}, score" in paths[1].with_suffix(".txt").read_text()
    # the lost worker's directory goes on to its end, without what the other has repeated
    resumed = subprocess.run(
        [sys.executable, "-m", "ppax", "resume", str(paths[0]), "--trust", database],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert len(trials_of(database)) == len(trials)
    owned = {member.setting for member in directory.read(paths[0]).members}
    assert {trial.number for trial in lost} <= owned
