"""Reader of exported policies that needs NumPy alone: deterministic actions for any batch size.

    policy = NumpyPolicy("bundle.zip")
    carry = policy.initial_carry(1)                      # {} without memory
    out = policy({"obs": obs[None], "first": [True], **carry})
    out["action"][0], out["log_prob"][0]

The inputs and outputs of a policy are listed in `policy.inputs` and `policy.outputs`: names, shapes [b, ...], dtypes.
After each step, give every output `next_carry...` back as the input `carry...`; `first` is True where an episode
begins. The file executes no code of the bundle: the policy is a list of operations of the table below.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import zipfile
from typing import IO, Any

import numpy as np

from ppax.storage.zip_directory import require_short_directory
from ppax.training.host.operations import functions

DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "F16": "f2"}
DTYPES |= {"U32": "u4", "I32": "i4", "F32": "f4", "U64": "u8", "I64": "i8", "F64": "f8"}
KEPT = 8  # batch sizes whose prepared programs are kept
LIMITS = {"policy.json": 2**24, "program.json": 2**24, "weights.safetensors": 2**33}  # bytes of the files
DIRECTORY = 2**12  # bytes of the directory of the archive; six files take 600
# Errors of Python for a file of another form than a bundle's
MALFORMED = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError, EOFError),
    *(struct.error, zipfile.BadZipFile),
)


class NumpyPolicy:
    """Policy of a bundle: a function of a dict of arrays [b, ...] that returns a dict of arrays [b, ...]."""

    def __init__(self, path: str | os.PathLike[str] | IO[bytes]):
        """Read `path`, a bundle or an open one; ValueError if a file in it is damaged."""
        try:
            self._read(path)
        except MALFORMED as error:
            raise ValueError(f"{path} is not a readable bundle: {error}") from error
        self._prepared: dict[int, tuple[list[Any], list[Any]]] = {}

    def _read(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Read description, program and weights of the bundle `path`; ValueError where a checksum is wrong."""
        with open(path, "rb") if isinstance(path, str | os.PathLike) else contextlib.nullcontext(path) as file:
            require_short_directory(file, DIRECTORY)
            with zipfile.ZipFile(file) as bundle:
                files = {name: stored(bundle, name) for name in LIMITS}
        self.description = json.loads(files.pop("policy.json"))
        for name, data in files.items():
            if hashlib.sha256(data).hexdigest() != self.description["files"][name]["sha256"]:
                raise ValueError(f"{name} is damaged")
        self.inputs, self.outputs = self.description["inputs"], self.description["outputs"]
        self._names = {x["name"] for x in self.inputs}
        self._categories = categories(self.description.get("spec", {}).get("observation_space", {}))
        self._program = json.loads(files["program.json"])
        arrays = safetensors(files["weights.safetensors"])
        self._weights = {slot: arrays[name] for name, slot in self._program["weights"]}

    def initial_carry(self, batch: int) -> dict[str, np.ndarray]:
        """Return the memory before the first step, as inputs by name for `batch` rows; {} if the policy has none."""
        carry = [x for x in self.inputs if x["name"].partition(".")[0] == "carry"]
        return {x["name"]: np.zeros((batch, *x["shape"][1:]), x["dtype"]) for x in carry}

    def __call__(self, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return the outputs for all inputs of the policy, [b, ...] each.

        Raises ValueError for a wrong name or shape, and for numbers that the policy does not take: NaN, infinity in
        observations, categories that do not exist, integers beyond 32 bits, masks of other entries than 0 and 1.
        """
        if inputs.keys() != self._names:
            wrong = {"missing": self._names - inputs.keys(), "unknown": inputs.keys() - self._names}
            said = "; ".join(f"{what}: {', '.join(sorted(map(str, names)))}" for what, names in wrong.items() if names)
            raise ValueError(f"inputs {said}; this policy takes {', '.join(sorted(self._names))}")
        given = {x["name"]: np.asarray(inputs[x["name"]]) for x in self.inputs}
        # of unequal batch sizes that of most inputs: the others are named below
        sizes = [len(given[x["name"]]) for x in self.inputs if given[x["name"]].ndim == len(x["shape"])]
        batch = max(sizes, key=sizes.count, default=1)
        shapes = {x["name"]: (given[x["name"]].shape, (batch, *x["shape"][1:])) for x in self.inputs}
        wrong_shapes = [f"{name} has shape {x}, expected {y}" for name, (x, y) in shapes.items() if x != y]
        if wrong_shapes:
            raise ValueError("; ".join(wrong_shapes))
        arrays = {x["name"]: self._input(x, given[x["name"]]) for x in self.inputs}
        if batch not in self._prepared:
            if len(self._prepared) == KEPT:
                self._prepared.clear()
            self._prepared[batch] = self._prepare(batch)
        values, each = self._prepared[batch]
        values = values.copy()
        for name, slot in self._program["inputs"]:
            values[slot] = arrays[name]
        run(each, values)
        return {name: np.array(values[slot]) for name, slot in self._program["outputs"]}

    def _input(self, entry: dict[str, Any], given: np.ndarray) -> np.ndarray:
        """Return an input in its dtype; ValueError for numbers that a cast would change or the policy does not take."""
        name, dtype = entry["name"], np.dtype(entry["dtype"])
        kinds = {"b": "biuf", "i": "biu", "u": "biu"}.get(dtype.kind, "biuf")
        if given.dtype.kind not in kinds:
            raise ValueError(f"{name} is {given.dtype}, which cannot be cast to {dtype}")
        with np.errstate(over="ignore"):
            x = given.astype(dtype, copy=False)
        wrong: Any = False
        if dtype.kind == "b":
            wrong, allowed = (given != 0) & (given != 1), "0 or 1"
        elif dtype.kind in "iu":
            limits = np.iinfo(dtype)
            low, high = self._categories.get(name, (limits.min, limits.max))
            wrong, allowed = (given < low) | (given > high), f"from {np.min(low)} to {np.max(high)}"
        elif name.startswith("carry"):
            wrong, allowed = np.isnan(x), "a number"
        else:
            wrong, allowed = ~np.isfinite(x), f"finite in {dtype}"
        if np.any(wrong):
            raise ValueError(f"{name} has the number {given[wrong][0]}; must be {allowed}")
        return x

    def _prepare(self, batch: int) -> tuple[list[Any], list[Any]]:
        """Return the list of arrays with all that depends on weights alone, and the operations left for every step."""
        values: list[Any] = [None] * self._program["slots"]
        for slot, array in self._weights.items():
            values[slot] = array
        changing = {slot for _, slot in self._program["inputs"]}
        once: list[Any] = []
        each: list[Any] = []
        for name, params, reads, writes in self._program["operations"]:
            calls = functions(name, with_batch(params, batch), len(writes))
            steps = each if changing.intersection(reads) else once
            steps += [(call, reads, slot) for call, slot in zip(calls, writes, strict=True)]
            changing.update(writes if steps is each else ())
        run(once, values)
        return values, each


def categories(space: dict[str, Any], name: str = "obs") -> dict[str, tuple[Any, Any]]:
    """Return the smallest and largest category of each categorical entry of an observation space, by input name."""
    inner, start = space.get("spaces"), np.asarray(space.get("start", 0))
    if space.get("space") in ("Discrete", "MultiDiscrete"):
        return {name: (start, start + np.asarray(space["n"] if "n" in space else space["nvec"]) - 1)}
    parts = inner.items() if isinstance(inner, dict) else enumerate(inner or ())
    return {key: limits for part, x in parts for key, limits in categories(x, f"{name}.{part}").items()}


def run(steps: list[Any], values: list[Any]) -> None:
    """Run operations (function, slots to read, slot to write); a slot is an index into the list `values` of arrays."""
    with np.errstate(all="ignore"):  # infinities of masked actions, as in compiled programs
        for function, reads, writes in steps:
            values[writes] = function(*[values[slot] for slot in reads])


def with_batch(x: Any, batch: int) -> Any:
    """Return an operation's parameters with numbers in place of "b" and "2*b", sizes that depend on the batch size."""
    if isinstance(x, dict):
        return {key: with_batch(inner, batch) for key, inner in x.items()}
    if isinstance(x, list):
        return [with_batch(inner, batch) for inner in x]
    if isinstance(x, str) and x[-1:] == "b" and x[:-1].rstrip("*").isdigit() | (x == "b"):
        return int(x[:-1].rstrip("*") or 1) * batch
    return x


def stored(bundle: zipfile.ZipFile, name: str) -> bytes:
    """Return a file of the bundle; ValueError if it is compressed, as no file of a bundle is, or too large."""
    entry = bundle.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise ValueError(f"{name} is compressed; in a bundle nothing is")
    if entry.file_size > LIMITS[name]:
        raise ValueError(f"{name} has {entry.file_size} bytes; must have at most {LIMITS[name]}")
    return bundle.read(name)


def safetensors(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file: 8 bytes with the header's length, the header (JSON), the numbers.

    They share the memory of `data`, so that overlapping arrays take no more.
    """
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        raise ValueError("a safetensors header longer than the file")
    header, numbers, arrays = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :], {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            array = np.frombuffer(numbers[begin:end], np.dtype(DTYPES[entry["dtype"]]))
            arrays[name] = array.reshape(entry["shape"])
    return arrays
