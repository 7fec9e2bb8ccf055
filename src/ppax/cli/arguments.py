"""Arguments of a command as the user writes them, rewritten into the options of a run before argparse reads them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from ppax import config
from ppax.config import group_tables
from ppax.config.catalogue import chain_fields, keyed_fields, part_fields
from ppax.core import imports, untrusted
from ppax.core.options import LISTS, NONE, Config, Option, flatten, unflatten
from ppax.core.types import ConfigError
from ppax.ppo.ppo import PPO

BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


# Options that may stand anywhere, with the value they need: the first decides which options exist, the second where
# JAX starts, which reading the others needs
TRUST, DEVICE = "--trust", "--device"
EXTENSIONS = re.compile(r"(agent|groups\.[^.]+\.agent)\.extensions")
OF_EXTENSION = re.compile(r"--(?P<path>(agent|groups\.[^.]+\.agent)\.extensions)\.(?P<name>[^.=]+)")
VALUES = {TRUST: "the name of a package, a path or an address", DEVICE: "a device, as cpu, gpu, tpu or cuda:1"}


def without(option: str, arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split off `option` of VALUES: the other arguments, and its values."""
    rest, values, left = [], [], list(arguments)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name != option:
            rest.append(name + equals + value)
        elif equals or left:
            values.append(value if equals else left.pop(0))
        else:
            raise ConfigError(f"{option}: needs {VALUES[option]}")
    return rest, values


def trusting_line(arguments: list[str], names: Iterable[str]) -> str:
    """Return the command line with `--trust` for further packages, paths and addresses."""
    return shlex.join(["ppax", *arguments, *(word for name in names for word in (TRUST, name))])


def booleans(arguments: list[str], known: dict[str, Option]) -> list[str]:
    """Rewrite `--log.console false` and `--log.console=false` as `--no-log.console`, the only form argparse knows."""
    flags = {"--" + path.replace("_", "-") for path, option in known.items() if option.kind is bool} | {"--cache"}
    rest, left = [], list(arguments)
    while left:
        name, equals, value = left.pop(0).partition("=")
        plain = name if name in flags else "--" + name.removeprefix("--no-")
        if plain not in flags:
            rest.append(name + equals + value)
            continue
        if not equals and name == plain and left and not left[0].startswith("-"):
            equals, value = "=", left.pop(0)
        if equals and (name != plain or value.lower() not in BOOLEANS):
            raise ConfigError(f"{name} {value}: must be {plain}, {plain} true or {plain} false")
        rest.append(f"--no-{name[2:]}" if equals and not BOOLEANS[value.lower()] else name)
    return rest


def free_options(arguments: list[str]) -> tuple[list[str], Config]:
    """Split off options without a declared type, as `--env-params.gravity 12`: the other arguments, {path: value}."""
    rest: list[str] = []
    free: Config = {}
    left = list(arguments)
    while left:
        argument = left.pop(0)
        name, equals, value = argument.partition("=")
        path = name.removeprefix("--").replace("-", "_")
        if not (name.startswith("--") and config.is_free(path)):
            rest.append(argument)
            continue
        if not equals and not left:
            raise ConfigError(f"{name}: needs a value")
        given = number_or_text(value if equals else left.pop(0))
        for other in free:
            if other != path and within(other, path):
                raise ConfigError(f"{name}: is given beside {other}, and one of them contains the other; give one")
        free |= dict(flatten({path: given}))
    return rest, free


def within(path: str, other: str) -> bool:
    """Return whether two dotted paths are the same, or one is inside the other: a value of one replaces the other."""
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


def number_or_text(text: str) -> Any:
    """Parse a value as TOML, or a table or list as JSON; text that is neither stays text."""
    try:
        return untrusted.from_toml(f"x = {text}")["x"]
    except ValueError:
        pass
    try:
        return untrusted.from_json(text) if text.lstrip().startswith(("{", "[")) else text
    except ValueError:
        return text


def dashed(argument: str) -> str:
    """Rewrite `--num_envs=8` as `--num-envs=8`, `--agent.loss` as `--agent.loss.part`, `--init-from` with `.run`.

    Names of groups stay unchanged.
    """
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    name = "--" + renamed(name.removeprefix("--"), "_", "-")
    *outer, last = name.split(".")
    of_part = last in part_fields(PPO) or (bool(outer) and outer[-1] in keyed_fields())
    of_part |= last == "agent" and len(outer) == 2  # of a group
    if name in ("--agent", "--schedule") or (name.startswith(("--agent.", "--groups.", "--schedule.")) and of_part):
        name += ".part"
    if name == "--init-from":
        name += ".run"
    return name + equals + value


def renamed(path: str, old: str, new: str) -> str:
    """Replace `old` by `new` in a dotted path, except in names that the user gave (groups, keys of parts).

    Names in chains of parts have underscores.
    """
    words = path.split(".")
    own = {place + 1 for place, word in enumerate(words) if word in keyed_fields() or (word == "groups" and place == 0)}
    named = {place + 1 for place, word in enumerate(words) if word in chain_fields()}
    signs = [("-", "_") if place in named else ("", "") if place in own else (old, new) for place in range(len(words))]
    return ".".join(word.replace(*pair) if pair[0] else word for word, pair in zip(words, signs, strict=True))


def choose_preset(arguments: list[str]) -> Config:
    """Return the option `--preset NAME`, if it is given: it decides what the run begins from."""
    flag = f"--{config.PRESET}"
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag and (equals or arguments[place + 1 :]):
            return {config.PRESET: value if equals else arguments[place + 1]}
    return {}


def choose_groups(base: Config, arguments: list[str]) -> Config:
    """Add the groups named by `--groups.NAME....`: they decide which options exist."""
    named = [argument.partition("=")[0].split(".")[1] for argument in arguments if argument.startswith("--groups.")]
    groups = group_tables.tables(base)
    return base | {"groups": groups | {name: {} for name in named if name not in groups}} if named else base


def choose_lists(base: Config, arguments: list[str]) -> tuple[Config, list[str]]:
    """Set the lists of parts named by `--log.to NAME ...`; return the configuration and the other arguments.

    A part that `base` has keeps its options; `none` is the empty list.
    """
    flat, left = dict(flatten(base)), list(arguments)
    for path in LISTS:
        place = next((i for i, argument in enumerate(left) if argument.partition("=")[0] == f"--{path}"), None)
        if place is None:
            continue
        name, equals, value = left[place].partition("=")
        end = place + 1
        while not equals and end < len(left) and not left[end].startswith("-"):
            end += 1
        names = value.split(",") if equals else left[place + 1 : end]
        if not names:
            raise ConfigError(f"{name}: needs the names of parts, or {NONE}")
        left = left[:place] + left[end:]
        had = _tables(flat, path)
        flat = {key: value for key, value in flat.items() if not f"{key}.".startswith(f"{path}.")}
        for number, one in enumerate(one for one in names if one != NONE):
            table = next((table for table in had if table.get("part") == one), {"part": one})
            flat |= {f"{path}.{number}.{key}": value for key, value in table.items()}
    return unflatten(flat), left


def choose_extensions(base: Config, arguments: list[str], topic: str | None = None) -> tuple[Config, list[str]]:
    """Set the extensions named by `--agent.extensions NAME,...`, or by an option of theirs; they decide about options.

    Return the configuration and the other arguments. An extension that `base` has keeps its options; `none` removes
    all. One that the help on `topic` is asked for is added. Raises ConfigError for a name given twice, and for an
    extension that the list leaves out.
    """
    listed, left = _extension_lists(arguments)
    flat = dict(flatten(base))
    for path, chosen in listed.items():
        before = {place: x for place, x in flat.items() if within(path, place)}
        flat = {place: x for place, x in flat.items() if place not in before}
        for one in chosen:
            kept = {place: x for place, x in before.items() if f"{place}.".startswith(f"{path}.{one}.")}
            flat |= kept or {f"{path}.{one}": {}}
        if not chosen:
            flat[path] = []
    for place, argument in enumerate([*left, f"--{topic}"]):
        name, equals, value = argument.partition("=")
        found = OF_EXTENSION.match(name)
        if found is None:
            continue
        path, one = found["path"], found["name"].replace("-", "_")
        if path in listed and one not in listed[path]:
            raise ConfigError(f"{found[0]}: --{path} {','.join(listed[path]) or NONE} leaves {one} out; add it there")
        if not any(f"{other}.".startswith(f"{path}.{one}.") for other in flat):
            flat = {other: x for other, x in flat.items() if other != path} | {f"{path}.{one}": {}}
        if name == f"{found[0]}.part":
            flat.pop(f"{path}.{one}", None)
            flat[f"{path}.{one}.part"] = value if equals else "".join(left[place + 1 : place + 2])
    _require_inherited(flat, listed)
    return unflatten(flat), left


def is_extension_list(name: str) -> bool:
    """Return whether an option is a list of extensions, as `--agent.extensions`."""
    return name.startswith("--") and EXTENSIONS.fullmatch(name.removeprefix("--")) is not None


def _extension_lists(arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Split off the lists of extensions: names by path, and the other arguments."""
    listed: dict[str, list[str]] = {}
    rest, left = list[str](), list(arguments)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if not is_extension_list(name):
            rest.append(name + equals + value)
            continue
        words = [value] if equals else []
        while not equals and left and not left[0].startswith("-"):
            words.append(left.pop(0))
        given = [one for one in ",".join(words).split(",") if one]
        if not given:
            raise ConfigError(f"{name}: needs the names of extensions, as {name} rnd,kl_control, or {NONE}")
        chosen = [one.replace("-", "_") for one in given if one != NONE]
        for one in chosen:
            if imports.is_path(one):
                last = re.split(r"[.:]", one)[-1].lower()
                raise ConfigError(f"{name} {one}: needs a name, as {name}.{last} {one}")
            if chosen.count(one) > 1:
                another = f"{name} {one},second {name}.second {one}"
                raise ConfigError(f"{name}: {one} is there twice; give one of them another name, as {another}")
        listed[name.removeprefix("--")] = chosen
    return listed, rest


def _require_inherited(flat: Config, listed: dict[str, list[str]]) -> None:
    """Raise ConfigError where the list of a group leaves out an extension that it inherits from the table [agent]."""
    of_run = {place.split(".")[2]: None for place in flat if place.startswith("agent.extensions.")}
    for path, chosen in listed.items():
        lacking = [one for one in of_run if one not in chosen]
        if path.startswith("groups.") and chosen and lacking:
            raise ConfigError(
                f"--{path} {','.join(chosen)}: the group has {', '.join(lacking)} of --agent.extensions, too; name it "
                f"here, or give {', '.join(lacking)} to the groups that need it"
            )


def _tables(flat: Config, path: str) -> list[Config]:
    """Tables of the list at `path`."""
    found: Any = unflatten(flat)
    for name in path.split("."):
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, list) else []


def choose_parts(base: Config, arguments: list[str]) -> Config:
    """Set the parts named by `--agent.loss.part NAME`: they decide which options exist.

    A part other than that of `base` starts from its own defaults, as in `config.overridden`.
    """
    flat = dict(flatten(base))
    config.require_trusted(unflatten(flat | dict(_named_parts(arguments))))  # of all parts at once
    for path, value in _named_parts(arguments):
        default = next((option.default for option in config.options(unflatten(flat)) if option.path == path), None)
        if flat.get(path, default) != value:
            flat = config.without_parts(flat, [path])
        flat[path] = value
    return unflatten(flat)


def _named_parts(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Yield path and name of each part that the arguments name."""
    sections = ("--agent.", "--groups.", "--schedule.", *(f"--{path}." for path in LISTS))
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.startswith(sections) and name.endswith(".part"):
            value = value if equals else "".join(arguments[position + 1 : position + 2])
            yield renamed(name.removeprefix("--"), "-", "_"), value
