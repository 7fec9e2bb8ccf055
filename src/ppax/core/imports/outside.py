"""Paths and addresses that a configuration names outside of itself; they are used only where the user trusts them.

A field of a part declares them, `static(..., outside=PATH)`. A run file may come from a stranger: it must not choose
which files of the user are read, or which servers get rows, policies and credentials.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from ppax.core.imports import trusted
from ppax.core.imports.trusted import REMOTE, Untrusted, is_place, lies_in, settings_file
from ppax.core.parts import ADDRESS, PATH
from ppax.core.types import ConfigError

PASSWORD = re.compile(r"^([A-Za-z0-9+.-]+://[^/@:]*):[^/@]*@")
TEXT = "text"  # argument of an environment, which may open the file of this name


class Outside(NamedTuple):
    """Path, address or text that a configuration has at a place."""

    kind: str
    value: str

    @property
    def name(self) -> str:
        """The value as `trust` takes it, with a slash and without a password: "./data", "//head:6379"."""
        if is_place(self.value):
            return _without_password(self.value)
        return f"//{self.value}" if self.kind == ADDRESS else f"./{self.value}"

    @property
    def trusted(self) -> bool:
        """Whether the user trusts it, or a directory around it; or it lies beside the file that is read."""
        if self.name in map(_without_password, trusted.places()):
            return True
        if self.kind == ADDRESS or REMOTE.match(self.value):
            return False
        folders = {os.path.realpath(name) for name in trusted.places() if not REMOTE.match(name)}
        folders |= trusted.holding() if self.kind == PATH else set()
        try:
            real = os.path.realpath(self.value)
        except (OSError, ValueError):  # of no file
            return False
        return any(lies_in(real, folder) for folder in folders)


def _without_password(address: str) -> str:
    return PASSWORD.sub(r"\1@", address, count=1)


def may_name_a_file(text: str) -> bool:
    """Return whether a text looks like a path or an address, or is the name of a file here."""
    try:
        return is_place(text) or text.startswith("~") or os.path.lexists(text)
    except ValueError:
        return False


def require_asked(found: Mapping[str, Outside]) -> None:
    """Raise Untrusted, with all of them at once, where the user does not trust what a configuration names by place."""
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
