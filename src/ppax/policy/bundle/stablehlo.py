"""StableHLO format: `jax.export` of the step for CPU and CUDA, with any batch size and the weights inside."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from ppax.policy.bundle.interface import Arrays, Interface
from ppax.types import PyTree

PLATFORMS = ("cpu", "cuda")


def to_stablehlo(interface: Interface, learner: PyTree) -> bytes:
    """Return the serialised step: a function of a dict of arrays, and of nothing else."""
    (batch,) = export.symbolic_shape("b")
    learner = jax.tree.map(jnp.asarray, learner)
    # without this, accelerators would round the factors of products in float32
    with jax.default_matmul_precision("highest"):
        step = jax.jit(lambda inputs: interface(learner, inputs))
        return bytes(export.export(step, platforms=PLATFORMS)(interface.shapes(batch)).serialize())


def run_stablehlo(data: bytes, inputs: Arrays) -> Arrays:
    """Return the outputs of a step that this process has exported."""
    out: Arrays = jax.device_get(export.deserialize(bytearray(data)).call(inputs))
    return out


def platforms_of(data: bytes) -> Any:
    """Return the platforms of a serialised step, without compiling or running it; any exception if it is damaged."""
    return export.deserialize(bytearray(data)).platforms
