"""Saving of a run's states while it trains: when it is due, only what is finite, and again where the disk fails."""

from __future__ import annotations

import time
import warnings

from ppax.run import checkpoint
from ppax.run.directory import RunDirectory
from ppax.run.ending import RunMonitor
from ppax.run.origin import Origin
from ppax.storage.backoff import Backoff
from ppax.types import TrainState

PATIENCE = 120.0  # seconds for which a disk may fail before the run ends
LAST_PATIENCE = 10.0  # the same at the end of a run, which waits for it


class NotFinite(Exception):
    """A state that must not be saved: names of its leaves that are not finite."""


class Saver:
    """The states of one run, written into its directory; without a directory nothing is written."""

    def __init__(self, directory: RunDirectory | None, ending: RunMonitor, every_seconds: float):
        """Into `directory`, at most every so many seconds; None: nothing is saved."""
        self._directory, self._ending, self._every = directory, ending, every_seconds
        self.origin: Origin | None = None  # of the run, for the manifests
        self._last, self._saved = time.monotonic(), -1
        self._disk = Backoff(PATIENCE)

    def sometimes(self, state: TrainState) -> None:
        """Save `state` if it is due; OSError where the disk has failed for too long, or the directory is gone."""
        if self._directory is None:
            return
        self._directory.require_there()
        if self._disk.due if self._disk.failing else time.monotonic() - self._last >= self._every:
            self._try(state, self._disk)

    def last(self, state: TrainState) -> OSError | None:
        """Save `state` at a run's end, waiting for a disk that fails; the error where that was in vain."""
        if self._directory is None or int(state.iteration) == self._saved:
            return None
        self._directory.require_there()
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
        """Save `state` while another fault is on its way out: whatever fails now is only a warning."""
        try:
            if self._directory is not None:
                self._directory.require_there()
                self._write(state, self._directory)
        except Exception as error:
            warnings.warn(f"the state before the fault was not saved: {error}", stacklevel=2)

    def kept(self) -> str:
        """Sentence that says where the newest whole checkpoint is, to follow a message of a fault."""
        if self._directory is None:
            return ""
        path, _ = checkpoint.newest_valid(self._directory.checkpoints)
        return f"; the newest checkpoint is {path}" if path else "; no checkpoint had been saved before"

    def _try(self, state: TrainState, disk: Backoff) -> None:
        assert self._directory is not None
        try:
            self._write(state, self._directory)
        except OSError as error:
            delay = disk.failed()
            if disk.hopeless:
                raise
            text = f"checkpoint failed ({error}); the earlier one was kept, trying again in {delay:.1f} s"
            warnings.warn(text, stacklevel=3)
        else:
            disk.worked()
            self._last, self._saved = time.monotonic(), int(state.iteration)

    def _write(self, state: TrainState, directory: RunDirectory) -> None:
        names = checkpoint.not_finite(state)
        if names:
            raise NotFinite(", ".join(names))
        # first: a best policy may be newer than the state, never be lost
        origin = self.origin._asdict() if self.origin else None
        self._ending.save(directory.path, origin)
        checkpoint.save(directory.checkpoints, state, origin=origin)
