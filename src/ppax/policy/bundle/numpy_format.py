"""NumPy format of a bundle: a policy's step as a list of operations that `numpy_policy.py` runs without JAX.

    {"inputs": [[name, slot]], "weights": [[name, slot]], "operations": [[name, parameters, reads, writes]],
     "outputs": [[name, slot]], "slots": number of slots}

A slot is a place for one array. A size in a parameter is a number, or "b", "2*b" and so on for multiples of the batch
size. Weights have their names in `weights.safetensors`, which also holds the constants.
"""

from __future__ import annotations

import enum
import json
import re
from importlib import resources
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export

from ppax.core.types import ConfigError, PyTree
from ppax.policy.bundle.interface import Interface
from ppax.storage.state_arrays import named_leaves
from ppax.training.host.numpy_program import NoNumpyVersion, Trace
from ppax.training.host.operations import functions

SIZE = re.compile(r"([1-9][0-9]*\*)?b")  # multiple of the batch size: "b", "2*b"
CONSTANT = "constant."  # prefix of the names of constants among the weights
# Parameters that an operation reads, by name of the operation; of others none
PARAMS = {
    "argmax": ("axes", "index_dtype"),
    "argmin": ("axes", "index_dtype"),
    "broadcast_in_dim": ("shape", "broadcast_dimensions"),
    "concatenate": ("dimension",),
    "convert_element_type": ("new_dtype",),
    "cumsum": ("axis", "reverse"),
    "dot_general": ("dimension_numbers",),
    "dynamic_slice": ("slice_sizes",),
    "gather": ("dimension_numbers", "slice_sizes"),
    "integer_pow": ("y",),
    "iota": ("shape", "dimension", "dtype"),
    "pad": ("padding_config",),
    "reshape": ("new_sizes",),
    "slice": ("start_indices", "limit_indices", "strides"),
    "split": ("axis", "sizes"),
    "squeeze": ("dimensions",),
    "stack": ("axis",),
    "transpose": ("permutation",),
    "unstack": ("axis",),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or"), ("axes",)),
}
# Files whose text takes the place of an import of the reader
INLINED = {
    "from ppax.training.host.operations import functions\n": ("ppax.training.host", "operations.py"),
    "from ppax.storage.zip_directory import require_short_directory\n": ("ppax.storage", "zip_directory.py"),
}
# Text that takes the place of the import of the reader in the loader for MLflow, which becomes one file with it
READER_IMPORT = "from ppax.policy.bundle.numpy_policy import NumpyPolicy\n"
FUTURE = "from __future__ import annotations\n"


class ProgramData(NamedTuple):
    """Step of a policy in the NumPy format: operations as plain data, and constants by name."""

    data: dict[str, Any]
    constants: dict[str, np.ndarray]


def to_program(interface: Interface, learner: PyTree) -> ProgramData:
    """Return the policy's step in the NumPy format, for any batch size.

    Raises ConfigError where an operation has no NumPy version.
    """
    (batch,) = export.symbolic_shape("b")
    learner = jax.tree.map(np.asarray, learner)
    shapes = interface.shapes(batch)
    try:
        trace = Trace(interface, learner, shapes)
        operations = [
            [name, _plain_params(name, params), list(reads), list(writes)]
            for name, _, params, reads, writes in trace.operations
        ]
    except NoNumpyVersion as error:
        raise ConfigError(f"there is no NumPy version of the operation {error} in this policy") from error
    weights, inputs = list(named_leaves(learner)), sorted(shapes)
    given = dict(enumerate(trace.values))
    constants = {f"{CONSTANT}{i}": given[i] for i in sorted(trace.needed) if given[i] is not None}
    used = [[name, slot] for name, slot in zip(weights, trace.inputs[: len(weights)], strict=True)]
    data = {
        "inputs": [[name, slot] for name, slot in zip(inputs, trace.inputs[len(weights) :], strict=True)],
        "weights": [[name, slot] for name, slot in used if slot in trace.needed]
        + [[name, int(name.removeprefix(CONSTANT))] for name in constants],
        "operations": operations,
        "outputs": [[leaf.name, slot] for leaf, slot in zip(interface.outputs, trace.outputs, strict=True)],
        "slots": len(trace.values),
    }
    return ProgramData(data, constants)


def as_json(data: dict[str, Any]) -> bytes:
    """Return a program of the NumPy format as JSON text, with one line for each operation."""
    lines = [json.dumps(operation) for operation in data["operations"]]
    rest = json.dumps({name: x for name, x in data.items() if name != "operations"})
    return (rest[:-1] + ', "operations": [\n ' + ",\n ".join(lines) + "\n]}\n").encode()


def check_program(data: Any, weights: set[str]) -> None:
    """Raise ValueError, naming the fault, unless `data` is a program of known operations on existing slots.

    `weights` are the names of the arrays that the bundle has.
    """
    size = data["slots"]
    if type(size) is not int or not 0 < size <= 2**24:
        raise ValueError(f"slots = {size!r}")
    for name, _ in data["weights"]:
        if name not in weights:
            raise ValueError(f"weight {name!r}, which the bundle does not have")
    places = [slot for key in ("inputs", "weights", "outputs") for _, slot in data[key]]
    for name, params, reads, writes in data["operations"]:
        if set(params) != set(PARAMS.get(name, ())):
            raise ValueError(f"operation {name!r} with parameters {sorted(params)}")
        try:
            functions(name, _at_size_1(params), len(writes))
        except NotImplementedError as error:
            raise ValueError(f"unknown operation {name!r}") from error
        places += [*reads, *writes]
    if not all(type(place) is int and 0 <= place < size for place in places):
        raise ValueError("a slot that does not exist")


def reader_text() -> str:
    """Return the source of the reader in a bundle, which needs NumPy alone.

    It is `numpy_policy.py` with the modules that this imports from ppax written into it.
    """
    text = (resources.files("ppax.policy.bundle") / "numpy_policy.py").read_text(encoding="utf-8")
    for line, (package, name) in INLINED.items():
        own = (resources.files(package) / name).read_text(encoding="utf-8").partition(FUTURE)[2]
        text = text.replace(line, own)
    return text


def loader_text() -> str:
    """Return the source of the loader in an MLflow model, with that of the reader in it: it imports no ppax."""
    text = (resources.files("ppax.policy.bundle") / "mlflow_loader.py").read_text(encoding="utf-8")
    return text.replace(READER_IMPORT, reader_text().partition(FUTURE)[2])


def _plain_params(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that the NumPy version of the operation `name` reads, as plain data.

    Raises NoNumpyVersion where the operation has no such version.
    """
    kept = {key: _plain(params[key]) for key in PARAMS.get(name, ())}
    try:
        functions(name, _at_size_1(kept), 1)
    except NotImplementedError as error:
        raise NoNumpyVersion(str(error)) from error
    return kept


def _plain(x: Any) -> Any:
    """Return a parameter of an operation as plain data, which JSON can store.

    Raises NoNumpyVersion for other objects, and for sizes that are no multiple of the batch size b.
    """
    if x is None or isinstance(x, bool | int | float):
        return x
    if isinstance(x, tuple | list):
        return [_plain(inner) for inner in x]
    if isinstance(x, np.dtype | type):
        return np.dtype(x).name
    if isinstance(x, np.integer | enum.Enum):
        return int(x) if isinstance(x, np.integer) else x.name
    if SIZE.fullmatch(str(x)):
        return str(x)
    raise NoNumpyVersion(f"with the size or parameter {x}")


def _at_size_1(x: Any) -> Any:
    """Return parameters of an operation with the batch size 1 in place of "b" in sizes such as "2*b"."""
    if isinstance(x, dict):
        return {key: _at_size_1(inner) for key, inner in x.items()}
    if isinstance(x, list):
        return [_at_size_1(inner) for inner in x]
    return int(x.removesuffix("b").removesuffix("*") or 1) if isinstance(x, str) and SIZE.fullmatch(x) else x
