"""ONNX format of a bundle: the policy's inference function (see `interface.py`), from observations to actions.

jax2onnx converts the function to a model, and onnxruntime runs the model (extra `onnx`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.export import is_symbolic_dim

from ppax.core.types import ConfigError, PyTree
from ppax.policy.bundle.interface import Arrays, Interface
from ppax.training.host.numpy_program import Operation, Trace

LIMIT = 2**31 - 1  # bytes of one ONNX file
BATCH = "b"
OPSET = 18  # of the year 2022: read by every runtime in use
LOGGERS = ("jax2onnx", "onnx_ir")


def to_onnx(interface: Interface, learner: PyTree) -> bytes:
    """Return the policy's inference function `interface`, with the weights `learner`, as a serialised ONNX model.

    Raises ConfigError where jax2onnx cannot convert it, or where it is too large for an ONNX file.
    """
    import jax2onnx

    names, replay = [leaf.name for leaf in interface.inputs], replayed(interface, learner)

    def step(*inputs: Any) -> tuple[Any, ...]:
        return tuple(replay(dict(zip(names, inputs, strict=True))).values())

    shapes: Any = [jax.ShapeDtypeStruct((BATCH, *leaf.shape), leaf.dtype) for leaf in interface.inputs]  # type: ignore[arg-type]
    outputs = [leaf.name for leaf in interface.outputs]
    try:
        with _quiet():
            model = jax2onnx.to_onnx(step, shapes, None, "ppax", OPSET, input_names=names, output_names=outputs)
    except Exception as error:  # jax2onnx has no exception of its own
        text = str(error).strip().partition("\n")[0]
        raise ConfigError(f"jax2onnx cannot convert this policy: {type(error).__name__}: {text}") from error
    if model.ByteSize() > LIMIT:
        raise ConfigError(f"the ONNX model has {model.ByteSize()} bytes, and an ONNX file at most {LIMIT}")
    return bytes(model.SerializeToString())


def require_onnx() -> None:
    """Raise ImportError, naming the extra, where jax2onnx or onnxruntime is not installed."""
    try:
        import jax2onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'format "onnx" needs jax2onnx and onnxruntime: pip install "ppax[onnx]" ({error})'
        ) from error


def onnx_runner(data: bytes, interface: Interface) -> Callable[[Arrays], Arrays]:
    """Return a function that runs an ONNX model by onnxruntime on the CPU, from inputs to outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(inputs: Arrays) -> Arrays:
        found = session.run(None, {name: inputs[name] for name in names})
        return {leaf.name: x for leaf, x in zip(interface.outputs, found, strict=True)}

    return run


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context manager that silences warnings of the converter jax2onnx, which concern its own intermediate steps."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# Operations on complex numbers that are those of their parts
ON_EACH_PART = {
    *("add", "add_any", "sub", "neg", "select_n", "copy", "stop_gradient"),
    *("reshape", "broadcast_in_dim", "squeeze", "transpose", "slice", "concatenate", "convert_element_type"),
}


class Pair(NamedTuple):
    """Complex array as a pair of real arrays, its real and imaginary parts."""

    real: Any
    imag: Any


def replayed(interface: Interface, learner: PyTree) -> Callable[[Arrays], Arrays]:
    """Return the inference function `interface` with the weights `learner`, of inputs by name, [b, ...] for any b.

    A converter knows the basic primitives of JAX, but not all others. The returned function therefore replays the
    traced inference function one basic primitive at a time: called functions and loops are inlined, unused operations
    dropped, and what depends on weights alone is computed beforehand. Complex numbers become pairs of real ones.
    """
    (symbol,) = export.symbolic_shape("b")
    learner = jax.tree.map(jnp.asarray, learner)
    trace = Trace(interface, learner, interface.shapes(symbol))
    count = len(jax.tree.leaves(learner))
    values = [x if x is None else _parts(x) for x in trace.values]
    for slot, leaf in zip(trace.inputs[:count], jax.tree.leaves(learner), strict=True):
        values[slot] = leaf
    inputs, changing, each = trace.inputs[count:], set(trace.inputs[count:]), []
    for operation in trace.operations:
        if changing.intersection(operation.reads) or _is_sized(operation.params):
            changing.update(operation.writes)
            each.append(operation)
        else:
            _run(operation, values, 1)

    def step(named: Arrays) -> Arrays:
        now = values.copy()
        for slot, name in zip(inputs, sorted(named), strict=True):
            now[slot] = named[name]
        for operation in each:
            _run(operation, now, named["first"].shape[0])
        return {leaf.name: now[slot] for leaf, slot in zip(interface.outputs, trace.outputs, strict=True)}

    return step


def _run(operation: Operation, values: list[Any], batch: Any) -> None:
    """Run one operation of a traced function: read its arguments from the list `values`, and write its results there.

    An index into `values`, a slot, stands for one array of the function. `batch` is the batch size, which may be
    symbolic.
    """
    params = {name: _sized(x, batch) for name, x in operation.params.items()}
    arguments = [values[slot] for slot in operation.reads]
    if operation.name == "complex":
        out = Pair(*arguments)
    elif operation.name == "convert_element_type" and np.issubdtype(params["new_dtype"], np.complexfloating):
        x = jnp.asarray(arguments[0], jnp.float32)
        out = Pair(x, jnp.zeros_like(x))
    elif operation.name == "pad":
        out = _padded(params["padding_config"], *arguments)
    elif operation.name == "gather" and _is_window(arguments[1]):
        out = _window(params, *arguments)
    elif any(isinstance(x, Pair) for x in arguments):
        out = _on_pairs(operation, params, arguments)
    else:
        out = operation.primitive.bind(*map(jnp.asarray, arguments), **params)
    results = out if operation.primitive.multiple_results else [out]
    for slot, x in zip(operation.writes, results, strict=True):
        values[slot] = x


def _on_pairs(operation: Operation, params: dict[str, Any], arguments: list[Any]) -> Any:
    """Return the result of an operation with complex arguments, each a `Pair` of real and imaginary part.

    An operation that is linear or only moves numbers is done on each of these parts, another one by its formula in real
    numbers.
    """
    if operation.name in ("real", "imag"):
        return getattr(arguments[0], operation.name)
    if operation.name == "exp":
        size = jnp.exp(arguments[0].real)
        return Pair(size * jnp.cos(arguments[0].imag), size * jnp.sin(arguments[0].imag))
    if operation.name == "mul":
        (a, b), (c, d) = arguments
        return Pair(a * c - b * d, a * d + b * c)
    if operation.name not in ON_EACH_PART:
        raise ConfigError(f"there is no version in real numbers of the operation {operation.name} in this policy")
    parts = ([getattr(x, part) if isinstance(x, Pair) else x for x in arguments] for part in Pair._fields)
    return Pair(*(operation.primitive.bind(*map(jnp.asarray, own), **params) for own in parts))


def _padded(config: Any, x: Any, value: Any) -> Any:
    """Return `x` padded by `value`, or cropped, on each axis; `config` is that of `jax.lax.pad`.

    It is made of concatenations and slices, as converters pad only arrays of known size.
    """
    for axis, (low, high, _) in enumerate(config):
        if min(low, high) < 0:
            x = jax.lax.slice_in_dim(x, max(-low, 0), x.shape[axis] + min(high, 0), axis=axis)
        blocks = [
            jnp.broadcast_to(jnp.asarray(value, x.dtype), (*x.shape[:axis], size, *x.shape[axis + 1 :]))
            for size in (max(low, 0), max(high, 0))
        ]
        x = jnp.concatenate([block for block in (blocks[0], x, blocks[1]) if block.shape[axis]], axis=axis)
    return x


def _is_window(starts: Any) -> bool:
    """Return True if the start indices of a gather are known numbers (not traced) and select a single window."""
    return not isinstance(starts, jax.core.Tracer) and starts.ndim == 1


def _window(params: dict[str, Any], x: Any, starts: Any) -> Any:
    """Return the result of a gather of one window of `x`, made of slices: converters know only some gathers."""
    numbers = params["dimension_numbers"]
    for axis, start in zip(numbers.start_index_map, np.asarray(starts), strict=True):
        size = params["slice_sizes"][axis]
        if size != x.shape[axis]:
            begin = int(np.clip(start, 0, x.shape[axis] - size))
            x = jax.lax.slice_in_dim(x, begin, begin + size, axis=axis)
    return jax.lax.squeeze(x, numbers.collapsed_slice_dims) if numbers.collapsed_slice_dims else x


def _parts(x: np.ndarray) -> Any:
    return Pair(x.real.copy(), x.imag.copy()) if np.iscomplexobj(x) else x


def _is_sized(x: Any) -> bool:
    """Return whether a parameter of an operation contains the symbolic batch size."""
    if isinstance(x, dict):
        return any(map(_is_sized, x.values()))
    return any(map(_is_sized, x)) if isinstance(x, tuple | list) else is_symbolic_dim(x)


def _sized(x: Any, batch: Any) -> Any:
    """Return a parameter of an operation with `batch` in place of the symbolic batch size."""
    if isinstance(x, tuple):
        parts = [_sized(inner, batch) for inner in x]
        return tuple(parts) if type(x) is tuple else type(x)(*parts)  # a NamedTuple
    if not is_symbolic_dim(x):
        return x
    return int(x._evaluate({"b": 1})) * batch  # type: ignore[dict-item]
