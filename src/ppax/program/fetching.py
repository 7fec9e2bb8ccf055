"""Transfer of results to the host."""

from __future__ import annotations

import time
from typing import TypeVar

import jax

Tree = TypeVar("Tree")

# Polling interval while a program runs: this share of its time so far, at most so many seconds
POLL_SHARE, POLL_SECONDS = 0.01, 0.05


def fetch(tree: Tree) -> Tree:
    """Fetch arrays to the host; polls in Python, so that signal handlers run while they are computed."""
    start, last = time.perf_counter(), jax.tree.leaves(tree)[-1]
    while not last.is_ready():
        time.sleep(min(POLL_SHARE * (time.perf_counter() - start) + 1e-4, POLL_SECONDS))
    fetched: Tree = jax.device_get(tree)
    return fetched
