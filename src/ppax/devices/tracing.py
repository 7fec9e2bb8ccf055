"""Functions that trace a function anew, compile it ahead of time, or switch off JAX's checks for NaN and infinity.

JAX caches a traced program by the function's identity and its arguments. It does not notice a change of anything else
that tracing reads, such as an attribute of a class, a global variable of a module or a replaced method. Tracing takes a
fraction of the time of compiling, and an equal program is found in the cache on disk (storage/cache.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax


def renewed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of `function` that JAX has not traced yet, so that `jax.jit` and `jax.eval_shape` trace it anew."""

    @functools.wraps(function)
    def copy(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    return copy


def compiled(jitted: Any, *arguments: Any) -> Any:
    """Return a jitted function compiled for `arguments`; under `jax.disable_jit`, return `jitted` itself."""
    return jitted if jax.config.jax_disable_jit else jitted.lower(*arguments).compile()  # type: ignore[attr-defined]


@contextmanager
def unchecked() -> Iterator[None]:
    """Yield without the checks of `jax_debug_nans` and `jax_debug_infs`, for programs that handle such numbers."""
    with jax.debug_nans(False), jax.debug_infs(False):
        yield
