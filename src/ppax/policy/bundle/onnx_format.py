"""ONNX format: the step through jax2onnx, run once by onnxruntime. Extra `onnx`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import jax

from ppax.core.types import ConfigError, PyTree
from ppax.policy.bundle.interface import Arrays, Interface
from ppax.policy.bundle.replay import replayed

LIMIT = 2**31 - 1  # bytes of one ONNX file
BATCH = "b"
OPSET = 18  # of the year 2022: read by every runtime in use
LOGGERS = ("jax2onnx", "onnx_ir")


def require_onnx() -> None:
    """Raise ImportError, naming the extra, where jax2onnx or onnxruntime is not installed."""
    try:
        import jax2onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'format "onnx" needs jax2onnx and onnxruntime: pip install "ppax[onnx]" ({error})'
        ) from error


def to_onnx(interface: Interface, learner: PyTree) -> bytes:
    """Return the ONNX model; ConfigError where jax2onnx has no counterpart of an operation."""
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


def runner(data: bytes, interface: Interface) -> Callable[[Arrays], Arrays]:
    """Return a function that runs the model by onnxruntime on the CPU."""
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
    """Context without the warnings of the converter, which concern its own intermediate steps."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
