"""Any optimiser of optax as a part: a factory, learning rate and options -> optax.GradientTransformation.

The part of a factory is a class made from its signature: options of type float are numbers (traced, so that they can be
swept and annealed), all others are static. It is elementwise where its update is (elementwise.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Hashable
from typing import Any

import optax

from ppax.core.types import ConfigError, Scalar, number, part, static
from ppax.ppo.optimizers.elementwise import is_elementwise, traced_update

NAMESPACES = ("optax", "optax.contrib")  # public ones, by which a run file names a factory
RATE = "learning_rate"
Factory = Callable[..., optax.GradientTransformation]
_FACTORIES: dict[type, Factory] = {}  # factory by class


def Optax(factory: Factory, **options: Any) -> Any:  # noqa: N802  # as a class of parts
    """Return an optimiser from an optax factory with its options, as `Optax(optax.lion, b1=0.9)`.

    The agent has the learning rate. Raises ConfigError for a factory or an option that cannot be used.
    """
    cls: Any = optax_class(factory)
    name, known = _name_of(factory), [field.name for field in dataclasses.fields(cls)]
    for option, value in options.items():
        if option == RATE:
            raise ConfigError(f"{name}: {RATE} is a number of the agent: write ppax.PPO(..., {RATE}={value!r})")
        if option not in known:
            nearest = difflib.get_close_matches(option, known, n=1, cutoff=0.0)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else "; it has none"
            raise ConfigError(f"{name}: unknown option {option!r}{hint}")
        if option in _numbers(cls) and callable(value):
            raise ConfigError(
                f"{name}: {option} = {value!r}: must be a number; anneal it with "
                f'schedule=ppax.schedules.Linear(leaves=("optimizer.{option}",))'
            )
        if option not in _numbers(cls) and not isinstance(value, Hashable):
            raise ConfigError(
                f"{name}: {option}: must be hashable, as a function or a tuple; a {type(value).__name__} is not"
            )
    lacking = [option for option in known if option not in options and option in _required(cls)]
    if lacking:
        raise ConfigError(f"{name}: needs {', '.join(lacking)}: write Optax(factory, {lacking[0]}=...)")
    return cls(**options)


@functools.lru_cache(maxsize=256)
def optax_class(factory: Factory) -> type:
    """Return the class of parts of an optax factory; ConfigError unless PPO can call it with a traced learning rate."""
    name = _name_of(factory)
    options = _options_of(factory, name)
    required = [option for option, given in options.items() if given.default is inspect.Parameter.empty]
    untraced: set[str] = set()
    if not required:
        floats = {option: given.default for option, given in options.items() if isinstance(given.default, float)}
        untraced = _untraced(factory, floats, name)
    fields = {option: _field(given, option in untraced, _doc(factory, option)) for option, given in options.items()}
    ordered = required + [option for option in options if option not in required]

    namespace = {option: field for option, (_, field) in fields.items()}
    namespace |= {"__annotations__": {option: fields[option][0] for option in ordered}, "__call__": _call}
    namespace |= {"elementwise": property(_elementwise), "__reduce__": _reduce}
    namespace |= {"__doc__": f"Optimiser {name}.", "__module__": __name__}
    cls: Any = part(type(factory.__name__, (), namespace))
    _FACTORIES[cls] = factory
    return cls


def _call(self: Any, learning_rate: Scalar) -> optax.GradientTransformation:
    """Transformation for one learning rate."""
    factory = _FACTORIES[type(self)]
    try:
        return factory(learning_rate, **_given(self))
    except (ValueError, TypeError, AssertionError) as error:
        raise ConfigError(f"optimizer: {_name_of(factory)}: {error}") from error


def _elementwise(self: Any) -> bool:
    """Whether the update of each parameter depends on that parameter alone, found in the operations of the update."""
    given = _given(self)
    traced = tuple(option for option in given if option in _numbers(type(self)) and given[option] is not None)
    defaults = {field.name: field.default for field in dataclasses.fields(self)}
    fixed = [(option, x) for option, x in given.items() if option not in traced and x is not defaults[option]]
    return _found_elementwise(_FACTORIES[type(self)], tuple(fixed), traced)


def _reduce(self: Any) -> Any:
    return functools.partial(Optax, _FACTORIES[type(self)], **_given(self)), ()


def _given(self: Any) -> dict[str, Any]:
    return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def factory_of(cls: type) -> Factory | None:
    """Return the factory of a class that `optax_class` has made; None for other classes."""
    return _FACTORIES.get(cls)


def public_name(factory: Factory) -> str | None:
    """Return the name by which a run file has a factory of optax, "optax:lion"; None for other functions."""
    names = (f"{space}:{name}" for space in NAMESPACES for name, known in _factories(space).items() if known is factory)
    return next(names, None)


def find_factory(path: str, place: str) -> Factory:
    """Return the factory of optax at an import path, as "optax:lion"; ConfigError, with the nearest, where it is none.

    Nothing is imported: optax is here already, and only functions of it with a learning rate are found.
    """
    module, _, name = path.partition(":")
    spaces = {space: _factories(space) for space in NAMESPACES}
    if name in spaces.get(module, {}):
        return spaces[module][name]
    known = [f"{space}:{one}" for space, names in spaces.items() for one in names]
    nearest = difflib.get_close_matches(path, known, n=1, cutoff=0.0)[0]
    raise ConfigError(
        f"{place} = {path!r}: must be a factory of optax, which takes a {RATE}; did you mean {nearest!r}?"
    )


def _factories(space: str) -> dict[str, Factory]:
    module = optax if space == "optax" else optax.contrib
    functions = {name: x for name, x in vars(module).items() if isinstance(x, types.FunctionType)}
    return {name: x for name, x in functions.items() if RATE in inspect.signature(x).parameters and name[0] != "_"}


def _name_of(factory: Factory) -> str:
    """Return the public name of a factory of optax, otherwise module and name."""
    return public_name(factory) or f"{getattr(factory, '__module__', '')}:{getattr(factory, '__qualname__', factory)}"


def _options_of(factory: Factory, name: str) -> dict[str, inspect.Parameter]:
    """Return the parameters of a factory without its learning rate; ConfigError for anything but a factory."""
    remedy = "must be a function learning rate, options -> optax.GradientTransformation, as optax.lion"
    if not isinstance(factory, types.FunctionType):
        raise ConfigError(f"optimizer: {factory!r}: {remedy}")
    given = inspect.signature(factory).parameters
    if next(iter(given), None) != RATE or any(
        one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in given.values()
    ):
        raise ConfigError(f"optimizer: {name}({', '.join(given)}): {remedy}, whose first argument is {RATE}")
    return {option: one for option, one in given.items() if option != RATE}


def _untraced(factory: Factory, floats: dict[str, float], name: str) -> set[str]:
    """Return the options that must be known when a program is compiled; ConfigError where no update can be traced."""
    try:
        traced_update(factory, {}, ())
    except Exception as error:  # any exception of the factory, as for a missing argument of its update
        raise ConfigError(_unusable(name, error)) from error

    def fails(options: tuple[str, ...]) -> bool:
        try:
            traced_update(factory, {}, options)
        except Exception:  # as above
            return True
        return False

    return {option for option in floats if fails((option,))} if fails(tuple(floats)) else set()


def _field(given: inspect.Parameter, untraced: bool, doc: str) -> tuple[Any, Any]:
    """Return type and field of an option."""
    default, empty = given.default, inspect.Parameter.empty
    kinds = _kinds(given.annotation)
    if isinstance(default, bool | int | str):
        return type(default), static(doc, default=default)
    if isinstance(default, float):
        return (float, static(doc, default=default)) if untraced else (Scalar, number(doc, default=default))
    if default is None and float in kinds:
        return Scalar | None, number(doc, default=None)
    if default is None and kinds == {int, types.NoneType}:
        return int | None, static(doc, default=None)
    if isinstance(default, tuple) and all(isinstance(x, float) for x in default):
        return tuple[float, ...], static(doc, default=default)
    return Any, static(doc) if default is empty else static(doc, default=default)


def _kinds(annotation: Any) -> set[Any]:
    """Return the types of an annotation, those of a union one by one."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return {inner for one in typing.get_args(annotation) for inner in _kinds(one)}
    return {annotation} if isinstance(annotation, type) else set()


def _doc(factory: Factory, option: str) -> str:
    """Return the first sentence on an option in the docstring of its factory."""
    found = re.search(rf"\n +{option}: (.*?)(?=\n +\w+: |\n\n|$)", inspect.getdoc(factory) or "", re.DOTALL)
    text = " ".join(found.group(1).split()) if found else ""
    return text.partition(". ")[0].rstrip(".") or f"option {option} of {factory.__name__}"


def _numbers(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls) if not field.metadata.get("static")}


def _required(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}


@functools.lru_cache(maxsize=256)
def _found_elementwise(factory: Factory, fixed: tuple[tuple[str, Any], ...], numbers: tuple[str, ...]) -> bool:
    if any(callable(value) for _, value in fixed):
        return False  # a mask reads the tree of parameters
    try:
        return is_elementwise(factory, dict(fixed), numbers)
    except Exception as error:  # any exception of the factory
        raise ConfigError(_unusable(_name_of(factory), error)) from error


def _unusable(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:200]
    return (
        f"optimizer: {name} cannot be used with these options: its update must work with gradient and parameters "
        f"alone, and with a traced learning rate, which PPO anneals; it raised {type(error).__name__}: {reason}"
    )
