"""StableHLO format of a bundle: the policy's inference function (see `interface.py`), from observations to actions.

`jax.export` serialises the function for any batch size, with the weights inside.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import export

from ppax.core.types import PyTree
from ppax.policy.bundle.interface import Arrays, Interface

PLATFORMS = ("cpu", "cuda")


def to_stablehlo(interface: Interface, learner: PyTree) -> bytes:
    """Return the policy's inference function `interface` with the weights `learner`, serialised for CPU and CUDA.

    It is a function from a dict of inputs by name to a dict of outputs by name.
    """
    (batch,) = export.symbolic_shape("b")
    learner = jax.tree.map(jnp.asarray, learner)
    # without this, accelerators would round the factors of products in float32
    with jax.default_matmul_precision("highest"):
        step = jax.jit(lambda inputs: interface(learner, inputs))
        return bytes(export.export(step, platforms=PLATFORMS)(interface.shapes(batch)).serialize())


def stablehlo_runner(data: bytes) -> Callable[[Arrays], Arrays]:
    """Return a function that runs `data`, the result of `to_stablehlo`, from inputs to outputs by name.

    Use it only for `data` that this process has made, because what is in `data` is executed.
    """
    step = jax.jit(export.deserialize(bytearray(data)).call)
    return lambda inputs: jax.device_get(step(inputs))
