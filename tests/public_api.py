"""Public names and signatures: those on docs/api.md. What changes since the last release needs a line in CHANGELOG.md.

    python tests/public_api.py            # what differs from the last release, and what the CHANGELOG does not name
    python tests/public_api.py --write    # at a release: the list public_api.txt, if the CHANGELOG names every change

public_api.txt is the list as of the newest release that the CHANGELOG dates. Before the first one nothing is promised:
after a change the list is written again. A change is named by one entry of the newest section whose code (`...`) has
the name's path and the parameters that came, went or changed: "* `ppax.fit` has the option `overlap`" for
`ppax.fit(..., overlap=0)`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
from pathlib import Path
from typing import Any

import ppax

ROOT = Path(__file__).parents[1]
LIST, PAGE, CHANGELOG = Path(__file__).with_suffix(".txt"), ROOT / "docs" / "api.md", ROOT / "CHANGELOG.md"
PLAIN = (bool, int, float, str, type(None))  # defaults that are part of a signature; others are `...`


def names_on(page: str) -> list[str]:
    """Return the dotted paths that a page of the API documents: of its headings, and of tables below them."""
    names, module = [], "ppax"
    for heading, row in re.findall(r"^### (ppax\.[\w.]+)$|^\| `([\w.]+)` \|", page, re.MULTILINE):
        module = heading or module
        names.append(heading or (row if row.startswith("ppax.") else f"{module}.{row}"))
    return names


def found(name: str) -> Any:
    """Return the object at a dotted path; the modules on the way are imported."""
    module, _, rest = name.rpartition(".")
    if name == "ppax":
        return ppax
    owner = found(module)
    return getattr(owner, rest) if hasattr(owner, rest) else importlib.import_module(name)


def surface(names: list[str]) -> dict[str, str]:
    """Return the signature of each public name, and of the public methods and attributes of each class, by path."""
    lines: dict[str, str] = {}
    for name in names:
        what = found(name)
        if inspect.ismodule(what):
            continue
        lines[name] = signature(what)
        for member in members(what) if isinstance(what, type) else ():
            value = inspect.getattr_static(what, member, None)
            bare = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            lines[f"{name}.{member}"] = signature(bare) if inspect.isfunction(bare) else ""
    return dict(sorted(lines.items()))


def members(cls: type) -> list[str]:
    """Return the public names that a class and its bases in ppax define; fields stand in its signature."""
    own = [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "ppax"]
    fields = set(inspect.signature(cls).parameters) if not issubclass(cls, Exception) else set()
    names = {name for base in own for name in (*vars(base), *vars(base).get("__annotations__", {}))}
    return sorted(name for name in names - fields if name[0] != "_")


def signature(what: Any) -> str:
    """Return parameters and plain defaults, "" where there are none to promise; annotations differ between Pythons."""
    of_tools = isinstance(what, type) and (issubclass(what, Exception) or getattr(what, "_is_protocol", False))
    if of_tools or typing.get_origin(what) or not callable(what):
        return ""
    try:
        parameters = inspect.signature(what).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown, star = [], False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not star:
            shown.append("*")
        star = star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        mark = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f"={one.default!r}" if plain(one.default) else "=..."
        shown.append(f"{mark}{one.name}{default}")
    return f"({', '.join(shown)})"


def plain(default: Any) -> bool:
    """Return whether a default is a number, a text, None, or a tuple of them."""
    return all(map(plain, default)) if type(default) is tuple else type(default) in PLAIN


def read(text: str) -> tuple[str, dict[str, str]]:
    """Return the version of a list and its signatures by name."""
    head, *lines = text.splitlines()
    return head.rpartition(" ")[2], {name: rest and f"({rest}" for name, _, rest in (x.partition("(") for x in lines)}


def written(version: str, lines: dict[str, str]) -> str:
    """Return the text of a list."""
    return "\n".join([f"# Public names and signatures of ppax {version}", *map("".join, lines.items())]) + "\n"


def changes(before: dict[str, str], now: dict[str, str]) -> dict[str, set[str]]:
    """Return the words that an entry must have for each name that came, went or has another signature."""
    differ = {}
    for name in sorted(before.keys() | now.keys()):
        then, later = before.get(name), now.get(name)
        owner = name.rpartition(".")[0]
        whole_class = owner in before.keys() ^ now.keys()  # its methods came or went with it
        if then == later or whole_class:
            continue
        parts = set() if None in (then, later) else set(then[1:-1].split(", ")) ^ set(later[1:-1].split(", "))
        parameters = {match[1] for part in parts if (match := re.match(r"\**([A-Za-z_]\w*)", part))}
        differ[name] = {*name.split(".")[1:], *parameters}
    return differ


def unnamed(differ: dict[str, set[str]], changelog: str) -> list[str]:
    """Return a line for each change that no entry of the newest section of the CHANGELOG names.

    Before the first release each change has a line: the list must be written again.
    """
    if not dated(changelog):
        return [f"{name}: nothing is released yet: python tests/public_api.py --write" for name in differ]
    newest = re.split(r"^## ", changelog, flags=re.MULTILINE)[1]
    entries = re.split(r"^\* ", newest, flags=re.MULTILINE)[1:]
    words = [set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", entry)))) for entry in entries]
    return [
        f"{name}: an entry of CHANGELOG.md, section {newest.partition(' (')[0]}, must have in code: "
        f"{', '.join(sorted(needed))}"
        for name, needed in differ.items()
        if not any(needed <= entry for entry in words)
    ]


def dated(changelog: str) -> list[str]:
    """Return the released versions, those of the sections with a date, newest first."""
    return re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", changelog, re.MULTILINE)


def expected_version(changelog: str) -> str:
    """Return the newest version with a date; before the first release, that of the newest section."""
    return (dated(changelog) or re.findall(r"^## (\S+)", changelog, re.MULTILINE))[0]


def main() -> int:
    """Print the changes, or write the list; exit code 1 where the CHANGELOG lacks an entry."""
    changelog, now = CHANGELOG.read_text(encoding="utf-8"), surface(names_on(PAGE.read_text(encoding="utf-8")))
    before = read(LIST.read_text(encoding="utf-8"))[1] if LIST.exists() else now
    differ = changes(before, now)
    missing = unnamed(differ, changelog)
    print("\n".join([f"{len(differ)} changes", *differ, *missing]))
    if "--write" in sys.argv and not (missing and dated(changelog)):
        LIST.write_text(written(expected_version(changelog), now), encoding="utf-8")
        return 0
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
