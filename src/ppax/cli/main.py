"""The command line: `ppax train | resume | evaluate | play | selftest | check-env | bench | presets | envs`.

Every option of a run is an option here; names, types, limits and documentation come from the parts (config.py).
Exit codes: 0 done, 1 a self-test or a check failed, 2 usage or configuration, 3 an environment failed, 4 numerical
fault or too little memory, 5 disk or damaged checkpoint, 75 stopped by a signal and resumable.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax

import ppax
from ppax import config
from ppax.cli.bench import add_bench, run_bench
from ppax.cli.check import add_check_env, run_check_env
from ppax.cli.common import printed, require_verb, resumable
from ppax.cli.envs import add_envs, run_envs
from ppax.cli.options import add_common, add_train, parse_run
from ppax.cli.play import add_play, run_play
from ppax.cli.selftest import add_selftest, run_selftest
from ppax.envs import EnvError
from ppax.evaluation import Evaluation
from ppax.loggers.files import finite_or_none
from ppax.program.footprint import NotEnoughMemory, explained
from ppax.run import record
from ppax.run.checkpoint import CheckpointError
from ppax.run.directory import find
from ppax.run.fit import fit_run, resume
from ppax.run.restore import load_best_policy, load_run, load_state
from ppax.run.result import Interrupted, NumericalError, TrainedRun
from ppax.storage import safe_files
from ppax.storage.cache import ENABLED, keep_programs
from ppax.types import ConfigError

EVALUATION = "evaluation.json"  # in the run directory
BACKENDS = 'leave JAX_PLATFORMS out for what there is, or install JAX for it: pip install "jax[cuda13]"'
DONE, FAILED, USAGE, ENVIRONMENT, NUMERICAL, DISK, STOPPED = 0, 1, 2, 3, 4, 5, 75


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    warnings.showwarning = lambda message, *_: printed(f"warning: {message}", sys.stderr)
    try:
        with explained():
            return _dispatch(arguments)
    except (ConfigError, ImportError) as error:
        return _fail(error, USAGE)
    except RuntimeError as error:
        if "initialize backend" not in str(error):
            raise
        return _fail(f"JAX_PLATFORMS = {os.environ.get('JAX_PLATFORMS')!r}: {error}; {BACKENDS}", USAGE)
    except EnvError as error:
        return _fail(error, ENVIRONMENT)
    except (NumericalError, NotEnoughMemory) as error:
        return _fail(error, NUMERICAL)
    except (CheckpointError, OSError) as error:
        return _fail(error, DISK)
    except Interrupted as error:
        return _fail(error, STOPPED)
    except KeyboardInterrupt as error:
        _fail(f"stopped at once{''.join(map(str, error.args))}", STOPPED)
        os._exit(STOPPED)  # an ordinary exit would wait for the chunk that is running


def _fail(error: object, code: int) -> int:
    printed(f"ppax: {error}", sys.stderr)
    return code


def _dispatch(arguments: list[str]) -> int:
    arguments = arguments or ["--help"]
    require_verb(arguments)
    parser = argparse.ArgumentParser(prog="ppax", description="Proximal Policy Optimization in JAX.")
    parser.add_argument("--version", action="version", version=f"ppax {ppax.__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="command")
    verbs.add_parser("train", help="train an agent: a preset, a run file, or an environment", add_help=False)
    verbs.add_parser("bench", help="how fast a run is here, and where its time goes", add_help=False)
    verbs.add_parser("selftest", help="check that agent and environment are sound, in plain words", add_help=False)
    for verb, text in (
        ("resume", "continue a stopped run"),
        ("evaluate", "play whole episodes with a trained policy"),
    ):
        sub = verbs.add_parser(verb, help=text)
        sub.add_argument("run", type=Path, help="run directory")
        if verb == "evaluate":
            sub.add_argument("--episodes", type=int, help="how many (default: as in the run file)")
            sub.add_argument("--seed", type=int, default=0, help="of the evaluation (default: 0)")
            sub.add_argument("--best", action="store_true", help="the best policy that was kept, not the last one")
            sub.add_argument("--sampled", action="store_true", help="sample actions, not the most likely one")
        add_common(sub)
    add_common(verbs.add_parser("presets", help="list the tuned runs"))
    for verb, text, add in (
        ("envs", "list the environments, or describe one", add_envs),
        ("play", "a trained policy as a film", add_play),
        ("check-env", "check that an environment is sound, in plain words", add_check_env),
    ):
        sub = verbs.add_parser(verb, help=text)
        add(sub)
        add_common(sub)
    if arguments[:1] == ["train"]:
        return _train(arguments[1:])
    if arguments[:1] == ["bench"]:
        return _bench(arguments[1:])
    if arguments[:1] == ["selftest"]:
        return _selftest(arguments[1:])
    options = parser.parse_args(arguments)
    if options.verb == "presets":
        names = list(config.presets())
        printed(json.dumps(names) if options.json else "\n".join(names), sys.stdout)
        return DONE
    _use_cache(options.cache)
    if options.verb == "envs":
        _json(options, run_envs(options, lambda text: None if options.json else _say(options, text)))
        return DONE
    if options.verb == "play":
        _json(options, run_play(options, lambda text: _say(options, text)))
        return DONE
    if options.verb == "check-env":
        report = run_check_env(options, lambda text: _say(options, text))
        _json(options, report.to_dict())
        return DONE if report.passed else FAILED
    return _resume(options) if options.verb == "resume" else _evaluate(options)


# ---------------------------------------------------------------- the verbs


def _train(arguments: list[str]) -> int:
    options, plan = parse_run("train", arguments, add_train)
    _use_cache(options.cache)
    built = config.build(plan)
    names = _RunDirs(_new_run_dirs(built.run))
    if options.run_dir is not None:
        names.latest = options.run_dir
    steps = built.run.num_steps * built.env.num_streams
    sizes = f"{built.run.num_envs} environments, rollouts of {steps:,} steps, seed {built.run.seed}"
    _say(options, f"{built.run.env}: {sizes}")
    say, where = partial(_say, options), names if options.run_dir is None else options.run_dir
    with resumable(lambda: names.latest):
        run = fit_run(*built, where, say=say)
    return _report(options, run, built.run.eval, built.run.seed)


def _bench(arguments: list[str]) -> int:
    options, plan = parse_run("bench", arguments, add_bench)
    result = run_bench(options, config.build(plan), lambda text: _say(options, text))  # no cache: it compiles honestly
    _json(options, result)
    return DONE


def _selftest(arguments: list[str]) -> int:
    options, plan = parse_run("selftest", arguments, add_selftest)
    _use_cache(options.cache)
    report = run_selftest(config.build(plan), lambda text: _say(options, text))
    _json(options, report.to_dict())
    return DONE if report.passed else FAILED


def _resume(options: argparse.Namespace) -> int:
    callbacks = record.callbacks_of(find(options.run))
    if callbacks:
        remedy = f"ppax.resume({str(options.run)!r}, callbacks=[...]) in Python calls them"
        _say(options, f"this run had callbacks ({callbacks}), which are not called here; {remedy}")
    with resumable(lambda: options.run):
        run = resume(options.run)
    settings = load_run(options.run, run.agent, run.env).run
    return _report(options, run, settings.eval, settings.seed)


def _evaluate(options: argparse.Namespace) -> int:
    agent, env, run = load_run(options.run)
    if options.episodes is not None and options.episodes < 1:
        raise ConfigError(f"--episodes {options.episodes}: must be at least 1; nearest valid value: 1")
    if options.best:
        state = load_best_policy(options.run, agent, env, run).policy
    else:
        state = load_state(options.run, agent, env, run, fresh=False)
    trained = TrainedRun(agent, env, state, [], options.run, eval_env_params=run.eval.env_params)
    episodes = run.eval.episodes if options.episodes is None else options.episodes
    deterministic = run.eval.deterministic and not options.sampled
    evaluation = trained.evaluate(episodes, deterministic, options.seed)
    _say(options, _sentence(evaluation))
    _json(options, _result(trained, evaluation))
    return DONE


# ---------------------------------------------------------------- what the user sees


def _report(options: argparse.Namespace, run: TrainedRun, judge: config.EvalSettings, seed: int) -> int:
    if run.history:
        speed = f"{run.train_seconds:.1f} s: {run.steps_per_second:,.0f} steps/s"
        compiled = f"after {run.compile_seconds:.1f} s of compilation"
        _say(options, f"trained to {run.steps_done()} in {speed}, {compiled}")
    else:
        _say(options, f"nothing left to train: {run.steps_done()} are done")
    if run.stopped:
        _say(options, f"stopped early: {run.stopped}")
    try:
        evaluation = run.evaluate(judge.episodes, judge.deterministic, seed)
    except KeyboardInterrupt:
        done = f"; training is done and saved: `ppax evaluate {run.run_dir}` judges its policy"
        raise KeyboardInterrupt(done) from None
    _say(options, _sentence(evaluation))
    _say(options, f"run directory: {run.run_dir}")
    _say(options, "next:")
    _say(options, f"  ppax evaluate {run.run_dir} --episodes 1000")
    if run.best is not None and run.best.row is not None:
        when = f"{run.best.key} {run.best.value:g} at {run.best.row['env_steps']:,.0f} steps"
        _say(options, f"  ppax evaluate {run.run_dir} --best   # {when}")
    _say(options, f"  ppax train {run.run_dir / 'run.toml' if run.run_dir else ''} --seed {seed + 1}")
    result = _result(run, evaluation)
    if run.run_dir is not None:
        try:
            safe_files.write_text(run.run_dir / EVALUATION, json.dumps(_plain(result), indent=1) + "\n")
        except OSError as error:  # it stands on the screen
            warnings.warn(f"{run.run_dir / EVALUATION} could not be written: {error}", stacklevel=2)
    _json(options, result)
    return _fail(f"the last checkpoint could not be saved: {run.unsaved}", DISK) if run.unsaved else DONE


def _sentence(evaluation: Evaluation) -> str:
    count = int(evaluation.finished.sum())
    text = (
        f"evaluation over {count} episodes: mean return {evaluation.mean_return:.2f} "
        f"(std {evaluation.std_return:.2f}), mean length {evaluation.mean_length:.1f}"
    )
    left = len(evaluation.finished) - count
    text += f"; {left} never ended and are not counted" if left else ""
    text += f"; {evaluation.unplayed} were not played" if evaluation.unplayed else ""
    agents = (f"{name} {one.mean_return:.2f}" for name, one in evaluation.by_agent.items())
    return "; ".join((text, *agents))


def _result(run: TrainedRun, evaluation: Evaluation) -> dict[str, Any]:
    agents = {f"mean_return/{name}": one.mean_return for name, one in evaluation.by_agent.items()}
    trained = {
        "steps_per_second": run.steps_per_second,
        "train_seconds": run.train_seconds,
        "started_at": run.started_at,
        "compile_seconds": run.compile_seconds,
        "stopped": run.stopped,
    }
    return {
        "mean_return": evaluation.mean_return,
        "std_return": evaluation.std_return,
        "mean_length": evaluation.mean_length,
        "episodes": int(evaluation.finished.sum()),
        "unplayed": evaluation.unplayed,
        "env_steps": run.env_steps,
        "total_steps": run.total_steps,
        "iterations": int(run.state.iteration),
        "run_dir": str(run.run_dir),
        **(trained if run.history else {}),  # nothing of it is known where this command trained nothing
        **agents,
    }


def _say(options: argparse.Namespace, text: str) -> None:
    printed(text, sys.stderr if options.json else sys.stdout)


def _json(options: argparse.Namespace, result: dict[str, Any]) -> None:
    if options.json:
        printed(json.dumps(_plain(result)), sys.stdout)


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    return {name: finite_or_none(value) for name, value in result.items()}


class _RunDirs:
    """Names of run directories to try, one after the other; `latest` is the one tried last."""

    def __init__(self, names: Iterable[Path]):
        self._names, self.latest = names, Path()

    def __iter__(self) -> Iterator[Path]:
        for name in self._names:
            self.latest = name
            yield name


def _new_run_dirs(run: config.Run) -> Iterator[Path]:
    """Names for the directory of a run that the user has given none; the first that is free is taken."""
    name = f"{run.env.replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}-seed{run.seed}"
    yield Path("runs") / name
    for copy in itertools.count(2):
        yield Path("runs") / f"{name}-{copy}"


def _use_cache(enabled: bool) -> None:
    """Keep compiled programs between processes, unless switched off or already arranged by the user."""
    if enabled:
        keep_programs()
    else:
        jax.config.update(ENABLED, False)


if __name__ == "__main__":
    sys.exit(main())
