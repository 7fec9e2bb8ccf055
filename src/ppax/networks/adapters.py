"""Encoders from other libraries: a module of Flax (nnx or linen) or Equinox, of which ppax sees plain parameters.

`network(env, encoder=adapters.NNX(MyModule), hidden=())`: the module turns one observation into one vector; dense
layers, memory and heads follow. Of an observation with several entries it gets a dict of arrays. Its state must be
parameters alone: statistics that change while it runs (batch norm) or noise (dropout) would make acting and learning
differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.types import ConfigError, Key, Params, PyTree, part, static


@part
class NNX:
    """A module of flax.nnx, made anew by `make(rngs)`: a named function or a class."""

    make: Callable[[Any], Any] = static()

    def init(self, key: Key, example: PyTree) -> Params:
        """Parameters by the module's own initialisation."""
        with _needs("flax"):
            from flax import nnx
        _, params, rest = nnx.split(self.make(nnx.Rngs(key)), nnx.Param, ...)
        _refuse(self.make, sorted({type(leaf).__name__ for _, leaf in rest.flat_state()}))
        return nnx.to_pure_dict(params)

    def __call__(self, params: Params, x: PyTree) -> Array:
        """The module of one observation."""
        with _needs("flax"):
            from flax import nnx
        structure = nnx.graphdef(nnx.eval_shape(lambda: self.make(nnx.Rngs(0))))
        return nnx.merge(structure, nnx.State(params))(x)


@part
class Linen:
    """A module of flax.linen."""

    module: Any = static()

    def init(self, key: Key, example: PyTree) -> Params:
        """Parameters by the module's own initialisation."""
        variables = self.module.init(key, example)
        _refuse(type(self.module), sorted(set(variables) - {"params"}))
        params: Params = variables.get("params", {})
        return params

    def __call__(self, params: Params, x: PyTree) -> Array:
        """The module of one observation."""
        features: Array = self.module.apply({"params": params}, x)
        return features


@part
class Equinox:
    """A module of Equinox, made anew by `make(key)`: a named function."""

    make: Callable[[Any], Any] = static()

    def init(self, key: Key, example: PyTree) -> Params:
        """Its floating-point arrays, by their paths in the module."""
        leaves = jax.tree_util.tree_leaves_with_path(self.make(key))
        return {_name(path): leaf for path, leaf in leaves if _is_number(leaf)}

    def __call__(self, params: Params, x: PyTree) -> Array:
        """The module of one observation."""
        with _needs("equinox"):
            import equinox
        module = equinox.filter_eval_shape(self.make, jax.random.key(0))
        features: Array = jax.tree_util.tree_map_with_path(
            lambda path, leaf: params[_name(path)] if _is_number(leaf) else leaf, module
        )(x)
        return features


@contextlib.contextmanager
def _needs(extra: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{extra} is not installed: pip install 'ppax[{extra}]'") from error


def _refuse(module: Any, further: list[str]) -> None:
    if further:
        raise ConfigError(
            f"network.encoder: {module.__name__} has state beside its parameters: {', '.join(further)}; "
            "leave out what changes or draws noise while it runs, as batch norm and dropout"
        )


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_number(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)
