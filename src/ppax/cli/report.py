"""Commands `ppax report`, `compare`, `plot` and `doctor`, which read recorded runs; nothing is trained."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppax import config
from ppax.cli.arguments import TRUST, renamed_option
from ppax.core import imports
from ppax.core.types import ConfigError
from ppax.reports.comparison import FORMS, TEXT, long_table, of_records, terminal_width, to_csv
from ppax.reports.curves import BANDS, CONFIDENCE
from ppax.reports.doctor import Finding, doctor
from ppax.reports.plotting import notes_of_plot, plot
from ppax.reports.report import FINAL_SCORE, SCORES, given_twice, records_of, write_report
from ppax.run.directory import RUN_FILE, read_run_config
from ppax.storage import safe_files
from ppax.storage.paths import command_line, require_place

RUNS = "run directory, or directory of a sweep for all its members; it may still be going on"


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax report` has."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help=RUNS)
    text = "file to write (default: report.html, in the directory of a single run or sweep, else where you are)"
    parser.add_argument("--out", type=Path, help=text)
    parser.add_argument("--no-video", action="store_true", help="render no episode")
    text = "band of a learning curve over seeds: 95 %% interval of the interquartile mean, or the whole range"
    parser.add_argument("--band", choices=BANDS, default=CONFIDENCE, help=f"{text} (default: {CONFIDENCE})")


def run_report(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Write the HTML report of runs and print its path; return path and size for JSON."""
    path, error = write_report(options.runs, options.out, video=not options.no_video, band=options.band)
    size = path.stat().st_size
    say(f"report: {path} ({size / 1e6:.1f} MB, one file, opens without network)")
    if error is not None:
        say(f"no episode is rendered: {error}")
    if isinstance(error, imports.Untrusted):
        given = [*map(str, options.runs), *(word for name in error.names for word in (TRUST, name))]
        given += [] if options.out is None else ["--out", str(options.out)]
        say(f"with an episode: {command_line(['ppax', 'report', *given])}")
    return {"path": str(path), "bytes": size, "runs": list(map(str, options.runs))}


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax compare` has."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help=RUNS)
    text = "also write the log rows of all runs into one file, a row per run and log row, with the options that differ"
    parser.add_argument("--csv", type=Path, metavar="FILE", help=text)
    text = "option whose values are the methods to compare: at equal other options, and the best setting of each"
    parser.add_argument("--by", metavar="OPTION", help=text)
    text = "value of the option of --by with which each other value is compared (default: that of the best setting)"
    parser.add_argument("--baseline", metavar="VALUE", help=text)
    _add_score(parser)
    text = "print the table by setting without that of the runs"
    parser.add_argument("--settings-only", action="store_true", help=text)
    text = "form of the table by setting, which is then printed alone"
    parser.add_argument("--format", choices=FORMS, help=f"{text} (default: {TEXT})")


def _add_score(parser: argparse.ArgumentParser) -> None:
    text = "final return, or mean return over training (area under the learning curve), which no ceiling hides"
    parser.add_argument("--score", choices=SCORES, default=FINAL_SCORE, help=f"{text} (default: {FINAL_SCORE})")


def run_compare(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Print the table of the runs' differences and results; return the comparison for JSON."""
    if options.csv is not None:
        require_place(options.csv, "rows.csv")
    records = records_of(options.runs, options.score)
    compared = of_records(records, given_twice(options.runs), options.by, options.baseline)
    if options.format is not None or options.settings_only:
        say(compared.settings_table(options.format or TEXT, terminal_width()).rstrip("\n"))
    else:
        say(compared.table(terminal_width()))
    if options.csv is not None:
        safe_files.write_text(options.csv, to_csv(long_table(records)))
        say(f"rows: {options.csv}")
    return compared.to_dict()


def add_plot(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax plot` has."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="run", help=RUNS)
    text = "picture to write, in the format of its ending: .png, .pdf or .svg (default: curves.png)"
    parser.add_argument("--out", type=Path, default=Path("curves.png"), help=text)
    text = "metrics of the log rows, a row of axes for each (default: eval_return if there is one, else episode_return)"
    parser.add_argument("--metric", nargs="+", metavar="METRIC", help=text)
    text = "labels of the settings to draw, as `ppax compare` prints them (default: all)"
    parser.add_argument("--settings", nargs="+", metavar="LABEL", help=text)
    text = "names of these settings in the legend, in the same order (default: their labels)"
    parser.add_argument("--names", nargs="+", metavar="NAME", help=text)
    text = "draw the score against the values of this option, in place of learning curves"
    parser.add_argument("--against", metavar="OPTION", help=text)
    _add_score(parser)
    text = "draw each run by itself, with its name, also where several are of one setting"
    parser.add_argument("--each", action="store_true", help=text)
    text = "width and height of the picture in inches (default: 7 4 for each metric and environment)"
    parser.add_argument("--size", type=float, nargs=2, metavar=("WIDTH", "HEIGHT"), help=text)
    text = "band over seeds: 95 %% interval of the interquartile mean, or the whole range"
    parser.add_argument("--band", choices=BANDS, default=CONFIDENCE, help=f"{text} (default: {CONFIDENCE})")


def run_plot(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Draw learning curves, or scores against an option, into a file and print its path; return the path for JSON."""
    settings = options.settings
    if options.names is not None:
        if len(options.names) != len(settings or ()):
            raise ConfigError(
                f"--names has {len(options.names)} names, --settings {len(settings or ())} labels: give a name for each"
            )
        if len(set(settings)) < len(settings):
            raise ConfigError(f"--settings {' '.join(map(repr, settings))}: a label stands twice; each has one name")
        settings = dict(zip(settings, options.names, strict=True))
    own = {"against": options.against, "score": options.score, "each": options.each}
    plot(options.runs, options.metric, options.band, settings=settings, size=options.size, path=options.out, **own)
    if options.against is None and not options.each:
        for note in notes_of_plot(records_of(options.runs)):
            say(note)
    say(f"picture: {options.out}")
    return {"path": str(options.out)}


# Command `ppax doctor`: say why a run does not learn, and which option to try; nothing is trained.


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ppax doctor`."""
    parser.add_argument("run", type=Path, help="run directory; the run may still go on")


def run_doctor(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Print the diagnosis of a run with a command for each option to try; return the diagnosis for JSON."""
    diagnosis = doctor(options.run)
    lines = str(diagnosis).splitlines()
    with_option = [finding for finding in diagnosis.findings if finding.remedy.option]
    run_config = read_run_config(options.run)
    if with_option and not config.objects_of(run_config):  # Python objects: no command repeats the run
        commands = [command(options.run, finding) for finding in with_option]
        lines += ["next, one at a time:", *(f"  {line}" for line in dict.fromkeys(commands))]
    for line in lines:
        say(line)
    return {"run_dir": str(options.run)} | diagnosis.to_dict()


def command(run: Path, finding: Finding) -> str:
    """Return the command that trains the run in the directory `run` again with the option that `finding` suggests."""
    name, value = renamed_option(finding.remedy.option, "_", "-"), finding.remedy.value
    values = [] if value is True else value if isinstance(value, list) else [value]
    return command_line(["ppax", "train", str(run / RUN_FILE), f"--{name}", *map(str, values)])
