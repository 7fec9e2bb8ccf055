"""Commands of trained policies: `ppax play` films one, `ppax match` lets several play, `ppax export` writes one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ppax import config
from ppax.cli.output import evaluation_text, shown_evaluation
from ppax.core import imports
from ppax.core.options import check_limits
from ppax.core.types import ConfigError
from ppax.envs import Env, for_evaluation
from ppax.policy.bundle import is_bundle
from ppax.policy.bundle.writing import FORMATS
from ppax.policy.hub import PREFIX, address_of, fetch
from ppax.reports.upload import push_to_hub
from ppax.run import python_objects
from ppax.run.directory import read_evaluation, read_run_config
from ppax.run.films import film
from ppax.run.loading import env_of_bundle, load
from ppax.run.matches import Sides, distinct_names, match
from ppax.storage.paths import quoted

BUNDLE = "policy.zip"  # default name, in the run directory


POLICY = f"run directory, bundle of `ppax export`, or {PREFIX}OWNER/NAME on the Hugging Face Hub"


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a policy: a path, or an address on the Hub, which `downloaded` makes a path."""
    parser.add_argument("run", type=lambda text: text if text.startswith(PREFIX) else Path(text), help=POLICY)


def downloaded(policy: Path | str) -> Path:
    """Return the path of a policy; one that is an address on the Hub is downloaded."""
    return policy if isinstance(policy, Path) else fetch(policy)


def add_play(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax play` has."""
    add_policy(parser)
    text = (
        "video file, .gif or .mp4 (default: play.gif in the run directory, policy.gif beside a bundle policy.zip, "
        f"NAME.gif here for {PREFIX}OWNER/NAME)"
    )
    parser.add_argument("--out", type=Path, help=text)
    parser.add_argument("--episodes", type=int, default=1, help="number of episodes, one after the other (default: 1)")
    parser.add_argument(
        "--max-steps", type=int, default=2000, help="limit on the steps of all episodes (default: 2000)"
    )
    parser.add_argument(
        "--fps", type=float, default=30.0, help="frames (= steps) per second, at most 50 in a .gif (default: 30)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of the episodes (default: 0)")
    parser.add_argument("--best", action="store_true", help="play the best policy of the run, not the last")
    parser.add_argument("--step", type=int, help="play the checkpoint after this number of environment steps")
    parser.add_argument("--sampled", action="store_true", help="sample actions instead of taking the mode")
    add_env_params(parser)


OF_EVALUATION = "parameter of the environment, such as gravity, for this alone (default: that of the run's evaluations)"


def add_env_params(parser: argparse.ArgumentParser, text: str = OF_EVALUATION) -> None:
    """Add `--env-params.NAME VALUE` to the help; `split_free` reads them, as they depend on the environment."""
    parser.add_argument("--env-params.NAME", dest="_", metavar="VALUE", help=text)


def run_play(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Film the policy of a run, print the returns and the path of the video; return the same for JSON."""
    for name in ("episodes", "max_steps", "fps"):
        check_limits(f"--{name.replace('_', '-')}", getattr(options, name), {"low": 1})
    run = downloaded(options.run)
    if isinstance(options.run, str):
        usual = Path(address_of(options.run).repo.partition("/")[2] + ".gif")
    else:
        usual = run.with_suffix(".gif") if is_bundle(run) else run / "play.gif"
    made = film(
        run,
        options.out or usual,
        episodes=options.episodes,
        max_steps=options.max_steps,
        fps=options.fps,
        seed=options.seed,
        deterministic=not options.sampled,
        best=options.best,
        step=options.step,
        env_params=options.env_params,
    )
    for episode, length in enumerate(made.lengths):
        say(f"return {made.returns_text(episode)} in {length} steps")
    if not made.finished:
        say(f"the last episode was still running after {options.max_steps} steps; increase --max-steps to see its end")
    say(f"{made.frames} frames: {made.path}")
    return {
        "path": str(made.path),
        "frames": made.frames,
        "agents": list(made.names),
        "returns": made.returns.tolist(),
        "lengths": made.lengths.tolist(),
        "finished": made.finished,
    }


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax export` has."""
    add_policy(parser)
    text = f".zip to write, or {PREFIX}OWNER/NAME on the Hugging Face Hub (default: {BUNDLE} in the run directory)"
    parser.add_argument("--out", help=text)
    parser.add_argument("--best", action="store_true", help="export the best policy of the run, not the last")
    parser.add_argument("--step", type=int, help="export the checkpoint after this number of environment steps")
    text = f"formats, with commas: {','.join(FORMATS)} (default: all that the policy and this machine have)"
    parser.add_argument("--formats", help=text)
    text = "the formats also give V of the observation, as the output `value`"
    parser.add_argument("--return-value", action="store_true", help=text)
    text = "instead of a bundle, write this new directory: an MLflow model, for `mlflow models serve -m DIR`"
    parser.add_argument("--mlflow", metavar="DIR", help=text)


def run_export(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Write a policy as a bundle or an MLflow model, or upload it to a hub; print and return the formats and the place.

    Raises ConfigError for options that contradict each other.
    """
    if options.mlflow is not None and (options.out is not None or options.formats is not None):
        other = "--out" if options.out is not None else "--formats"
        raise ConfigError(f"--mlflow writes an MLflow model and no bundle: leave out {other}, or export twice")
    run = downloaded(options.run)
    if is_bundle(run) and options.mlflow is None and options.out is None:
        second = Path(BUNDLE) if isinstance(options.run, str) else run.with_name(f"other-{run.name}")
        raise ConfigError(
            f"{options.run} is a bundle already: write an MLflow model of it, --mlflow DIR, or another bundle, "
            f"--out {quoted(second)}"
        )
    formats = None if options.formats is None else [name.strip() for name in options.formats.split(",")]
    policy = load(run, best=options.best, step=options.step)
    scores = None if policy.source is None else _scores(run, policy.source.iteration)
    say("writing each format and comparing it with the policy ...")
    if options.out is not None and options.out.startswith(PREFIX):
        address = push_to_hub(policy, options.out, formats=formats, return_value=options.return_value)
        say(f"uploaded: {address}")
        return {"address": address}
    if options.mlflow is not None:
        written = policy.export_mlflow(options.mlflow, scores, return_value=options.return_value)
    else:
        written = policy.export(options.out or run / BUNDLE, formats, scores, return_value=options.return_value)
    for name, difference in written.differences.items():
        precision = " in float32, not in bfloat16" if name in written.in_float32 else ""
        say(f"{name}: acts as the policy{precision}; numbers differ by at most {difference:.1e}")
    for name, reason in written.left_out.items():
        say(f"{name}: left out: {reason}")
    result = {
        "path": str(written.path),
        "formats": written.differences,
        "left_out": written.left_out,
        "in_float32": list(written.in_float32),
    }
    if options.mlflow is not None:
        served = f"mlflow models serve -m {quoted(written.path)} --env-manager local"
        say(f"MLflow model: {written.path}; serve it: {served}")
        return result
    size = written.path.stat().st_size
    say(f'bundle: {written.path} ({size / 1e6:.1f} MB); the page "Use a trained policy" shows how to load it')
    return result | {"bytes": size}


def evaluate_bundle(bundle: Path, options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Evaluate the policy of a bundle in the environment of its configuration; return the scores for JSON."""
    policy = load(bundle, best=options.best, step=options.step)
    settings = config.settings(python_objects.recorded(policy.spec.config)).eval
    episodes = settings.episodes if options.episodes is None else options.episodes
    deterministic = settings.deterministic and not options.sampled
    with for_evaluation(env_of_bundle(bundle, policy), options.env_params) as env:
        limit = settings.max_steps if options.max_steps is None else options.max_steps
        with shown_evaluation(episodes):
            evaluation = policy.evaluate(env, episodes, deterministic, options.seed, max_steps=limit)
    say(evaluation_text(evaluation, deterministic))
    return evaluation.scores | {"bundle": str(options.run)}


def _scores(run_dir: Path, iteration: int) -> dict[str, Any] | None:
    """Return the numbers in the recorded evaluation of the policy after `iteration`; None where there is none."""
    scores = read_evaluation(run_dir, iteration)
    return {name: x for name, x in scores.items() if isinstance(x, int | float)} or None


# Command `ppax match`: trained policies play against each other.


def add_match(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax match` has."""
    text = "environment of the games: its name, a run file, or a run directory or bundle, whose environment is taken"
    parser.add_argument("env", metavar="ENV_OR_RUN", help=text)
    parser.add_argument("policies", nargs="+", metavar="POLICY", help=POLICY)
    text = "games in each seating of the policies (default: 100)"
    parser.add_argument("--episodes", type=int, default=100, help=text)
    parser.add_argument("--seed", type=int, default=0, help="random seed of the games (default: 0)")
    parser.add_argument("--best", action="store_true", help="play the best policy of each run, not the last")
    parser.add_argument("--deterministic", action="store_true", help="take the mode of each policy instead of sampling")
    text = "agents of each side, by name, number or group (default: the groups, or agents named alike but for a number)"
    parser.add_argument("--sides", nargs="+", metavar="SIDE=AGENT,AGENT", help=text)


def run_match(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Play the games that the options describe and print tables of the scores; return the scores for JSON."""
    check_limits("--episodes", options.episodes, {"low": 1})
    policies = [load(one, best=options.best and Path(one).is_dir()) for one in options.policies]
    names = distinct_names(options.policies)
    with _env_of(options.env) as env:
        result = match(
            dict(zip(names, policies, strict=True)),
            env,
            options.episodes,
            seed=options.seed,
            deterministic=options.deterministic,
            sides=_sides(options.sides),
        )
    say(str(result))
    return result.scores


def _env_of(target: str) -> Env:
    """Return the environment of the games, from its name, a run file, a run directory or a bundle."""
    path, call = Path(target), "ppax.match(policies, {arguments}) in Python"
    within: list[Path] = []
    if path.is_dir():
        run_config, within = read_run_config(path), [path]
        python_objects.require_passed(run_config, True, None, target, call)
        run_config = python_objects.recorded(run_config)
    elif path.suffix == ".zip" or target.startswith(PREFIX):
        return env_of_bundle(path, load(target), call)
    else:
        run_config = config.find(target)
    with imports.trusting(within=within):
        return for_evaluation(config.build_env(run_config), config.settings(run_config).eval.env_params)


def _sides(given: list[str] | None) -> Sides | None:
    """Return the players of each side of a game, by the side's name, from words such as "red=0,1"; None for no words.

    Raises ConfigError for an invalid word, and for a side that is given twice.
    """
    sides: dict[str, list[str | int]] = {}
    for one in given or ():
        side, equals, agents = one.partition("=")
        if not (side and equals and agents) or side in sides:
            raise ConfigError(f"--sides {one}: must be SIDE=AGENT,AGENT, as red=red_0,red_1, and each side once")
        sides[side] = [int(x) if x.isdecimal() else x for x in agents.split(",")]
    return sides or None
