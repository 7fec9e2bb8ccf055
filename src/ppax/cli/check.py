"""`ppax check-env`: whether an environment is what it says it is, before anything is trained on it."""

from __future__ import annotations

import argparse
from typing import Any

from ppax.checks import Report, check_env


def add_check_env(parser: argparse.ArgumentParser) -> None:
    """Options that only `ppax check-env` has."""
    parser.add_argument("name", help="an environment (`ppax envs`)")


def run_check_env(options: argparse.Namespace, say: Any) -> Report:
    """Check, and say what was found."""
    report = check_env(options.name)
    say(str(report))
    return report
