"""Sweeps on a real cluster of Ray with two machines, one of which is killed."""

import json
import shutil
import threading
import time

import pytest

import ppax
from ppax.sweeps import directory
from ppax.training.loop import MEASURED
from support.two_machines import Cluster

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("cached_programs", "vmapped_keys"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),  # Ray's own
    pytest.mark.timeout(400),
]
ITERATIONS = 15_000  # longer than one machine may start after the other
BASE = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 16,
    "total_steps": 64 * ITERATIONS,
    "agent": {"num_epochs": 1, "network": {"hidden": [8]}},
    "eval": {"episodes": 4},
    "log": {"console": False, "every": 500, "checkpoint_every": 1_500, "keep": 2},
}
VALUES = {"agent.learning_rate": [1e-2, 1e-3]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    two = Cluster(tmp_path_factory.mktemp("raylets"))
    yield two
    two.close()


def rows_of(path):
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: x for name, x in row.items() if name not in MEASURED} for row in rows]


def killing(two, path, killed):
    """Kill the second machine when every member has a checkpoint and none is done."""
    while len({one.parent.parent.name for one in path.glob("members/*/checkpoints/0*")}) < 4:
        time.sleep(0.05)
    killed.append([sorted(int(one.name) for one in path.glob(f"members/{i:03d}/checkpoints/0*")) for i in range(4)])
    two.kill_other()


def test_a_sweep_outlives_one_of_two_machines(cluster, tmp_path):
    """Rows, checkpoints and scores are, bit for bit, those of the same programs without a cluster."""
    path, killed = tmp_path / "sweep", []
    killer = threading.Thread(target=killing, args=(cluster, path, killed), daemon=True)
    killer.start()
    with pytest.warns(UserWarning, match=r"the worker of members \d to \d was lost"):
        result = ppax.sweep_runs(BASE, VALUES, seeds=2, run_dir=path, ray={"address": cluster.address, "cpus": 2})
    killer.join()
    assert not ray.is_initialized()
    assert all(killed[0])  # each had a checkpoint
    assert any(saved[-1] < ITERATIONS for saved in killed[0])
    programs = directory.read(path).programs
    assert programs == ((0, 1), (2, 3))
    again = tmp_path / "again"
    again.mkdir()
    for name in (directory.SWEEP_FILE, directory.RECORD):
        shutil.copy(path / name, again / name)
    other = ppax.resume_sweep(again)  # from the beginning, with the same programs, here
    for one, two in zip(result.members, other.members, strict=True):
        rows = rows_of(one.run_dir)
        assert [row["iteration"] for row in rows] == list(range(500, ITERATIONS + 1, 500))
        assert rows == rows_of(two.run_dir)
        last = f"checkpoints/{ITERATIONS:010d}/state.safetensors"
        assert (one.run_dir / last).read_bytes() == (two.run_dir / last).read_bytes()
        assert (one.score, one.std, one.env_steps) == (two.score, two.std, two.env_steps)
    progress = json.loads((path / "sweep.jsonl").read_text().splitlines()[-1])
    assert progress["iteration"] == 4 * ITERATIONS
    assert progress["env_steps"] == sum(one.env_steps for one in result.members)
    assert len({json.loads((one.run_dir / "about.json").read_text())["id"] for one in result.members}) == 4
