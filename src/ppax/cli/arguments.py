"""Rewriting of command-line arguments into the options of a run, before argparse reads them.

Which options a run has depends on the groups of agents, the extensions and the parts (such as the loss or the memory)
that its arguments name, so argparse alone cannot read them. The functions of this module are applied in this order:
flags get their full spelling with hyphens (`dashed`); the lists of parts, the groups, the extensions and the parts that
arguments name are written into the run's configuration (`choose_...`), which then determines the options; booleans get
the form that argparse knows (`booleans`); and options without a declared type, such as the environment's parameters,
are read and removed from the arguments (`split_free`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ppax import config
from ppax.config import group_tables
from ppax.config.catalogue import CHAIN, ONE, TABLE, fields_holding, free_fields
from ppax.core import imports, untrusted
from ppax.core.options import LISTS, NONE, Config, Option, flatten, free_tables, unflatten
from ppax.core.types import ConfigError
from ppax.storage.paths import command_line

BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
HELP = ("-h", "--help")
# Options that may stand anywhere, with the value they need: the first decides which options exist, the second where
# JAX starts, which reading the others needs
TRUST, DEVICE = "--trust", "--device"
VALUES = {TRUST: "the name of a package, a path or an address", DEVICE: "a device, as cpu, gpu, tpu or cuda:1"}
EXTENSIONS = re.compile(r"(agent|groups\.[^.]+\.agent)\.extensions")
OF_EXTENSION = re.compile(r"--(?P<path>(agent|groups\.[^.]+\.agent)\.extensions)\.(?P<name>[^.=]+)")


class Argument(NamedTuple):
    """Option on a command line with the words after it, up to the next option."""

    flag: str  # as --agent.loss.part; "" for words before the first option, and for words that no option takes
    words: tuple[str, ...] = ()
    joined: bool = False  # the first word is written with an equals sign, as --seed=3

    @property
    def value(self) -> str:
        """First word after the option; "" without one."""
        return self.words[0] if self.words else ""

    def further(self) -> list[Argument]:
        """Return the words after the first one as an Argument without an option, in a list; [] if there are none.

        A caller that takes an option and its one value out of the command line leaves these words in it.
        """
        return [Argument("", self.words[1:])] if self.words[1:] else []


def split_arguments(texts: Iterable[str]) -> list[Argument]:
    """Return the words of a command line as arguments, each an option with the words that follow it."""
    found: list[Argument] = []
    for text in texts:
        if text.startswith("--") or text in HELP:
            flag, equals, value = text.partition("=")
            found.append(Argument(flag, (value,) if equals else (), bool(equals)))
        elif found:
            found[-1] = found[-1]._replace(words=(*found[-1].words, text))
        else:
            found.append(Argument("", (text,)))
    return found


def join_arguments(arguments: Iterable[Argument]) -> list[str]:
    """Return the words of a command line from its arguments; the inverse of `split_arguments`."""
    texts: list[str] = []
    for flag, words, joined in arguments:
        texts += [f"{flag}={words[0]}", *words[1:]] if joined else [*filter(None, [flag]), *words]
    return texts


def without(option: str, texts: list[str]) -> tuple[list[str], list[str]]:
    """Return the words `texts` of a command line without `option` and its values, and the list of these values.

    `option` is `--trust` or `--device`. Raises ConfigError where it has no value.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(option, dest="values", action="append", nargs="?", default=[])
    found, rest = parser.parse_known_args(texts)
    if None in found.values:
        raise ConfigError(f"{option}: needs {VALUES[option]}")
    return rest, found.values


def trusting_line(texts: list[str], names: Iterable[str]) -> str:
    """Return the command `ppax TEXTS --trust NAME ...`, for an error message that suggests it.

    `texts` are the arguments that the user gave; `--trust` is added for each of `names`: packages, paths or addresses
    whose code or content the user must trust.
    """
    return command_line(["ppax", *texts, *(word for name in names for word in (TRUST, name))])


def target_of(arguments: Sequence[Argument]) -> str | None:
    """Return the target of a command, which is its first argument; None if the first argument is an option."""
    return arguments[0].value if arguments and not arguments[0].flag else None


def split_help(arguments: list[Argument]) -> tuple[str | None, list[Argument]]:
    """Return the topic PART of `--help PART`, with underscores for hyphens, and the arguments without this option.

    The topic is "" for `--help` without PART, and None without `--help`.
    """
    place = next((place for place, argument in enumerate(arguments) if argument.flag in HELP), None)
    if place is None:
        return None, arguments
    topic = arguments[place]
    return topic.value.replace("-", "_"), [*arguments[:place], *topic.further(), *arguments[place + 1 :]]


def booleans(arguments: Iterable[Argument], known: dict[str, Option]) -> Iterator[Argument]:
    """Yield the arguments with booleans in the form that argparse knows: `--log.console false` as `--no-log.console`.

    `known` are the options of the run by path. Raises ConfigError for a value that is no boolean.
    """
    flags = {"--" + path.replace("_", "-") for path, option in known.items() if option.kind is bool} | {"--cache"}
    for argument in arguments:
        name = argument.flag
        plain = name if name in flags else "--" + name.removeprefix("--no-")
        if plain not in flags or not argument.words:
            yield argument
            continue
        value = argument.value
        if name != plain or value.lower() not in BOOLEANS:
            raise ConfigError(f"{name} {value}: must be {plain}, {plain} true or {plain} false")
        yield Argument(plain if BOOLEANS[value.lower()] else f"--no-{plain[2:]}")
        yield from argument.further()


def split_free(
    arguments: Iterable[Argument], known: dict[str, Option], table: str = ""
) -> tuple[list[Argument], Config]:
    """Return the arguments without the options whose type is not declared, and these options' values by dotted path.

    Options without a declared type are the environment's parameters, such as `--env-params.gravity 12`, and entries of
    tables whose keys the user chooses, such as `--agent.network.arguments.width 64`; `known` are the declared options,
    these tables among them. With `table`, such as "env_params", only options in that table are split off.
    """
    tables = free_tables(known.values())
    rest: list[Argument] = []
    free: Config = {}
    for argument in arguments:
        name = argument.flag
        path = option_path(name)
        if not path.startswith(table) or not (config.is_free(path, tables) or f"{path}." in tables):
            rest.append(argument)
            continue
        if not argument.words:
            raise ConfigError(f"{name}: needs a value")
        for other in free:
            if other != path and within(other, path):
                raise ConfigError(f"{name}: is given beside {other}, and one of them contains the other; give one")
        free |= dict(flatten({path: number_or_text(argument.value)}))
        rest += argument.further()
    return rest, free


def within(path: str, other: str) -> bool:
    """Return whether two dotted paths are equal or one is inside the other.

    Then setting a value at one path replaces the value at the other.
    """
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


def number_or_text(text: str) -> Any:
    """Return the value that a text stands for, read as TOML, or as a JSON table or list; else the text itself."""
    try:
        untrusted.from_toml(f"x = [{text}]")  # not with a comment after the value, as `9#3` would be
        return untrusted.from_toml(f"x = {text}")["x"]
    except ValueError:
        pass
    try:
        return untrusted.from_json(text) if text.lstrip().startswith(("{", "[")) else text
    except ValueError:
        return text


def dashed(flag: str) -> str:
    """Return a flag in its full spelling: `--num_envs` as `--num-envs`, `--agent.loss` as `--agent.loss.part`.

    `--init-from` becomes `--init-from.run`. Names of groups stay unchanged.
    """
    if not flag.startswith("--"):
        return flag
    flag = "--" + renamed_option(flag.removeprefix("--"), "_", "-")
    *outer, last = flag.split(".")
    of_part = last in fields_holding(ONE) or (bool(outer) and outer[-1] in fields_holding(TABLE, CHAIN))
    of_part |= last == "agent" and len(outer) == 2  # of a group
    of_part &= not free_fields() & set(outer)  # an argument of a module may be called memory
    if flag in ("--agent", "--schedule") or (flag.startswith(("--agent.", "--groups.", "--schedule.")) and of_part):
        flag += ".part"
    return f"{flag}.run" if flag == "--init-from" else flag


def renamed_option(path: str, old: str, new: str) -> str:
    """Return an option's dotted path with `old` replaced by `new`, except in names that the user chose.

    The command line has hyphens where run files and Python have underscores, so `old` is "_" and `new` is "-", or the
    reverse. Names of groups, and keys of tables of parts that the user chose, stay unchanged. Names of extensions have
    underscores in the result, whatever `new` is.
    """
    by_name, by_key = fields_holding(CHAIN), fields_holding(TABLE)
    words, before = list[str](), ""
    for word in path.split("."):
        if before in by_name:
            words.append(word.replace("-", "_"))
        elif before in by_key or words == ["groups"]:
            words.append(word)
        else:
            words.append(word.replace(old, new))
        before = word
    return ".".join(words)


def option_path(flag: str) -> str:
    """Return the dotted path of the option that a flag stands for: "agent.ent_coef" for `--agent.ent-coef`."""
    return renamed_option(flag.removeprefix("--"), "-", "_")


def choose_start(arguments: Iterable[Argument]) -> Config:
    """Return the options that `--preset NAME` and `--env NAME` set, as a configuration; {} if they are not given.

    The settings of a run begin with those of its preset, which may have the environment's name.
    """
    flags = {f"--{name}": name for name in (config.PRESET, "env")}
    return {flags[one.flag]: one.value for one in arguments if one.flag in flags and one.words}


def choose_groups(base: Config, arguments: Iterable[Argument]) -> Config:
    """Return the configuration `base` with an empty table for each new group of agents in flags `--groups.NAME...`.

    Options of a group exist only after it is in the configuration.
    """
    named = [argument.flag.split(".")[1] for argument in arguments if argument.flag.startswith("--groups.")]
    groups = group_tables.tables(base)
    return base | {"groups": groups | {name: {} for name in named if name not in groups}} if named else base


def choose_lists(base: Config, arguments: list[Argument]) -> tuple[Config, list[Argument]]:
    """Return the configuration with the lists of parts that arguments set, and the arguments without these.

    An example is `--log.to NAME ...`, the list of loggers. A part that is already in the list of `base` keeps its
    options. The word `none` stands for an empty list.
    """
    flat, flags = dict(flatten(base)), {f"--{path}": path for path in LISTS}
    for argument in arguments:
        path = flags.get(argument.flag)
        if path is None:
            continue
        names = _names(argument, "parts")
        had = _tables(flat, path)
        flat = {key: value for key, value in flat.items() if not f"{key}.".startswith(f"{path}.")}
        for number, one in enumerate(names):
            table = next((table for table in had if table.get("part") == one), {"part": one})
            flat |= {f"{path}.{number}.{key}": value for key, value in table.items()}
    return unflatten(flat), [argument for argument in arguments if argument.flag not in flags]


def _names(argument: Argument, what: str) -> list[str]:
    """Return the names in an argument that is a list, such as `--log.to wandb,mlflow`; [] for the word `none`.

    Raises ConfigError if there is no name; `what` says for the message what is named, such as "parts".
    """
    given = [one for word in argument.words for one in word.split(",") if one]
    if not given:
        raise ConfigError(f"{argument.flag}: needs the names of {what}, or {NONE}")
    return [one for one in given if one != NONE]


def _tables(flat: Config, path: str) -> list[Config]:
    """Return the tables of the list at the dotted path `path` of a configuration; [] where there is none."""
    found: Any = unflatten(flat)
    for name in path.split("."):
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, list) else []


def choose_extensions(
    base: Config, arguments: list[Argument], topic: str | None = None
) -> tuple[Config, list[Argument]]:
    """Return the configuration `base` with the extensions that arguments name, and the arguments without lists of them.

    Extensions are named by a list, `--agent.extensions NAME,...` (`none` for no extension), by their own options, and
    by `topic`, the option on which help is wanted. They are added here because they decide which options exist. An
    extension that `base` already has keeps its options. Raises ConfigError for a name given twice, and for an option of
    an extension that is not in the list.
    """
    listed = {one.flag.removeprefix("--"): _extensions(one) for one in arguments if is_extension_list(one.flag)}
    left = [argument for argument in arguments if not is_extension_list(argument.flag)]
    flat = dict(flatten(base))
    for path, chosen in listed.items():
        before = {place: x for place, x in flat.items() if within(path, place)}
        flat = {place: x for place, x in flat.items() if place not in before}
        for one in chosen:
            kept = {place: x for place, x in before.items() if f"{place}.".startswith(f"{path}.{one}.")}
            flat |= kept or {f"{path}.{one}": {}}
        if not chosen:
            flat[path] = []
    for argument in [*left, Argument(f"--{topic}")]:
        found = OF_EXTENSION.match(argument.flag)
        if found is None:
            continue
        path, one = found["path"], found["name"].replace("-", "_")
        if path in listed and one not in listed[path]:
            raise ConfigError(f"{found[0]}: --{path} {','.join(listed[path]) or NONE} leaves {one} out; add it there")
        if not any(f"{other}.".startswith(f"{path}.{one}.") for other in flat):
            flat = {other: x for other, x in flat.items() if other != path} | {f"{path}.{one}": {}}
        if argument.flag == f"{found[0]}.part":
            flat.pop(f"{path}.{one}", None)
            flat[f"{path}.{one}.part"] = argument.value
    _require_inherited(flat, listed)
    return unflatten(flat), left


def is_extension_list(flag: str) -> bool:
    """Return whether a flag sets a list of extensions: `--agent.extensions`, or `--groups.NAME.agent.extensions`."""
    return flag.startswith("--") and EXTENSIONS.fullmatch(flag.removeprefix("--")) is not None


def _extensions(argument: Argument) -> list[str]:
    """Return the names in a list of extensions; ConfigError for an import path, and for a name that occurs twice."""
    name = argument.flag
    chosen = [one.replace("-", "_") for one in _names(argument, f"extensions, as {name} rnd,kl_control")]
    for one in chosen:
        if imports.is_path(one):
            last = re.split(r"[.:]", one)[-1].lower()
            raise ConfigError(f"{name} {one}: needs a name, as {name}.{last} {one}")
        if chosen.count(one) > 1:
            another = f"{name} {one},second {name}.second {one}"
            raise ConfigError(f"{name}: {one} is there twice; give one of them another name, as {another}")
    return chosen


def _require_inherited(flat: Config, listed: dict[str, list[str]]) -> None:
    """Raise ConfigError if a group's list of extensions leaves out one that the group inherits from the table [agent].

    `flat` is the configuration by dotted path, `listed` the names in each list by the list's path.
    """
    of_run = {place.split(".")[2]: None for place in flat if place.startswith("agent.extensions.")}
    for path, chosen in listed.items():
        lacking = [one for one in of_run if one not in chosen]
        if path.startswith("groups.") and chosen and lacking:
            raise ConfigError(
                f"--{path} {','.join(chosen)}: the group has {', '.join(lacking)} of --agent.extensions, too; name it "
                f"here, or give {', '.join(lacking)} to the groups that need it"
            )


def choose_parts(base: Config, arguments: Sequence[Argument]) -> Config:
    """Return the configuration `base` with the parts that arguments such as `--agent.loss.part NAME` choose.

    A part is a swappable component; which parts are chosen decides which options exist. If a chosen part replaces
    another one in `base`, the options of the replaced part are removed.
    """
    flat = dict(flatten(base))
    config.require_trusted_parts(unflatten(flat | dict(_named_parts(arguments))))  # of all parts at once
    for path, value in _named_parts(arguments):
        default = next((option.default for option in config.options(unflatten(flat)) if option.path == path), None)
        if flat.get(path, default) != value:
            flat = config.without_parts(flat, [path])
        flat[path] = value
    return unflatten(flat)


def _named_parts(arguments: Iterable[Argument]) -> Iterator[tuple[str, str]]:
    """Yield (dotted path, name) for each argument such as `--agent.loss.part NAME`, which names a part.

    A part is a swappable component, such as a loss.
    """
    sections = ("--agent.", "--groups.", "--schedule.", *(f"--{path}." for path in LISTS))
    for argument in arguments:
        if argument.flag.startswith(sections) and argument.flag.endswith(".part"):
            yield option_path(argument.flag), argument.value
