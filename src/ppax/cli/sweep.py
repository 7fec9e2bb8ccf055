"""Command `ppax sweep`: train many settings and seeds of a run.

Swept options are given several values, or a distribution to draw from.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from ppax import config
from ppax.cli.arguments import (
    BOOLEANS,
    DEVICE,
    HELP,
    TRUST,
    Argument,
    dashed,
    is_extension_list,
    join_arguments,
    number_or_text,
    option_path,
    split_arguments,
)
from ppax.cli.common import DONE, NUMERICAL, add_cluster, cluster_of, fail, flagged
from ppax.cli.options import add_dry_run, add_option, add_overwrite, new_directory, parse_run
from ppax.cli.output import print_json, print_plan, say
from ppax.core import imports, untrusted
from ppax.core.options import LISTS, Config, Option, meant
from ppax.core.types import ConfigError
from ppax.reports.comparison import terminal_width
from ppax.run import python_objects
from ppax.storage.paths import quoted, relative
from ppax.sweeps import SweepResult, plan, resume_sweep
from ppax.sweeps.pictures import MEMBERS, PARALLEL
from ppax.sweeps.placing import settings as placing
from ppax.sweeps.plan import DISTRIBUTIONS, Choice, Distribution
from ppax.sweeps.runs import dry_run, start
from ppax.sweeps.search import SEARCHES, search_options

CALL = re.compile(r"([A-Za-z_]+)\(")  # a distribution, known or not, perhaps without its closing bracket
DRAWN = re.compile(rf"({'|'.join(DISTRIBUTIONS)})\((.*)\)")  # as log_uniform(1e-5, 1e-2)
OWN = ("--seeds", "--draws", "--draw-seed", "--run-dir", "--help", TRUST, DEVICE)
SEARCH_FLAG = f"--{config.SEARCH}"
ONE = ("--stop", "--init-from.run", "--init-from", *(f"--{path}" for path in LISTS))  # a comma is part of the value


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax sweep` has."""
    parser.description = (
        f"{parser.description} Give several values to sweep an option, --agent.learning-rate 1e-4,3e-4, or a "
        f"distribution, --agent.gamma 'uniform(0.9, 0.999)' with --draws 16, one of {', '.join(DISTRIBUTIONS)}. "
        "They add to the table [sweep] of a run file. `ppax resume DIRECTORY` continues a sweep. "
        f"--search PART, one of {', '.join(SEARCHES)}, decides over the members while they train; its options are "
        "--search.NAME, shown by --search PART --help search."
    )
    text = "number of seeds of each setting, a list, 3,4,5, or a range, 1000-1009 (default: 1)"
    parser.add_argument("--seeds", metavar="INT", help=text)
    parser.add_argument("--draws", type=int, help="number of joint draws of all distributions")
    parser.add_argument("--draw-seed", type=int, help="random seed of the draws (default: 0)")
    parser.add_argument("--run-dir", type=new_directory, help="directory of the sweep (default: new, in sweeps/)")
    add_overwrite(parser)
    add_dry_run(parser)
    add_cluster(parser)


def parse_sweep(texts: list[str]) -> tuple[argparse.Namespace, Config, Config]:
    """Return the command's options, the configuration of the run and the table [sweep] from the arguments.

    The options' attribute `cluster` has the settings of the Ray cluster, None without one.
    """
    table: Config = {}
    of_file: Any = None

    def find(target: str) -> Config:
        nonlocal of_file
        found, of_file = placing.split_cluster(config.find(target))
        found, own = plan.split_sweep(found)
        table.update(own)
        return found

    rest, search = split_search(split_arguments(texts))
    rest, swept = split_swept([one._replace(flag=dashed(one.flag)) for one in rest])
    options, run_config = parse_run("sweep", join_arguments(rest), add_sweep, find)
    imports.typed(one.name for one in config.outside_values(vars(options), placing.OPTIONS.values()).values())
    options.cluster = placing.of_file(cluster_of(options, placing.checked_cluster(of_file)))
    own_search = parse_search(search, table.get(config.SEARCH, {}))
    table |= {config.SEARCH: own_search} if own_search else {}
    table = without_fixed(table, {option_path(one.flag.replace("--no-", "--", 1)) for one in rest if one.flag})
    known = {option.path: option for option in config.options(run_config)}
    table |= {path: _typed(values, known.get(path)) for path, values in swept.items()}
    imports.typed(one.name for one in config.outside_values(swept, known.values()).values())
    own = {"seeds": _seeds(options.seeds), "draws": options.draws, "draw_seed": options.draw_seed}
    return options, run_config, table | {name: value for name, value in own.items() if value is not None}


def run_sweep(start_jax: Callable[[bool], None], texts: list[str]) -> int:
    """Train a sweep and print its table; return the exit code.

    `start_jax` is called first, with the option --cache; `texts` are the arguments of the command.
    """
    options, run_config, table = parse_sweep(texts)
    start_jax(options.cache)
    if options.dry_run:
        found = dry_run(run_config, plan.read(table), options.run_dir, options.cluster, options.overwrite)
        print_plan(options, found)
        return DONE
    begin = partial(start, run_config, plan.read(table), options.run_dir, partial(say, options))
    return _report(options, begin(options.cluster, options.overwrite))


def continue_sweep(options: argparse.Namespace) -> int:
    """Continue the sweep in the directory `options.run` and print its table; return the exit code."""
    if options.total_steps is not None:
        raise ConfigError("--total-steps: a sweep has no new length; resume one of its members, or sweep again")
    return _report(options, resume_sweep(options.run, ray=cluster_of(options)))


def split_swept(arguments: Iterable[Argument]) -> tuple[list[Argument], dict[str, Any]]:
    """Return the arguments that give one value, and the swept options: their values or distribution, by dotted path."""
    rest: list[Argument] = []
    swept: dict[str, Any] = {}
    for argument in arguments:
        name = argument.flag
        one = name in ("", *HELP, *OWN, *ONE) or is_extension_list(name)
        values = None if one else several(argument.value)
        if values is None:
            rest.append(argument)
        else:
            swept[option_path(name)] = values
            rest += argument.further()
    return rest, swept


def without_fixed(table: Config, fixed: Collection[str], prefix: str = "") -> Config:
    """Return the table `[sweep]` without the swept options that are `fixed`, to which the command line gives one value.

    `fixed` has their dotted paths; `prefix` is that of a nested table. A list of seeds is left out where the run's seed
    is fixed.
    """
    kept: Config = {}
    for name, value in table.items():
        path = prefix + name
        nested = isinstance(value, dict) and not isinstance(value.get("part"), str)
        if not prefix and name in plan.OWN:
            kept |= {} if name == "seeds" and "seed" in fixed and not isinstance(value, int) else {name: value}
        elif path in fixed or (config.is_free(path) and any(one.startswith(f"{path}.") for one in fixed)):
            continue
        elif nested:
            inner = without_fixed(value, fixed, f"{path}.")
            kept |= {name: inner} if inner else {}
        else:
            kept[name] = value
    return kept


def split_search(arguments: Iterable[Argument]) -> tuple[list[Argument], list[Argument]]:
    """Return the arguments without those of the hyperparameter search, and those of the search.

    The latter are `--search PART`, `--search.NAME VALUE` and `--help search`. A search decides which runs of a sweep
    are continued.
    """
    rest: list[Argument] = []
    own: list[Argument] = []
    for argument in arguments:
        if argument.flag in HELP and argument.value == config.SEARCH:
            own.append(Argument(HELP[1]))
            rest += argument.further()
        elif argument.flag == SEARCH_FLAG or argument.flag.startswith(f"{SEARCH_FLAG}."):
            own.append(argument._replace(flag=argument.flag.replace("_", "-")))
        else:
            rest.append(argument)
    return rest, own


def parse_search(arguments: list[Argument], base: Config) -> Config:
    """Return the table `[search]`, the options of a hyperparameter search: `base`, overridden by the arguments.

    `base` is the table in the run file. If the arguments choose another search than that in `base`, no option of `base`
    is used: options that the arguments do not give have the defaults of the chosen search. Raises ConfigError for
    unknown options.
    """
    if not arguments:
        return base
    names = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    names.add_argument(SEARCH_FLAG, f"{SEARCH_FLAG}.part", dest="part")
    chosen, left = names.parse_known_args(join_arguments(arguments))
    if chosen.part is not None:
        base = (base if base.get("part") == chosen.part else {}) | {"part": chosen.part}
    known = {option.path: option for option in search_options(base)}
    usage = f"ppax sweep TARGET {SEARCH_FLAG} {base.get('part', 'PART')}"
    parser = argparse.ArgumentParser(prog=usage, allow_abbrev=False)
    for path, option in known.items():
        if path != f"{config.SEARCH}.part":
            add_option(parser, option, option.default)
    options, unknown = parser.parse_known_args(left)
    if unknown:
        name = option_path(unknown[0].partition("=")[0].lstrip("-"))
        raise ConfigError(f"unknown option {unknown[0]!r}{meant(name, known, flagged)}")
    imports.typed(one.name for one in config.outside_values(vars(options), known.values()).values())
    given: dict[str, Any] = {path.removeprefix(f"{config.SEARCH}."): value for path, value in vars(options).items()}
    return base | given


def several(text: str) -> list[Any] | Distribution | None:
    """Return the list of values or the distribution that a text stands for; None where it is a single value.

    Lists are `1e-4,3e-4`, distributions `uniform(0.9, 0.999)`. Raises ConfigError for an invalid one.
    """
    drawn = DRAWN.fullmatch(text.strip())
    if drawn is not None:
        cls: Any = DISTRIBUTIONS[drawn[1]]
        values: Any = _items(f"{drawn[2]},")
        try:
            made: Distribution = cls(values) if drawn[1] == "choice" else cls(*values)
            return made
        except TypeError as error:
            raise ConfigError(f"{text}: {drawn[1]} has {', '.join(cls.__dataclass_fields__)}") from error
    called = CALL.match(text.strip())
    likely = difflib.get_close_matches(called[1], DISTRIBUTIONS, n=1) if called else []
    if likely:
        raise ConfigError(f"{text}: not a distribution; nearest: {likely[0]}(...), with a bracket at the end")
    if "," not in text or isinstance(number_or_text(text), dict):
        return None
    items = _items(text)
    return items if len(items) > 1 or not text.startswith("[") else None


def _items(text: str) -> list[Any]:
    """Return the values in a text that has commas between them; ConfigError for an empty one.

    They are read as TOML, else tables and lists as JSON, else as words.
    """
    inner = text.strip().removesuffix(",")  # a comma at the end makes a list of one value
    items: list[Any]
    with contextlib.suppress(ValueError):
        items = untrusted.from_toml(f"x = [{inner}]")["x"]
        return items
    if inner.startswith(("{", "[")):
        with contextlib.suppress(ValueError):
            items = untrusted.from_json(f"[{inner}]")
            return items
    words = [one.strip() for one in inner.split(",")]
    if not all(words):
        valid = ",".join(filter(None, words))
        raise ConfigError(f"{text}: an empty value between commas; nearest valid value: {valid}")
    return [number_or_text(one) for one in words]


def _typed(values: Any, option: Option | None) -> Any:
    """Return an option's values as a run file has them: whole numbers for 1e6, lists for an option that is a list.

    The words of booleans, such as `on`, become booleans. The values of a choice are converted as those of a list;
    another distribution is returned as it is, and so are the values where `option` is None.
    """
    if isinstance(values, Choice):
        return Choice(tuple(_typed(list(values.values), option)))
    if not isinstance(values, list) or option is None:
        return values
    if option.kind is int:
        values = [_whole(x) for x in values]
    if option.kind is bool:
        values = [BOOLEANS.get(str(x).lower(), x) for x in values]
    return [x if isinstance(x, list) else [x] for x in values] if option.many else values


def _whole(value: Any) -> Any:
    """Return a number such as 1e6 as an int, also inside of lists; any other value unchanged."""
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _seeds(text: str | None) -> Any:
    if text is None:
        return None
    seeds = several(text)
    return number_or_text(text) if seeds is None else seeds


def _report(options: argparse.Namespace, result: SweepResult) -> int:
    """Print the table of a sweep's result with the next commands; return the exit code."""
    say(options, result.table(terminal_width()))
    for note in result.notes():
        say(options, note)
    for member in result.dropped:
        text = f"member {member.run_dir.name} was dropped: {member.dropped}"
        say(options, f"{text}; `ppax resume {quoted(member.run_dir)}` says why")
    print_json(options, result.to_dict())
    several = bool(result.environments[1:])
    if not any(math.isfinite(setting.iqm) for setting in result.settings):
        return fail(f"no member of {relative(result.run_dir)} has a score", NUMERICAL)
    drawn = ", ".join(name for name in (MEMBERS, PARALLEL) if (result.run_dir / name).exists())
    say(options, f"sweep directory: {relative(result.run_dir)}{f', with {drawn}' if drawn else ''}\nnext:")
    if several:
        say(options, f"  returns of {len(result.environments)} environments are not compared: there is no best.toml")
    elif result.lineage:  # values have changed while it trained: its last ones do not repeat it
        best = result.settings[0].members[0].run_dir
        trusting = python_objects.trust_flags([config.read(best / config.RUN_FILE)], python_objects.SOURCE, "log")
        say(options, f"  ppax evaluate {quoted(best)} --episodes 1000{trusting}   # the best policy")
    elif result.best is not None:
        trusting = python_objects.trust_flags([config.read(result.best)])
        say(options, f"  ppax train {quoted(result.best)}{trusting}   # the best setting alone")
    say(options, f"  ppax report {quoted(result.run_dir)} --no-video")
    return DONE
