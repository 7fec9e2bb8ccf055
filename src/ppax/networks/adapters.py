"""Modules of other libraries, Flax (nnx or linen) and Equinox, as encoders from an observation to a feature vector.

`network(env, encoder=adapters.NNX(MyModule), hidden=())`: the module maps one observation to one vector; dense
layers, memory and heads follow. It receives an observation with several entries as a dict of arrays. ppax handles its
parameters as a plain pytree. A module that is the whole network, with distribution and value, is in `modules.py`.

The module may have no state besides its parameters. Running statistics (batch norm) and noise (dropout) would make
acting and learning differ: the ratio of probabilities that PPO clips would not begin at 1.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from ppax.core import imports
from ppax.core.parts import Code, Held, Table
from ppax.core.types import ConfigError, Key, Params, PyTree, part, static

LONGEST = 400  # characters of another library's error that are repeated


class Adapter(Protocol):
    """Protocol of adapters: a module of another library as a pure function of parameters and one observation."""

    def init(self, key: Key, example: PyTree) -> Params:
        """Return new parameters of the module for observations with the shape of `example`.

        Raises ConfigError where the module cannot be made, or has state besides its parameters.
        """

    def __call__(self, params: Params, x: PyTree) -> Any:
        """Return the output of the module with these parameters for one observation, without batch axis."""


@part
class NNX:
    """Encoder that wraps a module of flax.nnx, given as a class, a function that makes it, or an instance.

    A class or function is called with `rngs` and `arguments`. An instance has parameters already, with which the runs
    of all seeds begin.
    """

    module: Code = static(
        "import path of a class, function or instance of flax.nnx, my_package:Torso", default="", code=True
    )
    arguments: Table = static("arguments of the class or function", default=Table(), convert=Table)

    def init(self, key: Key, example: PyTree) -> Params:
        """Return the initial parameters of the wrapped flax.nnx module; `example` is not read.

        Raises ConfigError where the module cannot be made, or has state besides its parameters, such as running
        statistics.
        """
        with _extra("flax"):
            from flax import nnx
        with _explained(self.module):
            _, params, rest = nnx.split(self._made(key), nnx.Param, ...)
        _refuse(self.module, sorted({type(leaf).__name__ for _, leaf in rest.flat_state()}))
        pure: Params = nnx.to_pure_dict(params)
        return pure

    def __call__(self, params: Params, x: PyTree) -> Any:
        """Return the module's output for one observation, without batch axis."""
        with _extra("flax"):
            from flax import nnx
        with _explained(self.module, x):
            structure = nnx.graphdef(nnx.eval_shape(lambda: self._made(jax.random.key(0))))
            return nnx.merge(structure, nnx.State(params))(x)

    def _made(self, key: Key) -> Any:
        from flax import nnx

        return _made(self.module, self.arguments, nnx.Module, "a module of flax.nnx", "rngs", nnx.Rngs(key))


@part
class Linen:
    """Encoder that wraps a module of flax.linen, given as a class, a function that makes it, or an instance.

    A class or function is called with `arguments`.
    """

    module: Code = static(
        "import path of a class, function or instance of flax.linen, my_package:Torso", default="", code=True
    )
    arguments: Table = static("arguments of the class or function", default=Table(), convert=Table)

    def init(self, key: Key, example: PyTree) -> Params:
        """Return the initial parameters of the wrapped flax.linen module, made for the shapes of `example`.

        Raises ConfigError where the module cannot be made, or has state besides its parameters, such as running
        statistics.
        """
        with _extra("flax"):
            import flax.linen  # noqa: F401
        with _explained(self.module, example):
            variables = self._made().init(key, example)
        _refuse(self.module, sorted(set(variables) - {"params"}))
        params: Params = variables.get("params", {})
        return params

    def __call__(self, params: Params, x: PyTree) -> Any:
        """Return the module's output for one observation, without batch axis."""
        with _extra("flax"):
            from flax.errors import InvalidRngError
        with _explained(self.module, x):
            try:
                return self._made().apply({"params": params}, x)
            except InvalidRngError as error:
                _refuse(self.module, [f"noise by a key ({str(error).partition(' (')[0]})"])
                raise

    def _made(self) -> Any:
        from flax import linen

        return _made(self.module, self.arguments, linen.Module, "a module of flax.linen")


def _hashable(code: Any) -> Any:
    """Return a module's class, function or import path unchanged, and an instance of a module wrapped in `Held`.

    `Held` has a hash, which a static field needs; an Equinox module, whose fields are arrays, has none.
    """
    return code if _makes(code) or isinstance(code, str | Held) else Held(code)


@part
class Equinox:
    """Encoder that wraps an Equinox module, given as a class, a function that makes it, or an instance.

    A class or function is called with `key` and `arguments`. An instance has parameters already, with which the runs of
    all seeds begin.
    """

    module: Code = static(
        "import path of a class, function or instance of Equinox, my_package:Torso",
        default="",
        code=True,
        convert=_hashable,
    )
    arguments: Table = static("arguments of the class or function", default=Table(), convert=Table)

    def init(self, key: Key, example: PyTree) -> Params:
        """Return the floating-point arrays of a new Equinox module, by the names of their paths in the module.

        `example` is not read. Raises ConfigError where the module cannot be made, or has arrays of integers, booleans
        or keys.
        """
        with _extra("equinox"):
            import equinox  # noqa: F401
        with _explained(self.module):
            leaves = jax.tree_util.tree_leaves_with_path(self._made(key))
        others = [_name(path) for path, leaf in leaves if hasattr(leaf, "dtype") and not _is_number(leaf)]
        _refuse(self.module, [f"{name}, an array of integers, booleans or keys" for name in others])
        return {_name(path): leaf for path, leaf in leaves if _is_number(leaf)}

    def __call__(self, params: Params, x: PyTree) -> Any:
        """Return the module's output for one observation, without batch axis.

        Raises ConfigError where the module has state (`equinox.nn.StateIndex`) or active dropout.
        """
        with _extra("equinox"):
            import equinox
        with _explained(self.module, x):
            module = equinox.filter_eval_shape(self._made, jax.random.key(0))
            kinds = (equinox.nn.StateIndex, equinox.nn.Dropout)
            layers = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, kinds))
            used = [one for one in layers if isinstance(one, kinds) and not getattr(one, "inference", False)]
            _refuse(self.module, sorted({type(one).__name__ for one in used}))
            return jax.tree_util.tree_map_with_path(
                lambda path, leaf: params[_name(path)] if _is_number(leaf) else leaf, module
            )(x)

    def _made(self, key: Key) -> Any:
        import equinox

        module = self.module.value if isinstance(self.module, Held) else self.module
        return _made(module, self.arguments, equinox.Module, "an Equinox module", "key", key)


def _makes(code: Any) -> bool:
    """Return True if `code` is a class or function, which can be called to make a module; False for an instance."""
    return isinstance(code, type | FunctionType | MethodType | functools.partial)


def _made(code: Any, arguments: Table, kind: type, kind_name: str, source: str = "", value: Any = None) -> Any:
    """Return the module of class `kind` that `code`, a class or function, makes with the arguments.

    If `code` is an instance of `kind`, it is returned itself. `source` names the parameter of `code` for randomness,
    which gets `value` ("": there is none, and `value` is not passed); where the signature has no such name, `value` is
    the first positional argument. Raises ConfigError for arguments that `code` does not take, and where the result is
    no instance of `kind`, which the message calls `kind_name`.
    """
    label = label_of(code)
    if code == "":
        raise ConfigError(
            'module is missing: the import path of a class, a function or an instance, "my_package:Torso"'
        )
    if not _makes(code):
        if arguments:
            names = ", ".join(arguments)
            raise ConfigError(f"arguments = {dict(arguments)!r}: module {label} is an instance, made without {names}")
        made = code
    else:
        known = _parameters(code)
        named = source in known or any(one.kind is one.VAR_KEYWORD for one in known.values())
        values: tuple[Any, ...] = (value,) if source and not named else ()
        options = {**arguments, **({source: value} if source and named else {})}
        _require_taken(known, values, options, arguments, label, source)
        made = code(*values, **options)
    if not isinstance(made, kind):
        raise ConfigError(f"module {label}: must be or make {kind_name}, not a {type(made).__name__}")
    return made


def _parameters(code: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function by name, or those of a class's `__init__` without self.

    For a class, `inspect.signature` is called with `__init__`, because the signature of a class of flax.nnx lacks the
    names of the parameters.
    """
    if not isinstance(code, type):
        return dict(inspect.signature(code).parameters)
    return dict(list(inspect.signature(code.__init__).parameters.items())[1:])  # type: ignore[misc]


def _require_taken(
    known: dict[str, inspect.Parameter],
    values: tuple[Any, ...],
    options: dict[str, Any],
    arguments: Table,
    label: str,
    source: str,
) -> None:
    """Raise ConfigError unless a function with the parameters `known` can be called with `values` and `options`.

    `values` are all positional and `options` all keyword arguments of the call: the user's `arguments`, and a source of
    random numbers, whose parameter is named `source` ("": there is none). The message calls the module `label`, and has
    the nearest parameter for an unknown name.
    """
    try:
        inspect.Signature(list(known.values())).bind(*values, **options)
    except TypeError as error:
        own = [name for name in known if name not in (source, "parent", "name")]  # those two are of linen itself
        own = own[len(values) :] if values else own
        unknown = next((name for name in arguments if name not in known), None)
        nearest = difflib.get_close_matches(unknown, own, n=1, cutoff=0.0) if unknown and own else []
        hint = f"; nearest: {nearest[0]}" if nearest else ""
        listed = ", ".join(own) or "none"
        raise ConfigError(f"arguments of module {label}: {error}; it takes {listed}{hint}") from error


def label_of(code: Any) -> str:
    """Return what messages call a class, function or instance: its import path, or else its name.

    For an instance that was not found by an import path, it is the name of the instance's class.
    """
    code = code.value if isinstance(code, Held) else code
    return imports.import_path(code) or str(getattr(code, "__name__", type(code).__name__))


@contextlib.contextmanager
def _explained(code: Any, x: PyTree = None) -> Iterator[None]:
    """Context manager that turns an error of the module's code into a ConfigError, which names the module `code`.

    `x` is the observation that the module gets; its shapes are in the message.
    """
    try:
        yield
    except (ConfigError, ImportError):
        raise
    except Exception as error:  # any exception of the module or its library
        shapes = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", x)
        where = "" if x is None else f" for an observation {shapes}"
        text = " ".join(str(error).split())
        text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        raise ConfigError(f"module {label_of(code)}{where}: {type(error).__name__}: {text}") from error


@contextlib.contextmanager
def _extra(extra: str) -> Iterator[None]:
    """Context manager that raises an ImportError again with the advice to install ppax with the extra named `extra`."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error.name} is not installed: pip install 'ppax[{extra}]'") from error


def _refuse(code: Any, other_state: list[str]) -> None:
    """Raise ConfigError where `other_state`, the kinds of a module's state besides its parameters, is not empty."""
    if other_state:
        raise ConfigError(
            f"module {label_of(code)} has state besides its parameters: {', '.join(other_state)}. Acting and learning "
            "would compute with different networks, and the probability ratio of PPO would not begin at 1; remove "
            "layers with running statistics or noise, such as batch norm and dropout, or use layer norm"
        )


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_number(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)
