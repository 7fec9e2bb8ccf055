"""Commands `ppax score`, which measures how well ppax learns an environment, and `ppax presets`, a list of presets."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppax import config
from ppax.core.options import check_limits
from ppax.core.types import ConfigError
from ppax.reports import comparison
from ppax.scores import normalised, scoring, suite, tables
from ppax.scores.tables import duration, number_cell, presets, scores_by_target

NOT_MEASURED = "not measured"


def add_score(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax score` has."""
    text = "environments, presets, or rows of the suite (L1, L12-20, ...)"
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=text)
    parser.add_argument("--suite", help="quick, full, public, predecessors, or a suite file (.toml): all its rows")
    parser.add_argument("--controls", action="store_true", help="also run the negative controls (full: always)")
    parser.add_argument("--out", type=Path, default=Path("scores"), help="directory of the results (default: scores)")
    parser.add_argument("--seeds", type=int, help="number of seeds (default: 5; on the host 3; public: 10 and 5)")
    parser.add_argument(
        "--episodes", type=int, default=scoring.EPISODES, help="episodes of each evaluation (default: 128)"
    )


def run_score(options: argparse.Namespace, say: Callable[..., None]) -> tuple[dict[str, Any], bool]:
    """Measure the chosen rows of the learning suite and print their scores.

    Return the results for JSON, and whether all rows pass. A row is one environment or preset with its threshold.
    """
    if not options.targets and options.suite is None:
        raise ConfigError("ppax score: name environments, presets or rows, or choose --suite quick or --suite full")
    for name in ("seeds", "episodes"):
        if getattr(options, name) is not None:
            check_limits(f"--{name}", getattr(options, name), {"low": 1})
    rows = suite.choose(options.targets, options.suite)
    rows = suite.every(rows, options.controls or options.suite == "full")
    try:
        outcomes = scoring.score_rows(rows, options.out, options.seeds, options.episodes, say)
    except KeyboardInterrupt:
        done = "; rows and seeds that are done are saved: the same command continues"
        raise KeyboardInterrupt(done) from None
    color = not options.json and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    say(tables.terminal_table(outcomes, color, comparison.terminal_width()), "\n\033")
    together = normalised.together([outcome.score for outcome in outcomes if outcome.score is not None])
    if together is not None:
        say(str(together))
    say(f"results and learning curves: {options.out}")
    entries = {
        outcome.row.name: {"error": outcome.error} if outcome.score is None else outcome.score.to_dict()
        for outcome in outcomes
    }
    return entries, not any(outcome.failed for outcome in outcomes)


def run_presets(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Print the presets with their published scores; return the same for JSON, None for a preset without a score."""
    listed = presets()
    rows = [("preset", "score", "steps", "time of a seed")]
    for name, one in listed.items():
        scored = f"{number_cell(one.iqm)} ({one.seeds} seeds)" if one else NOT_MEASURED
        rows.append((name, scored, f"{one.steps:,}" if one else "", duration(one.seconds) if one else ""))
    if not options.json:
        say(comparison.text_table(list(zip(*rows, strict=True)), rows[0], rows[0][0], comparison.terminal_width()))
    return {name: one._asdict() if one else None for name, one in listed.items()}


def score_line(target: str, preset: str | None) -> str:
    """Return a line with the published score of the preset from which a run begins; "" if nothing was published.

    Without a preset, it is the score of the target, an environment, with its default settings.
    """
    scores = scores_by_target()
    if preset is not None:
        return f"preset {preset}: {scores.get(preset) or NOT_MEASURED}"
    of_defaults = target in scores and target not in config.presets()
    return f"published score of {target}: {scores[target]}" if of_defaults else ""
