"""`ppax export`: write a trained policy as one file; `ppax evaluate` of such a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ppax import config
from ppax.cli.output import evaluation_text, scores_of
from ppax.envs import other_params
from ppax.policy.bundle import FORMATS
from ppax.policy.loading import load
from ppax.run.directory import EVALUATION
from ppax.storage import safe_files
from ppax.types import ConfigError

BUNDLE = "policy.zip"  # default name, in the run directory
SCORES_LIMIT = 2**20  # bytes of evaluation.json; far above the size of a valid file


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax export` has."""
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--to", type=Path, help=f"file to write, .zip (default: {BUNDLE} in the run directory)")
    parser.add_argument("--best", action="store_true", help="export the best policy of the run, not the last")
    text = f"formats, with commas: {','.join(FORMATS)} (default: all that the policy and this machine have)"
    parser.add_argument("--formats", help=text)


def run_export(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Write the bundle, print its formats and path; returns the same for JSON."""
    formats = None if options.formats is None else [name.strip() for name in options.formats.split(",")]
    scores = None if options.best else _scores(options.run)
    written = load(options.run, best=options.best).export(options.to or options.run / BUNDLE, formats, scores)
    for name, difference in written.differences.items():
        say(f"{name}: the same actions; numbers differ by at most {difference:.1e}")
    for name, reason in written.left_out.items():
        say(f"{name}: left out: {reason}")
    size = written.path.stat().st_size
    say(f"bundle: {written.path} ({size / 1e6:.1f} MB); docs/export.md shows how to load it")
    return {
        "path": str(written.path),
        "bytes": size,
        "formats": written.differences,
        "left_out": written.left_out,
    }


def evaluate_bundle(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Evaluate the policy of a bundle in the environment of its configuration; returns the result for JSON."""
    if options.best:
        raise ConfigError(f"--best: {options.run} is a bundle, of one policy; leave --best out")
    policy = load(options.run)
    settings = config.settings(policy.spec.config).eval
    episodes = settings.episodes if options.episodes is None else options.episodes
    deterministic = settings.deterministic and not options.sampled
    with other_params(config.build_env(policy.spec.config), settings.env_params) as env:
        evaluation = policy.evaluate(env, episodes, deterministic, options.seed)
    say(evaluation_text(evaluation))
    return scores_of(evaluation) | {"bundle": str(options.run)}


def _scores(run_dir: Path) -> dict[str, Any] | None:
    """Return the numbers of the run's evaluation; None where there is none."""
    try:
        scores = json.loads(safe_files.read(run_dir / EVALUATION, SCORES_LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(scores, dict):
        return None
    return {name: x for name, x in scores.items() if isinstance(x, int | float)}
