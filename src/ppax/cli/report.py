"""`ppax report` and `ppax compare`: an HTML report of runs, and a table of their differences and results."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ppax.tools.report import compare, report


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax report` has."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help="run directory; it may still be going on")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="file to write (default: report.html)")
    parser.add_argument("--no-video", action="store_true", help="render no episode")


def run_report(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Write the report, print its path; returns the same for JSON."""
    path = report(options.runs, options.out, video=not options.no_video)
    size = path.stat().st_size
    say(f"report: {path} ({size / 1e6:.1f} MB, one file, opens without network)")
    return {"path": str(path), "bytes": size, "runs": list(map(str, options.runs))}


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax compare` has."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help="run directory; it may still be going on")


def run_compare(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Print the table; returns the comparison for JSON."""
    compared = compare(options.runs)
    say(str(compared))
    return compared.to_dict()
