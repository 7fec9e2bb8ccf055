"""Options of `ppax train`, `sweep`, `bench` and `selftest`: the command's own, and those of the run.

The options of a run are made from the fields of its parts.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ppax import config
from ppax.cli.arguments import (
    DEVICE,
    EXTENSIONS,
    TRUST,
    Argument,
    booleans,
    choose_extensions,
    choose_groups,
    choose_lists,
    choose_parts,
    choose_start,
    dashed,
    is_extension_list,
    join_arguments,
    renamed_option,
    split_arguments,
    split_free,
    split_help,
    target_of,
    within,
)
from ppax.cli.common import add_cluster, add_processes, refusal
from ppax.config import PARTS, group_tables
from ppax.core import imports
from ppax.core.options import EMPTY, LISTS, NONE, Config, Option, flatten, interval, nearest, unflatten
from ppax.core.parts import Table
from ppax.core.types import ConfigError, printable
from ppax.devices import sharding

EXAMPLES = """examples:
  ppax train CartPole-v1
  ppax train CartPole-v1 --agent.learning-rate 3e-4 --num-envs 256 --seed 3
  ppax train run.toml --agent.schedule.part linear
"""
ALL = "all"  # `--help all`
Adding = Callable[[argparse.ArgumentParser], None]  # function that adds the options of one command
USUAL = [  # shown by `--help` without a part
    "num_envs",
    "num_steps",
    "total_steps",
    "seed",
    "preset",
    "stop",
    "best.metric",
    "init_from.run",
    "eval.episodes",
    "log.every",
    "log.console",
    "log.to",
    "agent.learning_rate",
    "agent.gamma",
    "agent.num_epochs",
    "agent.minibatch.num_minibatches",
    "agent.advantage.gae_lambda",
    "agent.loss.clip_eps",
    "agent.ent_coef",
    "agent.normalize_obs",
    "agent.network.hidden",
    "agent.network.memory.part",
]
DESCRIPTIONS = {
    "train": "Train an agent.",
    "sweep": "Train many settings and seeds of a run together, and rank the settings.",
    "bench": "Measure steps per second of a run on this machine, and the time of each stage.",
    "selftest": "Check an agent in its environment for common faults.",
}


class Help(argparse.RawDescriptionHelpFormatter):
    """Formatter of the help that removes control characters, which a stranger's run file may have in its values."""

    def format_help(self) -> str:
        """Return the whole text of the help, without control characters."""
        return printable(super().format_help(), "\n")


def new_directory(text: str) -> Path:
    """Return the path of a new run or sweep; an error of the command line for the empty text, as of an unset variable.

    As a path, the empty text would be the current directory.
    """
    if not text:
        raise argparse.ArgumentTypeError("'' is no path: write one, as runs/mine; the current directory is .")
    return Path(text)


def add_train(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax train` has."""
    parser.add_argument(
        "--run-dir", type=new_directory, help="directory of config, logs, checkpoints (default: new, in runs/)"
    )
    add_overwrite(parser)
    add_dry_run(parser)
    add_processes(parser)


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add the option --overwrite, for a run directory that holds a trained run or sweep already."""
    text = "move a run or sweep that --run-dir holds already aside, to a name that is printed; nothing is deleted"
    parser.add_argument("--overwrite", action="store_true", help=text)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add the option --dry-run, which checks everything and starts nothing."""
    text = "check all settings, print them as a run file with what the training would take; compile and write nothing"
    parser.add_argument("--dry-run", action="store_true", help=text)


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax resume` has."""
    text = "new length of the run, recorded in its run file; schedules take their progress from it"
    parser.add_argument("--total-steps", type=_parser(Option("total_steps", int)), metavar="INT", help=text)
    add_processes(parser)
    add_cluster(parser)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    parser.add_argument(
        TRUST,
        metavar="NAME",
        help="use NAME where a run file names it: a package, whose code is imported, as my_package; a path or address "
        "outside of the file's directory, with a slash, as ./data or //host:port; repeatable",
    )
    parser.add_argument(
        DEVICE,
        metavar="NAME",
        help=f"device of JAX: {', '.join(sharding.PLATFORMS)}, or a single GPU, as cuda:1 (default: the fastest here)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON to standard output")
    parser.add_argument(
        "--cache",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="cache compiled programs on disk, in the user's cache directory (default: on)",
    )


def parse_run(
    command: str, texts: Sequence[str], add: Adding | None = None, find: Callable[[str], Config] = config.find
) -> tuple[argparse.Namespace, Config]:
    """Return the parsed options of a command that trains or checks a run, and the run's complete configuration.

    The command's target is an environment, a preset or a run file. `add` adds the options that only this command has,
    `find` returns the configuration of the target. Settings that are not given come from a preset, or from the defaults
    for the kind of environment. The parsed options have an additional attribute `begun`, a line to print: it names the
    kind and its main settings, or warns that a preset is tuned for another number of steps; else it is "". Raises
    ConfigError for unknown options and invalid values.
    """
    topic, arguments = split_help([one._replace(flag=dashed(one.flag)) for one in split_arguments(texts)])
    target = target_of(arguments)
    base = {} if target is None else find(target)
    file = None if target is None else config.file_of(target)
    imports.typed((), [] if file is None else [file.parent])
    sharding.require_backend()  # the defaults by kind are read from the environment
    base = config.begun(base | choose_start(arguments))
    if topic is not None and target is not None:
        shown = config.completed(base).config
    else:  # without the environment, whose kind decides about numbers alone
        shown = base if base[config.PRESET] else config.overridden(config.PARTS_FOR_ALL, base)
    options, given = _parse(command, arguments, add, shown, topic)
    run_config, options.begun = config.completed(given)
    return options, config.resolve(run_config)


def _parse(
    command: str, arguments: list[Argument], add: Adding | None, base: Config, topic: str | None
) -> tuple[argparse.Namespace, Config]:
    """Return the command's options, and `base` with the values that the arguments give.

    Where the help on `topic` is wanted (None: not wanted), print it and exit.
    """
    parser = _parser_of(command)
    if add is not None:
        add(parser)
    add_common(parser)
    target = target_of(arguments)
    base, arguments = choose_lists(base, arguments)
    base, arguments = choose_extensions(choose_groups(base, arguments), arguments, topic)
    base = choose_parts(base, arguments)
    defaults = dict(flatten(config.resolve(base)))  # first: it reports all errors of the base at once
    if topic is not None and target is None and base[config.PRESET] is None:
        defaults |= {path: "by environment" for path in config.BY_ENVIRONMENT & defaults.keys()}
    # groups inherit parts and numbers from the table [agent], and with them options
    known = {option.path: option for option in config.options(group_tables.with_inherited(base))}
    _add_options(parser, known, defaults, topic)
    if topic is not None:
        _print_help(parser, known, defaults, topic, command)
    arguments, free = split_free(booleans(arguments, known), known)
    parser._negative_number_matcher = NEGATIVE
    options, unknown = parser.parse_known_args(join_arguments(arguments))
    if options.target != target:  # the target decides which options exist
        raise ConfigError(f"write the target first: ppax {command} {options.target} ...")
    if unknown:
        raise ConfigError(refusal(unknown[0], known, options.target))
    given = {path: value for path, value in vars(options).items() if path in known}
    imports.typed(one.name for one in config.outside_values(given | free, known.values()).values())
    kept = {path: value for path, value in flatten(base) if not any(within(path, one) for one in free)}
    return options, unflatten(kept | given | free)


# Numbers that argparse takes for values, not for options: also with an exponent, which its own pattern lacks
NEGATIVE = re.compile(r"-(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?$|-inf$")


def _parser_of(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"ppax {command}",
        usage=f"ppax {command} TARGET [options]",
        description=f"{DESCRIPTIONS[command]} Every option of the run file can also be given on the command line.\n"
        "Values that are not given come from the preset with the name of the environment, or are the defaults\n"
        f"for its kind; `ppax train TARGET --dry-run` prints them, `ppax {command} TARGET --help` shows them.",
        epilog=EXAMPLES.replace("ppax train", f"ppax {command}"),
        formatter_class=Help,
        allow_abbrev=False,
        add_help=False,
    )
    text = "preset (`ppax presets`), run file (.toml, .json, .yaml), run directory, or environment id (`ppax envs`)"
    parser.add_argument("target", help=text)
    text = "show the options of one PART; `all`: all options"
    parser.add_argument("--help", "-h", metavar="PART", nargs="?", help=text)
    return parser


def _add_options(
    parser: argparse.ArgumentParser, known: dict[str, Option], defaults: Config, topic: str | None
) -> None:
    """Add all options of the run to the parser; only those that belong to `topic` are visible in its help.

    `known` are the options by path, and `defaults` has their default values. `topic` is the path of a part or option,
    "" for the usual options, or None without help.
    """
    groups: dict[str, Any] = {}
    order = sorted(known, key=lambda path: USUAL.index(path) if path in USUAL else len(USUAL)) if topic == "" else known
    for path in order:
        if topic == "":
            shown, section = path in USUAL, "usual options"
        else:
            shown, section = (
                topic in (None, ALL) or f"{path}.".startswith(f"{topic}."),
                path.rpartition(".")[0] or "run",
            )
        if section not in groups:
            groups[section] = parser.add_argument_group(section)
        default = {} if known[path].kind is Table else defaults[path]
        add_option(groups[section], known[path], default, shown, topic is not None)


def _print_help(
    parser: argparse.ArgumentParser, known: dict[str, Option], defaults: Config, topic: str, command: str
) -> None:
    """Print the help on `topic` and exit; ConfigError where there is no such part or option."""
    chains = {found[0] for path in known if (found := EXTENSIONS.match(path))}
    places = {path.rpartition(".")[0] for path in known} | {path for path in LISTS if path not in known} | chains
    sections = sorted(places - {""})
    if topic not in ("", ALL, *known, *sections):
        if topic.partition(".")[0] in ("env_params", "env"):
            raise ConfigError(f"--help {topic}: `ppax envs NAME` lists the parameters of an environment")
        raise ConfigError(f"--help {topic}: unknown part; did you mean {nearest(topic, [*sections, *known])!r}?")
    if topic != ALL:
        parts = ", ".join(sections)
        more = f"All options: --help all. Options of one part: ppax {command} TARGET --help PART, PART one of {parts}."
        parser.epilog = f"{parser.epilog}\n{textwrap.fill(more, 100, break_on_hyphens=False)}"
    if topic in LISTS and topic in known:
        name = known[topic].limits["choices"][-1]
        flag = "--" + renamed_option(topic, "_", "-")
        parser.epilog = (
            f"{parser.epilog}\nOptions of one of these parts: ppax {command} TARGET {flag} {name} --help {topic}"
        )
    if topic in chains:
        parser.epilog = f"{parser.epilog}\n\n{_all_extensions(topic, command)}"
    if f"{topic}.part" in known and topic.rpartition(".")[0] not in chains:
        parser.epilog = f"{parser.epilog}\n{_other_part(topic, known[f'{topic}.part'], defaults, command)}"
    parser.print_help()
    raise SystemExit(0)


def _all_extensions(topic: str, command: str) -> str:
    """Return the help on the list of extensions at the dotted path `topic`: the purpose of each, and examples."""
    choices, flag = PARTS["extension"], "--" + renamed_option(topic, "_", "-")
    width = max(map(len, choices))
    lines = [
        "extensions, which are called in the order of the list:",
        *(f"  {name.ljust(width)}  {_purpose(cls)}" for name, cls in choices.items()),
        f"Several: ppax {command} TARGET {flag} rnd,kl_control",
        f"Options of one: ppax {command} TARGET --help {topic}.rnd",
    ]
    return "\n".join(lines)


def _purpose(cls: type) -> str:
    """Return the first sentence of a part's docstring, in one line and without its full stop."""
    text = " ".join((cls.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"\.(?= [A-Z])", text)[0].rstrip(".")


def _other_part(topic: str, option: Option, defaults: Config, command: str) -> str:
    """Return a sentence with the command that shows the options of another part that the option at `topic` may choose.

    A part is a swappable component, such as a loss; `option` is the option that chooses it. "" if there is no other
    part.
    """
    chosen, flag = defaults[option.path], "--" + renamed_option(option.path, "_", "-")
    other = next((name for name in reversed(option.limits["choices"]) if name != chosen), None)
    if other is None:
        return ""
    arguments = f"TARGET {flag} {other} --help {topic}"
    return f"These are the options of {flag} {chosen}; those of another part: ppax {command} {arguments}"


def add_option(group: Any, option: Option, default: Any, visible: bool = True, in_help: bool = False) -> None:
    """Add an option of a run to the argument group `group` of argparse.

    It is hidden from the help unless `visible`. With `in_help`, the names of parts that installed packages have
    registered are among its choices.
    """
    flag = "--" + renamed_option(option.path, "_", "-")
    shown = " ".join(map(str, default)) if isinstance(default, list) else option.none if default is None else default
    shown = NONE if is_extension_list(flag) else shown
    text = f"{option.doc} (default: {str(shown).lower() if isinstance(shown, bool) else shown})"
    text = text.replace("%", "%%")
    common = {"dest": option.path, "default": argparse.SUPPRESS, "help": text if visible else argparse.SUPPRESS}
    if option.kind is Table:  # for the help: `split_free` takes the values
        help_on_table = f"{option.doc}, each with its name" if visible else argparse.SUPPRESS
        group.add_argument(
            f"{flag}.NAME", metavar="VALUE", dest=option.path, default=argparse.SUPPRESS, help=help_on_table
        )
        return
    if option.kind is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
        return
    choices = option.limits.get("choices")
    if in_help and visible and "kind" in option.limits:  # short names of installed packages
        choices = tuple(dict.fromkeys((*(choices or ()), *imports.registered(option.limits["kind"]))))
    name = "{" + ",".join(choices) + "}" if choices else option.kind.__name__.upper()
    name = "NAME,..." if is_extension_list(flag) else name
    if option.limits.get("switch"):  # without a value: true
        group.add_argument(flag, type=_parser(option), nargs="?", const=True, metavar=name, **common)
        return
    group.add_argument(flag, type=_parser(option), nargs="+" if option.many else None, metavar=name, **common)


def _parser(option: Option) -> Any:
    def parse(text: str) -> Any:
        if (option.optional and text in (NONE, option.none)) or text in option.limits.get("words", ()):
            return text
        if option.limits.get("switch") and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if option.many and text == EMPTY:
            return text
        if option.leaf and "," in text:  # one number for each agent
            return [parse(x) for x in text.split(",")]
        if option.limits.get("names") and not _is_number(text):
            return text
        if option.limits.get("interval") and not _is_number(text):
            try:
                return interval(option.path, text)
            except ConfigError as error:  # argparse shows the text of no other class
                raise argparse.ArgumentTypeError(str(error)) from error
        if option.kind is not int:
            return option.kind(text)
        try:
            return int(text)
        except ValueError:
            value = float(text)  # 1e6 is a whole number, 2.5 is not
            if not value.is_integer():  # nor is infinity
                raise
            return int(value)

    parse.__name__ = option.kind.__name__  # for argparse's "invalid <name> value"
    return parse


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
