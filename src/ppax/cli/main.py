"""Command `ppax`: `train | sweep | resume | evaluate | play | match | export | report | compare | plot | bench | ...`.

Every option of a run is an option here; its name, type, limits and help come from the fields of the parts. Exit codes:
0 done, 1 a self-test, a check or a score failed, 2 wrong usage or configuration, 3 an environment failed, 4 a number
was not finite, or out of memory, 5 disk error or damaged checkpoint, 75 stopped by a signal and resumable.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

import ppax_command
from ppax import config
from ppax.cli.arguments import DEVICE, TRUST, join_arguments, split_arguments, split_free, trusting_line, without
from ppax.cli.bench import add_bench, run_bench
from ppax.cli.check import add_check_env, run_check_env, run_selftest
from ppax.cli.common import (
    DISK,
    DONE,
    ENVIRONMENT,
    FAILED,
    NUMERICAL,
    STOPPED,
    USAGE,
    cluster_of,
    fail,
    joined_words,
    print_line,
    refused,
    require_command,
    resumable,
    unprinted,
)
from ppax.cli.envs import add_envs, run_envs
from ppax.cli.options import Adding, add_common, add_resume, add_train, parse_run
from ppax.cli.output import (
    RunDirs,
    evaluation_text,
    new_run_dirs,
    print_json,
    print_plan,
    report_run,
    say,
    shown_evaluation,
)
from ppax.cli.play import (
    add_env_params,
    add_export,
    add_match,
    add_play,
    add_policy,
    downloaded,
    evaluate_bundle,
    run_export,
    run_match,
    run_play,
)
from ppax.cli.report import add_compare, add_doctor, add_plot, add_report, run_compare, run_doctor, run_plot, run_report
from ppax.cli.score import add_score, run_presets, run_score, score_line
from ppax.cli.sweep import continue_sweep, run_sweep
from ppax.core import imports
from ppax.core.options import Config, unflatten
from ppax.core.types import ConfigError
from ppax.devices import sharding
from ppax.devices.footprint import NotEnoughMemory, explaining_memory
from ppax.envs import EnvError
from ppax.policy.bundle import is_bundle
from ppax.run import python_objects
from ppax.run.checkpoint import CheckpointError
from ppax.run.directory import read_run_config, require_named
from ppax.run.dry_run import dry_run
from ppax.run.fit import fit_run, resume_run
from ppax.run.loading import load_chosen
from ppax.run.restore import load_run
from ppax.run.result import Interrupted, NumericalError, ProcessLost, TrainedRun, result_of
from ppax.storage.cache import ENABLED, keep_programs
from ppax.sweeps.directory import is_sweep
from ppax.training.evaluation import LONGEST

# Commands with a result that --json prints: the function that adds their options, and the one that runs them
RESULTS: dict[str, tuple[Adding | None, Callable[..., dict[str, Any]]]] = {
    "presets": (None, run_presets),
    "envs": (add_envs, run_envs),
    "play": (add_play, run_play),
    "match": (add_match, run_match),
    "export": (add_export, run_export),
    "report": (add_report, run_report),
    "compare": (add_compare, run_compare),
    "plot": (add_plot, run_plot),
    "doctor": (add_doctor, run_doctor),
}
WITHOUT_JAX = ("presets", "compare", "plot", "doctor")


def main(argv: list[str] | None = None) -> int:
    """Run the command in `argv`, the words after `ppax`; return its exit code.

    None stands for the command line of this process.
    """
    given = sys.argv[1:] if argv is None else argv
    warnings.showwarning = lambda message, *_: print_line(f"warning: {message}", sys.stderr)
    try:
        arguments, names = without(TRUST, given)
        arguments, devices = without(DEVICE, arguments)
        with explaining_memory(), imports.naming(arguments), imports.trusting(names, beside=True):
            arguments = joined_words(arguments)  # before JAX starts
            for device in devices[-1:]:
                sharding.use_device(device)
            unprinted.clear()
            code = _dispatch(arguments)
            return fail(f"standard output: {unprinted[0].strerror}", DISK) if unprinted and code == DONE else code
    except imports.Untrusted as error:
        return fail(f"{error}\n  {trusting_line(given, error.names)}", USAGE)
    except (ConfigError, ImportError) as error:
        return fail(error, USAGE)
    except EnvError as error:
        return fail(error, ENVIRONMENT)
    except (NumericalError, NotEnoughMemory) as error:
        return fail(error, NUMERICAL)
    except (CheckpointError, OSError) as error:
        return fail(error, DISK)
    except ProcessLost as error:
        fail(error, STOPPED)
        os._exit(STOPPED)  # an ordinary exit would wait for the lost process
    except Interrupted as error:
        return fail(error, STOPPED)
    except KeyboardInterrupt as error:
        fail(f"stopped at once{''.join(map(str, error.args))}", STOPPED)
        os._exit(STOPPED)  # an ordinary exit would wait for the chunk of iterations that is running


def _dispatch(arguments: list[str]) -> int:
    """Run the command that the first argument names; return its exit code."""
    if not arguments or arguments[0].startswith("-"):
        ppax_command.describe(arguments)
    require_command(arguments)
    sweep: Callable[[list[str]], int] = partial(run_sweep, _start_jax)
    with_run_options = {"train": _train, "sweep": sweep, "bench": _bench, "selftest": _selftest}
    if arguments[0] in with_run_options:
        return with_run_options[arguments[0]](arguments[1:])
    env_params: Config = {}
    if arguments[0] in ("evaluate", "play", "check-env"):
        given, env_params = split_free(split_arguments(arguments), {}, "env_params")
        arguments = join_arguments(given)
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        raise ConfigError(refused(unknown, options))
    options.env_params = unflatten(env_params).get("env_params", {})
    if options.command not in WITHOUT_JAX:
        _start_jax(options.cache)
    if options.command in RESULTS:
        _, run = RESULTS[options.command]
        print_json(options, run(options, partial(say, options)))
        return DONE
    if options.command == "score":
        scores, passed = run_score(options, partial(say, options))
        print_json(options, scores)
        return DONE if passed else FAILED
    if options.command == "check-env":
        report = run_check_env(options, partial(say, options))
        print_json(options, report.to_dict())
        return DONE if report.passed else FAILED
    return _resume(options) if options.command == "resume" else _evaluate(options)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of all commands but train, sweep, bench and selftest, whose options depend on their target.

    Abbreviated options are refused: `--env` would be taken for the help text `--env-params.NAME`, and be ignored.
    """
    parser = argparse.ArgumentParser(prog="ppax")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in ("resume", "evaluate"):
        sub = commands.add_parser(command, allow_abbrev=False)
        if command == "resume":
            sub.add_argument("run", type=Path, help="run directory")
            add_resume(sub)
        if command == "evaluate":
            add_policy(sub)
            sub.add_argument("--episodes", type=int, help="number of episodes (default: as in the run file)")
            sub.add_argument("--max-steps", type=int, help="length at which episodes are cut (default: eval.max_steps)")
            sub.add_argument("--seed", type=int, default=0, help="random seed of the evaluation (default: 0)")
            sub.add_argument("--best", action="store_true", help="evaluate the best policy of the run, not the last")
            sub.add_argument("--step", type=int, help="evaluate the checkpoint after this number of environment steps")
            sub.add_argument("--sampled", action="store_true", help="sample actions instead of taking the mode")
            add_env_params(sub)
        add_common(sub)
    with_own = {name: add for name, (add, _) in RESULTS.items()} | {"score": add_score, "check-env": add_check_env}
    for command, add in with_own.items():
        sub = commands.add_parser(command, allow_abbrev=False)
        if add is not None:
            add(sub)
        add_common(sub)
    return parser


def _train(arguments: list[str]) -> int:
    options, run_config = parse_run("train", arguments, add_train)
    _start_jax(options.cache)
    built = config.build(run_config)
    if options.dry_run:
        print_plan(options, dry_run(*built, options.run_dir, options.overwrite))
        return DONE
    candidates = RunDirs(new_run_dirs(built.run), options.run_dir)
    steps = built.run.num_steps * built.env.num_streams
    sizes = f"{built.run.num_envs} environments, rollouts of {steps:,} steps, seed {built.run.seed}"
    published = score_line(options.target, built.run.preset)
    if published:
        say(options, published)
    say(options, f"{built.run.env}: {sizes}")
    if options.begun:
        say(options, options.begun)
    require_named(options.run_dir, options.overwrite)
    run_dir = candidates if options.run_dir is None else options.run_dir
    with resumable(lambda: candidates.latest):
        run = fit_run(*built, run_dir, say=partial(say, options), overwrite=options.overwrite)
    return report_run(options, run, built.run.eval, built.run.seed)


def _bench(arguments: list[str]) -> int:
    options, run_config = parse_run("bench", arguments, add_bench)
    # without the compilation cache, so that the reported compile time is a full compilation
    print_json(options, run_bench(options, config.build(run_config), partial(say, options)))
    return DONE


def _selftest(arguments: list[str]) -> int:
    options, run_config = parse_run("selftest", arguments)
    _start_jax(options.cache)
    report = run_selftest(config.build(run_config), partial(say, options))
    print_json(options, report.to_dict())
    return DONE if report.passed else FAILED


def _resume(options: argparse.Namespace) -> int:
    if is_sweep(options.run) or cluster_of(options):
        return continue_sweep(options)
    recorded = read_run_config(options.run)
    callbacks = python_objects.callbacks_of(recorded)
    if callbacks:
        remedy = f"ppax.resume({str(options.run)!r}, callbacks=[...]) in Python calls them"
        say(options, f"this run had callbacks ({callbacks}), which are not called here; {remedy}")
    if options.total_steps is not None:
        before = config.settings(python_objects.recorded(recorded)).total_steps
        say(options, f"total_steps: {options.total_steps:,}, recorded: {before:,}")
    with resumable(lambda: options.run):
        run = resume_run(options.run, total_steps=options.total_steps, say=partial(say, options))
    settings = load_run(options.run, run.agent, run.env).run
    return report_run(options, run, settings.eval, settings.seed)


def _evaluate(options: argparse.Namespace) -> int:
    for name in ("episodes", "max_steps"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {value}: must be at least 1; nearest valid value: 1")
    if (options.max_steps or 0) > LONGEST:
        raise ConfigError(f"--max-steps {options.max_steps}: must be at most {LONGEST}; nearest valid value: {LONGEST}")
    path = downloaded(options.run)
    if is_bundle(path):
        print_json(options, evaluate_bundle(path, options, partial(say, options)))
        return DONE
    agent, env, run = load_run(path)
    state = load_chosen(path, agent, env, run, options.best, options.step)
    trained = TrainedRun(agent, env, state, [], path, eval_settings=run.eval)
    episodes = run.eval.episodes if options.episodes is None else options.episodes
    deterministic = run.eval.deterministic and not options.sampled
    with shown_evaluation(episodes):
        evaluation = trained.evaluate(
            episodes, deterministic, options.seed, options.max_steps, options.env_params, record=False
        )
    say(options, evaluation_text(evaluation, deterministic))
    print_json(options, result_of(trained, evaluation))
    return DONE


def _start_jax(cache: bool) -> None:
    """Start JAX, and raise ConfigError where there is no device; with `cache`, keep compiled programs on disk."""
    sharding.require_backend()
    if cache:
        keep_programs()
    else:
        jax.config.update(ENABLED, False)


if __name__ == "__main__":
    sys.exit(main())
