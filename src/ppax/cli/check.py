"""Commands `ppax check-env`, which checks an environment, and `ppax selftest`, which checks a run's agent with it."""

from __future__ import annotations

import argparse
from typing import Any

from ppax.checks import Report, check_env, selftest
from ppax.cli.play import add_env_params
from ppax.config import Built
from ppax.training.loop import make_key


def add_check_env(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax check-env` has."""
    parser.add_argument("name", help="environment id (`ppax envs` lists them)")
    add_env_params(parser, "parameter of the environment, such as gravity (`ppax envs NAME` lists them)")


def run_check_env(options: argparse.Namespace, say: Any) -> Report:
    """Check the environment that the command line names, print the report with `say`, and return it."""
    report = check_env(options.name, env_params=options.env_params)
    say(str(report))
    return report


def run_selftest(built: Built, say: Any) -> Report:
    """Check agent and environment of a run, print the report with `say`, and return it."""
    agent, env, run = built
    say(f"{run.env}: {run.num_envs} environments, rollouts of {run.num_steps * env.num_streams:,} steps")
    report = selftest(agent, env, run.num_steps, make_key(run.seed))
    say(str(report))
    return report
