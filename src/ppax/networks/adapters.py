"""Encoders from other libraries: adapters for modules of Flax (nnx or linen) and Equinox.

`network(env, encoder=adapters.NNX(MyModule), hidden=())`: the module maps one observation to one vector; dense
layers, memory and heads follow. It receives an observation with several entries as a dict of arrays. ppax handles its
parameters as a plain pytree. The module may have no other state: running statistics (batch norm) or noise (dropout)
would make acting and learning differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import ConfigError, Key, Params, PyTree, part, static


@part
class NNX:
    """Encoder that wraps a flax.nnx module. `make(rngs)` creates it and is a named function or a class."""

    make: Callable[[Any], Any] = static()

    def init(self, key: Key, example: PyTree) -> Params:
        """Return the initial parameters of the wrapped flax.nnx module.

        Raises ConfigError where it has other state, such as running statistics.
        """
        with _extra("flax"):
            from flax import nnx
        _, params, rest = nnx.split(self.make(nnx.Rngs(key)), nnx.Param, ...)
        _refuse(self.make, sorted({type(leaf).__name__ for _, leaf in rest.flat_state()}))
        return nnx.to_pure_dict(params)

    def __call__(self, params: Params, x: PyTree) -> Array:
        """Return the output of the wrapped flax.nnx module for one observation, without batch axis."""
        with _extra("flax"):
            from flax import nnx
        structure = nnx.graphdef(nnx.eval_shape(lambda: self.make(nnx.Rngs(0))))
        return nnx.merge(structure, nnx.State(params))(x)


@part
class Linen:
    """Encoder that wraps `module`, a flax.linen module."""

    module: Any = static()

    def init(self, key: Key, example: PyTree) -> Params:
        """Return the initial parameters of the wrapped flax.linen module, made for the shapes of `example`.

        Raises ConfigError where it has other state, such as running statistics.
        """
        with _extra("flax"):
            import flax.linen  # noqa: F401
        variables = self.module.init(key, example)
        _refuse(type(self.module), sorted(set(variables) - {"params"}))
        params: Params = variables.get("params", {})
        return params

    def __call__(self, params: Params, x: PyTree) -> Array:
        """Return the output of the wrapped flax.linen module for one observation, without batch axis."""
        features: Array = self.module.apply({"params": params}, x)
        return features


@part
class Equinox:
    """Encoder that wraps an Equinox module. `make(key)` creates it and is a named function."""

    make: Callable[[Any], Any] = static()

    def init(self, key: Key, example: PyTree) -> Params:
        """Return the floating-point arrays of a new Equinox module, by their paths in it.

        Nothing else of the module is trained.
        """
        leaves = jax.tree_util.tree_leaves_with_path(self.make(key))
        return {_name(path): leaf for path, leaf in leaves if _is_number(leaf)}

    def __call__(self, params: Params, x: PyTree) -> Array:
        """Return the output of the wrapped Equinox module for one observation, without batch axis."""
        with _extra("equinox"):
            import equinox
        module = equinox.filter_eval_shape(self.make, jax.random.key(0))
        features: Array = jax.tree_util.tree_map_with_path(
            lambda path, leaf: params[_name(path)] if _is_number(leaf) else leaf, module
        )(x)
        return features


@contextlib.contextmanager
def _extra(extra: str) -> Iterator[None]:
    """Context in which an ImportError is raised again with advice to install ppax with the extra named `extra`."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error.name} is not installed: pip install 'ppax[{extra}]'") from error


def _refuse(module: Any, other_state: list[str]) -> None:
    """Raise ConfigError where `other_state`, the kinds of a module's state besides its parameters, is not empty."""
    if other_state:
        raise ConfigError(
            f"network.encoder: {module.__name__} has state besides its parameters: {', '.join(other_state)}; "
            "remove layers with running statistics or noise, such as batch norm and dropout"
        )


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_number(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)
