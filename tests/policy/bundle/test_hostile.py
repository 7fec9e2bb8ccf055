"""Bundles of strangers: whatever is wrong in one, it is refused with exit code 5, nothing is executed or written."""

import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import safetensors.numpy
from gymnasium import spaces

import ppax
from ppax.cli import main
from ppax.policy import PolicySpec
from ppax.policy.bundle import DamagedBundle, NumpyPolicy, archive
from ppax.policy.bundle.numpy_policy import safetensors as arrays_of
from ppax.storage.manifest import sealed
from support import exported


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The files of a bundle by name."""
    path = tmp_path_factory.mktemp("good") / "bundle.zip"
    spec = PolicySpec(spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2), config={"agent": {"network": {"hidden": [4]}}})
    exported.random_policy(spec).export(path, ["numpy", "stablehlo"])
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


class Marker:
    """Object whose unpickling makes a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def described(files, **changes):
    """Return the files with a description that lists them as they are."""
    content = {name: data for name, data in files.items() if name != archive.DESCRIPTION}
    description = json.loads(files[archive.DESCRIPTION]) | changes
    with zipfile.ZipFile(io.BytesIO(archive.archive_bytes(description, content))) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def stored(files, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as bundle:
        for name, data in files.items():
            bundle.writestr(name, data)
    return out.getvalue()


def with_program(files, change):
    program = json.loads(files[archive.PROGRAM])
    change(program)
    return stored(described(files | {archive.PROGRAM: json.dumps(program).encode()}))


def with_weights(files, header, numbers=b""):
    text = json.dumps(header).encode()
    return stored(described(files | {archive.WEIGHTS: struct.pack("<Q", len(text)) + text + numbers}))


def twice(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as bundle:
        for name, data in files.items():
            bundle.writestr(name, data)
        with pytest.warns(UserWarning, match="Duplicate name"):
            bundle.writestr(archive.WEIGHTS, files[archive.WEIGHTS])
    return out.getvalue()


def claims_more(files):
    """An entry whose sizes in the directory are those of a bomb."""
    data, size = stored(files), len(files[archive.WEIGHTS])
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(archive.WEIGHTS.encode()))
    sizes = struct.pack("<II", size, size)
    assert data[at + 20 : at + 28] == sizes
    return data[: at + 20] + struct.pack("<II", 2**31, 2**31) + data[at + 28 :]


def spec_of(files):
    return json.loads(files[archive.DESCRIPTION])["spec"]


def changed_spec(files, **changes):
    return stored(described(files, spec=spec_of(files) | changes))


def operation(name, params):
    def change(program):
        program["operations"].append([name, params, [0], [0]])

    return change


HUGE = {"params.policy.bias": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}
WIDE = {"agent": {"network": {"hidden": [2**40]}}}
# the file, and words of its refusal
HOSTILE = {
    "a pickle in place of the weights": (
        lambda f, m: stored(described(f | {archive.WEIGHTS: pickle.dumps(m)})),
        "not a readable safetensors file",
    ),
    "a pickle beside the files": (lambda f, m: stored(f | {"weights.pkl": pickle.dumps(m)}), "holds 'weights.pkl'"),
    "a path outside": (lambda f, m: stored(f | {"../../outside.txt": b"x"}), "holds '../../outside.txt'"),
    "an absolute path": (lambda f, m: stored(f | {"/tmp/outside.txt": b"x"}), "holds '/tmp/outside.txt'"),
    "a file twice": (lambda f, m: twice(f), "holds 'weights.safetensors'"),
    "a zip bomb": (lambda f, m: stored(f | {archive.ONNX: bytes(2**26)}, zipfile.ZIP_DEFLATED), "is compressed"),
    "a size that is not there": (lambda f, m: claims_more(f), "claims 2147483648 bytes"),
    "a file that is not listed": (lambda f, m: stored(f | {archive.ONNX: b"x"}), "lists"),
    "a header of 2^60 elements": (lambda f, m: with_weights(f, HUGE, bytes(8)), "not a readable safetensors file"),
    "a header longer than the file": (
        lambda f, m: stored(described(f | {archive.WEIGHTS: struct.pack("<Q", 2**60)})),
        "not a readable safetensors file",
    ),
    "an unknown operation": (lambda f, m: with_program(f, operation("os.system", {})), "unknown operation 'os.system'"),
    "an operation with other parameters": (
        lambda f, m: with_program(f, operation("tanh", {"shape": [2**60]})),
        "operation 'tanh' with parameters",
    ),
    "a slot that does not exist": (
        lambda f, m: with_program(f, lambda p: p["outputs"].append(["action", 10**6])),
        "a slot that does not exist",
    ),
    "a million million slots": (lambda f, m: with_program(f, lambda p: p.update(slots=10**12)), "slots = 10000"),
    "a program that is no program": (
        lambda f, m: stored(described(f | {archive.PROGRAM: b"[" * 10**5})),
        "program.json is not JSON",
    ),
    "other code in place of the reader": (
        lambda f, m: stored(described(f | {archive.READER: b"import os\nos.mkdir('executed')\n"})),
        "numpy_policy.py is not the reader of ppax .*, but other code: do not import it",
    ),
    "other code of no version": (
        lambda f, m: stored(described(f | {archive.READER: b""}, ppax=["9.9.9"])),
        "numpy_policy.py is not the reader",
    ),
    "changed weights": (
        lambda f, m: stored(f | {archive.WEIGHTS: f[archive.WEIGHTS][:-1] + b"\x01"}),
        "weights.safetensors is damaged",
    ),
    "a changed description": (
        lambda f, m: stored(f | {archive.DESCRIPTION: f[archive.DESCRIPTION][:-2] + b' ,"a": 1}'}),
        "its checksum does not match",
    ),
    "another format": (lambda f, m: stored(described(f, format=99)), "not a bundle of format 1"),
    "no weights": (lambda f, m: stored({archive.DESCRIPTION: f[archive.DESCRIPTION]}), "is not a bundle"),
    "other inputs": (lambda f, m: stored(described(f, inputs=[])), "has other inputs"),
    "another agent": (
        lambda f, m: changed_spec(f, config={"agent": {"network": {"hidden": [5]}}}),
        "does not fit the agent",
    ),
    "a network larger than the file": (lambda f, m: changed_spec(f, config=WIDE), "does not fit|no network of"),
    "an agent by import path": (
        lambda f, m: changed_spec(f, config={"agent": {"network": {"encoder": "os"}}}),
        "describes no agent",
    ),
    "an endless space": (
        lambda f, m: changed_spec(f, observation_space={"space": "Box", "shape": [2**60]}),
        "observation_space",
    ),
    "no zip file": (lambda f, m: b"PK\x03\x04" + bytes(100), "not a readable bundle"),
    "half a file": (lambda f, m: stored(f)[:-500], "not a readable bundle"),
    "nothing": (lambda f, m: b"", "not a readable bundle"),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_hostile_bundle_is_refused_and_nothing_is_executed_or_written(fault, good, tmp_path, monkeypatch, capsys):
    marker, path = tmp_path / "executed", tmp_path / "inside" / "bundle.zip"
    make, words = HOSTILE[fault]
    path.parent.mkdir()
    path.write_bytes(make(good, Marker(marker)))
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(main, "_start_jax", lambda cache: None)
    with pytest.raises(DamagedBundle, match=words):
        ppax.load(path)
    assert main.main(["evaluate", str(path)]) == 5
    assert "ppax: " in capsys.readouterr().err
    assert sorted(x.name for x in tmp_path.rglob("*")) == ["bundle.zip", "inside"]


def test_links_and_pipes_are_not_read(good, tmp_path):
    real, link, pipe = tmp_path / "real.zip", tmp_path / "link.zip", tmp_path / "pipe.zip"
    real.write_bytes(stored(good))
    link.symlink_to(real)
    os.mkfifo(pipe)
    assert ppax.load(real).act(np.zeros(2)) in (0, 1)
    for path in (link, pipe):
        with pytest.raises(DamagedBundle, match="cannot be read"):
            ppax.load(path)


@pytest.mark.parametrize("version", ["99.0.1", "0.0.9"])
def test_the_reader_of_another_version_is_a_warning(version, good, tmp_path):
    """It cannot be compared, and is not executed: the policy itself loads."""
    path, other = tmp_path / "bundle.zip", {archive.READER: good[archive.READER] + b"#"}
    path.write_bytes(stored(described(good | other, ppax=version)))
    with pytest.warns(UserWarning, match=rf"another ppax, {version}, wrote it: do not import it"):
        policy = ppax.load(path)
    assert policy.act(np.zeros((3, 2))).shape == (3,)


def test_stablehlo_that_this_jax_cannot_read_does_not_keep_the_policy_from_loading(good, tmp_path):
    path = tmp_path / "bundle.zip"
    path.write_bytes(stored(described(good | {archive.STABLEHLO: b"of another version of JAX"})))
    assert ppax.load(path).act(np.zeros((3, 2))).shape == (3,)


# A number in the place of what the NumPy reader needs, and words of its refusal
DAMAGED = {
    "weights that are compressed": (lambda f: stored(f, zipfile.ZIP_DEFLATED), "is compressed; in a bundle nothing is"),
    "a list": (lambda f: stored(f | {archive.DESCRIPTION: b"[1]"}), "not a readable bundle"),
    "deep lists": (lambda f: stored(f | {archive.DESCRIPTION: b"[" * 10**5}), "not a readable bundle"),
    "a description without files": (lambda f: stored(f | {archive.DESCRIPTION: b"{}"}), "not a readable bundle"),
    "no program": (lambda f: stored({archive.DESCRIPTION: f[archive.DESCRIPTION]}), "not a readable bundle"),
    "a comment": (lambda f: stored(f) + b" ", "does not end in the directory of a zip file"),
    "nothing": (lambda f: b"", "does not end in the directory of a zip file"),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_the_numpy_reader_has_one_error_for_all_of_them(fault, good):
    make, words = DAMAGED[fault]
    with pytest.raises(ValueError, match=words):
        NumpyPolicy(io.BytesIO(make(good)))


def test_overlapping_arrays_take_no_memory(good):
    """A thousand names for the same ten megabytes."""
    size = 10 * 2**20
    one = {"dtype": "U8", "shape": [size - 1], "data_offsets": [1, size]}
    text = json.dumps({str(i): one for i in range(1000)}).encode()
    data = struct.pack("<Q", len(text)) + text + bytes(size)
    tracemalloc.start()
    arrays = arrays_of(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(arrays) == 1000
    assert peak < 2 * size


def test_a_checksum_that_is_right_does_not_hide_weights_that_are_not_finite(good, tmp_path):
    path, arrays = tmp_path / "bundle.zip", safetensors.numpy.load(good[archive.WEIGHTS])
    arrays["params.policy.bias"] = np.array([0.0, np.nan], np.float32)
    path.write_bytes(stored(described(good | {archive.WEIGHTS: safetensors.numpy.save(arrays)})))
    with pytest.raises(DamagedBundle, match="not finite"):
        ppax.load(path)


def test_the_files_of_these_tests_are_a_good_bundle(good, tmp_path):
    path = tmp_path / "bundle.zip"
    path.write_bytes(stored(described(good)))
    description = json.loads(good[archive.DESCRIPTION])
    assert description == sealed(description)
    assert ppax.load(path).act(np.zeros((3, 2))).shape == (3,)
