"""Environments that do not come with ppax or a suite, by import path or by a short name of an installed package.

The path names a class, a function that makes one environment, or an environment that is a frozen part. It is stepped on
the host if it has a method `close`, as those of Gymnasium and PettingZoo have, otherwise inside the compiled program.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ppax import imports
from ppax.envs.hosting.faults import close_all
from ppax.envs.hosting.spec import env_errors
from ppax.types import ConfigError

KIND = "env"  # kind of environments among entry points
METHODS = ("reset", "step")
NEEDED = ("observation_space", "action_space", "num_agents", *METHODS)  # attributes of compiled environments


def is_own(name: str) -> bool:
    """Return whether a name is an import path, or a short name that an installed package gives to an environment."""
    return imports.is_path(name) or ("/" not in name and name in imports.registered(KIND))


def find(name: str) -> Any:
    """Import what `name` stands for: a class, a function or an environment.

    Raises Untrusted before anything is imported, ConfigError where there is no such thing.
    """
    path = name if imports.is_path(name) else imports.registered(KIND)[name]
    found = imports.load(path, "env")
    if isinstance(found, types.FunctionType | functools.partial):
        return found
    if isinstance(found, type):
        _require(found, METHODS, name, found.__name__)
        return found
    _require(found, METHODS, name, f"a {type(found).__name__}")
    if _closes(found):
        raise ConfigError(f"env = {name!r}: one running environment cannot be copied: name its class or a function")
    return found


def on_host(found: Any, name: str, options: Mapping[str, Any]) -> bool:
    """Return whether it is stepped on the host; a function is called once to see what it makes."""
    if not isinstance(found, types.FunctionType | functools.partial):
        return _closes(found)
    accepted = inspect.signature(found).parameters
    make = factory(found, name, {key: value for key, value in options.items() if key in accepted})
    with env_errors(name, "constructor"):
        one = make()
    if not _closes(one):
        return False
    close_all([one.close])
    return True


def factory(found: Any, name: str, options: Mapping[str, Any]) -> Callable[[], Any]:
    """Return the function that makes one environment; ConfigError for options that it does not take."""
    try:
        inspect.signature(found).bind(**options)
    except TypeError as error:
        raise ConfigError(f"env_params of {name}: {error}") from error
    return functools.partial(found, **options) if options else found


def single(found: Any, name: str, options: Mapping[str, Any]) -> Any:
    """Return one compiled environment, made with `options`; ConfigError where it is none or does not take them."""
    makes = isinstance(found, type | types.FunctionType | functools.partial)
    if options and not makes:
        raise ConfigError(f"env_params of {name}: {', '.join(options)}: {name} is an environment, made already")
    make = factory(found, name, options) if makes else lambda: found
    with env_errors(name, "constructor"):
        one = make()
    _require(one, NEEDED, name, f"a {type(one).__name__}")
    return one


def _closes(x: Any) -> bool:
    return callable(getattr(x, "close", None))


def _require(x: Any, names: Sequence[str], name: str, kind: str) -> None:
    """Raise ConfigError unless `x`, described by `kind`, has the attributes `names` of an environment."""
    lacking = [attribute for attribute in names if attribute not in dir(x)]
    if lacking:
        what = "a class, a function that makes one, or a frozen part"
        raise ConfigError(f"env = {name!r}: must be an environment: {what}; {kind} has no {', '.join(lacking)}")
