"""Functions that the commands share: exit codes, printing, unknown commands, interrupted runs, several processes."""

from __future__ import annotations

import argparse
import difflib
import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ppax import config
from ppax.cli.arguments import dashed, option_path, renamed_option
from ppax.core import imports, unknown_names
from ppax.core.options import Option, free_tables, meant
from ppax.core.types import ConfigError, printable
from ppax.devices import processes
from ppax.envs import BUILTIN, HOST_SUITES, SUITES
from ppax.run import python_objects
from ppax.run.directory import RUN_FILE, SWEEP_FILE
from ppax.run.provenance import FREE
from ppax.storage.paths import command_line, quoted
from ppax.sweeps.placing import settings as placing
from ppax.sweeps.plan import split_sweep
from ppax_command import COMMANDS

WRITES = ("--to", "--output", "--output-file", "--output-path", "--file", "--save", "--save-to")  # elsewhere for --out
JOINING = ("train", "resume")  # commands that several processes run together
DONE, FAILED, USAGE, ENVIRONMENT, NUMERICAL, DISK, STOPPED = 0, 1, 2, 3, 4, 5, 75  # exit codes


# No place on the disk, or none within the user's quota, which Windows does not know
FULL = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT") if hasattr(errno, name)}
unprinted: list[OSError] = []  # why standard output lacks text that was printed: the disk of its file was full


def print_line(text: str, stream: TextIO, kept: str = "\n\t") -> None:
    """Print a message to `stream` without control characters other than those in `kept`.

    Control characters could come from a stranger's file that the message quotes. Characters that the stream cannot
    encode are printed as "?". A closed pipe (`ppax train ... | head`) does not end the command, nor does a full disk,
    for which the command ends with exit code 5 (`unprinted`).
    """
    shown = printable(text, kept)
    try:
        try:
            print(shown, file=stream, flush=True)
        except UnicodeEncodeError:
            coding = stream.encoding or "ascii"
            print(shown.encode(coding, errors="replace").decode(coding), file=stream, flush=True)
    except OSError as error:
        if error.errno in FULL and stream is sys.stdout:
            unprinted.append(error)
        # Python flushes the stream again at exit, and would fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fail(error: object, code: int) -> int:
    """Print an error to standard error, an OSError with its path first; return `code`, the exit code."""
    if isinstance(error, OSError) and error.filename:
        error = f"{error.filename}: {error.strerror}"
    print_line(f"ppax: {error}", sys.stderr)
    return code


def require_command(arguments: list[str]) -> None:
    """Raise ConfigError, which names the most likely command, if the first argument is no command."""
    first = arguments[0]
    if first in COMMANDS:
        return
    path = Path(first)
    if (
        first in config.presets()
        or first in BUILTIN
        or first.partition("/")[0] in (*SUITES, *HOST_SUITES)
        or path.suffix in config.SUFFIXES
    ):
        likely = f"ppax train {first}"
    else:
        likely = f"ppax {difflib.get_close_matches(first, COMMANDS, n=1, cutoff=0.0)[0]}"
    raise ConfigError(f"no command {first!r}; did you mean `{likely}`? The commands: {', '.join(COMMANDS)}")


def refusal(argument: str, known: Mapping[str, Option], target: str) -> str:
    """Return the error text, with the likely remedy, for `argument`, which is not among the run's options `known`."""
    if not argument.startswith("-"):
        return f"{argument!r}: {target} is the target, and there is only one; options begin with --"
    name = option_path(argument.partition("=")[0].lstrip("-"))
    parts = config.other_parts(name, known)
    if parts:
        flag = renamed_option(f"--{name.rpartition('.')[0]}", "_", "-")
        return f"unknown option {argument!r}: it needs {flag} {' or '.join(parts)}"
    return f"unknown option {argument!r}{meant(name, known, flagged)}"


def refused(unknown: Sequence[str], options: argparse.Namespace) -> str:
    """Return the error text for arguments that a command does not have.

    It is for the commands with fixed options: all but train, sweep, bench and selftest.
    """
    argument = unknown[0]
    if options.command == "resume" and argument.startswith("--"):
        text = _changed(unknown, options.run, options.total_steps)
        if text:
            return text
    near = difflib.get_close_matches(argument.partition("=")[0], _flags(options), n=1)
    if argument.partition("=")[0] in WRITES and "out" in vars(options):
        near = ["--out"]
    row = unknown_names.meaning(argument.partition("=")[0].lstrip("-")) if argument.startswith("--") else None
    if row and row.name in vars(options):
        return f"unknown option {argument!r}; did you mean {flagged(row.name, '')}?"
    there = f"`ppax {options.command} --help` lists its options"
    if argument.startswith("--") and near:
        return f"{argument!r}: `ppax {options.command}` has no such argument; did you mean {near[0]}? {there}"
    return f"{argument!r}: `ppax {options.command}` has no such argument; {there}"


def _flags(options: argparse.Namespace) -> list[str]:
    """Return the flags of a command, from the names of its options."""
    return [flagged(name, "") for name in vars(options) if name not in ("_", "command", "run", "runs", "env_params")]


def _changed(arguments: Sequence[str], run: Path, total_steps: int | None) -> str:
    """Return the error text of `ppax resume` for arguments that are options of a run, which a resumed run keeps.

    The text shows how to use other values instead: by the command of a new training or sweep with these options, or in
    the run file. It is "" if the first of `arguments` is no option of a run. `run` is the directory of the run or
    sweep; `total_steps`, the value of that option of `ppax resume`, is repeated in the command.
    """
    file = next((run / name for name in (RUN_FILE, SWEEP_FILE) if (run / name).is_file()), None)
    if file is None:
        return ""
    run_config = config.plain(split_sweep(config.read(file))[0])  # without code that would have to be trusted
    argument = dashed(arguments[0].partition("=")[0])
    option = option_path(argument)
    options = list(config.options(run_config))
    known = {one.path for one in options}
    if option not in known and not config.is_free(option, free_tables(options)):
        return f"unknown option {argument!r}{meant(option, known, flagged)}" if unknown_names.meaning(option) else ""
    given = command_line(arguments) + ("" if total_steps is None else f" --total-steps {total_steps}")
    if file.name == SWEEP_FILE:
        line = f"ppax sweep {quoted(file)} {given}{imports.flags()}"
        return f"{argument}: members are compared, and keep the settings that they began with; another sweep: {line}"
    if option.startswith(FREE):
        return f"{argument}: `ppax resume` reads {option} from {quoted(file)}: write it there, and resume without it"
    line = f"ppax train {quoted(run)} --init-from {quoted(run)} {given}{imports.flags()}"
    return f"{argument}: a resumed run keeps the settings that it began with; to fine-tune it with others: {line}"


def flagged(option: str, value: str) -> str:
    """Return an option, by its dotted path, as a flag of the command line with its value."""
    return f"--{renamed_option(option, '_', '-')} {value}".rstrip()


@contextmanager
def resumable(run_dir: Callable[[], Path]) -> Iterator[None]:
    """Return a context in which a KeyboardInterrupt gets the command that resumes the run as its text.

    The text stays empty if `run_dir()`, the run directory, has no run file yet.
    """
    try:
        yield
    except KeyboardInterrupt:
        path = run_dir()
        known = (path / RUN_FILE).exists()
        line = python_objects.resume_line(config.read(path / RUN_FILE), path) if known else ""
        remedy = f"; `{line}` continues from the last checkpoint" if known else ""
        raise KeyboardInterrupt(remedy) from None


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run in which several processes work together."""
    group = parser.add_argument_group("several processes")
    text = "join the other processes of the run, which JAX finds under SLURM, Open MPI, on Cloud TPUs"
    group.add_argument("--distributed", action="store_true", help=text)
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0, instead of --distributed")
    group.add_argument("--process", type=int, metavar="I", help="number of this process, from 0")
    group.add_argument("--of", type=int, metavar="N", help="number of processes")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options of a sweep on a Ray cluster: its address, and CPUs, GPUs and retries of each program.

    A sweep is divided into programs: each trains some of the sweep's members (runs) in a worker process on the cluster.
    """
    group = parser.add_argument_group("cluster")
    for name, option in placing.OPTIONS.items():
        flag = f"--{placing.RAY}" if name == "address" else f"--{option.path}"
        default = "" if name == "address" else f" (default: {option.default})"
        word = "ADDRESS" if name == "address" else "INT"
        group.add_argument(flag, dest=option.path, type=option.kind, metavar=word, help=f"{option.doc}{default}")


def cluster_of(options: argparse.Namespace, base: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the table [ray] of a sweep, the settings of its Ray cluster; None if it is empty.

    It is the table `base` of the run file, overridden by the options of the command.
    """
    given = {name: getattr(options, option.path) for name, option in placing.OPTIONS.items()}
    table = dict(base or {}) | {name: value for name, value in given.items() if value is not None}
    return table or None


def joined_words(arguments: list[str]) -> list[str]:
    """Connect this process to the run's other processes, if the arguments ask for it; return all other arguments.

    After that, processes other than the leader (process 0) print errors only.
    """
    if not arguments or arguments[0] not in JOINING or {"-h", "--help"} & set(arguments):
        return arguments
    parser = argparse.ArgumentParser(prog=f"ppax {arguments[0]}", add_help=False, allow_abbrev=False)
    add_processes(parser)
    options, rest = parser.parse_known_args(arguments)
    if options.distributed or {options.coordinator, options.process, options.of} != {None}:
        processes.join(options.coordinator, options.process, options.of)
        if not processes.leads():
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the process ends)
            warnings.showwarning = lambda *_: None
    return rest
