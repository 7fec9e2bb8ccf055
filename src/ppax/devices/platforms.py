"""Rules by which programs are built on each platform (CPU, GPU, TPU), as data; they change results only by rounding.

The rules for CPUs are measured (benchmarks/NOTES.md). Some rules for accelerators are measured on an NVIDIA H100, and
the others follow from how such devices work (docs/accelerators.md); `python benchmarks/accelerator.py` measures them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import jax

Options = dict[str, int | bool]
CPU_INFO = Path("/proc/cpuinfo")  # Linux


class ChunkRule(NamedTuple):
    """Default numbers of rows in a chunk, the part of a minibatch whose gradient is computed at once, in several cases.

    The gradients of the chunks are added (gradient accumulation). `devices.layout.Program.rows` chooses the case: one
    or several devices, large images, a memory.
    """

    rows_alone: int  # rows per chunk of a program on one device
    rows_split: int  # rows per chunk and device of a program on several
    image_numbers: int  # pixel values per chunk of large images; convolution patches are several times as many
    # the same two with a memory whose products are computed for all steps at once: its gates take much of the cache
    at_once_alone: int
    at_once_split: int
    sequences: Mapping[str, int]  # least sequences per chunk, by compute_dtype, of memories that multiply in each step


class Rules(NamedTuple):
    """Choices by which programs are built on one platform, such as a CPU."""

    min_rows: int | None  # rows of a minibatch per device from which several are faster than one; None: one device
    chunks: ChunkRule
    few_streams: int  # largest number of streams per device whose V is computed for all steps of a rollout at once
    unroll: int  # steps of a loop over time in one iteration of the compiled loop
    unrolled_operations: int  # largest number of operations of an environment step and its action, for such a loop
    branches: bool  # a conditional is lax.cond; False: both sides are computed and one is selected
    parallel_scans: bool  # linear recurrences as associative scans; False: one step after the other
    library_convolutions: bool  # convolution and pooling of XLA; False: products of patches, comparisons of slices
    mapped_members: bool  # members of a sweep under `vmap`; False: one after the other on every device
    bfloat16_units: tuple[str, ...]  # processor flags with which training is faster with products in bfloat16
    rounds_float32: bool  # by default JAX rounds the factors of float32 products, to 10 bits on NVIDIA (TensorFloat-32)
    transposed_products: bool  # a factor of A^T B, the gradient of weights, is transposed before the product
    numpy_work: int  # largest (environments per batch) * (parameters) of a policy in NumPy for host environments
    compiler_options: Options | None  # of training programs; None: JAX's own
    run_once_options: Options | None  # of programs that run once: fastest compilation


NUMPY_WORK = 2**23  # measured on two cores
# Matrix products come from a precompiled library; the remaining code runs as fast without the slow compiler passes.
# XLA's own vectors have half the width that AVX-512 has: elementwise work takes a quarter longer
CPU_OPTIONS = {
    "xla_backend_optimization_level": 1,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_prefer_vector_width": 512,
}

CPU = Rules(
    min_rows=256,
    chunks=ChunkRule(8192, 512, 2**20, 1024, 256, {"float32": 4, "bfloat16": 8}),  # activations fit the cache
    few_streams=32,  # products of so few rows cost as much as those of many
    unroll=1,
    unrolled_operations=0,
    branches=True,  # arrays are updated in place; a select would copy them
    parallel_scans=False,  # measured: one step after the other is twice as fast, and compiles in a ninth of the time
    library_convolutions=False,  # XLA's are 10 to 40 times slower inside a loop
    mapped_members=False,
    bfloat16_units=("amx_bf16", "avx512_bf16"),
    rounds_float32=False,
    transposed_products=True,  # XLA's libraries are slow at A^T B, and have no bfloat16 for it
    numpy_work=NUMPY_WORK,
    compiler_options=CPU_OPTIONS,
    run_once_options=CPU_OPTIONS | {"xla_backend_optimization_level": 0},
)
ACCELERATOR = Rules(
    min_rows=None,
    # Whole minibatches of up to 4 million rows: parts of a million are 0.96 times as fast. One of 33 million rows, as
    # with a million environments, would take 66 GiB; images and memories are not measured
    chunks=ChunkRule(2**22, 2**22, 2**30, 2**22, 2**22, {"float32": 1, "bfloat16": 1}),
    few_streams=0,  # off: 1.04 times as fast with 2,048 environments, and takes 1.6 times the memory
    unroll=8,  # the compiled loop waits between its iterations: 1.19 times as fast with 2,048 environments
    unrolled_operations=3_000,  # a physics engine would compile for minutes
    branches=False,  # a conditional makes the device wait for the host: 0.93 times as fast
    parallel_scans=True,  # one step after the other: GAE 0.90 times as fast, minGRU 0.92, LRU 0.87
    library_convolutions=True,  # products of patches are 1.15 times as fast, and take several times the memory
    mapped_members=True,  # 13 times as fast as one after the other: 16 members of 64 environments
    bfloat16_units=(),
    rounds_float32=True,
    transposed_products=False,  # transposed: 0.97 times as fast
    numpy_work=0,
    compiler_options=None,
    run_once_options=None,
)
RULES = {"cpu": CPU, "gpu": ACCELERATOR, "tpu": ACCELERATOR}  # by `jax.default_backend()`


def rules() -> Rules:
    """Return the rules of JAX's default platform; those of an accelerator for a platform that is not listed."""
    return RULES.get(jax.default_backend(), ACCELERATOR)


def float32_precision() -> jax.lax.Precision | None:
    """Return the precision of float32 products: the highest where the platform would round their factors, else None.

    None leaves the precision to JAX; it is also None where the user has set `jax_default_matmul_precision`. With
    rounded factors, observations that differ by little would become equal.
    """
    unset = jax.config.jax_default_matmul_precision is None  # type: ignore[attr-defined]
    return jax.lax.Precision.HIGHEST if rules().rounds_float32 and unset else None


def float32_products() -> AbstractContextManager[None]:
    """Return a context in which float32 products of other libraries' functions are not rounded.

    Where the platform does not round them, or JAX's setting says otherwise, it changes nothing.
    """
    return contextlib.nullcontext() if float32_precision() is None else jax.default_matmul_precision("float32")


def bfloat16_unit() -> bool:
    """Return whether this CPU, by its flags, multiplies bfloat16 matrices faster than float32 matrices.

    The flags are known on Linux only; the result is False on other systems, and on accelerators.
    """
    units = rules().bfloat16_units
    if not units or not CPU_INFO.exists():
        return False
    flags = CPU_INFO.read_text(encoding="utf-8").split()
    return any(unit in flags for unit in units)
