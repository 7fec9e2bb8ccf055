"""Persistent cache of compiled programs, in the user's cache directory.

JAX's own settings have priority: `JAX_COMPILATION_CACHE_DIR` chooses another directory,
`JAX_ENABLE_COMPILATION_CACHE=false` turns the cache off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

DIRECTORY, ENABLED = "jax_compilation_cache_dir", "jax_enable_compilation_cache"
# Cache small programs too: by default JAX keeps only those that took a second to compile
THRESHOLDS: dict[str, object] = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def keep_programs() -> dict[str, object]:
    """Turn on JAX's cache of compiled programs on disk, and return the settings that JAX had before.

    Returns {} if nothing was changed, because the user has set the cache's directory, has turned the cache off, or no
    directory can be made. `jax.config` includes the settings from environment variables.
    """
    if getattr(jax.config, DIRECTORY) or not getattr(jax.config, ENABLED):
        return {}
    try:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ppax" / "jax"
        path.mkdir(parents=True, exist_ok=True)
        str(path).encode()  # JAX needs text; a name that the locale cannot decode is none
    except (OSError, RuntimeError, UnicodeEncodeError):  # not writable, no home directory, or no text: no cache
        return {}
    if not os.access(path, os.W_OK | os.X_OK):  # JAX would warn for every program
        return {}
    settings: dict[str, object] = {DIRECTORY: str(path), **THRESHOLDS}
    before = {name: getattr(jax.config, name) for name in settings}
    _apply(settings)
    return before


@contextmanager
def kept_programs() -> Iterator[None]:
    """Context in which JAX's cache of compiled programs on disk is on; JAX's settings are restored at its end."""
    before = keep_programs()
    try:
        yield
    finally:
        if before:
            _apply(before)


def _apply(settings: dict[str, object]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # JAX looks at its settings only at the first compilation
