"""Trust in code (by import path), files and servers that a configuration names.

A run file is data and may come from a stranger. It can name packages, paths and addresses; whether a package is
imported, a file read or a server asked is the user's decision, in Python, on a command line or in a settings file. An
import path is "my_package.module:Name". Packages may register short names for their parts as entry points; a short name
gives no permission: its package must be trusted like that of an import path.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import machinery, metadata
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

from ppax.core import untrusted
from ppax.core.parts import ADDRESS, PATH
from ppax.core.types import ConfigError

VARIABLE = "PPAX_SETTINGS"  # environment variable: another settings file
LIMIT = 2**16  # bytes of a settings file; far above the size of a valid one
# Modules without parts: with a run file's options as arguments, their functions could do anything
NEVER = sys.stdlib_module_names | {"ppax", "__main__"}
MARKS = ("about.json", "policy.json", "sweep.toml", "sweep.json")  # files that mark a run or sweep directory
FILE = re.compile(r"(.*[/\\\\])?([^/\\\\:]+)\.py:(\w+)")  # a file of Python in place of a module: folder, module, name
REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|//|\\\\")  # begin of an address; of a share of Windows, too
GROUP = "ppax.parts"  # group of entry points, each "KIND.NAME" = "my_package.module:Name"
PASSWORD = re.compile(r"^([A-Za-z0-9+.-]+://[^/@:]*):[^/@]*@")
TEXT = "text"  # argument of an environment, which may open the file of this name

# What the user trusts in this process, and where names come from; contexts below restore them
_trusted: set[str] = set()
_beside: set[str] = set()  # those of a command line; packages among them may also lie in the current directory
_arguments: set[str] = set()  # directories that this command line names, without links
_holding: set[str] = set()  # directories of the files that are read: paths inside come from the same hand
_objects: dict[str, Any] = {}  # those that `load` has found, by path: unlike classes they do not know their names


class Untrusted(ConfigError):
    """Error of a configuration that names packages, paths or addresses which the user does not trust.

    `names` are these packages, paths and addresses, in the form that `trust` takes.
    """

    def __init__(self, text: str, names: tuple[str, ...]):
        super().__init__(text)
        self.names = names


def trust(*names: str) -> None:
    """Allow run files to use `names`, which are packages, paths and addresses, for the rest of this process.

    "my_package" allows the import of a package or module, and covers its modules and nothing else. A name with a slash
    is a path, "runs/teacher", which covers all files in it, or an address, "postgresql://me@host/studies" or
    "//head:6379", which covers itself alone. Raises ConfigError for anything else, and for modules of Python's own
    library.
    """
    _trusted.update([_checked(name, "trust") for name in names])


@contextlib.contextmanager
def trusting(names: Iterable[str] = (), beside: bool = False, within: Iterable[str | Path] = ()) -> Iterator[None]:
    """Yield once; inside of this context `names` are trusted, as by `trust`.

    With `beside` the names come from a command line, and their packages are searched in the current directory, too,
    after all other places. `within` are the directories of the configuration files that are read; paths inside of them
    need no trust.
    """
    before = [(current, set(current)) for current in (_trusted, _beside, _holding)]
    names = [_checked(name, "--trust") for name in names]
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
    """Trust `names`, which the user has typed as options, and all paths inside of the directories `within`.

    `within` are the directories of files that those options name. The trust ends with the command, which calls this
    inside of a `trusting` context.
    """
    names = list(names)
    _trusted.update(names)
    _beside.update(names)
    _holding.update(os.path.realpath(folder) for folder in within)


@contextlib.contextmanager
def naming(arguments: Iterable[str]) -> Iterator[None]:
    """Yield once; inside of this context, directories among a command line's arguments count as untrusted.

    Such a directory may be a run directory from a stranger. If the current directory is one of them or lies in one, it
    is not searched for modules, so that no file of the stranger is imported.
    """
    before = set(_arguments)
    values = [part for one in arguments for part in (one, one.partition("=")[2])]
    _arguments.update(os.path.realpath(one) for one in values if one and os.path.isdir(one))
    try:
        yield
    finally:
        _arguments.clear()
        _arguments.update(before)


def granted() -> tuple[list[str], list[str], list[str]]:
    """Return what is trusted in this process: (names, names on the command line, directories of configuration files).

    The first list has all trusted names. The second has those of them that the command line gave: their packages may
    also lie in the current directory. The result is for the workers of a sweep, which get the same trust by `with
    trusting(names, within=directories), trusting(on_command_line, beside=True)`.
    """
    return sorted(_trusted | _of_settings()), sorted(_beside), sorted(_holding)


def flags(names: Collection[str] | None = None) -> str:
    """Return the options `--trust NAME` for a command that ppax suggests, each with a space before it; "" for none.

    Without `names`, these are all names that the present command line trusts. `names` are what the run files of the
    suggested command need; then the options are those of `names` that the settings file does not trust, and all
    packages that the present command line trusts.
    """
    own = _beside if names is None else {name for name in _beside if not is_place(name)}
    named = own | {*(names or ())} - _of_settings()
    return "".join(f" --trust {shlex.quote(name)}" for name in sorted(named))


def _is_trusted(package: str) -> bool:
    """Return whether the user trusts this top-level package."""
    return package in _trusted or package in _of_settings()


def _may_be_beside(package: str) -> bool:
    """Return whether a package may be imported from the current directory: True if this command line trusts it.

    Trust by a settings file is not enough, because it does not say where the package lies: an untrusted directory could
    hold a package of the same name.
    """
    return package in _beside


def places() -> set[str]:
    """Return the paths and addresses that the user trusts."""
    return {name for name in _trusted | _of_settings() if is_place(name)}


def holding() -> set[str]:
    """Return the directories of the configuration files that are read; paths inside of them need no trust.

    Directories that contain the user's home are left out: a home directory has files of many origins.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    return {folder for folder in _holding if not lies_in(home, folder)}


def lies_in(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or lies inside of it; both must be absolute and without links."""
    return path == folder or path.startswith(os.path.join(folder, ""))


def is_place(name: str) -> bool:
    """Return whether a name that may be trusted is a path or an address (it has a slash), and not a package."""
    return "/" in name or "\\" in name


def _checked(name: str, place: str) -> str:
    """Return `name`, something that the user trusts; ConfigError unless trust in it can be declared.

    That is so for a file path, an address (such as //host:port), and the name of a top-level package other than ppax
    and Python's own. `place` is where the user wrote `name`, for the error.
    """
    if isinstance(name, str) and is_place(name) and "\0" not in name:
        return name
    if not isinstance(name, str) or not name.isidentifier():
        nearest = str(name).partition(":")[0].partition(".")[0]
        hint = f"; nearest: {nearest}" if nearest.isidentifier() else ""
        raise ConfigError(
            f"{place} = {name!r}: must be the name of a top-level package, as my_package, or a path or address, with a "
            f"slash, as ./data or //host:port{hint}"
        )
    _refuse_library(name, f"{place} = {name!r}")
    return name


def _refuse_library(package: str, text: str) -> None:
    """Raise ConfigError, which begins with `text`, if `package` is ppax or belongs to Python: nobody can trust these.

    Otherwise a run file could call any of their functions, such as `os.system`, with arguments of its choice.
    """
    if package in NEVER:
        whose = "parts of ppax have names of their own" if package == "ppax" else f"{package} belongs to Python itself"
        raise ConfigError(f"{text}: {whose}, and cannot be trusted; must be a package of yours")


def settings_file() -> Path | None:
    """Return the path of the user's settings file, which need not exist; None where there is no home directory.

    It is $PPAX_SETTINGS; else ppax/settings.toml in %APPDATA% on Windows, elsewhere in $XDG_CONFIG_HOME or ~/.config.
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
    """Return the set of names that the user's settings file trusts; ConfigError where the file has anything else."""
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
    return {_wherever(os.path.expanduser(_checked(name, f"{path}: trust")), path) for name in names}


def _wherever(name: str, path: Path) -> str:
    """Return `name`, which the settings file `path` trusts; ConfigError for a path that is not absolute."""
    if is_place(name) and not (REMOTE.match(name) or os.path.isabs(name)):
        raise ConfigError(f"{path}: trust = {name!r}: must be an absolute path, or one that begins with ~/")
    return name


def handed_over(folder: Path) -> Path | None:
    """Return an untrusted directory that is or contains `folder`; None if there is none.

    Untrusted are run and sweep directories, and directories that the command line names: a stranger may have prepared
    their files. Callers pass the current directory before they use a library that reads settings or data from files in
    it.
    """
    real = Path(os.path.realpath(folder))
    for one in (real, *real.parents):
        if str(one) in _arguments or any((one / name).exists() for name in MARKS):
            return one
    return None


def load(path: str, place: str) -> Any:
    """Return the object at the import path `path`; `place` is the option that has this value, for errors.

    Raises Untrusted before anything is imported, and ConfigError where there is no such object, or where it is a class
    or function that no trusted package defines.
    """
    module, name = _parsed(path, place)
    require_trusted({place: path})
    found = _imported(module, f"{place} = {path!r}", lambda found: getattr(found, name))
    _require_own(found, f"{place} = {path!r}")
    if not hasattr(found, "__qualname__"):
        _objects[path] = found
    return found


def load_module(path: str, place: str) -> None:
    """Import the module in an environment's name, which registers it: my_package of "gymnasium/my_package:my/Line-v0".

    Raises Untrusted before anything is imported, and ConfigError where the import fails. `place` is the path of the
    option that has this name, for errors.
    """
    require_trusted({place: path})
    _imported(_module_of(path, place), f"{place} = {path!r}")


def load_trusted(place: str) -> None:
    """Import every installed package that the user trusts, because it may register environments.

    `place` begins the ConfigError where an import fails.
    """
    packages = (name for name in _trusted | _of_settings() if not is_place(name))
    for package in sorted(packages):
        if _spec(package) is not None or _may_be_beside(package):
            _imported(package, f"{place}, for which the trusted package {package} was imported")


def require_trusted(paths: Mapping[str, str]) -> None:
    """Raise Untrusted unless the user trusts the packages of all `paths`; the error lists every package not trusted.

    The values of `paths` are import paths, or environments' names with a module; the keys are their places in the
    configuration.
    """
    packages = {place: _module_of(path, place).partition(".")[0] for place, path in paths.items()}
    for place, package in packages.items():
        _refuse_library(package, f"{place} = {paths[place]!r}")
    lacking = sorted({package for package in packages.values() if not _is_trusted(package)})
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


def is_path(name: object) -> bool:
    """Return whether a name in a configuration is an import path, as "my_package.module:Name": a colon and no slash."""
    return isinstance(name, str) and ":" in name and "/" not in name


def names_module(name: object) -> bool:
    """Return whether an environment's name has a module that registers it, as "gymnasium/my_package:my/Line-v0"."""
    return isinstance(name, str) and ":" in name and "/" in name.partition(":")[0]


def registered(kind: str) -> dict[str, str]:
    """Return the parts that installed packages have registered for `kind`, such as "env": import paths by short name.

    No package is imported.
    """
    return _entry_points(tuple(sys.path)).get(kind, {})


@functools.lru_cache(maxsize=1)
def _entry_points(search: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return import paths of registered parts by kind and short name; `search` is `sys.path`, the key of the cache.

    A name that two packages register is left out.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for point in metadata.entry_points(group=GROUP):
        kind, _, name = point.name.partition(".")
        found.setdefault(kind, {}).setdefault(name, set()).add(point.value)
    return {
        kind: {name: min(paths) for name, paths in names.items() if len(paths) == 1} for kind, names in found.items()
    }


def import_path(x: Any) -> str | None:
    """Return the import path "module:Name" of a class, a function, or an object that `load` has found by such a path.

    It is None where other processes could not import it.
    """
    known = next((path for path, found in _objects.items() if found is x), None)
    if known is not None:
        return known
    module, name = str(getattr(x, "__module__", "")), str(getattr(x, "__qualname__", ""))
    if module.partition(".")[0] in NEVER or getattr(sys.modules.get(module), name, None) is not x:
        return None
    return f"{module}:{name}" if _is_importable(module) else None


def _is_importable(module: str) -> bool:
    """Return whether a new process would find the loaded `module` where this process has found it.

    It would not where another package of this name is found, such as `tests` of a library in place of the user's own.
    """
    package = module.partition(".")[0]
    spec = _spec(package)
    if spec is None:
        return False
    files = [getattr(sys.modules.get(name), "__file__", None) for name in (package, module)]
    paths = [os.path.realpath(file) for file in files if file is not None]
    places = [os.path.realpath(place) for place in spec.submodule_search_locations or ()]
    places += [os.path.realpath(spec.origin)] if spec.origin is not None else []
    return not paths or any(lies_in(path, place) for path in paths for place in places)


def _module_of(path: str, place: str) -> str:
    """Return the module in an import path or an environment's name, `path`; ConfigError where it names none.

    `place` is the option that has this value, for the error.
    """
    refuse_file(path, place)
    if not names_module(path):
        return _parsed(path, place)[0]
    module = path.partition("/")[2].partition(":")[0]
    if not all(word.isidentifier() and not word.startswith("__") for word in module.split(".")):
        raise ConfigError(
            f'{place} = {path!r}: must name a module before its colon, as "gymnasium/my_package:my/Line-v0"'
        )
    return module


def _parsed(path: str, place: str) -> tuple[str, str]:
    """Return (module, name) of an import path; ConfigError unless it is "package.module:Name".

    `place` is the option that has this value, for the error.
    """
    refuse_file(path, place)
    module, _, name = path.rpartition(":")
    if not all(word.isidentifier() and not word.startswith("__") for word in (name, *module.split("."))):
        raise ConfigError(f'{place} = {path!r}: must be an import path, as "my_package.module:Name"')
    return module, name


def refuse_file(path: str, place: str = "") -> None:
    """Raise ConfigError where `path` names a class by its file, as C:\\mine\\envs.py:Env, and not by its module.

    `place` is the option that has this value.
    """
    found = FILE.fullmatch(path)
    if found is None or not (found[1] or os.path.isfile(f"{found[2]}.py")):  # "my.py:Name" may be a module `my.py`
        return
    folder, module, name = found.groups()
    nearest = f"; nearest valid value: {module}:{name}" if module.isidentifier() else ""
    where = f"from the folder {folder}, or with it in PYTHONPATH" if folder else "from this folder"
    raise ConfigError(
        f"{place} = {path!r}: a class is named by its module, not by a file{nearest} ({where}, and with --trust)"
    )


def _imported(module: str, text: str, take: Callable[[Any], Any] = lambda found: found) -> Any:
    """Import a trusted module, and return what `take` gets from it.

    Raises ConfigError, which begins with `text`, where either fails.
    """
    package = module.partition(".")[0]
    beside = _may_be_beside(package) and _spec(package) is None
    not_searched = _search_current_directory() if beside else ""
    try:
        return take(importlib.import_module(module))
    except (Exception, SystemExit) as error:  # any exception of the package's own code, and `sys.exit()` in it
        where = not_searched or _location(package)
        raise ConfigError(f"{text}: {type(error).__name__}: {error} ({where})") from error


def _search_current_directory() -> str:
    """Append the current directory to `sys.path`, unless it is or lies in an untrusted directory (`handed_over`).

    Return a text that says why it was not appended; "" if it was.
    """
    here = Path.cwd()
    stranger = handed_over(here)
    if stranger is None:
        sys.path.append(str(here))  # it stays: worker processes import from there, too
        importlib.invalidate_caches()
        return ""
    return (
        f"{here} is not searched: {stranger} is a run or sweep directory or stands on the command line, so its files "
        "may be a stranger's; if they are yours, put the directory into PYTHONPATH"
    )


def _require_own(found: Any, text: str) -> None:
    """Raise ConfigError for a class or function that no trusted package defines, as `os.system` in a trusted module.

    Other objects, such as instances, are accepted, because the trusted module has made them. `text` begins the error.
    """
    inner = found.func if isinstance(found, functools.partial) else found
    if isinstance(inner, type | FunctionType | BuiltinFunctionType | MethodType):
        owner = str(inner.__module__).partition(".")[0]
        if owner in NEVER or not _is_trusted(owner):
            raise ConfigError(f"{text}: it is defined in {inner.__module__}; must be code of a package that you trust")


def _spec(package: str) -> machinery.ModuleSpec | None:
    """Return the import spec with which a new process would find a top-level package, None if it finds none.

    The package is not imported.
    """
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    specs = (find(package, None) for find in finders if find is not None)
    return next((spec for spec in specs if spec is not None), None)


def _location(package: str) -> str:
    """Return the file or folder that an import of the package would read; "not found" where there is none."""
    spec = _spec(package) or machinery.PathFinder.find_spec(package, [str(Path.cwd())])
    if spec is None:
        return "not found"
    return str(spec.origin or next(iter(spec.submodule_search_locations or []), "no file"))


class Outside(NamedTuple):
    """Path, address or text in a configuration that names something outside of it, such as a file or a server.

    A part's field that holds such a value is declared with `static(outside=PATH)` or `static(outside=ADDRESS)`.
    """

    kind: str
    value: str

    @property
    def name(self) -> str:
        """The value in the form that `trust` takes, with a slash and without a password: "./data", "//head:6379"."""
        if is_place(self.value):
            return _without_password(self.value)
        return f"//{self.value}" if self.kind == ADDRESS else f"./{self.value}"

    @property
    def trusted(self) -> bool:
        """Whether this path or address may be used.

        It may be used if the user trusts it or a directory around it; a path also if it lies beside the run file.
        """
        if self.name in map(_without_password, places()):
            return True
        if self.kind == ADDRESS or REMOTE.match(self.value):
            return False
        folders = {os.path.realpath(name) for name in places() if not REMOTE.match(name)}
        folders |= holding() if self.kind == PATH else set()
        try:
            real = os.path.realpath(self.value)
        except (OSError, ValueError):  # of no file
            return False
        return any(lies_in(real, folder) for folder in folders)


def require_asked(found: Mapping[str, Outside]) -> None:
    """Raise Untrusted unless the user trusts all paths and addresses in `found`; the error lists those not trusted.

    `found` has the paths and addresses that a configuration names, by their place in it.
    """
    lacking = {place: one for place, one in found.items() if not one.trusted}
    if not lacking:
        return
    named = ", ".join(f"{place} = {_without_password(one.value)!r}" for place, one in lacking.items())
    names = tuple(dict.fromkeys(one.name for one in lacking.values()))
    if not all(name.isprintable() for name in names):  # in a command to be copied they could hide or change its rest
        raise ConfigError(f"{named}: characters that cannot be printed, in the name of a file or a server")
    listed = ", ".join(f'"{name}"' for name in names)
    raise Untrusted(
        f"{named}: a configuration may come from a stranger, and this lies outside of it. Nothing was read or sent. If "
        f"you want it: type the option on the command line, or --trust {' --trust '.join(map(shlex.quote, names))}; "
        f"ppax.trust({listed}) in Python, or trust = [{listed}] in {settings_file() or 'the settings file'}",
        names,
    )


def may_name_a_file(text: str) -> bool:
    """Return whether a text looks like a path or an address, or is the name of a file in the current directory."""
    try:
        return is_place(text) or text.startswith("~") or os.path.lexists(text)
    except ValueError:
        return False


def _without_password(address: str) -> str:
    return PASSWORD.sub(r"\1@", address, count=1)
