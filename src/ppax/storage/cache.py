"""Compiled programs kept between processes, in the user's cache directory.

JAX's own settings come first: `JAX_COMPILATION_CACHE_DIR` is another directory, and
`JAX_ENABLE_COMPILATION_CACHE=false` keeps nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

DIRECTORY, ENABLED = "jax_compilation_cache_dir", "jax_enable_compilation_cache"
# JAX would keep only what took a second to compile: a run has many smaller programs
THRESHOLDS: dict[str, object] = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def keep_programs() -> dict[str, object]:
    """Keep what is compiled from now on; JAX's settings as they were, {} where the user has chosen or nothing can be.

    `jax.config` has what the environment says too.
    """
    if getattr(jax.config, DIRECTORY) or not getattr(jax.config, ENABLED):
        return {}
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ppax" / "jax"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written: compile every time
        return {}
    settings: dict[str, object] = {DIRECTORY: str(path), **THRESHOLDS}
    before = {name: getattr(jax.config, name) for name in settings}
    _apply(settings)
    return before


@contextmanager
def kept_programs() -> Iterator[None]:
    """Keep what is compiled inside; JAX's settings are the user's again afterwards."""
    before = keep_programs()
    try:
        yield
    finally:
        if before:
            _apply(before)


def _apply(settings: dict[str, object]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # JAX looks at its settings when it first compiles, and not again
