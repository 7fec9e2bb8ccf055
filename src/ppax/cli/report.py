"""Commands `ppax report`, which writes an HTML report of runs, and `ppax compare`, which prints how runs differ."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ppax.reports.comparison import long_table, of_records, terminal_width, to_csv
from ppax.reports.curves import BANDS, CONFIDENCE
from ppax.reports.report import records_of, report
from ppax.storage import safe_files
from ppax.storage.paths import require_place

RUNS = "run directory, or directory of a sweep for all its members; it may still be going on"


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax report` has."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help=RUNS)
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="file to write (default: report.html)")
    parser.add_argument("--no-video", action="store_true", help="render no episode")
    text = "band of a learning curve over seeds: 95 %% interval of the interquartile mean, or the whole range"
    parser.add_argument("--band", choices=BANDS, default=CONFIDENCE, help=f"{text} (default: {CONFIDENCE})")


def run_report(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Write the HTML report of runs and print its path; return path and size for JSON."""
    path = report(options.runs, options.out, video=not options.no_video, band=options.band)
    size = path.stat().st_size
    say(f"report: {path} ({size / 1e6:.1f} MB, one file, opens without network)")
    return {"path": str(path), "bytes": size, "runs": list(map(str, options.runs))}


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax compare` has."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help=RUNS)
    text = "also write the log rows of all runs into one file, a row per run and log row, with the options that differ"
    parser.add_argument("--csv", type=Path, metavar="FILE", help=text)


def run_compare(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Print the table of the runs' differences and results; return the comparison for JSON."""
    if options.csv is not None:
        require_place(options.csv, "rows.csv")
    records = records_of(options.runs)
    compared = of_records(records)
    say(compared.table(terminal_width()))
    if options.csv is not None:
        safe_files.write_text(options.csv, to_csv(long_table(records)))
        say(f"rows: {options.csv}")
    return compared.to_dict()
