"""Code that is not part of ppax, by its import path; packages, paths and addresses that the user trusts."""

from ppax.core.imports.outside import TEXT, Outside, may_name_a_file, require_asked
from ppax.core.imports.paths import (
    is_path,
    load,
    load_module,
    load_trusted,
    names_module,
    path_of,
    registered,
    require_trusted,
)
from ppax.core.imports.trusted import (
    REMOTE,
    Untrusted,
    flags,
    granted,
    handed_over,
    naming,
    settings_file,
    trust,
    trusting,
    typed,
)

__all__ = [
    "REMOTE",
    "TEXT",
    "Outside",
    "Untrusted",
    "flags",
    "granted",
    "handed_over",
    "is_path",
    "load",
    "load_module",
    "load_trusted",
    "may_name_a_file",
    "names_module",
    "naming",
    "path_of",
    "registered",
    "require_asked",
    "require_trusted",
    "settings_file",
    "trust",
    "trusting",
    "typed",
]
