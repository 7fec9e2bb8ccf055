"""Weights & Biases logger: metrics over env-steps, options as configuration, system metrics, policy and films."""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path
from typing import ClassVar

from ppax.core import imports
from ppax.core.options import unflatten
from ppax.core.parts import ADDRESS, part, static
from ppax.core.protocols import Artifact, LoggedRun, Row
from ppax.core.types import ConfigError
from ppax.loggers.background import Background

MODES = ("online", "offline")
SETTINGS = ("wandb/settings", ".wandb/settings")  # files of the working directory that wandb reads


@part
class WandB:
    """Logger part, for the option `log.to`, that logs a run as a run of Weights & Biases, in one of its projects."""

    stores: ClassVar[tuple[str, ...]] = ("policy", "film")

    project: str = static("name of the project", default="ppax")
    entity: str | None = static("user or team that owns the project; none: your own", default=None, outside=ADDRESS)
    group: str | None = static(
        "group of runs that belong together, as seeds of one setting; none: the members of a sweep are one",
        default=None,
    )
    mode: str | None = static(
        "online, or offline: only files in wandb/ of the working directory, which `wandb sync` sends later; none: the "
        "environment variable WANDB_MODE, or online",
        default=None,
        choices=MODES,
    )
    system_metrics: bool = static("also log the load of processor, memory, disk, network and GPUs", default=True)

    def require(self, run_dir: object) -> None:
        """Raise ImportError, which names the extra to install, if wandb is missing; `run_dir` is not read.

        Raises ConfigError if the working directory has a settings file of wandb, and is or lies in a run or sweep
        directory or a directory that the command line names. A stranger may have prepared such a directory, and the
        settings file names the server, which receives the user's key.
        """
        if importlib.util.find_spec("wandb") is None:
            raise ImportError('log.to: part "wandb" needs wandb: pip install "ppax[wandb]"')
        folder = imports.handed_over(Path.cwd())
        found = next((name for name in SETTINGS if os.path.lexists(name)), None)
        if folder is not None and found is not None:
            raise ConfigError(
                f"log.to: wandb would read {found} of the working directory, which lies in {folder} and may be a "
                "stranger's: change to another directory"
            )

    def open(self, run: LoggedRun) -> Background:
        """Return a logger for `run`, which works in a thread; a resumed run continues its run of Weights & Biases."""
        return Background(lambda: WandBRun(self, run))


class WandBRun:
    """Logger of one run of Weights & Biases.

    That run has the same id as the run of ppax, by which a resumed run continues it.
    """

    def __init__(self, part: WandB, run: LoggedRun):
        import wandb

        # its files are not in the run directory: they have links, which a run directory must not have
        settings = wandb.Settings(
            console="off",  # the progress line is not text for a log
            disable_code=True,
            quiet=True,
            x_disable_stats=not part.system_metrics,
        )
        online = (part.mode or wandb.setup().settings.mode) == "online"
        if online and not wandb.login(prompt=False, verify=False):  # a prompt would block the run
            raise PermissionError(
                'no API key: run `wandb login`, set WANDB_API_KEY, or choose mode = "offline" of this logger'
            )
        self._exit_code = 0
        self._run = wandb.init(
            entity=part.entity,
            project=part.project,
            group=part.group or run.group or None,
            mode=part.mode,  # type: ignore[arg-type]
            id=run.id or None,
            name=run.name,
            config=unflatten(dict(run.options)),
            resume="allow" if run.id else None,
            allow_val_change=True,  # of an option that may change at a resume, as total_steps
            reinit="create_new",
            settings=settings,
        )

    def log(self, row: Row) -> None:
        """Log the finite numbers of one row, with the row's environment steps as the step of Weights & Biases."""
        numbers = {name: value for name, value in row.items() if name != "env_steps" and math.isfinite(value)}
        self._run.log(numbers, step=row["env_steps"])

    def store(self, artifact: Artifact) -> None:
        """Log a film as a video, other files as an artefact of the run."""
        import wandb

        if artifact.kind == "film":
            films = [wandb.Video(str(path)) for path in artifact.files.values()]
            self._run.log({"film": films[-1]}, step=artifact.env_steps)
            return
        files = wandb.Artifact(f"{artifact.kind}-{self._run.id}", type="model")
        for name, path in artifact.files.items():
            files.add_file(str(path), name=name, policy="immutable")  # uploaded from where it is, without a copy
        self._run.log_artifact(files)

    def fail(self, error: BaseException) -> None:
        """Give the run of Weights & Biases the state "failed" when it is closed."""
        self._exit_code = 1  # of a process that failed

    def close(self) -> None:
        """Finish the run of Weights & Biases; this waits for its uploads."""
        self._run.finish(exit_code=self._exit_code)
