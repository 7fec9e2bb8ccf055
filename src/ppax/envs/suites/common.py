"""What all adapters share: optional imports, explicit dtypes, and the refusal of unknown names."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from ppax.types import ConfigError, PyTree

NEWER = {"navix": (3, 12)}  # the Python that an extra needs, as in pyproject.toml


def library(module: str, extra: str) -> Any:
    """The optional module; ImportError, naming the extra that brings it, where it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        newest = NEWER.get(extra, (3, 11))
        if sys.version_info < newest:
            versions = "{}.{} or newer; this is {}.{}".format(*newest, *sys.version_info)
            raise ImportError(f"{module} cannot be imported ({error}): {extra} needs Python {versions}") from error
        raise ImportError(f'{module} cannot be imported ({error}): pip install "ppax[{extra}]"') from error


def known(suite: str, env_id: str, ids: Iterable[str]) -> str:
    """`env_id`, if it is one of `ids`; else ConfigError with the nearest one."""
    there = list(ids)
    if env_id in there:
        return env_id
    nearest = difflib.get_close_matches(env_id, there, n=1, cutoff=0.0)[0]
    raise ConfigError(f"{suite} has no environment {env_id!r}; did you mean '{suite}/{nearest}'?")


def strong(tree: PyTree) -> PyTree:
    """The same values with explicit dtypes: suites start with Python numbers, a drift in a scan."""

    def one(x: Any) -> Any:
        x = jnp.asarray(x)
        return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(x, x.dtype)

    return jax.tree.map(one, tree)
