"""Reader of files that somebody else may have written: limits, one kind of error, and no other reader."""

import ast
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import ppax
from ppax.core import untrusted

ROOT = Path(ppax.__file__).parent


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested more than 100 deep"),
        ("[" * 150 + "]" * 150, "nested more than 100 deep"),
        ("1" + "0" * 400, "more than 300 digits"),
        ("[-1" + "0" * 400 + "]", "more than 300 digits"),
        ("9" * 5000, "digits"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"\\ud800": 1}', "surrogates not allowed"),
        ("{", "property name"),
    ],
)
def test_data_that_later_code_cannot_take_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        untrusted.from_json(text)


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 5000, "x = 0x" + "f" * 5000, "x = " + "9" * 5000, "a." * 200 + "b = 1"]
)
def test_toml_has_the_same_limits(text):
    with pytest.raises(ValueError, match=r"nested|digits"):
        untrusted.from_toml(text)


def test_valid_data_is_as_it_is():
    value = {"a": [1, 2.5, None, True, "\n"], "b": {"c": 2**64}}
    assert untrusted.from_json(json.dumps(value)) == value
    assert untrusted.from_toml('a = [1, 2.5]\nb.c = "x"') == {"a": [1, 2.5], "b": {"c": "x"}}


@pytest.mark.parametrize(
    "data", [b"[1]", b"{", b"\xff\xfe", b"[" * 10**5, b'{"a": 1' + b"0" * 400 + b"}", None, b"{} " * 9]
)
def test_a_table_that_cannot_be_read_is_empty(tmp_path, data):
    if data is not None:
        (tmp_path / "x.json").write_bytes(data)
    assert untrusted.read_table(tmp_path / "x.json", 10**6) == {}


def test_a_file_above_its_limit_is_not_read(tmp_path):
    (tmp_path / "x.json").write_bytes(b'{"a": 1}')
    assert untrusted.read_table(tmp_path / "x.json", 8) == {"a": 1}
    assert untrusted.read_table(tmp_path / "x.json", 7) == {}
    with pytest.raises(OSError, match="has 8 bytes; must have at most 7"):
        untrusted.read_json(tmp_path / "x.json", 7)
    with pytest.raises(OSError, match="has 8 bytes; must have at most 7"):
        list(untrusted.read_lines(tmp_path / "x.json", 7))


def test_lines_are_read_one_by_one_and_long_ones_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "LINE_LIMIT", 10)
    lines = [
        b"short\n",
        b"x" * 9 + b"\n",
        b"x" * 10 + b"\n",
        b"x" * 25 + b"\n",
        b"caf\xe9\n",
        b"y" * 20 + b"\n",
        b"end",
    ]
    (tmp_path / "x").write_bytes(b"".join(lines))
    assert list(untrusted.read_lines(tmp_path / "x", 1000)) == ["short\n", "x" * 9 + "\n", "caf\ufffd\n", "end"]


def test_lines_of_a_sparse_file_take_no_memory(tmp_path):
    with open(tmp_path / "x", "wb") as file:
        file.truncate(2**27)
    tracemalloc.start()
    assert list(untrusted.read_lines(tmp_path / "x", 2**30)) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23


def test_arrays_have_names_that_can_be_shown():
    one = np.zeros(2, np.float32)
    assert list(untrusted.arrays_of(safetensors.numpy.save({"a.b": one}))) == ["a.b"]
    with pytest.raises(ValueError, match=r"the name 'a\\x1b\[2J' of an array has control characters"):
        untrusted.arrays_of(safetensors.numpy.save({"a\x1b[2J": one}))
    with pytest.raises(ValueError, match=r"[Hh]eader"):
        untrusted.arrays_of(b"no arrays")


# Files that no stranger has written: of the package itself, of the system, of this process
OWN = {
    "envs/hosting/worker_process.py": "messages of the process that started it",
    "envs/hosting/workers.py": "answers of worker processes",
    "training/host/operations.py": "no file",
    "devices/sharding.py": "/proc",
    "devices/platforms.py": "/proc",
    "devices/footprint.py": "/proc and control groups",
    "scores/scoring.py": "/proc",
    "scores/tables.py": "a file of the package",
    "reports/page.py": "a file of the package",
    "policy/bundle/numpy_format.py": "files of the package",
    "policy/bundle/numpy_policy.py": "needs NumPy alone; has limits of its own",
    "policy/bundle/mlflow_loader.py": "needs NumPy alone; text of a limited size",
    "ppo/normalization.py": "a file that the user's own program names; no run file can",
    "extensions/imitation/demonstrations.py": "the sizes are read before the arrays",
    "loggers/files.py": "one line, of read_lines",
    "loggers/tensorboard.py": "a film that this process has written",
    "reports/report.py": "a film that this process has written",
    "run/provenance.py": "text that this process has written",
    "sweeps/directory.py": "text that this process has written",
    "sweeps/studies/storage.py": "the last bytes of a file",
    "cli/common.py": "/dev/null",
    "storage/safe_files.py": "the function read",
    "core/untrusted.py": "this reader",
}
READERS = ("read_text", "read_bytes", "open", "load", "loads", "fdopen", "read_csv", "memmap", "fromfile", "genfromtxt")
MODULES = ("json", "tomllib", "np", "numpy", "os", "safetensors")


def reads(path):
    """Yield calls in a file that read or parse a file by other means than `untrusted`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open":
            yield "open"
        elif isinstance(function, ast.Attribute) and function.attr in READERS:
            owner = ast.unparse(function.value)
            known = function.attr in ("read_text", "read_bytes") or owner.partition(".")[0] in MODULES
            if known and owner != "untrusted" and ast.unparse(function) != "os.open":
                yield f"{owner}.{function.attr}"


def test_no_other_code_reads_files_of_strangers():
    """A new reader goes through `untrusted`, or stands in the table with the reason why it need not."""
    found = {path.relative_to(ROOT).as_posix(): list(reads(path)) for path in sorted(ROOT.rglob("*.py"))}
    others = {name: calls for name, calls in found.items() if calls and name not in OWN}
    # with the limits of `untrusted.require_size`, and what follows it
    checked = {"policy/bundle/archive.py": ["os.fdopen"], "storage/manifest.py": ["os.fdopen"]}
    for name, calls in checked.items():
        assert others.pop(name, calls) == calls
    assert others == {}
    assert os.path.isfile(ROOT / "core" / "untrusted.py")
