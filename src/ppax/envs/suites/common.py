"""Functions of all adapters of suites: optional imports, explicit dtypes, and errors for unknown names."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from ppax.core.types import ConfigError, PyTree

NO_LIMIT = 2**30  # steps of an episode that no episode reaches; int32 counters do not overflow there
NEWER = {"navix": (3, 12)}  # minimum Python version of an extra, as in pyproject.toml


def library(module: str, extra: str) -> Any:
    """Return an optional module, imported; ImportError with the extra of ppax to install if it is missing.

    Lines that it prints go to standard error: standard output is for results.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(module)
    except ImportError as error:
        minimum = NEWER.get(extra, (3, 11))
        if sys.version_info < minimum:
            versions = "{}.{} or newer; this is {}.{}".format(*minimum, *sys.version_info)
            raise ImportError(f"{module} cannot be imported ({error}): {extra} needs Python {versions}") from error
        raise ImportError(f'{module} cannot be imported ({error}): pip install "ppax[{extra}]"') from error


def known(suite: str, env_id: str, ids: Iterable[str]) -> str:
    """Return `env_id` if it is one of `ids` of the suite; else raise ConfigError with the nearest one."""
    valid = list(ids)
    if env_id in valid:
        return env_id
    nearest = difflib.get_close_matches(env_id, valid, n=1, cutoff=0.0)[0]
    raise ConfigError(f"{suite} has no environment {env_id!r}; did you mean '{suite}/{nearest}'?")


def strong(tree: PyTree) -> PyTree:
    """Return the tree without weak types: suites start with Python numbers, whose dtype would change inside a scan."""

    def one(x: Any) -> Any:
        x = jnp.asarray(x)
        return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(x, x.dtype)

    return jax.tree.map(one, tree)
