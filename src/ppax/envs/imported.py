"""Environments of users and of installed packages, which are found by import path or short name.

The import path names a class, a function that makes one environment, or one compiled environment itself (an object with
the methods reset and step, such as an instance of a `ppax.part`). The environment is stepped on the host if it has a
method `close`, as those of Gymnasium and PettingZoo have, otherwise inside the compiled program.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ppax.core import imports
from ppax.core.types import ConfigError
from ppax.envs.hosting.action_filter import FILTER
from ppax.envs.hosting.faults import close_all
from ppax.envs.hosting.spec import env_errors
from ppax.envs.hosting.time_limit import LIMIT, takes
from ppax.envs.wrappers.params import refuse_lists

KIND = "env"  # kind of environments among entry points
METHODS = ("reset", "step")
NEEDED = ("observation_space", "action_space", "num_agents", *METHODS)  # attributes of compiled environments


def is_own(name: str) -> bool:
    """Return whether an environment's name is an import path, or a short name that an installed package registers."""
    return imports.is_path(name) or ("/" not in name and name in imports.registered(KIND))


def find_env(name: str) -> Any:
    """Return the class, function or environment that an import path or short name stands for.

    Raises Untrusted, before anything is imported, if the user does not trust the package that has it, and ConfigError
    if the path or name stands for nothing.
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
    """Return whether the environment `found` is stepped on the host; a function is called once to see what it makes.

    `options` are its arguments.
    """
    if not isinstance(found, types.FunctionType | functools.partial):
        return _closes(found)
    own = {key: value for key, value in options.items() if key in parameters_of(found)}
    with env_errors(name, "constructor"):
        one = factory(found, name, own)()
    if not _closes(one):
        return False
    close_all([one.close])
    return True


def factory(found: Any, name: str, options: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a function without arguments that makes the environment `found` with `options`.

    Raises ConfigError for options that it does not take. `name` is that of the environment.
    """
    given = arguments(found, name, options)
    return functools.partial(found, **given) if given else found


def arguments(found: Any, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` as arguments of the class or function `found`: a list becomes a tuple where the default is one.

    Raises ConfigError if `found` does not take one of the options, or needs an argument that is not among them.
    """
    try:
        inspect.signature(found).bind(**options)
    except TypeError as error:
        listed = ", ".join(dict.fromkeys((*parameters_of(found), LIMIT)))  # which any environment may get
        raise ConfigError(f"env_params of {name}: {error}; its arguments: {listed}") from error
    refuse_lists(options, found)
    defaults = {key: parameter.default for key, parameter in parameters_of(found).items()}
    return {key: _tupled(x) if isinstance(defaults.get(key), tuple) else x for key, x in options.items()}


def parameters_of(found: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function by name; {} if `found` is an environment itself."""
    if not isinstance(found, type | types.FunctionType | functools.partial):
        return {}
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: x for name, x in inspect.signature(found).parameters.items() if x.kind not in several}


def added(found: Any, options: Iterable[str]) -> set[str]:
    """Return the names among `options` that are set by wrappers around the host environment `found`.

    These are the time limit "max_steps" and the filter of actions "action_filter", unless `found` has such an argument.
    A function with `**kwargs` gets the limit as an argument, but not the filter, as in `hosting.spec.with_params`.
    """
    return {name for name in options if name in (FILTER, LIMIT) and not takes(found, name, unknown=name == LIMIT)}


def needed(found: Any) -> list[str]:
    """Return the names of the arguments of a class or function that have no default."""
    return [name for name, parameter in parameters_of(found).items() if parameter.default is parameter.empty]


def _tupled(value: Any) -> Any:
    return tuple(_tupled(x) for x in value) if isinstance(value, list | tuple) else value


def single(found: Any, name: str, options: Mapping[str, Any]) -> Any:
    """Return one compiled environment: `found` itself, or what the class or function `found` makes with `options`.

    Raises ConfigError if that is no compiled environment, or if `found` does not take the options.
    """
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
    """Raise ConfigError unless `x` has the attributes `names` of an environment.

    `name` is that of the environment and `kind` says what `x` is, both for the error.
    """
    lacking = [attribute for attribute in names if attribute not in dir(x)]
    if lacking:
        what = "a class, a function that makes one, or a frozen part"
        raise ConfigError(f"env = {name!r}: must be an environment: {what}; {kind} has no {', '.join(lacking)}")
