"""Training of a member whose environments are on the host: a run of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path

from ppax import config
from ppax.run.directory import RUN_FILE
from ppax.run.fit import fit_run, resume
from ppax.run.restore import planned_iterations
from ppax.run.result import Interrupted, NumericalError, record_evaluation
from ppax.sweeps.member import complete, end_of, require_recorded
from ppax.sweeps.packing import Task
from ppax.sweeps.progress import Counting
from ppax.sweeps.training import Stopped


def train_alone(task: Task, path: Path, progress: Counting) -> None:
    """Train and evaluate a member whose environments are on the host, as a run of its own."""
    iterations = planned_iterations(task.env, task.run)
    if complete(path):
        progress.skip({task.member.number: iterations}, {task.member.number: end_of(path).env_steps})
        return
    begin = time.perf_counter()
    try:
        require_recorded(task, path)
        if (path / RUN_FILE).is_file():
            trained = resume(path, console=False)
        else:
            agent, env, run = config.build(task.member.config)
            with contextlib.ExitStack() as stack:
                stack.callback(env.close)
                quiet = dataclasses.replace(run, log=dataclasses.replace(run.log, console=False))
                trained = fit_run(agent, env, quiet, path)
                stack.pop_all()
    except NumericalError:  # recorded in stopped.json
        progress.skip({task.member.number: iterations})
        return
    except Interrupted as error:
        raise Stopped from error
    with trained.env:
        settings = task.run.eval
        record_evaluation(trained, trained.evaluate(settings.episodes, settings.deterministic, task.run.seed))
    progress.add({task.member.number: iterations}, trained.env_steps, time.perf_counter() - begin, trained.history[-1:])
