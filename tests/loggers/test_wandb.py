"""Weights & Biases logger with the real package, offline: what its own files hold."""

import itertools
import json
import math
import struct
import time

import pytest
from PIL import Image

import ppax
from ppax.config import FilmSettings, Log
from ppax.core.protocols import Artifact, LoggedRun
from ppax.loggers import WandB
from ppax.sweeps.member import MemberRun
from support.sweeping import signalling

pytest.importorskip("wandb")
# of a library of its own, and of files that the garbage collector closes
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

OPTIONS = {"env": "CartPole-v1", "num_envs": 64, "agent.learning_rate": 3e-4, "stop": None}
BLOCK = 2**15  # bytes in a block of the log file


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """Directory of all files of the package, which reads its environment once in a process."""
    folder = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_DIR", str(folder))
        for name in ("DATA", "CACHE", "CONFIG"):
            patch.setenv(f"WANDB_{name}_DIR", str(folder / name))
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("NETRC", str(folder / "netrc"))
        for name in ("WANDB_MODE", "WANDB_API_KEY"):
            patch.delenv(name, raising=False)
        yield folder


def files(folder, run_id):
    return sorted(folder.glob(f"wandb/offline-run-*-{run_id}"))


def records(folder, run_id, starts=1):
    """Records of all offline files of a run, one for each start, when its process has written their ends."""
    deadline = time.monotonic() + 60.0
    while True:
        found = list(written(folder, run_id))
        if sum(record.HasField("exit") for record in found) == starts or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def written(folder, run_id):
    """Records in the offline files of a run, in the format of LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record

    for file in (made / f"run-{run_id}.wandb" for made in files(folder, run_id)):
        data, place, parts = file.read_bytes(), 7, []
        assert data[:4] == b":W&B"
        while place + 7 <= len(data):
            if BLOCK - place % BLOCK < 7:  # padding at the end of a block
                place += BLOCK - place % BLOCK
                continue
            _, length, kind = struct.unpack("<IHB", data[place : place + 7])
            parts.append(data[place + 7 : place + 7 + length])
            place += 7 + length
            if kind in (1, 4):  # whole, or the last piece
                record, parts = b"".join(parts), []
                yield Record.FromString(record)


def rows(found):
    """Logged rows: a number of steps, and values by name."""
    for record in found:
        if record.HasField("history"):
            items = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            yield record.history.step.num, {name: x for name, x in items.items() if not name.startswith("_")}


def begun(found):
    return [record.run for record in found if record.HasField("run")]


def configuration(found):
    updates = itertools.chain(*(run.config.update for run in begun(found)))
    return {item.key: json.loads(item.value_json) for item in updates}


def run_in(path, run_id, iteration=0, **options):
    path.mkdir(exist_ok=True)
    return LoggedRun("mine", path, run_id, OPTIONS | options, "num_envs = 64", iteration, 128 * iteration)


def test_rows_options_films_and_policies_are_in_the_offline_file(folder, tmp_path):
    film = tmp_path / "0000000001.gif"
    frames = [Image.new("RGB", (7, 5), (40 * i, 0, 0)) for i in range(3)]
    frames[0].save(film, save_all=True, append_images=frames[1:])
    for name in ("policy.zip", "best.zip"):
        (tmp_path / name).write_bytes(name.encode())
    part = WandB(project="poles", group="seeds", mode="offline", system_metrics=False)
    logger = part.open(run_in(tmp_path, "0123456789abcdef"))
    logger.log({"iteration": 1, "env_steps": 128, "loss": 0.5, "episode_return": math.nan})
    logger.store(Artifact("film", {"0000000001.gif": film}, 128))
    logger.log({"iteration": 2, "env_steps": 2**33, "loss": 0.25, "episode_return": 7.0})
    policies = {name: tmp_path / name for name in ("policy.zip", "best.zip")}
    logger.store(Artifact("policy", policies, 2**33))
    logger.close()
    found = records(folder, "0123456789abcdef")
    assert {(run.run_id, run.project, run.run_group, run.display_name) for run in begun(found)} == {
        ("0123456789abcdef", "poles", "seeds", "mine")
    }
    assert configuration(found).items() >= {"env": "CartPole-v1", "num_envs": 64, "stop": None}.items()
    assert configuration(found)["agent"] == {"learning_rate": 3e-4}
    first, second = rows(found)
    assert second == (2**33, {"iteration": 2, "loss": 0.25, "episode_return": 7.0})
    assert first[0] == 128
    assert (first[1]["iteration"], first[1]["loss"]) == (1, 0.5)
    assert any(name.startswith("film") for name in first[1])
    assert "episode_return" not in first[1]
    (made,) = files(folder, "0123456789abcdef")
    assert [path.read_bytes() for path in made.glob("files/media/videos/*.gif")] == [film.read_bytes()]
    (artifact,) = (record.artifact for record in found if record.HasField("artifact"))
    assert (artifact.name, artifact.type) == ("policy-0123456789abcdef", "model")
    assert {entry.path: entry.size for entry in artifact.manifest.contents} == {"policy.zip": 10, "best.zip": 8}


@pytest.mark.parametrize("failed", [False, True])
def test_a_run_that_an_exception_ends_is_failed(failed, folder, tmp_path):
    run_id = f"end{failed:d}"
    logger = WandB(mode="offline").open(run_in(tmp_path / "run", run_id))
    logger.log({"iteration": 1, "env_steps": 64, "loss": 0.5})
    if failed:
        logger.fail(RuntimeError("boom"))
    logger.close()
    (end,) = (record.exit for record in records(folder, run_id) if record.HasField("exit"))
    assert end.exit_code == failed


def test_a_resumed_run_goes_on_under_its_id_with_the_options_as_they_are(folder, tmp_path):
    for iteration, total in ((0, 1000), (1, 2000)):
        run = run_in(tmp_path, "1123456789abcdef", iteration, total_steps=total)
        logger = WandB(mode="offline", system_metrics=False).open(run)
        logger.log({"iteration": iteration + 1, "env_steps": 128 * (iteration + 1), "loss": 0.5})
        logger.close()
        time.sleep(1.1)  # the name of a directory has the second of its start
    found = records(folder, "1123456789abcdef", starts=2)
    assert {run.run_id for run in begun(found)} == {"1123456789abcdef"}
    assert configuration(found)["total_steps"] == 2000
    assert [step for step, _ in rows(found)] == [128, 256]


@pytest.mark.parametrize(("own", "shown"), [(None, "rates-01234567"), ("mine", "mine")])
def test_a_member_of_a_sweep_is_in_the_group_of_its_sweep_unless_the_user_names_one(own, shown, folder, tmp_path):
    run_id = f"{own or 'none'}-6789abcdef"
    run = run_in(tmp_path, run_id)._replace(name="rates/003", group="rates-01234567")
    WandB(group=own, mode="offline", system_metrics=False).open(run).close()
    (record,) = begun(records(folder, run_id))
    assert (record.run_group, record.display_name) == (shown, "rates/003")


def test_without_a_key_the_logger_fails_and_asks_nothing(tmp_path):
    logger = WandB(mode="online").open(run_in(tmp_path, "2123456789abcdef"))
    with pytest.raises(PermissionError, match="no API key: run `wandb login`"):
        logger.close()


@pytest.mark.nightly
def test_a_whole_run_and_its_resume(folder, tmp_path):
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    options = {"log": Log(to=(WandB(mode="offline"),), console=False, every=1), "num_steps": 8}
    film = FilmSettings(every=2, max_steps=3)
    stop = [lambda state, row: row["iteration"] >= 3]
    run = ppax.fit(agent, env, 64, run_dir=tmp_path / "run", film=film, callbacks=stop, **options)
    rest = ppax.resume(tmp_path / "run")  # no file of the package is in its way
    run_id = ppax.run.directory.read_about(tmp_path / "run")["id"]
    found = records(folder, run_id, starts=2)
    logged = {step: row["loss"] for step, row in rows(found) if "loss" in row}
    assert logged == {row["env_steps"]: row["loss"] for row in run.history + rest.history}
    assert len(logged) == 4
    assert any(record.HasField("stats") for record in found)
    assert len([path for made in files(folder, run_id) for path in made.glob("files/media/videos/*.gif")]) == 3


@pytest.mark.nightly
def test_a_sweep_stopped_by_a_signal_and_its_resume(folder, tmp_path, monkeypatch, vmapped_keys):
    """Each member is a run of its own, all of one group, and has each row once."""
    base = {
        "env": "CartPole-v1",
        "num_envs": 2,
        "num_steps": 8,
        "total_steps": 96,
        "agent": {"num_epochs": 1, "network": {"hidden": [4]}},
        "eval": {"episodes": 2},
        "film": {"every": 3, "max_steps": 3},
        "log": {"console": False, "every": 1, "to": [{"part": "wandb", "mode": "offline", "system_metrics": False}]},
    }
    with monkeypatch.context() as patch:
        patch.setattr(MemberRun, "log", signalling(MemberRun.log, 4))
        with pytest.raises(ppax.Interrupted):
            ppax.sweep_runs(base, {"agent.gamma": [0.9, 0.99]}, seeds=2, run_dir=tmp_path / "rates")
    time.sleep(1.1)
    result = ppax.resume_sweep(tmp_path / "rates")
    groups = set()
    for one in result.members:
        run_id = ppax.run.directory.read_about(one.run_dir)["id"]
        found = records(folder, run_id, starts=2)
        kept = [json.loads(line) for line in (one.run_dir / "metrics.jsonl").read_text().splitlines()]
        logged = [(step, row["loss"]) for step, row in rows(found) if "loss" in row]
        assert sorted(logged) == [(row["env_steps"], row["loss"]) for row in kept]
        assert {run.display_name for run in begun(found)} == {f"rates/{one.run_dir.name}"}
        assert configuration(found)["agent"]["gamma"] == one.values["agent.gamma"]
        assert len([path for made in files(folder, run_id) for path in made.glob("files/media/videos/*.gif")]) == 3
        assert sum(record.HasField("artifact") for record in found) == 1
        groups |= {run.run_group for run in begun(found)}
    assert groups == {ppax.run.directory.name_of_sweep(tmp_path / "rates").group}
