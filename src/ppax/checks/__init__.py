"""Checks of agents and environments: `ppax.selftest` and `ppax.check_env`.

Each check is a function in one of the files here. It returns a `CheckResult`, which becomes one line of the report.
"""

from ppax.checks.check import check_env, require_sound
from ppax.checks.report import Check, Report
from ppax.checks.self_test import selftest

__all__ = ["Check", "Report", "check_env", "require_sound", "selftest"]
