"""Checkpointing while a run trains: at intervals, only finite states, with retries where the disk fails."""

from __future__ import annotations

import time
import warnings

from ppax.config import Log, Run
from ppax.core.protocols import Agent
from ppax.core.types import Key, TrainState
from ppax.devices import processes
from ppax.envs import Env
from ppax.run import checkpoint
from ppax.run.directory import RunDirectory
from ppax.run.monitor import RunMonitor
from ppax.run.provenance import Origin
from ppax.run.restore import initial_state
from ppax.run.warm_start import WarmStart
from ppax.storage.safe_files import Backoff

PATIENCE = 120.0  # seconds of failing writes before the run ends
LAST_PATIENCE = 10.0  # the same for the last checkpoint, which blocks the end of the run


class NotFinite(Exception):
    """Exception for a state that must not be saved; its message names the arrays that are not finite."""


class Saver:
    """Checkpoint writer of one run; for a run without a directory it writes nothing."""

    def __init__(self, directory: RunDirectory | None, monitor: RunMonitor, log: Log, origin: Origin | None):
        """Prepare to write checkpoints below `directory` (None: nothing is written), as often as `log` says.

        `origin` is written into their manifests. The best policy of `monitor` is written with each checkpoint.
        """
        self._directory, self._monitor, self._log, self._origin = directory, monitor, log, origin
        self.path = directory.path if directory else None
        self._last, self._saved = time.monotonic(), -1
        self._disk = Backoff(PATIENCE)

    def save_if_due(self, state: TrainState) -> None:
        """Save `state` if a checkpoint is due; OSError if writes failed for 120 s or the run directory is gone."""
        if processes.agreed(self._is_due(int(state.iteration))):
            self._try(processes.whole(state), self._disk)

    def _is_due(self, iteration: int) -> bool:
        """Return True if a checkpoint is due after `iteration` iterations; False for a run without a directory.

        It is due every `log.checkpoint_every` iterations or, if that is None, every `log.checkpoint_seconds` seconds.
        After a failed write it is due when the delay before the next attempt is over. Raises OSError if the directory
        was removed or replaced.
        """
        if self._directory is None:
            return False
        self._directory.require_unchanged()
        if self._disk.failing:
            return self._disk.due
        if self._log.checkpoint_every is not None:
            return iteration > 0 and iteration % self._log.checkpoint_every == 0
        return time.monotonic() - self._last >= self._log.checkpoint_seconds

    def save_final(self, state: TrainState) -> OSError | None:
        """Save `state` at the end of a run, unless it is saved already.

        Returns None, or the error if 10 s of retries fail. Raises OSError if the directory was removed or replaced.
        """
        if not processes.agreed(self._directory is not None and int(state.iteration) != self._saved):
            return None
        state = processes.whole(state)
        if self._directory is None:  # not the leader, which alone writes
            return None
        self._directory.require_unchanged()
        disk = Backoff(LAST_PATIENCE)
        while True:
            try:
                self._try(state, disk)
            except OSError as error:
                return error
            if not disk.failing:
                return None
            while not disk.due:
                time.sleep(0.01)

    def rescue(self, state: TrainState) -> None:
        """Save `state` because an exception is about to be raised; errors of the save become warnings."""
        try:
            state = processes.whole(state)
            if self._directory is not None:
                self._directory.require_unchanged()
                self._write(state, self._directory)
        except Exception as error:
            warnings.warn(f"the state before the fault was not saved: {error}", stacklevel=2)

    def newest_checkpoint_note(self) -> str:
        """Return the end of an error message, which names the newest intact checkpoint, or says that there is none.

        The result is "" for a run without a directory.
        """
        if self._directory is None:
            return ""
        path, _ = checkpoint.newest_valid(self._directory.checkpoints)
        return f"; the newest checkpoint is {path}" if path else "; no checkpoint had been saved before"

    def _try(self, state: TrainState, disk: Backoff) -> None:
        if self._directory is None:  # not the leader, which alone writes
            return
        try:
            self._write(state, self._directory)
        except OSError as error:
            delay = disk.failed()
            if disk.hopeless:
                raise
            text = f"checkpoint failed ({error}); the earlier one is kept, next attempt in {delay:.1f} s"
            warnings.warn(text, stacklevel=3)
        else:
            disk.succeeded()
            self._last, self._saved = time.monotonic(), int(state.iteration)

    def _write(self, state: TrainState, directory: RunDirectory) -> None:
        names = checkpoint.non_finite_leaves(state)
        if names:
            raise NotFinite(", ".join(names))
        # before the state: the best policy may be newer than the state, but never missing
        origin = self._origin._asdict() if self._origin else None
        self._monitor.save(directory.path, origin)
        checkpoint.save(directory.checkpoints, state, self._log.keep, origin=origin)


def first_state(agent: Agent, env: Env, run: Run, warm: WarmStart | None, saver: Saver, key: Key) -> TrainState:
    """Return the state of a run before its first iteration; `warm` (None: no warm start) gives weights of another run.

    `key` is that of the run's seed. The state of a warm start is saved with `saver`, so that a resume does not need the
    other run. Raises OSError where the disk fails.
    """
    state = initial_state(agent, env, run, warm, key)
    if warm is not None and (error := saver.save_final(state)):
        raise error
    return state
