"""Command `ppax match`: trained policies play against each other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ppax import config
from ppax.core import imports
from ppax.core.options import check_limits
from ppax.core.types import ConfigError
from ppax.envs import Env, for_evaluation
from ppax.policy.hub import PREFIX
from ppax.run import python_objects
from ppax.run.directory import read_run_config
from ppax.run.loading import load
from ppax.run.matches import Sides, distinct_names, match


def add_match(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax match` has."""
    text = "environment of the games: its name, a run file, or a run directory or bundle, whose environment is taken"
    parser.add_argument("env", metavar="ENV_OR_RUN", help=text)
    parser.add_argument("policies", nargs="+", metavar="POLICY", help="run directory, or bundle of `ppax export`")
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
    path = Path(target)
    within: list[Path] = []
    if path.is_dir():
        run_config, within = read_run_config(path), [path]
        python_objects.require_passed(run_config, True, None, target, "ppax.match(policies, {arguments}) in Python")
        run_config = python_objects.recorded(run_config)
    elif path.suffix == ".zip" or target.startswith(PREFIX):
        run_config = load(target).spec.config
    else:
        run_config = config.find(target)
    with imports.trusting(within=within):
        return for_evaluation(config.build_env(run_config), config.settings(run_config).eval.env_params)


def _sides(given: list[str] | None) -> Sides | None:
    """Return the players of each side, by its name, from words such as "red=0,1"; None for no words.

    Raises ConfigError for an invalid word, and for a side that is given twice.
    """
    sides: dict[str, list[str | int]] = {}
    for one in given or ():
        side, equals, agents = one.partition("=")
        if not (side and equals and agents) or side in sides:
            raise ConfigError(f"--sides {one}: must be SIDE=AGENT,AGENT, as red=red_0,red_1, and each side once")
        sides[side] = [int(x) if x.isdecimal() else x for x in agents.split(",")]
    return sides or None
