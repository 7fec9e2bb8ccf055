"""MLflow logger with the real package and a SQLite store, read back through MLflow's client."""

import contextlib
import math

import pytest

import ppax
from ppax.cli.main import main
from ppax.core.protocols import Artifact, LoggedRun
from ppax.loggers import MLflow
from ppax.loggers.mlflow import recorded_id

pytest.importorskip("mlflow")
pytestmark = [
    pytest.mark.nightly,  # importing MLflow and creating its tables takes half a minute
    pytest.mark.filterwarnings("ignore"),  # of MLflow, SQLAlchemy and Alembic
]
OPTIONS = {"env": "CartPole-v1", "num_envs": 64, "agent.learning_rate": 3e-4, "stop": None, "text": "x" * 7000}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture
def part(store, monkeypatch):
    monkeypatch.chdir(store)  # MLflow puts artefacts into the working directory
    return MLflow(experiment="poles", tracking_uri=f"sqlite:///{store}/mlflow.db", system_metrics=False)


@pytest.fixture
def client(part):
    from mlflow import MlflowClient

    return MlflowClient(part.tracking_uri)


def run_in(path, iteration=0, **options):
    path.mkdir(exist_ok=True)
    return LoggedRun(path.name, path, "0123456789abcdef", OPTIONS | options, "num_envs = 64", iteration, 64 * iteration)


def row(iteration, **metrics):
    return {"iteration": iteration, "env_steps": 64 * iteration, "loss": 0.5 / iteration} | metrics


def history(client, run_id, name):
    return [(metric.step, metric.value) for metric in client.get_metric_history(run_id, name)]


def artifacts(client, run_id, folder=""):
    for one in client.list_artifacts(run_id, folder):
        yield from artifacts(client, run_id, one.path) if one.is_dir else [one.path]


def test_rows_are_metrics_and_options_parameters(part, client, tmp_path):
    logger = part.open(run_in(tmp_path / "mine"))
    logger.log(row(1, episode_return=math.nan, **{"win/agent_0": 0.5, "odd name (%)": 1.0}))
    logger.log(row(2, episode_return=7.0))
    logger.close()
    run = client.get_run(recorded_id(tmp_path / "mine"))
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert client.get_experiment(run.info.experiment_id).name == "poles"
    assert run.data.tags["ppax.run_id"] == "0123456789abcdef"
    assert run.data.params == {
        "env": "CartPole-v1",
        "num_envs": "64",
        "agent.learning_rate": "0.0003",
        "stop": "None",
        "text": "x" * 6000,
    }
    assert history(client, run.info.run_id, "loss") == [(64, 0.5), (128, 0.25)]
    assert history(client, run.info.run_id, "episode_return") == [(128, 7.0)]
    assert history(client, run.info.run_id, "win/agent_0") == [(64, 0.5)]
    assert history(client, run.info.run_id, "odd name ___") == [(64, 1.0)]


def test_a_run_that_an_exception_ends_is_failed(part, client, tmp_path):
    def boom(state, row):
        raise RuntimeError("boom")

    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    log = ppax.Log(to=(part,), console=False, every=1)
    for callbacks, status in (([boom], "FAILED"), ([], "FINISHED")):
        path = tmp_path / status
        with contextlib.nullcontext() if not callbacks else pytest.raises(RuntimeError, match="boom"):
            ppax.fit(agent, env, 32, num_steps=8, run_dir=path, log=log, callbacks=callbacks)
        assert client.get_run(recorded_id(path)).info.status == status


def test_files_are_artefacts(part, client, tmp_path):
    run = run_in(tmp_path / "mine")
    (tmp_path / "0000000001.gif").write_bytes(b"GIF89a")
    (tmp_path / "policy.zip").write_bytes(b"PK")
    logger = part.open(run)
    logger.store(Artifact("film", {"0000000001.gif": tmp_path / "0000000001.gif"}, 64))
    logger.store(Artifact("policy", {"policy.zip": tmp_path / "policy.zip"}, 64))
    logger.close()
    run_id = recorded_id(tmp_path / "mine")
    assert set(artifacts(client, run_id)) == {"run.toml", "film/0000000001.gif", "policy/policy.zip"}
    with open(client.download_artifacts(run_id, "run.toml"), encoding="utf-8") as file:
        assert file.read() == "num_envs = 64"


def test_a_resumed_run_goes_on_in_its_run_and_logs_no_row_twice(part, client, tmp_path):
    logger = part.open(run_in(tmp_path / "mine", total_steps=192))
    for iteration in (1, 2, 3):
        logger.log(row(iteration))
    logger.close()
    run_id = recorded_id(tmp_path / "mine")
    logger = part.open(run_in(tmp_path / "mine", 2, total_steps=320, gamma=0.9))  # killed after its third row
    for iteration in (3, 4, 5):
        logger.log(row(iteration))
    logger.close()
    assert recorded_id(tmp_path / "mine") == run_id
    assert [step for step, _ in history(client, run_id, "loss")] == [64, 128, 192, 256, 320]
    params = client.get_run(run_id).data.params
    assert (params["total_steps"], params["gamma"]) == ("192", "0.9")  # MLflow changes no parameter
    assert client.get_run(run_id).info.status == "FINISHED"


def test_a_run_that_was_killed_before_its_first_checkpoint_goes_on_in_its_run(part, client, tmp_path):
    logger = part.open(run_in(tmp_path / "mine"))
    logger.log(row(1))
    logger.close()
    run_id = recorded_id(tmp_path / "mine")
    logger = part.open(run_in(tmp_path / "mine"))
    for iteration in (1, 2):
        logger.log(row(iteration))
    logger.close()
    assert recorded_id(tmp_path / "mine") == run_id
    assert [step for step, _ in history(client, run_id, "loss")] == [64, 128]


def test_a_run_that_is_not_on_the_server_any_more_begins_anew(part, client, tmp_path):
    part.open(run_in(tmp_path / "mine")).close()
    before = recorded_id(tmp_path / "mine")
    client.delete_run(before)
    logger = part.open(run_in(tmp_path / "mine", 1))
    logger.log(row(2))
    logger.close()
    after = recorded_id(tmp_path / "mine")
    assert after != before
    assert history(client, after, "loss") == [(128, 0.25)]


def test_system_metrics(part, client, tmp_path, monkeypatch):
    import dataclasses
    import time

    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.2")
    logger = dataclasses.replace(part, system_metrics=True).open(run_in(tmp_path / "mine"))
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        run_id = recorded_id(tmp_path / "mine")
        found = client.get_run(run_id).data.metrics if run_id else {}
        if "system/cpu_utilization_percentage" in found:
            break
        time.sleep(0.1)
    logger.close()
    assert "system/cpu_utilization_percentage" in client.get_run(run_id).data.metrics


def test_a_server_that_cannot_be_reached_does_not_stop_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    log = ppax.Log(to=(MLflow(tracking_uri="http://127.0.0.1:9", system_metrics=False),), console=False)
    with pytest.warns(UserWarning, match=r"MLflow (failed|could not be closed) \(MlflowException"):
        run = ppax.fit(agent, env, 64, num_steps=8, log=log)
    assert int(run.state.iteration) == 4


def test_a_run_of_the_command_line_and_its_resume(part, client, tmp_path):
    sizes = ["--total-steps", "64", "--num-envs", "2", "--num-steps", "8", "--eval.episodes", "2", "--log.every", "1"]
    uri = ["--log.to", "mlflow", "--log.to.0.tracking-uri", part.tracking_uri, "--log.to.0.experiment", "poles"]
    options = [*sizes, *uri, "--film.every", "2", "--film.max-steps", "3", "--no-log.console", "--no-cache"]
    run_dir = tmp_path / "whole"
    assert main(["train", "CartPole-v1", *options, "--run-dir", str(run_dir)]) == 0
    rows = [r for r in ppax.run.monitor.rows_until(run_dir / "metrics.jsonl", 2**63) if r["loss"] is not None]
    run_id = recorded_id(run_dir)
    assert history(client, run_id, "loss") == [(r["env_steps"], r["loss"]) for r in rows]
    assert client.get_run(run_id).data.params["agent.gamma"] == "0.99"
    stored = set(artifacts(client, run_id))
    assert {name for name in stored if name.startswith("film/")} == {f"film/{i:010d}.gif" for i in (0, 2, 4)}
    policy = ppax.load(client.download_artifacts(run_id, "policy/policy.zip"))
    assert policy.spec.env == "CartPole-v1"
    assert main(["resume", str(run_dir), "--no-cache", "--trust", part.tracking_uri]) == 0


def children(client, parent):
    found = client.search_runs([parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    return {run.info.run_name: run for run in found}


def parents(client, group, deleted=False):
    """The runs that stand for a sweep; with `deleted` also those that were made and deleted again."""
    from mlflow.entities import ViewType

    experiment = client.get_experiment_by_name("poles").experiment_id
    kind = ViewType.ALL if deleted else ViewType.ACTIVE_ONLY
    return client.search_runs([experiment], f"tags.`ppax.sweep` = '{group}'", kind)


def test_members_of_a_sweep_stand_under_one_run_and_go_on_in_theirs(part, client, tmp_path):
    """Three threads open theirs at once, as the members of a program do."""
    described = [
        run_in(tmp_path / f"{number:03d}")._replace(name=f"rates/{number:03d}", group="rates-01234567")
        for number in range(3)
    ]
    for logger in [part.open(run) for run in described]:
        logger.close()
    (parent,) = parents(client, "rates-01234567")
    assert (parent.info.run_name, parent.info.status) == ("rates-01234567", "FINISHED")
    first = children(client, parent)
    assert sorted(first) == ["rates/000", "rates/001", "rates/002"]
    again = part.open(described[1]._replace(iteration=1))
    again.log(row(2))
    again.close()
    before = len(parents(client, "rates-01234567", deleted=True))
    part.open(run_in(tmp_path / "003")._replace(name="rates/003", group="rates-01234567")).close()
    assert len(parents(client, "rates-01234567", deleted=True)) == before  # none was made and deleted again
    (parent,) = parents(client, "rates-01234567")
    later = children(client, parent)
    assert sorted(set(later) - set(first)) == ["rates/003"]
    del later["rates/003"]
    assert {name: run.info.run_id for name, run in later.items()} == {x: run.info.run_id for x, run in first.items()}
    assert history(client, later["rates/001"].info.run_id, "loss") == [(128, 0.25)]


def test_of_two_machines_that_begin_at_once_the_older_run_stands_for_the_sweep(part, client, tmp_path, monkeypatch):
    """The other machine creates its run after this one has looked for it, and before this one has created its own."""
    from mlflow import MlflowClient

    from ppax.loggers.mlflow import MLflowRun

    experiment = client.get_experiment_by_name("poles").experiment_id
    sweeps, asked = MLflowRun._sweeps, []

    def crossed(self, experiment, group):
        found = sweeps(self, experiment, group)
        if not asked:
            made = MlflowClient(part.tracking_uri).create_run(experiment, tags={"ppax.sweep": group}, start_time=1)
            asked.append(made.info.run_id)
        return found

    monkeypatch.setattr(MLflowRun, "_sweeps", crossed)
    part.open(run_in(tmp_path / "mine")._replace(group="crossed-01234567")).close()
    (parent,) = parents(client, "crossed-01234567")
    assert [parent.info.run_id] == asked
    assert parent.info.experiment_id == experiment
    assert list(children(client, parent)) == ["mine"]


def test_a_sweep_of_the_command_line_and_its_resume(part, client, tmp_path):
    sizes = ["--total-steps", "64", "--num-envs", "2", "--num-steps", "8", "--eval.episodes", "2", "--log.every", "1"]
    uri = ["--log.to", "mlflow", "--log.to.0.tracking-uri", part.tracking_uri, "--log.to.0.experiment", "poles"]
    quiet = [
        "--no-log.to.0.system-metrics",
        "--no-log.console",
        "--no-cache",
        "--film.every",
        "2",
        "--film.max-steps",
        "3",
    ]
    sweep = tmp_path / "rates"
    options = [*sizes, *uri, *quiet, "--agent.learning-rate", "1e-3,1e-2", "--run-dir", str(sweep)]
    assert main(["sweep", "CartPole-v1", *options]) == 0
    (parent,) = parents(client, ppax.run.directory.name_of_sweep(sweep).group)
    found = children(client, parent)
    assert sorted(found) == ["rates/000", "rates/001"]
    for name, run in found.items():
        path = sweep / "members" / name.partition("/")[2]
        kept = [r for r in ppax.run.monitor.rows_until(path / "metrics.jsonl", 2**63) if r["loss"] is not None]
        assert history(client, run.info.run_id, "loss") == [(r["env_steps"], r["loss"]) for r in kept]
        stored = set(artifacts(client, run.info.run_id))
        assert stored == {"run.toml", "policy/policy.zip", *(f"film/{i:010d}.gif" for i in (0, 2, 4))}
    assert {run.data.params["agent.learning_rate"] for run in found.values()} == {"0.001", "0.01"}
    (sweep / "result.json").unlink()
    assert main(["resume", str(sweep), "--no-cache"]) == 2  # the run file names a server
    assert main(["resume", str(sweep), "--no-cache", "--trust", part.tracking_uri]) == 0
    assert len(children(client, parent)) == 2
