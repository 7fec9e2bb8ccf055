"""Name of this machine's processor, for results whose time depends on it."""

from __future__ import annotations

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")  # on Linux, where `platform` does not know the model


def processor() -> str:
    """Return the model of the processor, or its architecture where the system does not tell."""
    if CPUINFO.is_file():
        for line in CPUINFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
