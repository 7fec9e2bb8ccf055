"""Import paths, "my_package.module:Name", and the short names that packages register for them as entry points.

A short name is a name and no permission: its package must be trusted like that of an import path.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib import machinery, metadata
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from ppax.core.imports.trusted import (
    NEVER,
    Untrusted,
    handed_over,
    is_trusted,
    may_be_beside,
    packages,
    refuse_library,
    settings_file,
)
from ppax.core.types import ConfigError

GROUP = "ppax.core.parts"  # group of entry points, each "KIND.NAME" = "my_package.module:Name"


def is_path(name: object) -> bool:
    """Return whether a name in a configuration is an import path: a colon, which no name of ppax has, and no slash."""
    return isinstance(name, str) and ":" in name and "/" not in name


def names_module(name: object) -> bool:
    """Return whether a name of a suite has a module that registers it: "gymnasium/my_package:my/Line-v0"."""
    return isinstance(name, str) and ":" in name and "/" in name.partition(":")[0]


def require_trusted(paths: Mapping[str, str]) -> None:
    """Raise Untrusted, with all packages at once, unless each path, by its place, is of a trusted package.

    A path is an import path, or a name of a suite with the module that registers it.
    """
    packages = {place: _module_of(path, place).partition(".")[0] for place, path in paths.items()}
    for place, package in packages.items():
        refuse_library(package, f"{place} = {paths[place]!r}")
    lacking = sorted({package for package in packages.values() if not is_trusted(package)})
    if not lacking:
        return
    named = ", ".join(f"{place} = {path!r}" for place, path in paths.items() if packages[place] in lacking)
    found = ", ".join(f"{name} ({_location(name)})" for name in lacking)
    listed = ", ".join(f'"{name}"' for name in lacking)
    raise Untrusted(
        f"{named}: to import code is to run it, and you have not said that you trust {found}. Nothing was imported. If "
        f"you do: --trust {' --trust '.join(lacking)} on the command line, ppax.trust({listed}) in Python, or "
        f"trust = [{listed}] in {settings_file() or 'the settings file'}",
        tuple(lacking),
    )


def load(path: str, place: str) -> Any:
    """Import the object at `path`, which a configuration has at `place`.

    Raises Untrusted before anything is imported, and ConfigError where there is no such object, or where it is a class
    or function that no trusted package defines.
    """
    module, name = _parsed(path, place)
    require_trusted({place: path})
    found = _imported(module, f"{place} = {path!r}", lambda found: getattr(found, name))
    _require_own(found, f"{place} = {path!r}")
    return found


def load_module(path: str, place: str) -> None:
    """Import the module of a suite's name, "gymnasium/my_package:my/Line-v0", so that it registers the environment.

    Raises Untrusted before anything is imported, and ConfigError where the import fails.
    """
    require_trusted({place: path})
    _imported(_module_of(path, place), f"{place} = {path!r}")


def load_trusted(place: str) -> None:
    """Import every package that the user trusts and that is installed: they may register environments."""
    for package in sorted(packages()):
        if _spec(package) is not None or may_be_beside(package):
            _imported(package, f"{place}, for which the trusted package {package} was imported")


def _imported(module: str, text: str, take: Callable[[Any], Any] = lambda found: found) -> Any:
    """Import a module that the user trusts and `take` something from it; ConfigError with `text` where that fails."""
    package = module.partition(".")[0]
    if may_be_beside(package) and _spec(package) is None:
        _search_current_directory()
    try:
        return take(importlib.import_module(module))
    except Exception as error:  # any exception of the package's own code
        raise ConfigError(f"{text}: {type(error).__name__}: {error} ({_location(package)})") from error


def path_of(x: Any) -> str | None:
    """Return the import path of a class or function that other processes can import; None where there is none."""
    module, name = str(getattr(x, "__module__", "")), str(getattr(x, "__qualname__", ""))
    package = module.partition(".")[0]
    if package in NEVER or getattr(sys.modules.get(module), name, None) is not x or _spec(package) is None:
        return None
    return f"{module}:{name}"


def registered(kind: str) -> dict[str, str]:
    """Return the short names that installed packages give to parts of this kind, with import paths; imports nothing."""
    return _entry_points(tuple(sys.path)).get(kind, {})


@functools.lru_cache(maxsize=1)
def _entry_points(search: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return import paths by kind and short name. A name that two packages register is left out: neither may win."""
    found: dict[str, dict[str, set[str]]] = {}
    for point in metadata.entry_points(group=GROUP):
        kind, _, name = point.name.partition(".")
        found.setdefault(kind, {}).setdefault(name, set()).add(point.value)
    return {
        kind: {name: min(paths) for name, paths in names.items() if len(paths) == 1} for kind, names in found.items()
    }


def _module_of(path: str, place: str) -> str:
    """Return the module that a path names; ConfigError where it names none."""
    if not names_module(path):
        return _parsed(path, place)[0]
    module = path.partition("/")[2].partition(":")[0]
    if not all(word.isidentifier() and not word.startswith("__") for word in module.split(".")):
        raise ConfigError(
            f'{place} = {path!r}: must name a module before its colon, as "gymnasium/my_package:my/Line-v0"'
        )
    return module


def _parsed(path: str, place: str) -> tuple[str, str]:
    """Return module and name of an import path; ConfigError unless it is "package.module:Name"."""
    module, _, name = path.partition(":")
    if not all(word.isidentifier() and not word.startswith("__") for word in (name, *module.split("."))):
        raise ConfigError(f'{place} = {path!r}: must be an import path, as "my_package.module:Name"')
    return module, name


def _require_own(found: Any, text: str) -> None:
    """Raise ConfigError for a class or function from elsewhere, as `system` of `os` in the names of a trusted module.

    Other objects are what the trusted module has made of them.
    """
    inner = found.func if isinstance(found, functools.partial) else found
    if isinstance(inner, type | FunctionType | BuiltinFunctionType | MethodType):
        owner = str(inner.__module__).partition(".")[0]
        if owner in NEVER or not is_trusted(owner):
            raise ConfigError(f"{text}: it is defined in {inner.__module__}; must be code of a package that you trust")


def _search_current_directory() -> None:
    """Search the current directory for modules, after all other places, unless it may be a stranger's."""
    here = Path.cwd()
    if handed_over(here) is None:
        sys.path.append(str(here))  # it stays: worker processes import from there, too
        importlib.invalidate_caches()


def _spec(package: str) -> machinery.ModuleSpec | None:
    """Return where a new process finds a top-level package; imports nothing."""
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    specs = (find(package, None) for find in finders if find is not None)
    return next((spec for spec in specs if spec is not None), None)


def _location(package: str) -> str:
    """Return the file or folder that an import of the package would read."""
    spec = _spec(package) or machinery.PathFinder.find_spec(package, [str(Path.cwd())])
    if spec is None:
        return "not found"
    return str(spec.origin or next(iter(spec.submodule_search_locations or []), "no file"))
