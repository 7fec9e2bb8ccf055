"""`ppax check-env`: check an environment against its spaces and the interface, before training on it."""

from __future__ import annotations

import argparse
from typing import Any

from ppax.checks import Report, check_env


def add_check_env(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax check-env` has."""
    parser.add_argument("name", help="environment id (`ppax envs` lists them)")


def run_check_env(options: argparse.Namespace, say: Any) -> Report:
    """Check the environment and print the report."""
    report = check_env(options.name)
    say(str(report))
    return report
