"""Helpers of tests of sweeps: programs that are compiled once, a count of compilations, a signal at an iteration."""

import contextlib
import signal

import jax
import numpy as np


def compiled_once(make):
    """Return the constructor `make` of programs with a memory: by structure, shapes and number of members."""
    kept = {}

    def once(agents, envs, shapes):
        leaves, structure = jax.tree.flatten((agents[0], envs[0], shapes))
        key = structure, tuple(np.shape(x) for x in leaves), len(agents)
        if key not in kept:
            kept[key] = make(agents, envs, shapes)
        return kept[key]

    return once


@contextlib.contextmanager
def compilations():
    """Yield a list that gets an entry for each program that JAX compiles, those of earlier tests included."""
    found = []

    def note(name, duration, **rest):
        if name == "/jax/core/compile/backend_compile_duration":
            found.append(duration)

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def signalling(log, iteration):
    """Return `MemberRun.log` that sends SIGTERM to this process before the first member's row of an iteration."""

    def stopping(self, row, states, place):
        if row["iteration"] == iteration and place == 0:
            signal.raise_signal(signal.SIGTERM)
        return log(self, row, states, place)

    return stopping
