"""TensorBoard logger, by tensorboardX: scalars over env-steps, hyperparameters, run file and films as event files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

from ppax.core.parts import part
from ppax.core.protocols import Artifact, LoggedRun, Row
from ppax.core.types import ConfigError

COMPARED = ("episode_return", "eval_return")  # metrics in the table of hyperparameters


def require_tensorboard() -> Any:
    """Return the module tensorboardX; ImportError, which names the extra to install, if it is missing."""
    try:
        import tensorboardX
    except ImportError as error:
        raise ImportError('TensorBoard logging needs an extra: pip install "ppax[tensorboard]"') from error
    return tensorboardX


@part
class TensorBoard:
    """Logger part that writes TensorBoard event files to tensorboard/ in the run directory.

    The option log.tensorboard = true adds it to a run.
    """

    stores: ClassVar[tuple[str, ...]] = ("film",)

    def require(self, run_dir: object) -> None:
        """Raise ImportError without tensorboardX, ConfigError without a run directory."""
        require_tensorboard()
        if run_dir is None:
            raise ConfigError(
                "log.tensorboard = true: event files are written to the run directory, and there is none; "
                'pass run_dir="runs/mine", or set it to false'
            )

    def open(self, run: LoggedRun) -> EventFiles:
        """Return a logger that writes the event files of `run`.

        TensorBoard no longer shows events of an earlier start after the state from which this one continues: those of
        steps after the checkpoint, or all events where there is no checkpoint.
        """
        assert run.path is not None
        purge_from = run.env_steps + 1 if run.iteration else 0
        return EventFiles(run.path / "tensorboard", purge_from, run)


class EventFiles:
    """Logger that writes TensorBoard event files: scalars over env-steps, and the options of the run."""

    def __init__(self, directory: Path, purge_from: int | None = None, run: LoggedRun | None = None):
        """Create an event file in `directory`, and write the options of `run` to it, if it is given.

        TensorBoard no longer shows events in older files from the environment step `purge_from` on.
        """
        self._writer = require_tensorboard().SummaryWriter(str(directory), purge_step=purge_from)
        if run is not None:
            self._write_options(run)

    def _write_options(self, run: LoggedRun) -> None:
        from tensorboardX.summary import hparams

        plain = {name: value if isinstance(value, int | float) else str(value) for name, value in run.options.items()}
        # not add_hparams: it writes to a directory of its own, which TensorBoard shows as another run
        for summary in hparams(plain, dict.fromkeys(COMPARED, 0.0)):
            self._writer.file_writer.add_summary(summary)
        indented = "\n".join(f"    {line}" for line in run.run_file.splitlines())  # shown as Markdown: a block of code
        self._writer.add_text("run.toml", indented, run.env_steps)
        self._writer.flush()

    def log(self, row: Row) -> None:
        """Write the finite numbers of one row as scalars."""
        for name, value in row.items():
            if name != "env_steps" and isinstance(value, int | float) and math.isfinite(value):
                self._writer.add_scalar(name, value, row["env_steps"])
        self._writer.flush()

    def store(self, artifact: Artifact) -> None:
        """Write the GIF files of a film as animated images.

        Other artefacts do not come here, as `TensorBoard.stores` has films only.
        """
        from tensorboardX.proto.summary_pb2 import Summary

        for path in artifact.files.values():
            data = path.read_bytes()
            width, height = (int.from_bytes(data[place : place + 2], "little") for place in (6, 8))  # header of a GIF
            image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=data)
            summary = Summary(value=[Summary.Value(tag="film", image=image)])
            self._writer.file_writer.add_summary(summary, artifact.env_steps)
        self._writer.flush()

    def close(self) -> None:
        """Close the event files."""
        self._writer.close()
