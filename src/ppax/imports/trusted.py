"""Packages that run files may import: those that the user trusts, in Python, on a command line or in a settings file.

A run file is data and may come from a stranger. It can name code; whether a package is imported is the user's decision.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ppax.storage import untrusted
from ppax.types import ConfigError

VARIABLE = "PPAX_SETTINGS"  # environment variable: another settings file
LIMIT = 2**16  # bytes of a settings file; far above the size of a valid one
# Modules without parts: with a run file's options as arguments, their functions could do anything
NEVER = sys.stdlib_module_names | {"ppax", "__main__"}


class Untrusted(ConfigError):
    """Error of names whose packages the user does not trust; `packages` are these."""

    def __init__(self, text: str, packages: tuple[str, ...]):
        super().__init__(text)
        self.packages = packages


_trusted: set[str] = set()
_beside: set[str] = set()  # those of a command line, which may also lie in the current directory


def trust(*packages: str) -> None:
    """Allow run files to import `packages`, names of top-level packages or modules, for the rest of this process.

    "my_package" covers its modules and nothing else. Raises ConfigError for anything but such a name, and for modules
    of Python's own library.
    """
    _trusted.update([checked(name, "trust") for name in packages])


@contextlib.contextmanager
def trusting(packages: Iterable[str], beside: bool = False) -> Iterator[None]:
    """Context in which `packages` are trusted; with `beside` they are also searched in the current directory, last."""
    before, before_beside = set(_trusted), set(_beside)
    names = [checked(name, "--trust") for name in packages]
    _trusted.update(names)
    _beside.update(names if beside else ())
    try:
        yield
    finally:
        for current, old in ((_trusted, before), (_beside, before_beside)):
            current.clear()
            current.update(old)


def granted() -> tuple[list[str], list[str]]:
    """Return the packages that are trusted here, and those of them that this command line trusts; for other processes.

    `with trusting(first), trusting(second, beside=True)` is the same trust there.
    """
    return sorted(_trusted | _of_settings()), sorted(_beside)


def flags() -> str:
    """Return the options `--trust PACKAGE` of this command line, with a space before each."""
    return "".join(f" --trust {name}" for name in sorted(_beside))


def is_trusted(package: str) -> bool:
    """Return whether the user trusts this top-level package."""
    return package in _trusted or package in _of_settings()


def may_be_beside(package: str) -> bool:
    """Return whether the current directory may be searched for this package: this command line trusts it.

    A settings file does not say where a package lies: there a stranger's directory could have one of the same name.
    """
    return package in _beside


def checked(name: str, place: str) -> str:
    """Return `name`; ConfigError unless it names one top-level package that may have parts."""
    if not isinstance(name, str) or not name.isidentifier():
        nearest = str(name).partition(":")[0].partition(".")[0]
        hint = f"; nearest: {nearest}" if nearest.isidentifier() else ""
        raise ConfigError(f"{place} = {name!r}: must be the name of a top-level package, as my_package{hint}")
    refuse_library(name, f"{place} = {name!r}")
    return name


def refuse_library(package: str, text: str) -> None:
    """Raise ConfigError, which begins with `text`, for a package that cannot be trusted."""
    if package in NEVER:
        whose = "parts of ppax have names of their own" if package == "ppax" else f"{package} belongs to Python itself"
        raise ConfigError(f"{text}: {whose}, and cannot be trusted; must be a package of yours")


def settings_file() -> Path | None:
    """Return the place of the user's settings file; None where there is no home directory.

    $PPAX_SETTINGS, else ppax/settings.toml in %APPDATA% on Windows, elsewhere in $XDG_CONFIG_HOME or ~/.config.
    """
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    base = os.environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", "")
    if os.path.isabs(base):  # a relative one would lie in the current directory, which may be a stranger's
        return Path(base) / "ppax" / "settings.toml"
    try:
        return Path.home() / ".config" / "ppax" / "settings.toml"
    except RuntimeError:
        return None


def _of_settings() -> set[str]:
    """Return the packages that the settings file trusts; ConfigError where the file has anything else."""
    path = settings_file()
    if path is None or not path.is_file():
        return set()
    try:
        settings = untrusted.from_toml(untrusted.read_text(Path(os.path.realpath(path)), LIMIT))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    names = settings.get("trust", [])
    if set(settings) - {"trust"} or not isinstance(names, list):
        raise ConfigError(f'{path}: must have one entry, a list of names of packages: trust = ["my_package"]')
    return {checked(name, f"{path}: trust") for name in names}
