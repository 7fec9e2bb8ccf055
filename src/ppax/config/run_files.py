"""Run files: configurations as TOML, JSON or YAML, presets, and the file that a target of the command line names."""

from __future__ import annotations

import datetime
import difflib
import os
from collections.abc import Mapping
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from ppax import envs
from ppax.config.run_settings import Log
from ppax.config.validation import is_free
from ppax.core import untrusted
from ppax.core.options import NONE, Config, flatten, unflatten
from ppax.core.types import ConfigError
from ppax.networks import Tower
from ppax.storage.paths import quoted

SUFFIXES = (".toml", ".json", ".yaml", ".yml")  # of run files
WRITABLE = (bool, int, float, str, datetime.date, datetime.time)  # values of TOML, besides lists and tables
RUN_FILE = "run.toml"  # name of the run file in a run directory
SWEEP_FILE = "sweep.toml"  # name of the run file in the directory of a sweep
# Other spellings of None, by the end of an option's path
SPELLINGS = {
    f"{table}.{field.name}": field.metadata["none"]
    for table, cls in (("log", Log), ("network.actor", Tower), ("network.critic", Tower))
    for field in fields(cls)
    if "none" in field.metadata
}


def read(path: Path) -> Config:
    """Return the content of a configuration file, TOML, JSON or YAML; ConfigError where it cannot be read."""
    try:
        text = untrusted.read_text(Path(os.path.realpath(path)), untrusted.RUN_FILE_LIMIT)  # the user may give a link
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    return parse(text, path)


def parse(text: str, path: Path) -> Config:
    """Return the content of a configuration file from its text, JSON, YAML or TOML by the suffix of `path`.

    Raises ConfigError where the text cannot be parsed or is no table, ImportError for YAML without PyYAML.
    """
    text = text.removeprefix("\N{BYTE ORDER MARK}")  # which Windows editors may write
    try:
        if path.suffix == ".json":
            config = untrusted.from_json(text, _without_repeats)
        elif path.suffix in (".yaml", ".yml"):
            config = untrusted.from_yaml(text)
        else:
            config = untrusted.from_toml(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: a run file must be a table of options, not {type(config).__name__}")
    return config


def _without_repeats(pairs: list[tuple[str, Any]]) -> Config:
    """Return the dict of a JSON object's pairs; ValueError for a repeated key, which TOML refuses, too."""
    table = dict(pairs)
    if len(table) < len(pairs):
        repeated = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {repeated!r} is given twice in one table")
    return table


def to_toml(config: Config) -> str:
    """Return a configuration as TOML text.

    None, which TOML lacks, becomes "none", or the word that the option has for it, such as "all". Raises ConfigError
    for a parameter of the environment that TOML cannot hold, None among them: it would come back as the text "none".
    """
    flat = dict(flatten(config))
    for path, value in flat.items():
        if is_free(path):
            _require_writable(path, value)
    spelled = {path: _spelled_none(path) if value is None else value for path, value in flat.items()}
    return tomli_w.dumps(unflatten(spelled))


def _require_writable(path: str, value: Any) -> None:
    """Raise ConfigError if `value`, the environment's parameter at `path`, is or contains what TOML cannot hold."""
    if isinstance(value, Mapping | list | tuple):
        inner = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in inner:
            _require_writable(f"{path}.{key}", one)
    elif value is None:
        raise ConfigError(f"{path} = None: a run file has no None; leave it out if that is its default")
    elif not isinstance(value, WRITABLE):
        raise ConfigError(
            f"{path} = {value!r}: a run file cannot hold a {type(value).__name__}: must be a number, a text, true or "
            "false, or a list or table of these; other objects are for environments that you make yourself: "
            "ppax.envs.host, or a class of your own"
        )


def _spelled_none(path: str) -> str:
    return next((word for end, word in SPELLINGS.items() if path.endswith(end)), NONE)


def presets() -> dict[str, Path]:
    """Return the files of all presets, which are the tuned runs that come with ppax, by name."""
    root = Path(str(resources.files("ppax.config") / "presets"))
    return {str(p.relative_to(root).with_suffix("")): p for p in sorted(root.rglob("*.toml"))}


def preset(name: str) -> Config:
    """Return the content of a preset's run file; ConfigError, which names the nearest one, for an unknown preset."""
    known = presets()
    if name not in known:
        nearest = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"no preset {name!r}; did you mean {nearest!r}? There are: {', '.join(known)}; "
            "without one, and with none, a run has the defaults by the kind of its environment"
        )
    return read(known[name])


def file_of(target: str) -> Path | None:
    """Return the run file at `target`, or in the run directory `target`; None for names of presets and environments.

    Raises ConfigError for files of another kind and for directories without a run.
    """
    path = Path(target)
    if path.suffix in SUFFIXES:
        return path
    if target in presets() or target in envs.BUILTIN:
        return None
    if path.is_file():
        raise ConfigError(f"{path}: a run file is named {', '.join(SUFFIXES)}; see `ppax presets` for examples")
    if (path / RUN_FILE).is_file():
        return path / RUN_FILE
    if path.is_dir() and target.partition("/")[0] not in (*envs.SUITES, *envs.HOST_SUITES):
        remedy = f"{path} is a directory without {RUN_FILE}: must be a run directory, a run file or a name"
        raise ConfigError(of_sweep(path) or remedy)
    return None


def of_sweep(path: Path) -> str:
    """Return an error text if `path` is the directory of a sweep rather than of a run: the commands for it; else ""."""
    if not (path / SWEEP_FILE).is_file():
        return ""
    return (
        f"{path} is the directory of a sweep, whose runs are in {path / 'members'}; `ppax resume {quoted(path)}` "
        f"continues it or prints its table, `ppax sweep {quoted(path / SWEEP_FILE)}` begins it again"
    )


def find(target: str) -> Config:
    """Return the configuration that `target`, the first argument of a command, names, without default settings.

    If it is the path of a run file or run directory, the content of that run file; if it is the name of an environment
    or a preset, a configuration with only the option `env` or `preset`.
    """
    path = file_of(target)
    if path is not None:
        return read(path)
    if target in presets() and preset(target)["env"] != target:  # a style, of no environment in particular
        return {"preset": target}
    return {"env": target}
