"""`ppax selftest`: what must hold of any agent and environment, checked on those of a run."""

from __future__ import annotations

import argparse
from typing import Any

from ppax.agents.multi_agent import require_single_policy
from ppax.checks import Report, selftest
from ppax.config import Built
from ppax.training import make_key


def add_selftest(parser: argparse.ArgumentParser) -> None:
    """Options that only `ppax selftest` has: none, its seed is the run's."""


def run_selftest(built: Built, say: Any) -> Report:
    """Check, and say what was found."""
    agent, env, run = built
    say(f"{run.env}: {run.num_envs} environments, rollouts of {run.num_steps * env.num_streams:,} steps")
    report = selftest(require_single_policy(agent, "ppax selftest"), env, run.num_steps, make_key(run.seed))
    say(str(report))
    return report
