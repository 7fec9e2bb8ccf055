"""Entry of the command `ppax`: version and list of commands without an import of ppax, which loads JAX for seconds."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata

USAGE, STOPPED = 2, 75  # exit codes: of a broken installation, too, and of a stopped run
COMMANDS = {  # help by name
    "train": "train an agent on an environment, or by a preset or a run file",
    "sweep": "train many settings and seeds of a run together",
    "resume": "continue a stopped run from its last checkpoint",
    "evaluate": "evaluate a trained policy over whole episodes",
    "play": "record a trained policy as a video",
    "match": "let trained policies play against each other, and rate them",
    "export": "write a trained policy as one file that loads without ppax",
    "report": "write an HTML report of one run or several",
    "compare": "compare runs: options that differ, results, speed",
    "plot": "learning curves of runs as a picture, .png, .pdf or .svg",
    "doctor": "say why a run does not learn, and which option to try",
    "selftest": "check an agent in its environment for common faults",
    "check-env": "check an environment for common faults",
    "bench": "measure steps per second and the time of each stage",
    "score": "measure final policies over several seeds, against thresholds and published scores",
    "presets": "list the presets (tuned runs) with their scores",
    "envs": "list the environments, or describe one",
}


def describe(arguments: Sequence[str]) -> None:
    """Print the version, or the help with the list of commands, and exit; for arguments without a command."""
    parser = argparse.ArgumentParser(prog="ppax", description="Proximal Policy Optimization in JAX.")
    parser.add_argument("--version", action="version", version=f"ppax {metadata.version('ppax')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    parser.parse_args(arguments or ["--help"])


def main() -> int:
    """Run the command line; return the exit code."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help", "--version"):
        describe(arguments[:1])
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # an exception in a library that is half loaded may be lost, or another
        signal.signal(signal.SIGINT, _stopped)
    try:
        from ppax.cli.main import main as run  # loads JAX, for seconds
    except ImportError as error:  # a broken installation
        print(f"ppax: {error}", file=sys.stderr)
        return USAGE
    signal.signal(signal.SIGINT, before)
    return run(arguments)


def _stopped(*_: object) -> None:
    """End the process: Ctrl-C before anything has begun."""
    print("ppax: stopped before anything began; nothing was written", file=sys.stderr, flush=True)
    os._exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main())
