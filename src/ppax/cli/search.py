"""Options of the table `[search]` on the command line: `--search halving --search.rungs 3`."""

from __future__ import annotations

import argparse
from typing import Any

from ppax.cli.arguments import renamed
from ppax.cli.options import add_option
from ppax.config import SEARCH
from ppax.options import Config, nearest
from ppax.sweeps.search import table as searches
from ppax.types import ConfigError

FLAG, HELP = f"--{SEARCH}", ("-h", "--help")


def split_search(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split off `--search PART`, `--search.NAME VALUE...` and `--help search`: the other arguments, and these."""
    rest: list[str] = []
    own: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument in HELP and left[:1] == [SEARCH]:
            own, left = [*own, HELP[1]], left[1:]
        elif argument.partition("=")[0] == FLAG or argument.startswith(f"{FLAG}."):
            own.append(argument)
            while left and not left[0].startswith("--"):
                own.append(left.pop(0))
        else:
            rest.append(argument)
    return rest, own


def parse_search(arguments: list[str], base: Config) -> Config:
    """Return the table `[search]`: that of the run file, `base`, with the arguments.

    Another part than that of `base` starts from its own defaults. Raises ConfigError for unknown options.
    """
    if not arguments:
        return base
    names = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    names.add_argument(FLAG, f"{FLAG}.part", dest="part")
    chosen, arguments = names.parse_known_args(arguments)
    if chosen.part is not None:
        base = (base if base.get("part") == chosen.part else {}) | {"part": chosen.part}
    known = {option.path: option for option in searches.options_of(base)}
    parser = argparse.ArgumentParser(prog=f"ppax sweep TARGET {FLAG} {base.get('part', 'PART')}", allow_abbrev=False)
    for path, option in known.items():
        if path != f"{SEARCH}.part":
            add_option(parser, option, option.default)
    options, unknown = parser.parse_known_args([_dashed(argument) for argument in arguments])
    if unknown:
        name = renamed(unknown[0].partition("=")[0].lstrip("-"), "-", "_")
        raise ConfigError(f"unknown option {unknown[0]!r}; did you mean --{renamed(nearest(name, known), '_', '-')}?")
    given: dict[str, Any] = {path.removeprefix(f"{SEARCH}."): value for path, value in vars(options).items()}
    return base | given


def _dashed(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return (name.replace("_", "-") if name.startswith("--") else name) + equals + value
