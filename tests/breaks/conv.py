"""Breaks of convolutions and pooling on a CPU, and of what `ppax bench` measures there."""

from breaks.base import Mutation

CONVOLUTION = "tests/networks/test_convolution.py::"
PRODUCTS = CONVOLUTION + "test_convolution_by_products_equals_xla_with_gradients"
FILE = "networks/encoders.py"

MUTATIONS = [
    Mutation(
        "a CPU convolves by the library",
        "    library_convolutions=False,",
        "    library_convolutions=True,",
        (CONVOLUTION + "test_xla_convolution_is_used_on_accelerators_only",),
        "devices/platforms.py",
    ),
    Mutation(
        "a patch goes through columns first",
        "for i in range(n) for j in range(m)]",
        "for j in range(m) for i in range(n)]",
        (PRODUCTS,),
        FILE,
    ),
    Mutation(
        "the odd pixel of padding comes first",
        "((before, after),) = jax.lax.padtype_to_pads(",
        "((after, before),) = jax.lax.padtype_to_pads(",
        (PRODUCTS,),
        FILE,
    ),
    Mutation(
        "pixels of a block in another order than those of the filter",
        "return jnp.moveaxis(x, 2, 1).reshape(",
        "return jnp.moveaxis(x, *((2, 1) if rest else (3, 1))).reshape(",
        (PRODUCTS,),
        FILE,
    ),
    Mutation(
        "equal numbers share the gradient of the largest",
        "return jnp.where((a >= b) | (a != a), a, b)",
        "return jnp.maximum(a, b)",
        (CONVOLUTION + "test_max_pool_equals_xla_with_gradients",),
        FILE,
    ),
    Mutation(
        "factors of a convolution are not rounded",
        "return matmul(patches, kernel.reshape(-1, filters))",
        "return (patches.astype(jnp.float32) @ kernel.reshape(-1, filters).astype(jnp.float32))",
        (CONVOLUTION + "test_bfloat16_convolution_rounds_factors_and_accumulates_float32",),
        FILE,
    ),
    Mutation(
        "bench repeats an iteration that is longer than its time",
        "if runner.first >= max(seconds, SET_UP):",
        "if runner.first > 1e9:",
        (
            "tests/training/test_bench.py::test_an_iteration_longer_than_the_time_is_measured_once",
            "tests/training/test_bench.py::test_rounds_take_about_the_given_seconds",
        ),
        "ppax/training/bench.py",
    ),
    Mutation(
        "an image is read as a vector without a word",
        "        if entry.pixels and (advice := _with_three_axes(entry)):",
        "        if not entry.pixels and (advice := _with_three_axes(entry)):",
        ("tests/networks/test_encoders.py::test_an_image_that_is_read_as_a_vector_is_named",),
    ),
]
