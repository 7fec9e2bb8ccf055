"""Random kills: sweeps, populations, studies, groups and overlap end with the bits of an uninterrupted run.

A real process is killed by SIGKILL at a random time and resumed, until its end. Nightly: `pytest -m nightly
tests/run/test_kills.py -s` prints at which iterations the kills came.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppax.run import checkpoint
from ppax.training.loop import MEASURED, STAGES

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(os.name != "posix", reason="SIGKILL")]

KILLS = 5  # of a chain
PER_KIND = 10
BASE = """
env = "CartPole-v1"
num_envs = 4
num_steps = 16
total_steps = 51_200
[agent]
num_epochs = 1
minibatch.num_minibatches = 2
[eval]
episodes = 4
"""
LOG = "[log]\nconsole = false\nevery = 5\ncheckpoint_every = 20\nkeep = 1\n"
BY_TIME = LOG.replace("checkpoint_every = 20", "checkpoint_seconds = 0.2")  # at other iterations in each process
GROUPS = """
env = "Pursuit-2"
num_envs = 8
num_steps = 16
total_steps = 76_800
[env_params]
max_steps = 20
[groups.prey]
players = [0]
[groups.hunter]
players = [1]
[self_play]
every = 7
size = 3
opponents = 1
[eval]
episodes = 4
every = 50
[best]
metric = "eval_return/hunter"
"""
HOST = BASE.replace("CartPole-v1", "gymnasium/CartPole-v1").replace(
    "total_steps = 51_200", "total_steps = 6_400\noverlap = 1"
)
KINDS = {  # command, run file
    "sweep": (
        "sweep",
        f"{BASE}every = 50\n{BY_TIME}[best]\nmetric = 'eval_return'\n[sweep]\nseeds = 2\n"
        '"agent.learning_rate" = [1e-2, 1e30]\n"agent.network.hidden" = [[8], [16]]\n',
    ),
    "population": (  # a member that has ended may be one that others have copied
        "sweep",
        'stop = "episode_return >= 300"\n' + BASE + LOG + '[sweep]\ndraws = 6\n"agent.learning_rate" = '
        '{ part = "log_uniform", low = 1e-4, high = 1e-2 }\n[search]\npart = "pbt"\ninterval = 15\nfraction = 0.34\n',
    ),
    "study": (
        "sweep",
        BASE.replace("51_200", "9_600") + BY_TIME + '[sweep]\nseeds = 2\n"agent.learning_rate" = '
        '{ part = "log_uniform", low = 1e-4, high = 1e-2 }\n[search]\npart = "optuna"\ntrials = 8\nbatch = 2\n'
        'pruner = "median"\n',
    ),
    "groups": ("train", GROUPS + LOG),
    "overlap": ("train", HOST + LOG),
}
TIMES = {*MEASURED, *STAGES, "compile_seconds", "train_seconds", "started_at", "run_dir", "run_id"}


class Process:
    """A command of ppax, in a process of its own."""

    def __init__(self, folder, *words):
        environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
        with open(folder / "output.txt", "ab") as file:
            line = [sys.executable, "-m", "ppax", *map(str, words)]
            self._one = subprocess.Popen(line, env=environment, stdout=file, stderr=file, cwd=folder)
        self._folder = folder

    def wait_for_start(self, directory):
        """Wait until the process has locked the directory."""
        while self._one.poll() is None:
            try:
                if json.loads((directory / ".owner").read_text())["pid"] == self._one.pid:
                    return
            except (OSError, ValueError):
                pass
            time.sleep(0.01)

    def wait_for_rows(self, directory):
        """Wait until rows of a run or of members, or decisions, are written or taken back."""
        before = progress(directory)
        while self._one.poll() is None and progress(directory) == before:
            time.sleep(0.01)

    def kill(self):
        """Kill the process; return whether it was still running."""
        running = self._one.poll() is None
        self._one.send_signal(signal.SIGKILL)
        return self._one.wait() == -signal.SIGKILL and running

    def finish(self):
        assert self._one.wait() == 0, (self._folder / "output.txt").read_text()[-3000:]


def plain(tree):
    """Plain data without times, and without an empty reason: after a kill during the last evaluation it is left out."""
    if isinstance(tree, dict):
        return {name: plain(x) for name, x in tree.items() if name not in TIMES and (name, x) != ("stopped", "")}
    return [plain(x) for x in tree] if isinstance(tree, list) else tree


def lines(path):
    return [plain(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else None


def contents_of(run):
    """Everything in a run directory that belongs to the run, but for times."""
    found = {"run.toml": (run / "run.toml").read_text(), "rows": lines(run / "metrics.jsonl")}
    for name in ("checkpoints", "best"):
        newest, skipped = checkpoint.newest_valid(run / name)
        assert skipped == []
        found[name] = newest and (newest.name, (newest / "state.safetensors").read_bytes())
    for name in ("stopped.json", "evaluation.json", "policy.json"):
        found[name] = plain(json.loads((run / name).read_text())) if (run / name).exists() else None
    return found


def contents(directory):
    """Results of a run, or of all members of a sweep with its decisions, its result and its best run file."""
    if not (directory / "sweep.toml").exists():
        return {"run": contents_of(directory)}
    found = {one.name: contents_of(one) for one in sorted((directory / "members").iterdir())}
    result = json.loads((directory / "result.json").read_text().replace(directory.name, "SWEEP"))
    found |= {"decisions": lines(directory / "search.jsonl"), "result": plain(result)}
    found["env_steps"] = lines(directory / "sweep.jsonl")[-1]["env_steps"]
    return found | {name: (directory / name).read_text() for name in ("best.toml", "sweep.toml")}


def assert_equal(found, expected, where=""):
    """Compare nested results; the message names the first difference instead of printing megabytes."""
    if isinstance(expected, dict) and isinstance(found, dict):
        assert found.keys() == expected.keys(), where
        for name in expected:
            assert_equal(found[name], expected[name], f"{where}/{name}")
    elif isinstance(expected, list) and isinstance(found, list):
        assert len(found) == len(expected), where
        for place, pair in enumerate(zip(found, expected, strict=True)):
            assert_equal(*pair, f"{where}/{place}")
    else:
        assert found == expected, f"{where}: {str(found)[:200]} is not {str(expected)[:200]}"


def progress(directory):
    """Sizes of the rows of a run or of each member."""
    rows = sorted(directory.glob("members/*/metrics.jsonl")) or [directory / "metrics.jsonl"]
    return {path.parent.name: path.stat().st_size if path.exists() else 0 for path in rows}


def reached(directory):
    """Number of the rows of a run or of each member."""
    rows = sorted(directory.glob("members/*/metrics.jsonl")) or [directory / "metrics.jsonl"]
    return [len(path.read_bytes().splitlines()) for path in rows if path.exists()]


def begin(kind, folder, directory):
    command, text = KINDS[kind]
    (folder / "file.toml").write_text(text)
    return Process(folder, command, folder / "file.toml", "--run-dir", directory)


def resumed(kind, folder, directory):
    """Resume what is there; a kill before the run file was written leaves nothing to resume."""
    if any((directory / name).exists() for name in ("run.toml", "sweep.toml")):
        return Process(folder, "resume", directory)
    return begin(kind, folder, directory)


_whole = {}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder, results and seconds (before the first row, and after) of an uninterrupted run of a kind, trained once."""

    def of(kind):
        if kind not in _whole:
            folder = tmp_path_factory.mktemp(kind)
            for name in ("first", "whole"):  # the first fills the cache of programs
                process = begin(kind, folder, folder / name)
                process.wait_for_start(folder / name)
                times = [time.monotonic()]
                process.wait_for_rows(folder / name)
                times.append(time.monotonic())
                process.finish()
                times.append(time.monotonic())
            assert_equal(contents(folder / "first"), contents(folder / "whole"))
            _whole[kind] = folder, contents(folder / "whole"), (times[1] - times[0], times[2] - times[1])
        return _whole[kind]

    return of


def continued_exactly(kind, folder, directory):
    """Check that a second resume of a host run does the same as a first one; a resume begins with new episodes."""
    copies = [Path(shutil.copytree(directory, folder / f"{directory.name}-{name}")) for name in "ab"]
    for copy in copies:
        resumed(kind, folder, copy).finish()
    assert_equal(*map(contents, copies))
    for copy in copies:
        shutil.rmtree(copy)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chain", range(PER_KIND // KILLS))
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_times_it_ends_with_the_same_bits(kind, chain, whole, capsys):
    folder, expected, (starting, training) = whole(kind)
    drawn, kills, seen = random.Random(f"{kind} {chain}"), 0, []
    directory = folder / f"killed-{chain}"
    process = begin(kind, folder, directory)
    while kills < KILLS:
        process.wait_for_start(directory)
        if drawn.random() < 0.2:  # while it starts
            time.sleep(drawn.uniform(0.0, starting))
        else:
            process.wait_for_rows(directory)
            time.sleep(drawn.uniform(0.0, 0.5 * training))
        if process.kill():
            kills += 1
            seen.append(reached(directory))
            if kind == "overlap" and (directory / "run.toml").exists():
                continued_exactly(kind, folder, directory)
        else:  # it had ended: another run takes the rest of the kills
            process.finish()
            if kind != "overlap":
                assert_equal(contents(directory), expected)
            directory = folder / f"killed-{chain}-after-{kills}"
        process = resumed(kind, folder, directory)
    process.finish()
    if kind == "overlap":
        first = expected["run"]["rows"][: max(0, seen[0][0] - 1) // 4 * 4 if seen[0] else 0]  # up to the checkpoint
        assert_equal(contents(directory)["run"]["rows"][: len(first)], first)
    else:
        assert_equal(contents(directory), expected)
    with capsys.disabled():
        print(f"\n{kind} {chain}: {kills} kills, after rows {seen}; uninterrupted {starting:.1f} + {training:.1f} s")
