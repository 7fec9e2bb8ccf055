"""NumPy versions of the JAX primitives that networks and distributions use.

Each entry of the tables below takes a primitive's parameters, as JAX has them or as plain data (lists, names of
dtypes), and returns a function of arrays, equal to XLA's except for rounding. This file needs NumPy alone: exported
policies carry it.
"""

from __future__ import annotations

import math
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
    plain = tuple(left) == (1,) and tuple(right) == (0,)

    def dot(x: Any, y: Any) -> Any:
        if plain and x.ndim == y.ndim == 2 and not left_batch:
            return x.dot(y)  # half the time of `x @ y` for small arrays
        if not left_batch:
            return np.tensordot(x, y, axes=(left, right))
        own, other = list(range(x.ndim)), list(range(x.ndim, x.ndim + y.ndim))  # the labels of the axes
        for axis, twin in (*zip(left, right, strict=True), *zip(left_batch, right_batch, strict=True)):
            other[twin] = own[axis]
        kept = [label for label in own + other if (label in own) != (label in other)]
        return np.einsum(x, own, y, other, [own[axis] for axis in left_batch] + kept)

    return dot


def _gather(params: dict[str, Any]) -> Function:
    """Return XLA's gather for these parameters: windows of `slice_sizes` of an array, which start at given indices.

    The starts are in the last axis of the indices; they are moved so that each window is inside the array.
    """
    offset, collapsed, start_axes, operand_batch, index_batch = params["dimension_numbers"]
    sizes = params["slice_sizes"]

    def gather(x: Any, starts: Any) -> Any:
        rank, window = starts.ndim - 1, [axis for axis in range(x.ndim) if axis not in (*collapsed, *operand_batch)]
        index = []
        for axis, size in enumerate(sizes):
            along = [1] * (rank + len(window))
            begin: Any = 0
            if axis in start_axes:
                begin = np.clip(starts[..., start_axes.index(axis)], 0, x.shape[axis] - size)
                begin = begin.reshape(*begin.shape, *[1] * len(window))
            elif axis in operand_batch:
                place = index_batch[operand_batch.index(axis)]
                along[place] = starts.shape[place]
                begin = np.arange(starts.shape[place]).reshape(along)
            if axis in window:
                along[rank + window.index(axis)] = size
                begin = begin + np.arange(size).reshape(along)
            index.append(begin)
        return np.moveaxis(x[tuple(index)], range(rank, rank + len(window)), offset)

    return gather


def _dynamic_slice(params: dict[str, Any]) -> Function:
    sizes = params["slice_sizes"]

    def dynamic_slice(x: Any, *starts: Any) -> Any:
        begins = [int(np.clip(s, 0, n - size)) for s, n, size in zip(starts, x.shape, sizes, strict=True)]
        return x[tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))]

    return dynamic_slice


def _cumsum(params: dict[str, Any]) -> Function:
    axis = params["axis"]
    flip: Function = (lambda x: np.flip(x, axis)) if params["reverse"] else lambda x: x
    return lambda x: flip(np.cumsum(flip(x), axis, dtype=x.dtype))


def _each(function: Callable[[float], float]) -> Function:
    """Return the NumPy version of a function of one number from the module `math`."""
    ufunc = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(ufunc(np.asarray(x, np.float64))).astype(x.dtype)


def _select(params: dict[str, Any]) -> Function:
    def select(which: Any, *cases: Any) -> Any:
        if len(cases) == 2:
            return np.where(which, cases[1], cases[0])
        return np.choose(which, cases)

    return select


def _pad(params: dict[str, Any]) -> Function:
    config = params["padding_config"]
    if any(inner for _, _, inner in config):
        raise NotImplementedError("interior padding")
    grow = [(max(low, 0), max(high, 0)) for low, high, _ in config]
    crop = tuple(slice(max(-low, 0), min(high, 0) or None) for low, high, _ in config)
    return lambda x, value: np.pad(x[crop], grow, constant_values=value)


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
    "ceil": np.ceil,
    "sin": np.sin,
    "cos": np.cos,
    "exp2": np.exp2,
    "complex": lambda x, y: x + np.complex64(1j) * y,
    "real": np.real,
    "imag": np.imag,
    "lgamma": _each(math.lgamma),
    "erf": _each(math.erf),
    "is_finite": np.isfinite,
    "pow": np.power,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    **dict.fromkeys(("copy", "copy_p", "stop_gradient"), lambda x: x),
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
    "reshape": lambda params: lambda x: np.reshape(x, params["new_sizes"]),
    "squeeze": lambda params: lambda x: np.squeeze(x, tuple(params["dimensions"])),
    "select_n": _select,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "cumsum": _cumsum,
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
SEVERAL: dict[str, Callable[[dict[str, Any], int], Function]] = {
    "unstack": _unstack,
    "split": _split,
    "optimization_barrier": lambda params, i: lambda *x: x[i],
}


def functions(name: str, params: dict[str, Any], results: int) -> list[Function]:
    """Return a NumPy function for each of the results of a JAX primitive; NotImplementedError where there is none.

    `name` and `params` are the primitive's, and `results` is the number of its results.
    """
    if name in SEVERAL:
        return [SEVERAL[name](params, i) for i in range(results)]
    if name not in OPERATIONS:
        raise NotImplementedError(name)
    return [OPERATIONS[name](params)]
