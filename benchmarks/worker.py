"""One system at one size, in a process of its own: prepares, then obeys orders from stdin until it closes.

An order is a number of iterations; every answer is one line of JSON. Started by interleave.Worker, not by hand.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import resource
import sys
from typing import Any

import host_peers
import image_peers
import peers
import physics_peers
import predecessor_peers
from w1 import Work, timed

PREPARE = peers.PREPARE | host_peers.PREPARE | image_peers.PREPARE | predecessor_peers.PREPARE | physics_peers.PREPARE
RULES = "PPAX_BENCHMARK_RULES"
LIBRARIES = {"raw": "gymnasium", "sb3": "stable_baselines3", "cleanrl": "torch", "rl8": "torch"}  # of those without JAX


def peak_memory_mb() -> float:
    """The highest resident set this process ever had (Linux counts KiB, macOS bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def memory() -> dict[str, float]:
    """Peak memory of the process, and of the first device if it has memory of its own."""
    peaks = {"peak_memory_mb": peak_memory_mb()}
    devices = sys.modules["jax"].local_devices() if "jax" in sys.modules else []
    peak = (devices[0].memory_stats() or {}).get("peak_bytes_in_use") if devices else None
    return peaks if peak is None else peaks | {"device_memory_mb": peak / 2**20}


def load(system: str) -> None:
    """Import what the system needs."""
    library = LIBRARIES.get(system.split("/")[0])
    if library is not None:
        importlib.import_module(library)
        return
    importlib.import_module("jax")
    if system.startswith("purejaxrl"):
        peers.load_purejaxrl("ppo_rnn" if system == "purejaxrl-rnn" else "ppo")
    elif system.startswith("brax-"):
        importlib.import_module("brax.envs")  # not ppax, which asks for a device for each core
    elif system == "rejax":
        if importlib.util.find_spec("rejax") is not None:
            peers.use_old_gymnax()
        importlib.import_module("rejax")
    else:
        importlib.import_module({"jaxdem": "flax", "sbx": "sbx"}.get(system.split("/")[0], "ppax"))


def change_rules() -> None:
    """Change rules of the platform, as the environment variable says (JSON); for one arm of accelerator.py."""
    changes = json.loads(os.environ.get(RULES, "{}"))
    if changes:
        from ppax.devices import platforms

        platforms.RULES[platforms.jax.default_backend()] = platforms.rules()._replace(**changes)


def main() -> None:
    """Prepare, answer, obey."""
    system, work = sys.argv[1], Work(*map(int, sys.argv[2:]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer

    def answer(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=answers, flush=True)

    _, import_seconds = timed(lambda: load(system))
    about: dict[str, Any] = {"import_seconds": import_seconds, "memory_after_import_mb": peak_memory_mb()}
    if system.split("/")[0] not in LIBRARIES:
        devices = importlib.import_module("jax").devices()
        about["devices"] = f"{len(devices)} x {devices[0].platform}: {devices[0].device_kind}"
    change_rules()
    run, seconds = PREPARE[system](work)
    answer(about | seconds | memory())
    for line in sys.stdin:
        iterations = int(line)
        trained = run(iterations)
        answer(trained._asdict() | {"rows": work.rows(iterations)} | memory())


if __name__ == "__main__":
    main()
