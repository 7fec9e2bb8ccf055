"""Parts (swappable objects such as a loss) that do not come with ppax.

They are named by import path, by a name that an installed package has registered, or as a function of optax.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from ppax.core import imports
from ppax.core.options import LISTS, Config, flatten, unflatten
from ppax.core.types import ConfigError
from ppax.ppo import optimizers
from ppax.ppo.ppo import PPO
from ppax.training.arguments import NETWORK, wrong_call
from ppax.training.arguments import PARTS as CHECKED

OPTAX = "optax"  # no code to trust: ppax itself depends on it, and only its optimisers are found
# Members that a part of each kind must have
MEMBERS: dict[str, tuple[str, ...]] = {kind: members for kind, (members, _) in CHECKED.items()} | {
    "network": NETWORK,
    "encoder": ("init", "__call__"),
    "memory": ("init", "output_size", "initial_carry", "project_in", "scan", "project_out"),
    "extension": ("before", "terms", "after"),
    "selection": ("needs_value", "check", "__call__"),
    "logger": ("require", "open", "stores"),
    "search": ("check", "next_after", "decide"),
}
ENDS = (".part", ".distribution", ".module")  # endings of the paths of options that name code
SETTINGS = ("logger", "search")  # kinds of parts that are plain settings, not pytrees
# Prefix of the paths of the options of an agent, of the run or of a group
AGENT_PREFIX = re.compile(r"agent\.|groups\.[^.]+\.agent\.")
OF_PPO = {field.name for field in dataclasses.fields(PPO)}


def import_paths(config: Config) -> dict[str, str]:
    """Return the import paths in a configuration by the option that has each: of parts, environment, `stop`, `best`.

    A part is a swappable object, such as a loss. Paths in optax are left out, because ppax imports it anyway.
    """
    return {place: path for place, path in _import_paths(config) if package_of(path) != OPTAX}


def package_of(path: str) -> str:
    """Return the top-level package of an import path, such as "mine" of "mine.losses:Loss".

    "SUITE/module:ID" is the name of an environment that a module registers; the result is the package of the module.
    """
    return (path.rpartition(":")[0] or path).rpartition("/")[2].partition(".")[0]


def _import_paths(config: Config) -> Iterator[tuple[str, str]]:
    for place, value in flatten(config):
        registers = place == "env" and imports.names_module(value)
        if registers or ((place in ("env", "best.metric") or place.endswith(ENDS)) and imports.is_path(value)):
            yield place, value
        elif place == "stop" and isinstance(value, str):
            for word in value.replace("(", " ").replace(")", " ").split():
                if imports.is_path(word):
                    yield place, word


def require_trusted_parts(config: Config, parts_only: bool = False) -> None:
    """Raise Untrusted, naming all packages at once, where a configuration names code that the user does not trust.

    With `parts_only`, only the code of parts is checked, not the options `env`, `stop` and `best.metric`.
    """
    paths = import_paths(config)
    imports.require_trusted({place: paths[place] for place in paths if place.endswith(ENDS) or not parts_only})


def plain(config: Config, of: Callable[[str], bool] = lambda place: True) -> Config:
    """Return a configuration with default parts in place of parts that it names by import path.

    A part is a swappable object, such as a loss. Code of the user's parts is then not imported: that is enough to read
    options, or to act without parts that only learning needs. `of` gets the dotted path of an option that names a part,
    and returns True if the part is to be replaced; by default all are.
    """
    places = [place for place in import_paths(config) if place.endswith(ENDS) and of(place)]
    lists = [path for path in LISTS if any(place.startswith(f"{path}.") for place in places)]
    kept = without_parts(dict(flatten(config)), places)
    return unflatten({path: x for path, x in kept.items() if not path.startswith(tuple(f"{one}." for one in lists))})


def without_parts(values: Config, places: Iterable[str]) -> Config:
    """Return options without those that belong to certain parts (swappable objects, such as a loss).

    `values` are the options by dotted path, and `places` the options that choose these parts, such as
    "agent.loss.part". For "agent.part", which chooses a subclass of PPO, only the options that PPO itself lacks are
    removed.
    """
    slots = [place.removesuffix("part") for place in places]
    of_agents = [slot for slot in slots if AGENT_PREFIX.fullmatch(slot)]
    of_parts = tuple(slot for slot in slots if slot not in of_agents)
    return {
        path: x
        for path, x in values.items()
        if not path.startswith(of_parts)
        and not any(path.startswith(slot) and _root(path.removeprefix(slot)) not in OF_PPO for slot in of_agents)
    }


def _root(path: str) -> str:
    return path.partition(".")[0]


def user_class(kind: str, name: str, place: str) -> type | None:
    """Return the class of a user's part called `name`; None if that is neither an import path nor a registered name.

    `kind` is the kind of part, such as "loss", `place` the option that names it, for error messages. Raises Untrusted
    before anything is imported, ConfigError where the name stands for no part of this kind.
    """
    path = name if imports.is_path(name) else imports.registered(kind).get(name)
    if path is None:
        return None
    if kind == "optimizer" and package_of(path) == OPTAX:
        return optimizers.optax_class(optimizers.find_factory(path, place))
    found = imports.load(path, place)
    if kind == "optimizer" and isinstance(found, types.FunctionType):
        return optimizers.optax_class(found)
    text = f"{place} = {name!r}"
    if kind == "agent" and not (isinstance(found, type) and issubclass(found, PPO)):
        raise ConfigError(f"{text}: must be a subclass of ppax.PPO, with the decorator @part of ppax")
    return _checked(found, kind, text)


def user_class_name(part: Any) -> str:
    """Return the name of a class of a part that does not come with ppax: its import path, if it can be imported.

    Otherwise the result is module and class, joined by a dot, which no run file can use.
    """
    made_of = optimizers.factory_of(type(part)) or type(part)
    return optimizers.public_name(made_of) or imports.import_path(made_of) or unimportable(made_of)


def unimportable(code: Any) -> str:
    """Return a name for a class, function or object that cannot be imported: its module and class, joined by a dot.

    The name is for people; no run file can use it.
    """
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{named.__module__}.{named.__qualname__}"


def _checked(found: Any, kind: str, text: str) -> type:
    """Return `found`; ConfigError unless it is a frozen dataclass with the members that parts of the kind `kind` have.

    A part is a swappable object; kinds are such as "loss". The error begins with `text`.
    """
    if not isinstance(found, type):
        raise ConfigError(
            f"{text}: a {type(found).__name__}; must be a class, a part for {kind} with the decorator @part"
        )
    # every class itself can be called: `__call__` must be a method of its instances
    owned = {name for base in found.__mro__ for name in vars(base)} | set(getattr(found, "__dataclass_fields__", ()))
    lacking = [name for name in MEMBERS.get(kind, ()) if name not in owned]
    if lacking:
        raise ConfigError(f"{text}: must be a part for {kind}; {found.__name__} lacks {', '.join(lacking)}")
    if wrong := wrong_call(kind, found):
        raise ConfigError(f"{text}: must be a part for {kind}; {wrong}")
    if not (dataclasses.is_dataclass(found) and found.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        raise ConfigError(
            f"{text}: must be a frozen dataclass: write {found.__name__} with the decorator @part of ppax"
        )
    return found


def require_tree(part: Any, kind: str, place: str) -> Any:
    """Return `part` unchanged if it can be used in JAX computations as a pytree; else raise ConfigError.

    Kinds of parts that take part in no computation are not checked. `kind` is the kind of part, such as "loss", and
    `place` the option that names it, for the error message.
    """
    if kind not in SETTINGS and jax.tree_util.all_leaves([part]):
        raise ConfigError(f"{place}: JAX cannot trace {part!r}: write its class with the decorator @part of ppax")
    return part
