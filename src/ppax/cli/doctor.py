"""Command `ppax doctor`: say why a run does not learn, and which option to try; nothing is trained."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppax import config
from ppax.cli.arguments import renamed_option
from ppax.reports.doctor import Finding, doctor
from ppax.run.directory import RUN_FILE, read_run_config


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ppax doctor`."""
    parser.add_argument("run", type=Path, help="run directory; the run may still go on")


def run_doctor(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Print the diagnosis of a run with a command for each option to try; return the diagnosis for JSON."""
    diagnosis = doctor(options.run)
    lines = str(diagnosis).splitlines()
    with_option = [finding for finding in diagnosis.findings if finding.remedy.option]
    if with_option and not config.objects_of(
        read_run_config(options.run)
    ):  # Python objects: no command repeats the run
        commands = [command(options.run, finding) for finding in with_option]
        lines += ["next, one at a time:", *(f"  {line}" for line in dict.fromkeys(commands))]
    for line in lines:
        say(line)
    return {"run_dir": str(options.run)} | diagnosis.to_dict()


def command(run: Path, finding: Finding) -> str:
    """Return the command that trains the run in the directory `run` again with the option that `finding` suggests."""
    name, value = renamed_option(finding.remedy.option, "_", "-"), finding.remedy.value
    values = [] if value is True else value if isinstance(value, list) else [value]
    return shlex.join(["ppax", "train", str(run / RUN_FILE), f"--{name}", *map(str, values)])
