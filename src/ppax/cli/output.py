"""Output of the commands: messages, results as JSON, the report after training, and names of new run directories."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ppax import config
from ppax.cli.common import DISK, DONE, fail, print_line
from ppax.loggers.evaluating import EvaluationLine
from ppax.loggers.files import without_non_finite
from ppax.run import python_objects
from ppax.run.dry_run import DryRun
from ppax.run.result import TrainedRun, record_evaluation
from ppax.run.signals import interrupted_by_signals
from ppax.storage.paths import absolute, quoted, relative
from ppax.sweeps.runs import SweepDryRun
from ppax.training.evaluation import Evaluation
from ppax.training.watching import watched_by

ENDLESS = (
    "no episode ended in training: its return is reward_mean, the mean reward of a step, and that of an evaluation is "
    "the sum over the first steps after a reset, eval.max_steps of them; where an episode should end after N steps, "
    "give it --env-params.max-steps N"
)


def say(options: argparse.Namespace, text: str, kept: str = "\n\t") -> None:
    """Print a message to standard output, or to standard error if `--json` is given.

    Control characters other than those in `kept` are removed.
    """
    print_line(text, sys.stderr if options.json else sys.stdout, kept)


def print_json(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Print the result as one line of JSON to standard output, if `--json` is given; NaN and infinities become null."""
    if options.json:
        print_line(json.dumps(without_non_finite(result), allow_nan=False, default=str), sys.stdout)


def print_plan(options: argparse.Namespace, plan: DryRun | SweepDryRun) -> None:
    """Print what a dry run has found to standard output: a run file, or with `--json` one line of JSON."""
    print_json(options, plan.to_dict())
    if not options.json:
        print_line(plan.to_toml().rstrip("\n"), sys.stdout)


def report_run(options: argparse.Namespace, run: TrainedRun, settings: config.EvalSettings, seed: int) -> int:
    """Evaluate a finished run, print the report with the next commands, record the evaluation; return the exit code.

    `settings` are those of the evaluation, `seed` its random seed.
    """
    if run.history:
        speed = f"{run.train_seconds:.1f} s: {run.steps_per_second:,.0f} steps/s"
        compiled = f"after {run.compile_seconds:.1f} s of compilation"
        say(options, f"trained to {run.steps_done()} in {speed}, {compiled}")
    else:
        say(options, f"nothing left to train: {run.steps_done()} are done")
    if run.stopped:
        say(options, f"stopped early: {run.stopped}")
    path, run_file = (quoted(run.run_dir), quoted(run.run_dir / config.RUN_FILE)) if run.run_dir else ("", "")
    run_config = config.read(run.run_dir / config.RUN_FILE) if run.run_dir else {}
    trusting = python_objects.trust_flags([run_config], python_objects.SOURCE, "log")
    console = config.settings(run_config).log.console if run_config else True
    try:
        with interrupted_by_signals(), shown_evaluation(settings.episodes, console):
            evaluation = run.evaluate(settings.episodes, settings.deterministic, seed, settings.max_steps, record=False)
    except KeyboardInterrupt:
        done = f"; training is complete and saved: `ppax evaluate {path}{trusting}` evaluates its policy"
        raise KeyboardInterrupt(done) from None
    for text in (*_scores_in_training(run), f"final {evaluation_text(evaluation, settings.deterministic)}"):
        say(options, text)
    if run.history and not any(row.get("episodes", 0.0) > 0.0 for row in run.history):
        say(options, ENDLESS)
    say(options, f"run directory: {run.run_dir and relative(run.run_dir)}")
    say(options, "next:")
    say(options, f"  ppax evaluate {path} --episodes 1000{trusting}")
    if run.best is not None and run.best.row is not None:
        when = f"{run.best.key} {run.best.value:g} at env_steps {run.best.row['env_steps']:,.0f}"
        say(options, f"  ppax evaluate {path} --best{trusting}   # {when}")
    flags = python_objects.trust_flags([run_config])
    episode = "" if flags else ", an episode"  # that needs the run's code; the report then says how to add it
    say(options, f"  ppax report {path}   # one page: curves, settings{episode}")
    say(options, f"  ppax train {run_file} --seed {seed + 1}{flags}")
    print_json(options, record_evaluation(run, evaluation))
    return fail(f"the last checkpoint could not be saved: {run.unsaved}", DISK) if run.unsaved else DONE


@contextmanager
def shown_evaluation(episodes: int, console: bool = True) -> Iterator[None]:
    """Return a context in which an evaluation of `episodes` episodes shows its progress on standard error.

    Nothing is shown if `console` is False. Progress is counted for environments on the host only: in compiled
    environments all episodes are played in one program.
    """
    if not console:
        yield
        return
    with EvaluationLine(episodes) as line, watched_by(line):
        yield


def _scores_in_training(run: TrainedRun) -> Iterator[str]:
    """Yield lines of text with the mean return of the last evaluation during training and the value of the best metric.

    The latter is the best value of the metric by which the run chose its best policy. A line is missing if the run has
    no such result. The lines say "in training", because the final evaluation has other episodes and another score.
    """
    if run.evaluations:
        last = run.evaluations[max(run.evaluations)]
        count = int(last.counted.sum())
        yield f"last evaluation in training ({count} episodes): mean return {last.mean_return:.2f}"
    if run.best is not None and run.best.row is not None:
        yield f"best {run.best.key} in training: {run.best.value:g} at {run.best.row['env_steps']:,.0f} steps"


def evaluation_text(evaluation: Evaluation, deterministic: bool) -> str:
    """Return an evaluation as one line: means over its episodes, how many of them were cut, means of each player.

    Players are the agents inside the environment; `deterministic` says that actions were modes, not samples.
    """
    count = int(evaluation.counted.sum())
    text = "evaluation: no agent appeared" if count == 0 else _means(evaluation, count, deterministic)
    if evaluation.cut:
        longest = evaluation.lengths[evaluation.counted & ~evaluation.finished].max()
        text += f"; {evaluation.cut} had not ended after {longest:,} steps, were cut and count as truncated"
    text += f"; {evaluation.unplayed} were not played" if evaluation.unplayed else ""
    own = (f"{name} {mean:.3g}" for name, mean in evaluation.mean_metrics.items() if count)
    agents = (f"{name} {one.mean_return:.2f}" for name, one in evaluation.by_agent.items() if one.counted.any())
    return "; ".join((text, *own, *agents))


def _means(evaluation: Evaluation, count: int, deterministic: bool) -> str:
    """Return a text with the returns, mean length and ends of the `count` episodes of an evaluation.

    Episodes of agents that did not appear are left out. `deterministic` says that actions were modes, not samples.
    """
    actions = "modes of the actions" if deterministic else "sampled actions"
    return (
        f"evaluation over {count} episodes, {actions}: mean return {evaluation.mean_return:.2f} "
        f"(median {evaluation.median_return:.2f}, std {evaluation.std_return:.2f}, {evaluation.min_return:.2f} to "
        f"{evaluation.max_return:.2f}), mean length {evaluation.mean_length:.1f}, {evaluation.terminated_share:.0%} "
        f"terminated, final reward {evaluation.mean_final_reward:.3g}"
    )


class RunDirs:
    """Iterator over candidate paths for a run directory, of which the run takes the first that is free.

    `latest` is the path that the iterator returned last; before its first, it is the path `given` by the user, made
    absolute. After an interruption it tells the user which run to resume.
    """

    def __init__(self, paths: Iterable[Path], given: Path | None):
        self._paths, self.latest = paths, absolute(given or "")

    def __iter__(self) -> Iterator[Path]:
        for path in self._paths:
            self.latest = path
            yield path


def new_run_dirs(run: config.Run) -> Iterator[Path]:
    """Yield names for a new run directory: runs/ENV-DATE-TIME-seedN, then the same with -2, -3 and so on, endlessly.

    A run uses the first one that is free.
    """
    name = f"{run.env.replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}-seed{run.seed}"
    runs = absolute("runs")
    yield runs / name
    for copy in itertools.count(2):
        yield runs / f"{name}-{copy}"
