"""MLflow logger: metrics over env-steps, options as parameters, system metrics and files in one MLflow run."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from ppax.core import imports, untrusted
from ppax.core.parts import ADDRESS, part, static
from ppax.core.protocols import Artifact, LoggedRun, Row
from ppax.core.types import ConfigError
from ppax.loggers.background import Background
from ppax.storage import safe_files

RECORD = "mlflow.json"  # file in the run directory: id of the MLflow run, which a resumed run continues
VARIABLE = "MLFLOW_TRACKING_URI"
RECORD_LIMIT = 2**12  # bytes; far above the size of a valid file
RUN_ID = re.compile(r"[0-9a-f]{32}")
NAME = re.compile(r"[^\w./: -]")  # what MLflow does not allow in names of metrics
BATCH = {"metrics": 1000, "params": 100}  # limits of one request
LONGEST = 6000  # characters of a parameter's value
PARENT, SWEEP = "mlflow.parentRunId", "ppax.sweep"  # tags of a member of a sweep, and of the run above all members
OPENING = threading.Lock()  # members of a sweep open their runs at the same time: one creates database and parent


@part
class MLflow:
    """Logger part, for the option `log.to`, that logs a run as an MLflow run in an experiment.

    The experiment belongs to an MLflow server or to a database file.
    """

    stores: ClassVar[tuple[str, ...]] = ("policy", "film")

    experiment: str = static("name of the experiment", default="ppax")
    tracking_uri: str | None = static(
        "server or database, as http://host:5000 or sqlite:///mlflow.db; none: MLflow's own choice, the environment "
        "variable MLFLOW_TRACKING_URI or mlflow.db in the working directory",
        default=None,
        outside=ADDRESS,
    )
    system_metrics: bool = static("also log the load of processor, memory, disk, network and GPUs", default=True)

    def require(self, run_dir: object) -> None:
        """Raise ImportError, which names the extra to install, if MLflow or psutil is missing; `run_dir` is not read.

        psutil is needed for system metrics only. Raises ConfigError if MLflow would use mlflow.db in the working
        directory, because no server or database is chosen, and this directory is or lies in a run or sweep directory or
        a directory that the command line names. A stranger may have prepared such a directory, and the database
        determines where artefacts are written.
        """
        for name in ("mlflow", "psutil") if self.system_metrics else ("mlflow",):
            if importlib.util.find_spec(name) is None:
                raise ImportError(f'log.to: part "mlflow" needs {name}: pip install "ppax[mlflow]"')
        folder = imports.handed_over(Path.cwd())
        if folder is not None and self.tracking_uri is None and not os.environ.get(VARIABLE):
            raise ConfigError(
                f"log.to: MLflow would take mlflow.db of the working directory, which lies in {folder} and may be a "
                f"stranger's: change to another directory, or set {VARIABLE}"
            )

    def open(self, run: LoggedRun) -> Background:
        """Return a logger for `run`, which works in a thread of its own and writes to a new MLflow run.

        If `run` is resumed, it writes to the MLflow run from before.
        """
        return Background(lambda: MLflowRun(self, run))


class MLflowRun:
    """Logger that writes to one MLflow run."""

    def __init__(self, part: MLflow, run: LoggedRun):
        from mlflow import MlflowClient

        self._last = -1  # iteration of the last row that is logged already
        self._status = "FINISHED"
        with OPENING:
            self._client = MlflowClient(part.tracking_uri)
            resumed = self._resumed(run)
            self._id = resumed or self._created(part, run)
        self._log_options(run)
        self._monitor = self._monitored(part, bool(resumed)) if part.system_metrics else None

    def log(self, row: Row) -> None:
        """Log the finite numbers of one row; nothing if the row was logged before the run was killed and resumed.

        Without this exception MLflow would have the repeated rows of a resumed run twice.
        """
        from mlflow.entities import Metric

        if row["iteration"] <= self._last:
            return
        now, step = time.time_ns() // 10**6, row["env_steps"]
        numbers = {name: value for name, value in row.items() if name != "env_steps" and math.isfinite(value)}
        self._batches("metrics", [Metric(NAME.sub("_", name), float(x), now, step) for name, x in numbers.items()])

    def store(self, artifact: Artifact) -> None:
        """Log files as MLflow artefacts, in a folder named after their kind, such as "film"."""
        for name, path in artifact.files.items():
            self._client.log_artifact(self._id, str(path), str(PurePosixPath(artifact.kind, name).parent))

    def fail(self, error: BaseException) -> None:
        """Give the MLflow run the status FAILED in place of FINISHED when it is closed."""
        self._status = "FAILED"

    def close(self) -> None:
        """End the MLflow run and the logging of system metrics."""
        if self._monitor is not None:
            self._monitor.finish()
        self._client.set_terminated(self._id, self._status)

    def _resumed(self, run: LoggedRun) -> str:
        """Return the id of the MLflow run that a resumed run continues, and set that run's status to running.

        It is the one recorded in the run directory, also after a kill before the first checkpoint. The result is "" for
        a new run, and where the server does not have the recorded MLflow run.
        """
        from mlflow import MlflowException

        run_id = recorded_id(run.path) if run.path is not None else ""
        if not run_id:
            return ""
        try:
            found = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return ""
            raise
        if found.info.lifecycle_stage == "deleted":
            return ""
        self._client.update_run(run_id, status="RUNNING")
        self._last = int(found.data.metrics.get("iteration", -1))
        return run_id

    def _created(self, part: MLflow, run: LoggedRun) -> str:
        """Create an MLflow run and return its id, which is recorded in the run directory."""
        experiment = self._experiment(part.experiment)
        tags = {"ppax.run_id": run.id} if run.id else {}
        tags |= {PARENT: self._sweep(experiment, run.group)} if run.group else {}
        created = self._client.create_run(experiment, tags=tags, run_name=run.name)
        run_id: str = created.info.run_id
        if run.path is not None:
            safe_files.write_text(run.path / RECORD, json.dumps({"run_id": run_id}) + "\n")
        return run_id

    def _sweep(self, experiment: str, group: str) -> str:
        """Return the id of the parent MLflow run of the members of the sweep `group`; create that run if missing."""
        known = self._sweeps(experiment, group)
        if known:
            return known[0]
        own: str = self._client.create_run(experiment, tags={SWEEP: group}, run_name=group).info.run_id
        self._client.set_terminated(own)  # it has no rows, and no member knows which one ends last
        first = self._sweeps(experiment, group)[0]
        if first != own:  # another machine of a cluster has created one, too
            self._client.delete_run(own)
        return first

    def _sweeps(self, experiment: str, group: str) -> list[str]:
        """Return the ids of the parent MLflow runs of the members of the sweep `group`, the oldest first."""
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        found = self._client.search_runs([experiment], f"tags.`{SWEEP}` = '{group}'", order_by=order)
        return [run.info.run_id for run in found]

    def _experiment(self, name: str) -> str:
        """Return the id of the experiment called `name`, which is created if missing."""
        from mlflow import MlflowException

        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another process has just created it
                experiment = self._client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        return str(experiment.experiment_id)

    def _log_options(self, run: LoggedRun) -> None:
        """Log the run file, and the options of the run as MLflow parameters, without those that are logged already.

        MLflow refuses to change a parameter.
        """
        from mlflow.entities import Param

        known = self._client.get_run(self._id).data.params
        options = {name: str(value)[:LONGEST] for name, value in run.options.items() if name not in known}
        self._batches("params", [Param(NAME.sub("_", name), value) for name, value in options.items()])
        self._client.log_text(self._id, run.run_file, "run.toml")

    def _monitored(self, part: MLflow, resumed: bool) -> Any:
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        monitor = SystemMetricsMonitor(self._id, resume_logging=resumed, tracking_uri=self._client.tracking_uri)
        monitor.start()
        return monitor

    def _batches(self, kind: str, items: list[Any]) -> None:
        size = BATCH[kind]
        for place in range(0, len(items), size):
            self._client.log_batch(self._id, **{kind: items[place : place + size]}, synchronous=True)


def recorded_id(run_dir: Path) -> str:
    """Return the id of the MLflow run that is recorded in a run directory; "" if there is no valid one."""
    run_id = untrusted.read_table(run_dir / RECORD, RECORD_LIMIT).get("run_id")
    return run_id if isinstance(run_id, str) and RUN_ID.fullmatch(run_id) else ""
