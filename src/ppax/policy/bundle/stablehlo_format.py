"""StableHLO format of a bundle: the policy's step by `jax.export`, with any batch size and the weights inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from ppax.core.types import PyTree
from ppax.policy.bundle.interface import Arrays, Interface

PLATFORMS = ("cpu", "cuda")


def to_stablehlo(interface: Interface, learner: PyTree) -> bytes:
    """Return the policy's step, serialised for CPU and CUDA: a function of a dict of arrays, with weights inside."""
    (batch,) = export.symbolic_shape("b")
    learner = jax.tree.map(jnp.asarray, learner)
    # without this, accelerators would round the factors of products in float32
    with jax.default_matmul_precision("highest"):
        step = jax.jit(lambda inputs: interface(learner, inputs))
        return bytes(export.export(step, platforms=PLATFORMS)(interface.shapes(batch)).serialize())


def runner(data: bytes) -> Callable[[Arrays], Arrays]:
    """Return a function that runs a serialised step, from inputs to outputs by name.

    Use it only for steps that this process has serialised, as it runs what is in `data`.
    """
    step = jax.jit(export.deserialize(bytearray(data)).call)
    return lambda inputs: jax.device_get(step(inputs))


def platforms_of(data: bytes) -> Any:
    """Return the platforms of a serialised step, without compiling it; damaged data may raise any exception."""
    return export.deserialize(bytearray(data)).platforms
