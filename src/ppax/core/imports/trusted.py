"""Trust of the user, in Python, on a command line or in a settings file: packages, paths and addresses.

A run file is data and may come from a stranger. It can name code, files and servers outside of itself; whether a
package is imported, a file read or a server asked is the user's decision.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from ppax.core import untrusted
from ppax.core.types import ConfigError

VARIABLE = "PPAX_SETTINGS"  # environment variable: another settings file
LIMIT = 2**16  # bytes of a settings file; far above the size of a valid one
# Modules without parts: with a run file's options as arguments, their functions could do anything
NEVER = sys.stdlib_module_names | {"ppax", "__main__"}
MARKS = ("about.json", "policy.json", "sweep.toml", "sweep.json")  # files that mark a run or sweep directory
REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|//|\\\\")  # begin of an address; of a share of Windows, too


class Untrusted(ConfigError):
    """Error of packages, paths and addresses that the user does not trust; `names` are these, as `trust` takes them."""

    def __init__(self, text: str, names: tuple[str, ...]):
        super().__init__(text)
        self.names = names


_trusted: set[str] = set()
_beside: set[str] = set()  # those of a command line; packages among them may also lie in the current directory
_arguments: set[str] = set()  # directories that this command line names, without links
_holding: set[str] = set()  # directories of the files that are read: paths inside come from the same hand


def trust(*names: str) -> None:
    """Allow run files to use `names`, packages, paths and addresses, for the rest of this process.

    "my_package" allows the import of a package or module, and covers its modules and nothing else. What has a slash is
    a path, "runs/teacher", which covers all that lies in it, or an address, "postgresql://me@host/studies" or
    "//head:6379", which covers itself alone. Raises ConfigError for anything else, and for modules of Python's own
    library.
    """
    _trusted.update([checked(name, "trust") for name in names])


@contextlib.contextmanager
def trusting(names: Iterable[str] = (), beside: bool = False, within: Iterable[str | Path] = ()) -> Iterator[None]:
    """Context in which `names` are trusted, as by `trust`.

    With `beside` they are those of a command line, whose packages are also searched in the current directory, last.
    `within` are directories that hold the files which are read, so that paths inside need no trust.
    """
    before = [(current, set(current)) for current in (_trusted, _beside, _holding)]
    names = [checked(name, "--trust") for name in names]
    _trusted.update(names)
    _beside.update(names if beside else ())
    _holding.update(os.path.realpath(folder) for folder in within)
    try:
        yield
    finally:
        for current, old in before:
            current.clear()
            current.update(old)


def typed(names: Iterable[str], within: Iterable[Path] = ()) -> None:
    """Trust what the user has typed as an option, and paths in the directory of a file that it names.

    Until the end of the command, whose `trusting` surrounds it.
    """
    names = list(names)
    _trusted.update(names)
    _beside.update(names)
    _holding.update(os.path.realpath(folder) for folder in within)


def granted() -> tuple[list[str], list[str], list[str]]:
    """Return trust, trust of this command line and directories of files that are read; for other processes.

    `with trusting(first, within=third), trusting(second, beside=True)` is the same trust there.
    """
    return sorted(_trusted | _of_settings()), sorted(_beside), sorted(_holding)


def flags(names: Collection[str] | None = None) -> str:
    """Return the options `--trust NAME` of this command line, with a space before each.

    With `names`: of these, unless the settings file trusts them, and of the packages of this command line.
    """
    own = _beside if names is None else {name for name in _beside if not is_place(name)}
    named = own | {*(names or ())} - _of_settings()
    return "".join(f" --trust {shlex.quote(name)}" for name in sorted(named))


@contextlib.contextmanager
def naming(arguments: Iterable[str]) -> Iterator[None]:
    """Context of a command line with these arguments: the directories among them may be a stranger's."""
    before = set(_arguments)
    values = [part for one in arguments for part in (one, one.partition("=")[2])]
    _arguments.update(os.path.realpath(one) for one in values if one and os.path.isdir(one))
    try:
        yield
    finally:
        _arguments.clear()
        _arguments.update(before)


def handed_over(folder: Path) -> Path | None:
    """Return the run or sweep directory, or directory of the command line, in which a folder lies; None where in none.

    It may be a stranger's: what a library looks for in the current directory must not be found in it.
    """
    real = Path(os.path.realpath(folder))
    for one in (real, *real.parents):
        if str(one) in _arguments or any((one / name).exists() for name in MARKS):
            return one
    return None


def packages() -> set[str]:
    """Return the packages that the user trusts."""
    return {name for name in _trusted | _of_settings() if not is_place(name)}


def places() -> set[str]:
    """Return the paths and addresses that the user trusts."""
    return {name for name in _trusted | _of_settings() if is_place(name)}


def is_place(name: str) -> bool:
    """Return whether a name is a path or an address and no package."""
    return "/" in name or "\\" in name


def holding() -> set[str]:
    """Return the directories of the files that are read, but none around the user's home, which has many hands."""
    home = os.path.realpath(os.path.expanduser("~"))
    return {folder for folder in _holding if not lies_in(home, folder)}


def lies_in(path: str, folder: str) -> bool:
    """Return whether a path is that of a folder, or of something in it; both without links."""
    return path == folder or path.startswith(os.path.join(folder, ""))


def is_trusted(package: str) -> bool:
    """Return whether the user trusts this top-level package."""
    return package in _trusted or package in _of_settings()


def may_be_beside(package: str) -> bool:
    """Return whether the current directory may be searched for this package: this command line trusts it.

    A settings file does not say where a package lies: there a stranger's directory could have one of the same name.
    """
    return package in _beside


def checked(name: str, place: str) -> str:
    """Return `name`; ConfigError unless it is a path, an address, or one top-level package that may have parts."""
    if isinstance(name, str) and is_place(name) and "\0" not in name:
        return name
    if not isinstance(name, str) or not name.isidentifier():
        nearest = str(name).partition(":")[0].partition(".")[0]
        hint = f"; nearest: {nearest}" if nearest.isidentifier() else ""
        raise ConfigError(
            f"{place} = {name!r}: must be the name of a top-level package, as my_package, or a path or address, with a "
            f"slash, as ./data or //host:port{hint}"
        )
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
    """Return the names that the settings file trusts; ConfigError where the file has anything else."""
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
    return {_wherever(os.path.expanduser(checked(name, f"{path}: trust")), path) for name in names}


def _wherever(name: str, path: Path) -> str:
    """Return a name of the settings file; ConfigError for a path that depends on the current directory."""
    if is_place(name) and not (REMOTE.match(name) or os.path.isabs(name)):
        raise ConfigError(f"{path}: trust = {name!r}: must be an absolute path, or one that begins with ~/")
    return name
