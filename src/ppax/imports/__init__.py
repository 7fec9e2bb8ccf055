"""Code that is not part of ppax, by its import path, and the packages that may be imported."""

from ppax.imports.paths import (
    is_path,
    load,
    load_module,
    load_trusted,
    names_module,
    path_of,
    registered,
    require_trusted,
)
from ppax.imports.trusted import Untrusted, flags, granted, settings_file, trust, trusting

__all__ = [
    "Untrusted",
    "flags",
    "granted",
    "is_path",
    "load",
    "load_module",
    "load_trusted",
    "names_module",
    "path_of",
    "registered",
    "require_trusted",
    "settings_file",
    "trust",
    "trusting",
]
