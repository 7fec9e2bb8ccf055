"""Reading of files that somebody else may have written: up to a limit of size, parsed as data, and never executed.

Every function raises ValueError, with one sentence, for content of another form than expected, and OSError for what is
no regular file or larger than its limit. Code that builds objects from the content catches the exceptions in MALFORMED,
which unexpected content may cause.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy

# Errors of Python for data of another type, size or form than the code expects: int(inf), x["a"] of a list, ...
MALFORMED = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, TypeError),
    ValueError,
)
DEEPEST = 100  # nested tables and lists; far above any file of ppax
LARGEST = 2**1023  # integers up to it convert to float
RUN_FILE_LIMIT = 2**20  # bytes of a run file; ten thousand swept values take a quarter of it
YAML_LIMIT = 2**18  # characters of a file in YAML, whose parser takes seconds for so many
LINE_LIMIT = 2**20  # bytes of a line of JSON; a row of five hundred metrics has 20 thousand
# Flags that Windows lacks are 0 there
PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a named pipe opens without blocking
Pairs = Callable[[list[tuple[str, Any]]], Any]


def open_to_read(path: Path) -> int:
    """Open a regular file for reading and return its file descriptor; OSError for links, pipes and devices."""
    return regular(os.open(path, os.O_RDONLY | PLAIN | NO_WAIT), path)


def read(path: Path, limit: int) -> bytes:
    """Return the content of a regular file; OSError for links, pipes, devices and files of more than `limit` bytes."""
    with os.fdopen(open_to_read(path), "rb") as file:
        require_size(path, file, limit)
        return file.read(limit)


def require_size(path: Path, file: IO[bytes], limit: int) -> None:
    """Raise OSError if an open file has more than `limit` bytes, also if it is sparse and takes none on the disk."""
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        raise OSError(errno.EFBIG, f"has {size:,} bytes; must have at most {limit:,}", str(path))


def regular(handle: int, path: Path) -> int:
    """Return the file descriptor `handle` if it is of a regular file; otherwise close it and raise OSError.

    `path` is the file's, for the error.
    """
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_text(path: Path, limit: int) -> str:
    """Return the text of a UTF-8 file of at most `limit` bytes.

    Raises OSError if it is larger, ValueError if it is not UTF-8.
    """
    return read(path, limit).decode()


def from_json(data: bytes | str, pairs: Pairs | None = None) -> Any:
    """Return parsed JSON, where `pairs`, if given, builds each object from its list of (key, value).

    Raises ValueError for malformed JSON.
    """
    return _parsed(lambda: json.loads(data, object_pairs_hook=pairs))


def from_toml(text: str) -> dict[str, Any]:
    """Return parsed TOML; ValueError if malformed."""
    table: dict[str, Any] = _parsed(lambda: tomllib.loads(text))
    return table


def from_yaml(text: str) -> Any:
    """Return parsed YAML: tables with texts as keys, lists, and scalars by the core schema of YAML 1.2.

    In YAML 1.2, unlike in 1.1, 1e-3 is a number and `off` is a text. Only PyYAML's parser is used, whose events
    are text; nothing is constructed by a tag. Raises ValueError for malformed YAML, more than YAML_LIMIT characters,
    repeated keys, several documents, and for tags, anchors and aliases, a few of which would make a table of any size;
    ImportError, which names the extra, without PyYAML.
    """
    if len(text) > YAML_LIMIT:
        raise ValueError(f"has {len(text):,} characters; must have at most {YAML_LIMIT:,} in YAML; TOML may have more")
    try:
        import yaml
    except ImportError as error:
        raise ImportError(f'YAML cannot be read ({error}): pip install "ppax[yaml]"') from error

    def parse() -> Any:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        try:
            next(events)  # start of the stream
            if isinstance(next(events), yaml.StreamEndEvent):
                return None
            content = _yaml_node(events, next(events))
            next(events)  # end of the document
            if not isinstance(next(events), yaml.StreamEndEvent):
                raise ValueError("several documents; must be one")
            return content
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise ValueError(f"line {mark.line + 1 if mark else 1}: {error.problem or error.context}") from error
        except yaml.YAMLError as error:  # characters that YAML does not allow
            raise ValueError(" ".join(str(error).split())) from error

    return _parsed(parse)


def _yaml_node(events: Iterator[Any], event: Any) -> Any:
    """Return the value that begins with the YAML event `event`; the events after it are taken from `events`."""
    line = f"line {event.start_mark.line + 1}"
    kind = type(event).__name__
    if event.anchor is not None:  # that of an alias, too
        raise ValueError(f"{line}: an anchor or alias, {event.anchor[:60]!r}: write the value where it is used")
    if event.tag is not None:
        raise ValueError(
            f"{line}: a tag, {event.tag[:60]!r}: leave it out; values are numbers, texts, lists and tables"
        )
    if kind == "ScalarEvent":
        plain = event.style is None  # not in quotes
        return _yaml_scalar(event.value) if plain else event.value
    if kind == "SequenceStartEvent":
        items = []
        while type(inner := next(events)).__name__ != "SequenceEndEvent":
            items.append(_yaml_node(events, inner))
        return items
    table: dict[str, Any] = {}
    while type(inner := next(events)).__name__ != "MappingEndEvent":
        key = _yaml_node(events, inner)
        if not isinstance(key, str):
            raise ValueError(f"line {inner.start_mark.line + 1}: a key, {str(key)[:60]}, that is no text; quote it")
        if key in table:
            raise ValueError(f"line {inner.start_mark.line + 1}: the key {key[:60]!r} is given twice in one table")
        table[key] = _yaml_node(events, next(events))
    return table


# Core schema of YAML 1.2 (https://yaml.org/spec/1.2.2, 10.3.2), and underscores in numbers, as TOML has them
YAML_WORDS = {"": None, "~": None} | dict.fromkeys(("null", "Null", "NULL"))
YAML_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
YAML_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+")
YAML_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


def _yaml_scalar(text: str) -> Any:
    """Return the value of a scalar of YAML without quotes: None, a boolean, a number or the text itself."""
    if text in YAML_WORDS:
        return YAML_WORDS[text]
    if YAML_INT.fullmatch(text):
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)
    if YAML_FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def read_json(path: Path, limit: int) -> Any:
    """Return the parsed content of a JSON file; OSError for more than `limit` bytes, ValueError if malformed."""
    return from_json(read(path, limit))


def read_table(path: Path, limit: int) -> dict[str, Any]:
    """Return the object of a JSON file; {} where the file is missing, too large, damaged or no object.

    `limit` is the largest size in bytes.
    """
    try:
        content = read_json(path, limit)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_lines(path: Path, limit: int) -> Iterator[str]:
    """Yield the lines of a text file, line ends included; lines longer than LINE_LIMIT bytes are skipped.

    Raises OSError for a file of more than `limit` bytes. Bytes that are not UTF-8 are replaced.
    """
    with os.fdopen(open_to_read(path), "rb") as file:
        require_size(path, file, limit)
        whole = True  # the line before has ended
        while line := file.readline(LINE_LIMIT):
            ended = line.endswith(b"\n")
            if whole and (ended or len(line) < LINE_LIMIT):
                yield line.decode(errors="replace")
            whole = ended


def arrays_of(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file, given as its bytes, by name; ValueError if malformed."""
    try:
        arrays: dict[str, np.ndarray] = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, *MALFORMED) as error:
        raise ValueError(str(error)) from error
    for name in arrays:
        if not name.isprintable():
            raise ValueError(f"the name {name[:60]!r} of an array has control characters")
    return arrays


def _parsed(parse: Callable[[], Any]) -> Any:
    try:
        value = parse()
    except RecursionError as error:
        raise ValueError(f"tables or lists are nested more than {DEEPEST} deep") from error
    _require_plain(value, 0)
    return value


def _require_plain(value: Any, depth: int) -> None:
    """Raise ValueError for parsed content that later code cannot take.

    That is deep nesting, integers too large for a float, and text that is not valid Unicode. `depth` is the number of
    levels around `value`.
    """
    if depth > DEEPEST:
        raise ValueError(f"tables or lists are nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        for name, inner in value.items():
            _require_plain(name, depth)
            _require_plain(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _require_plain(inner, depth + 1)
    elif isinstance(value, str):
        value.encode()  # UnicodeEncodeError for half a surrogate pair, which JSON can escape
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("a whole number of more than 300 digits")
