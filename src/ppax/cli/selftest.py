"""`ppax selftest`: check agent and environment of a run for common faults."""

from __future__ import annotations

import argparse
from typing import Any

from ppax.checks import Report, selftest
from ppax.config import Built
from ppax.training import make_key


def add_selftest(parser: argparse.ArgumentParser) -> None:
    """Add no option: `ppax selftest` has those of a run, and takes the run's seed."""


def run_selftest(built: Built, say: Any) -> Report:
    """Check agent and environment and print the report."""
    agent, env, run = built
    say(f"{run.env}: {run.num_envs} environments, rollouts of {run.num_steps * env.num_streams:,} steps")
    report = selftest(agent, env, run.num_steps, make_key(run.seed))
    say(str(report))
    return report
