"""Study of Optuna, as one of its workers sees it: the worker's trials, other workers' trials, and the budget left."""

from __future__ import annotations

import contextlib
import math
import platform
import threading
import warnings
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.trial import TrialState

from ppax import config
from ppax.core.options import Config
from ppax.core.types import ConfigError
from ppax.run.directory import SWEEP_FILE
from ppax.sweeps.directory import changed_options
from ppax.sweeps.plan import Plan
from ppax.sweeps.studies.space import space_of, values_of
from ppax.sweeps.studies.storage import (
    FAULTS,
    first_line,
    one_at_a_time,
    opened,
    quiet,
    reading,
    shown_url,
    sqlite_file,
)

FILE = "study.db"  # database of the default storage, in the sweep's directory
OWNER, RUN, WHY, OF, REPEATED = "ppax.owner", "ppax.run", "ppax.why", "ppax.of", "ppax.repeats"  # keys of attributes
FAILED, WAITING, RUNNING = TrialState.FAIL, TrialState.WAITING, TrialState.RUNNING
DONE, PRUNED = TrialState.COMPLETE, TrialState.PRUNED


class Proposed(NamedTuple):
    """Trial of a study that this worker has asked for: a setting (values of the swept options) to train."""

    number: int  # in the study
    values: Config  # of the swept options, by dotted path


class Best(NamedTuple):
    """Best trial of a study, whichever worker trained it: its number, swept values and score.

    `run` is the run directory of the trial's first seed, with the name of its machine.
    """

    number: int
    values: Config
    score: float
    run: str  # machine and directory of its worker


class Study:
    """Study of Optuna for a sweep, as one of its workers uses it; a context manager.

    While it is open, it records heartbeats in a shared database, so that other workers do not repeat its running
    trials.
    """

    @reading
    def __init__(self, path: Path, plan: Plan, run_config: Config):
        """Open the study of Optuna for the sweep in directory `path`, or create it, with the swept options of `plan`.

        Its database is the option `storage` of the plan's search, by default study.db in `path`. Raises ConfigError if
        the database cannot be opened, read or written, or if its study of this name has other options than this sweep.
        """
        settings: Any = plan.search
        self.settings, self._plan = settings, plan
        self._url, self._shared = settings.storage or sqlite_file(path / FILE), settings.storage is not None
        self._owner, self._running, self._closed = f"{platform.node()}:{path.resolve()}", set[int](), threading.Event()
        self._every = max(1, settings.patience // 4)  # seconds between two heartbeats
        self._study, self._storage = opened(settings, self._url, self._every if self._shared else None, self._repeat)
        self._alone = one_at_a_time(self._url)
        self._id = self._storage.get_study_id_from_name(settings.study)
        of = config.to_toml(config.resolve(run_config) | {config.SWEEP: plan.to_table()})
        if self._study.user_attrs.setdefault(OF, of) != of:
            changed = changed_options(
                *(config.parse(text, path / SWEEP_FILE) for text in (self._study.user_attrs[OF], of))
            )
            raise ConfigError(
                f"search.study = {settings.study!r}: {shown_url(self._url)} has a study of this name with other "
                f"options, {changed or 'in another order'}; write another name, or sweep with the same options"
            )
        self._study.set_user_attr(OF, of)
        self._thread = threading.Thread(target=self._beat, daemon=True)

    @reading
    def ask(self, count: int) -> list[Proposed]:
        """Return at most `count` new trials to train; [] where the budget of trials is spent."""
        asked: list[Proposed] = []
        with self._alone, quiet():
            self._fail_stale()
            while len(asked) < count and (self._waiting() or len(self._counted()) < self.settings.trials):
                # a trial has a heartbeat before it runs: a kill at any time leaves one that others can take over
                if not self._waiting():
                    self._study.enqueue_trial({})
                for waiting in self._waiting():
                    self._live(waiting)
                trial = self._study.ask(self._space)
                trial.set_user_attr(OWNER, self._owner)
                if sum(number < trial.number for number in self._counted()) >= self.settings.trials:
                    trial.set_user_attr(WHY, "asked for at the same time as the last trials of others")
                    self._study.tell(trial.number, state=FAILED)
                    continue
                self._own(trial.number)
                asked.append(Proposed(trial.number, values_of(self._plan.values, trial.params)))
        return asked

    @reading
    def unrecorded(self, known: Container[int]) -> list[Proposed]:
        """Return this worker's running trials that its sweep directory lacks, as after a kill; [] if there are none.

        `known` are the numbers of the trials that the directory has.
        """
        found = []
        for trial in self._trials():
            own = not self._shared or trial.user_attrs.get(OWNER) == self._owner
            if own and trial.state == RUNNING and trial.number not in known:
                if trial.params.keys() == self._plan.values.keys():
                    self._own(trial.number)
                    found.append(Proposed(trial.number, values_of(self._plan.values, trial.params)))
                elif not self._shared:  # killed while it was proposed: `ask` repeats it; shared, it becomes stale
                    self._storage.set_trial_state_values(self._trial_id(trial.number), WAITING)
        return found

    @reading
    def runs(self, number: int) -> bool:
        """Return True if this worker still trains trial `number`: it has no result, and no other worker repeats it."""
        running = bool(self._trials()[number].state == RUNNING)
        if running:
            self._own(number)
        return running

    @reading
    def others(self) -> int:
        """Return the number of trials that wait for a worker or that other workers train; 0 in an unshared study."""
        if not self._shared:
            return 0
        self._fail_stale()
        trials = self._trials()
        running = sum(t.state == RUNNING and t.user_attrs.get(OWNER) != self._owner for t in trials)
        return running + sum(t.state == WAITING for t in trials)

    @reading
    def prunes(self, scores: Mapping[int, float], iteration: int) -> dict[int, str]:
        """Report the scores of trials at `iteration`; return the reason for each trial to prune, both by number."""
        for number, score in scores.items():
            self._storage.set_trial_intermediate_value(self._trial_id(number), iteration, score)
        trials = {number: self._storage.get_trial(self._trial_id(number)) for number in scores}
        with quiet():
            ended = [number for number, trial in trials.items() if self._study.pruner.prune(self._study, trial)]
        return {n: f"stopped by optuna's pruner {self.settings.pruner!r} at iteration {iteration}" for n in ended}

    @reading
    def tell(self, number: int, score: float, why: str, run: Path) -> None:
        """Tell the study the value `score` of trial `number`.

        If there is a reason `why`, or `score` is not finite, the study is told that the trial is pruned. `run` is the
        directory in which the trial was trained. If another worker repeats the trial by now, nothing is told, and a
        warning says so.
        """
        if not self.runs(number):
            warnings.warn(
                f"trial {number} of the study is repeated by another worker, after a pause here", stacklevel=2
            )
            return
        for name, text in {RUN: f"{platform.node()}:{run}", WHY: why}.items():
            if text:
                self._storage.set_trial_user_attr(self._trial_id(number), name, text)
        done = not why and math.isfinite(score)
        with quiet(), contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):  # by another one, just now
            self._study.tell(number, score if done else None, DONE if done else PRUNED, skip_if_finished=True)
        self._running.discard(number)

    @reading
    def best(self) -> Best | None:
        """Return the best trial of the study, whichever worker trained it; None where no trial has a value."""
        done = [trial for trial in self._trials() if trial.state == DONE]
        if not done:
            return None
        first = max(done, key=lambda trial: (trial.value, -trial.number))
        values = values_of(self._plan.values, first.params)
        return Best(first.number, values, float(first.value), str(first.user_attrs.get(RUN, "")))

    @reading
    def refused(self) -> list[str]:
        """Return why each trial without a value that this worker has asked for has none, in the trials' order."""
        own = (trial for trial in self._trials() if trial.user_attrs.get(OWNER) == self._owner)
        return [str(trial.user_attrs.get(WHY, "")) for trial in own if trial.state == PRUNED]

    def __enter__(self) -> Study:
        if self._shared:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        if self._shared:
            self._thread.join()
        self._storage.remove_session()
        self._storage.engine.dispose()

    @property
    def _space(self) -> dict[str, Any]:
        return space_of(self._plan.values)

    def _trials(self) -> list[Any]:
        return list(self._study.get_trials(deepcopy=False))

    def _counted(self) -> list[int]:
        """Return the numbers of the study's trials that count towards its budget: all but those that have failed."""
        return [trial.number for trial in self._trials() if trial.state != FAILED]

    def _waiting(self) -> list[int]:
        """Return the numbers of the study's trials that wait for a worker."""
        return [trial.number for trial in self._trials() if trial.state == WAITING]

    def _trial_id(self, number: int) -> int:
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._id, number))

    def _own(self, number: int) -> None:
        self._live(number)
        self._running.add(number)

    def _live(self, number: int) -> None:
        """Record a heartbeat for the trial `number`, if the study is shared."""
        if self._shared:
            self._storage.record_heartbeat(self._trial_id(number))

    def _fail_stale(self) -> None:
        if self._shared:
            with quiet():
                optuna.storages.fail_stale_trials(self._study)

    def _repeat(self, study: Any, trial: Any) -> None:
        """Propose the parameters of a lost worker's trial again, as a new trial; Optuna calls this."""
        if trial.params:
            study.enqueue_trial(trial.params, user_attrs={REPEATED: trial.number})

    def _beat(self) -> None:
        """Record heartbeats for the running trials, also while a program compiles, until the study is closed."""
        while not self._closed.wait(self._every):
            try:
                for number in sorted(self._running):
                    self._live(number)
            except FAULTS as error:
                warnings.warn(f"no heartbeat in {shown_url(self._url)}: {first_line(error)}", stacklevel=2)
