"""Products against float64: in bfloat16 of the rounded factors; forwards, backwards, and under vmap."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

from ppax.devices.layout import rounding
from ppax.networks import memories
from ppax.networks.products import MIN_SIDE, matmul

SIDES = [(16, 16), (33, 17), (64, 128)]
ROWS = [1, 2, 3, 8, 9, 64]  # transposed in blocks of 8 where they divide


def near(x):
    """Return `x` rounded to bfloat16, in float64."""
    return np.asarray(jnp.asarray(x, jnp.bfloat16), np.float64)


def data(rows, sides, seed=0):
    x, kernel, g = (
        np.random.default_rng(seed + i).normal(size=s)
        for i, s in enumerate([(rows, sides[0]), sides, (rows, sides[1])])
    )
    return jnp.float32(x), jnp.bfloat16(kernel), jnp.float32(g)


def assert_product(found, a, b):
    """Assert that `found` is float32, and the product of `a` and `b` up to float32 accumulation errors."""
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, a @ b, atol=1e-6 * float((np.abs(a) @ np.abs(b)).max()))


def rows_product(x, kernel):
    return jax.vmap(matmul, (0, None))(x, kernel)


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("rows", ROWS)
def test_factors_are_rounded_and_accumulation_is_float32(rows, sides):
    x, kernel, _ = data(rows, sides)
    for found in (jax.jit(rows_product)(x, kernel), matmul(x, kernel), matmul(x[None], kernel)[0]):
        assert_product(found, near(x), near(kernel))
    assert_product(jax.jit(matmul)(x[0], kernel)[None], near(x[:1]), near(kernel))


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("rows", ROWS)
def test_gradients_are_products_of_rounded_factors(rows, sides):
    x, kernel, g = data(rows, sides)

    def pulled(x, kernel, g):
        # weights as the optimiser keeps them: float32
        return jax.vjp(lambda x, kernel: rows_product(x, kernel.astype(jnp.bfloat16)), x, kernel)[1](g)

    of_x, of_kernel = jax.jit(pulled)(x, kernel.astype(jnp.float32), g)
    assert_product(of_x, near(g), near(kernel).T)
    whole = near(x).T @ near(g)
    np.testing.assert_allclose(
        of_kernel, whole, atol=2.0**-8 * np.abs(whole).max()
    )  # returned in the weights' precision


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("rows", ROWS)
def test_float32_weights_in_a_rounding_context_have_float32_gradients(rows, sides):
    x, kernel, g = data(rows, sides)
    kernel = kernel.astype(jnp.float32) * 1.001  # no number of bfloat16

    def pulled(x, kernel, g):
        with rounding(True):
            out, pull = jax.vjp(rows_product, x, kernel)
        return out, *pull(g)  # the backward pass is traced outside

    out, of_x, of_kernel = jax.jit(pulled)(x, kernel, g)
    assert_product(out, near(x), near(kernel))
    assert_product(of_x, near(g), near(kernel).T)
    assert_product(of_kernel, near(x).T, near(g))
    assert_product(jax.jit(rows_product)(x, kernel), np.float64(x), np.float64(kernel))  # outside: float32


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_batch_axis_stays_where_it_is(axis):
    """A product of stacked rows [batch, rows, k], whose batch axis lies anywhere in memory."""
    x, kernel, g = data(6 * 8, (64, 128))
    x, g = x.reshape(6, 8, 64), g.reshape(6, 8, 128)
    moved = jnp.moveaxis(x, 0, axis)
    multiply = jax.vmap(matmul, (axis, None))

    def loss(x, kernel):
        return (multiply(x, kernel) * g).sum()

    assert_product(multiply(moved, kernel).reshape(48, 128), near(x.reshape(48, 64)), near(kernel))
    of_x, of_kernel = jax.grad(loss, (0, 1))(moved, kernel)
    assert_product(jnp.moveaxis(of_x, axis, 0).reshape(48, 64), near(g.reshape(48, 128)), near(kernel).T)
    whole = near(x.reshape(48, 64)).T @ near(g.reshape(48, 128))
    np.testing.assert_allclose(of_kernel.astype(jnp.float32), whole, atol=2.0**-7 * np.abs(whole).max())


def test_kernels_with_a_short_side_are_not_rounded():
    x, kernel, _ = data(4, (64, MIN_SIDE - 1))
    kernel = kernel.astype(jnp.float32) * 1.001
    with rounding(True):
        assert_product(jax.jit(rows_product)(x, kernel), np.float64(x), np.float64(kernel))


def of_program(program):
    """Yield whether each product of ppax in a program rounds, nested programs included."""
    for equation in program.eqns:
        if equation.primitive.name in ("ppax_product", "dot_general"):
            yield equation.params.get("rounded", False)
        for inner in core.jaxprs_in_params(equation.params):
            yield from of_program(inner)


@pytest.mark.parametrize("cell", [memories.GRU(16), memories.LSTM(16), memories.MinGRU(16), memories.LRU(16)])
def test_gated_memories_round_in_both_directions(cell):
    params = cell.init(jax.random.key(0), 16)

    def loss(params, x):
        with rounding(True):
            projected = jax.vmap(cell.project_in, (None, 0))(params, x)
            y = cell.scan(params, cell.initial_carry(16), projected, jnp.zeros(4, bool)).features
            return jax.vmap(cell.project_out, (None, 0))(params, y).sum()

    found = list(of_program(jax.make_jaxpr(jax.grad(loss, (0, 1)))(params, jnp.ones((4, 16))).jaxpr))
    assert len(found) >= 3
    assert all(found)


@pytest.mark.parametrize("cell", [memories.GRU(8), memories.LSTM(8)])
def test_gated_memories_below_min_side_are_not_rounded(cell):
    params, x = cell.init(jax.random.key(0), 8), jax.random.normal(jax.random.key(1), (4, 8))

    def loss(params, rounded):
        with rounding(rounded):
            projected = jax.vmap(cell.project_in, (None, 0))(params, x)
            return cell.scan(params, cell.initial_carry(8), projected, jnp.zeros(4, bool)).features.sum()

    jax.tree.map(np.testing.assert_array_equal, jax.grad(loss)(params, True), jax.grad(loss)(params, False))


@pytest.mark.parametrize("sides", SIDES)
def test_second_derivatives(sides):
    x, kernel, g = data(9, sides)
    wide = kernel.astype(jnp.float32)

    def penalty(multiply, x, wide):
        slopes = jax.grad(lambda x, wide: (jnp.tanh(multiply(x, wide)) * g).sum(), (0, 1))(x, wide)
        return sum((slope**2).sum() for slope in slopes)

    def rounded(x, wide):
        return rows_product(x, wide.astype(jnp.bfloat16))

    found, expected = (jax.grad(partial(penalty, f), (0, 1))(x, wide) for f in (rounded, jnp.matmul))
    for one, other in zip(found, expected, strict=True):
        assert np.linalg.norm(one - other) < 0.05 * np.linalg.norm(other)
    tangent = jax.jvp(lambda x: rows_product(x, kernel), (x,), (x,))[1]
    assert_product(tangent, near(x), near(kernel))


def test_vmap_over_kernels():
    x, kernel, g = (jnp.stack(both) for both in zip(data(9, (16, 32)), data(9, (16, 32), seed=9), strict=True))
    many = jax.jit(jax.vmap(rows_product))(x, kernel)
    shared = jax.jit(jax.vmap(rows_product, (None, 0)))(x[0], kernel)
    grad = jax.jit(jax.vmap(jax.grad(lambda kernel, x, g: (rows_product(x, kernel) * g).sum())))
    of_kernel = grad(kernel, x, g)
    for i in range(2):
        assert_product(many[i], near(x[i]), near(kernel[i]))
        assert_product(shared[i], near(x[0]), near(kernel[i]))
        whole = near(x[i]).T @ near(g[i])
        np.testing.assert_allclose(np.float64(of_kernel[i]), whole, atol=2.0**-8 * np.abs(whole).max())


def test_kernels_below_min_side_are_not_rounded():
    x, kernel, _ = data(9, (MIN_SIDE - 1, 64))
    wide = jnp.asarray(np.random.default_rng(3).normal(size=(9, 64)), jnp.float32)
    assert_product(jax.jit(rows_product)(x, kernel), np.float64(x), near(kernel))
    assert_product(jax.jit(rows_product)(wide, kernel.T), np.float64(wide), near(kernel).T)


def test_float32_kernels_use_an_ordinary_product():
    """Without a gradient: exports and policies in NumPy read such programs."""
    x, kernel, _ = data(9, (16, 32))
    program = str(jax.make_jaxpr(rows_product)(x, kernel.astype(jnp.float32)))
    assert "bf16" not in program
    assert "ppax_product" not in program


# transposed: the gradient, the features; as they are: one column, and few rows with many results
FORMS = [(9, (16, 3)), (9, (3, 16)), (64, (17, 17)), (300, (5, 1)), (8, (256, 256)), (300, (256, 256))]


@pytest.mark.parametrize(("rows", "sides"), FORMS)
def test_float32_gradients_equal_float64(rows, sides):
    x, kernel, g = (x.astype(jnp.float32) for x in data(rows, sides))
    of_x, of_kernel = jax.jit(lambda x, kernel, g: jax.vjp(rows_product, x, kernel)[1](g))(x, kernel, g)
    assert_product(of_x, np.float64(g), np.float64(kernel).T)
    assert_product(of_kernel, np.float64(x).T, np.float64(g))
    tangents = jnp.cos(x), jnp.sin(kernel)
    found = jax.jvp(rows_product, (x, kernel), tangents)[1]
    both = np.concatenate([np.float64(tangents[0]), np.float64(x)], 1)
    assert_product(found, both, np.concatenate([np.float64(kernel), np.float64(tangents[1])]))


@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None)])
def test_float32_gradients_under_vmap(axes):
    """Of members with weights of their own, and with the same data or weights."""
    x, kernel, g = (jnp.stack([x, 2 * x]).astype(jnp.float32) for x in data(9, (16, 3)))
    of = [x[0] if axis is None else x for x, axis in zip((x, kernel), axes, strict=True)]

    def pulled(x, kernel, g):
        return jax.vjp(rows_product, x, kernel)[1](g)

    of_x, of_kernel = jax.jit(jax.vmap(pulled, (*axes, 0)))(*of, g)
    for i in range(2):
        one, other = (np.float64(x if axis is None else x[i]) for x, axis in zip(of, axes, strict=True))
        assert_product(of_x[i], np.float64(g[i]), other.T)
        assert_product(of_kernel[i], one.T, np.float64(g[i]))


def test_second_derivatives_in_float32():
    x, kernel, g = (x.astype(jnp.float32) for x in data(9, (16, 3)))

    def penalty(multiply, x, kernel):
        slopes = jax.grad(lambda x, kernel: (jnp.tanh(multiply(x, kernel)) * g).sum(), (0, 1))(x, kernel)
        return sum((slope**2).sum() for slope in slopes)

    found, expected = (jax.grad(partial(penalty, f), (0, 1))(x, kernel) for f in (rows_product, jnp.matmul))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * float(np.abs(other).max()))


def test_gradients_of_weights_are_products_of_a_transposed_factor_on_a_cpu():
    """XLA's own form of them is slow there (benchmarks/NOTES.md)."""
    x, kernel, g = (x.astype(jnp.float32) for x in data(9, (16, 3)))
    lowered = jax.jit(lambda x, kernel, g: jax.vjp(rows_product, x, kernel)[1](g)[1]).lower(x, kernel, g)
    (line,) = (line for line in lowered.as_text().splitlines() if "dot_general" in line)
    assert "contracting_dims = [1] x [0]" in line
    assert "tensor<3x9xf32>, tensor<9x16xf32>" in line
