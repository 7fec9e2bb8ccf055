"""NumPy versions of the JAX primitives that feedforward networks use.

Each table entry takes a primitive's parameters and returns a function of arrays, equal to XLA's except for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., Any]
ONE = np.float32(1.0)


def _broadcast(params: dict[str, Any]) -> Function:
    shape, where = tuple(params["shape"]), params["broadcast_dimensions"]

    def broadcast(x: Any) -> Any:
        x = np.asarray(x)
        ones = [1] * len(shape)
        for axis, size in zip(where, x.shape, strict=True):
            ones[axis] = size
        return np.broadcast_to(x.reshape(ones), shape)

    return broadcast


def _dot(params: dict[str, Any]) -> Function:
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    if left_batch or right_batch:
        raise NotImplementedError("a batched product")

    plain = tuple(left) == (1,) and tuple(right) == (0,)

    def dot(x: Any, y: Any) -> Any:
        if plain and x.ndim == y.ndim == 2:
            return x @ y
        return np.tensordot(x, y, axes=(left, right))

    return dot


def _select(params: dict[str, Any]) -> Function:
    def select(which: Any, *cases: Any) -> Any:
        if len(cases) == 2:
            return np.where(which, cases[1], cases[0])
        return np.choose(which, cases)

    return select


def _pad(params: dict[str, Any]) -> Function:
    config = params["padding_config"]
    if any(low < 0 or high < 0 or inner for low, high, inner in config):
        raise NotImplementedError("negative or interior padding")
    return lambda x, value: np.pad(x, [(low, high) for low, high, _ in config], constant_values=value)


def _slice(params: dict[str, Any]) -> Function:
    strides = params["strides"] or (1,) * len(params["start_indices"])
    cut = tuple(map(slice, params["start_indices"], params["limit_indices"], strides))
    return lambda x: x[cut]


def _iota(params: dict[str, Any]) -> Function:
    shape, axis = params["shape"], params["dimension"]
    along = [-1 if i == axis else 1 for i in range(len(shape))]
    numbers = np.broadcast_to(np.arange(shape[axis], dtype=params["dtype"]).reshape(along), shape)
    return lambda: numbers


def _unstack(params: dict[str, Any], i: int) -> Function:
    at = (slice(None),) * params["axis"] + (i,)
    return lambda x: x[at]


def _split(params: dict[str, Any], i: int) -> Function:
    start = sum(params["sizes"][:i])
    at = (slice(None),) * params["axis"] + (slice(start, start + params["sizes"][i]),)
    return lambda x: x[at]


def _reduce(function: Function) -> Callable[[dict[str, Any]], Function]:
    return lambda params: lambda x: function(x, axis=tuple(params["axes"]))


def _argument(function: Function) -> Callable[[dict[str, Any]], Function]:
    return lambda params: lambda x: function(x, params["axes"][0]).astype(params["index_dtype"])


def _plain(function: Function) -> Callable[[dict[str, Any]], Function]:
    return lambda params: function


def _logical(on_bools: Function, on_bits: Function) -> Callable[[dict[str, Any]], Function]:
    return _plain(lambda *x: on_bools(*x) if x[0].dtype == np.bool_ else on_bits(*x))


def _power(params: dict[str, Any]) -> Function:
    return lambda x: x * x if params["y"] == 2 else x ** params["y"]


def _logistic(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return ONE / (ONE + np.exp(-x))


ELEMENTWISE: dict[str, Function] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: ONE / np.sqrt(x),
    "square": np.square,
    "logistic": _logistic,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "is_finite": np.isfinite,
    "pow": np.power,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "stop_gradient": lambda x: x,
}
OPERATIONS: dict[str, Callable[[dict[str, Any]], Function]] = {
    **{name: _plain(function) for name, function in ELEMENTWISE.items()},
    "and": _logical(np.logical_and, np.bitwise_and),
    "or": _logical(np.logical_or, np.bitwise_or),
    "not": _logical(np.logical_not, np.invert),
    "integer_pow": _power,
    "dot_general": _dot,
    "broadcast_in_dim": _broadcast,
    "transpose": lambda params: lambda x: np.transpose(x, params["permutation"]),
    "convert_element_type": lambda params: lambda x: np.asarray(x).astype(params["new_dtype"], copy=False),
    "concatenate": lambda params: lambda *x: np.concatenate(x, params["dimension"]),
    "select_n": _select,
    "pad": _pad,
    "slice": _slice,
    "iota": _iota,
    "reduce_sum": _reduce(lambda x, axis: np.sum(x, axis, dtype=x.dtype)),
    "reduce_max": _reduce(np.max),
    "reduce_min": _reduce(np.min),
    "reduce_and": _reduce(np.all),
    "reduce_or": _reduce(np.any),
    "stack": lambda params: lambda *x: np.stack(x, params["axis"]),
    "argmax": _argument(np.ndarray.argmax),
    "argmin": _argument(np.ndarray.argmin),
}
# Primitives with several results: (parameters, index of the result) -> function that returns this result
SEVERAL: dict[str, Callable[[dict[str, Any], int], Function]] = {"unstack": _unstack, "split": _split}
