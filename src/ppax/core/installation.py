"""Checks of the installation: the packages that ppax needs exist, in versions that work together, and can be imported.

A package cannot be imported if a file of the user has its name and hides it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
import warnings
from importlib import machinery, metadata

OLDEST, BEYOND = (0, 10, 2), (0, 13)  # versions of JAX: the oldest that works, and the first that is untried
NEEDED = (  # names of the modules
    "numpy",
    "jax",
    "jaxlib",
    "optax",
    "gymnasium",
    "cloudpickle",
    "filelock",
    "flatbuffers",
    "rich",
    "safetensors",
    "scipy",
    "tomli_w",
)
AGAIN = f"{sys.executable} -m pip install --upgrade ppax"


def require_jax() -> None:
    """Import JAX; raise ImportError, in one sentence with the remedy, where it or another package cannot be used.

    Warns where JAX is newer than all versions that were tried.
    """
    missing = [name for name in NEEDED if name not in sys.modules and importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"ppax needs {', '.join(missing)}, not installed for this Python: {AGAIN}")
    try:
        version = importlib.import_module("jax").__version__
    except Exception as error:  # any exception of a broken or mixed installation
        raise ImportError(explained(error)) from error
    numbers = tuple(int(word) for word in version.split(".")[:3] if word.isdecimal())
    if numbers < OLDEST:
        raise ImportError(f"ppax needs jax {_text(OLDEST)} or newer, and this is {_found('jax')}: {AGAIN}")
    if numbers >= BEYOND:
        warnings.warn(
            f"jax {version} is newer than the versions that this ppax was tested with, {_text(OLDEST)} to below "
            f'{_text(BEYOND)}; if something fails: {sys.executable} -m pip install "jax<{_text(BEYOND)}"',
            stacklevel=3,
        )


def explained(error: BaseException) -> str:
    """Return in one sentence why an import has failed with `error`, and the remedy."""
    hiding = _hiding(error)
    if hiding:
        return (
            f"{hiding} has the name of a package, and is imported in its place: rename it, or start Python in another "
            f"folder ({type(error).__name__}: {error})"
        )
    found = ", ".join(map(_found, ("jax", "jaxlib", "numpy")))
    first = str(error).strip().partition("\n")[0].rstrip(".")
    return (
        f"JAX cannot be imported: {type(error).__name__}: {first}. Here are {found}; a new installation in an empty "
        f"environment, or {AGAIN} jax jaxlib, brings versions that work together"
    )


def _hiding(error: BaseException) -> str:
    """Return the file in the program's folder that has the name of a package and so made an import fail; "" for none.

    It may also hide a module of Python itself. Candidates are the files in the traceback of `error`, loaded modules,
    and the files that an import of a needed package would find.
    """
    folder = os.path.realpath(sys.path[0] if sys.path else "")  # of the program; "" is the current directory
    passed = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    loaded = {getattr(sys.modules.get(name), "__file__", None) for name in sys.stdlib_module_names}
    found = {getattr(machinery.PathFinder.find_spec(name), "origin", None) for name in NEEDED}
    for file in sorted(map(os.path.realpath, filter(None, passed | loaded | found))):
        module = file.removesuffix(os.path.join(os.sep, "__init__.py")).removesuffix(".py")
        name = os.path.basename(module)
        if os.path.dirname(module) == folder and (name in NEEDED or name in sys.stdlib_module_names):
            return file
    return ""


def _found(name: str) -> str:
    """Return a text with name, version and folder of an installed package."""
    try:
        about = metadata.distribution(name)
        return f"{name} {about.version} ({about.locate_file('')})"
    except metadata.PackageNotFoundError:
        return f"{name}, without a version"


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
