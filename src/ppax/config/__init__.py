"""Configurations: options, settings of a run, the catalogue of parts, conversion from and to TOML and objects."""

from ppax.config.catalogue import PARTS, Choices
from ppax.config.construction import Built, build, build_agent, build_env, build_part, configured, settings
from ppax.config.defaults import PARTS_FOR_ALL, Recommended, recommended
from ppax.config.description import describe, describe_part, describe_run
from ppax.config.outside_names import named, outside, require_asked
from ppax.config.own_parts import import_paths, package_of, plain, require_trusted
from ppax.config.run_files import RUN_FILE, file_of, find, parse, presets, read, to_toml
from ppax.config.run_settings import (
    BestSettings,
    EvalSettings,
    FilmSettings,
    InitFrom,
    Log,
    Run,
    in_iterations,
    part_in_iterations,
    require_within,
)
from ppax.config.validation import (
    FREE,
    OBJECTS,
    SEARCH,
    SWEEP,
    is_free,
    objects_of,
    options,
    other_parts,
    overridden,
    part_options,
    resolve,
)
from ppax.options import flatten, unflatten

__all__ = [
    "FREE",
    "OBJECTS",
    "PARTS",
    "PARTS_FOR_ALL",
    "RUN_FILE",
    "SEARCH",
    "SWEEP",
    "BestSettings",
    "Built",
    "Choices",
    "EvalSettings",
    "FilmSettings",
    "InitFrom",
    "Log",
    "Recommended",
    "Run",
    "build",
    "build_agent",
    "build_env",
    "build_part",
    "configured",
    "describe",
    "describe_part",
    "describe_run",
    "file_of",
    "find",
    "flatten",
    "import_paths",
    "in_iterations",
    "is_free",
    "named",
    "objects_of",
    "options",
    "other_parts",
    "outside",
    "overridden",
    "package_of",
    "parse",
    "part_in_iterations",
    "part_options",
    "plain",
    "presets",
    "read",
    "recommended",
    "require_asked",
    "require_trusted",
    "require_within",
    "resolve",
    "settings",
    "to_toml",
    "unflatten",
]
