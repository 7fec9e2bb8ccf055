"""Output of every benchmark: settings, hardware, versions, date and results as JSON, and a plot.

The environment variable PPAX_RESULTS is appended to the files' names, as in `_jax_0.12`: results of other versions
are kept next to the original ones, and docs/generate.py shows both.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from peers import gymnax_version, purejaxrl_folder

PACKAGES = ("ppax", "rejax", "jax", "jaxlib", "flax", "optax", "gymnax", "distrax", "numpy", "gymnasium")
PACKAGES += ("stable-baselines3", "torch")
RESULTS = Path(__file__).parent / "results"


class Report:
    """One benchmark's results. With `name` None nothing is written."""

    def __init__(self, name: str | None, task: str, settings: dict[str, Any], folder: Path = RESULTS):
        self.path = folder / f"{name}{os.environ.get('PPAX_RESULTS', '')}.json" if name else None
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.content: dict[str, Any] = {"task": task, "settings": settings, "date": now}
        self.content |= {"hardware": hardware(), "versions": versions(), "panels": []}

    def save(self, **results: Any) -> None:
        """Write what there is by now, so that an interrupted benchmark leaves what it has."""
        self.content |= results
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_suffix(".partial")
            partial.write_text(json.dumps(self.content, indent=1) + "\n")
            partial.replace(self.path)  # at once: a process killed here leaves a whole file

    def finish(self) -> None:
        """Draw the panels, and say where all of it is."""
        if self.path is not None:
            from plots import draw  # late: matplotlib is large, and workers inherit this process's peak memory

            print(f"\nwritten: {self.path} and {draw(self.path)}")


def panel(title: str, bars: list[dict[str, Any]], better: str) -> dict[str, Any]:
    """One set of bars of a plot; `better` is "higher" or "lower"."""
    return {"title": title, "better": better, "bars": bars}


def bar(label: Any, ratio: dict[str, float], target: float | None) -> dict[str, Any]:
    """One ratio with its range, and what it should be."""
    return {"label": str(label), **ratio, "target": target}


def hardware() -> dict[str, Any]:
    """What the numbers were measured on."""
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
        # the name alone is the same for several generations
        model = (
            "{model name} (family {cpu family}, model {model})".format_map(found) if "cpu family" in found else model
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_gb = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    load = round(os.getloadavg()[0], 2)
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    return {
        "cpu": model,
        "bfloat16 units": [name for name in ("amx_bf16", "avx512_bf16") if name in flags],
        "cores": cores,
        "memory_gb": memory_gb,
        "system": platform.system(),
        "load_before": load,
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter, and which source is used."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["gymnax"] = gymnax_version() or found["gymnax"]
    if found["ppax"] == "not installed":
        found["ppax"] = "source tree"
    found["ppax commit"] = commit(Path(__file__).parent)
    folder = purejaxrl_folder()
    if folder is not None:
        found["purejaxrl ppo.py"] = (
            "sha256 " + hashlib.sha256((folder / "purejaxrl" / "ppo.py").read_bytes()).hexdigest()
        )
    return found


def commit(folder: Path) -> str:
    """The commit checked out in a folder, with a + where files differ from it."""
    try:
        words = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
