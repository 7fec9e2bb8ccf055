"""CPU convolution and pooling against XLA's and against float64 loops, with gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.networks import encoders
from ppax.networks.encoders import conv, convolve_by_library, convolve_by_products, max_pool
from support.worlds import QUICK

# [height, width, channels], [filter's height, width], filters, stride, padding
OF_ENCODERS = [
    ((20, 24, 4), (8, 8), 5, 4, "VALID"),
    ((10, 9, 5), (4, 4), 6, 2, "VALID"),
    ((9, 9, 6), (3, 3), 6, 1, "VALID"),
    ((10, 10, 3), (3, 3), 4, 1, "SAME"),
]


def drawn(seed):
    rng = np.random.default_rng(seed)
    filters, stride = tuple(map(int, rng.integers(1, 6, 2))), int(rng.integers(1, 5))
    image = tuple(int(side + extra) for side, extra in zip(filters, rng.integers(0, 9, 2), strict=True))
    return (*image, int(rng.integers(1, 4))), filters, int(rng.integers(1, 5)), stride, ("SAME", "VALID")[seed % 2]


def numbers(shape, filters, out, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.float32(rng.normal(size=s)) for s in ((3, *shape), (*filters, shape[-1], out))]


def with_gradients(convolve, x, kernel, stride, padding):
    """Return the output for a batch of images inside a loop, gradients of a randomly weighted sum, and the weights."""

    def run(x, kernel):
        many = lambda x, kernel: jax.vmap(lambda x: convolve(x, kernel, stride, padding))(x)  # noqa: E731
        shape = jax.eval_shape(many, x, kernel).shape
        g = jnp.cos(jnp.arange(np.prod(shape), dtype=jnp.float32)).reshape(shape)

        def step(carry, _):
            y, pull = jax.vjp(many, x, kernel)
            return carry, (y, *pull(g))

        return jax.tree.map(lambda out: out[0], jax.lax.scan(step, 0, None, length=2)[1]), g

    return jax.jit(run, compiler_options=QUICK)(x, kernel)


def loops(x, kernel, g, stride, padding):
    """Return output and gradients of one image, by float64 loops."""
    x, kernel, g = (np.asarray(a, np.float64) for a in (x, kernel, g))
    (high, wide), pads = kernel.shape[:2], ((0, 0), (0, 0))
    if padding == "SAME":
        missing = [max((-(-n // stride) - 1) * stride + k - n, 0) for n, k in zip(x.shape, (high, wide), strict=False)]
        pads = tuple((m // 2, m - m // 2) for m in missing)
    padded = np.pad(x, (*pads, (0, 0)))
    y, of_x, of_kernel = np.zeros(g.shape), np.zeros(padded.shape), np.zeros(kernel.shape)
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            place = slice(i * stride, i * stride + high), slice(j * stride, j * stride + wide)
            for d in range(g.shape[2]):
                y[i, j, d] = (padded[place] * kernel[..., d]).sum()
                of_x[place] += g[i, j, d] * kernel[..., d]
                of_kernel[..., d] += g[i, j, d] * padded[place]
    return y, of_x[pads[0][0] : pads[0][0] + x.shape[0], pads[1][0] : pads[1][0] + x.shape[1]], of_kernel


@pytest.mark.parametrize("case", [*OF_ENCODERS, *map(drawn, range(12))], ids=str)
def test_convolution_by_products_equals_xla_with_gradients(case):
    shape, filters, out, stride, padding = case
    x, kernel = numbers(shape, filters, out)
    found, g = with_gradients(convolve_by_products, x, kernel, stride, padding)
    library, _ = with_gradients(convolve_by_library, x, kernel, stride, padding)
    exact = [loops(x[i], kernel, g[i], stride, padding) for i in range(3)]
    exact = [np.stack([e[0] for e in exact]), np.stack([e[1] for e in exact]), sum(e[2] for e in exact)]
    for own, other, true in zip(found, library, exact, strict=True):
        assert own.shape == other.shape
        scale = max(1.0, np.abs(true).max(initial=0.0))
        np.testing.assert_allclose(own, other, atol=1e-5 * scale, rtol=0)
        np.testing.assert_allclose(own, true, atol=1e-5 * scale, rtol=0)


@pytest.mark.parametrize("case", OF_ENCODERS, ids=str)
def test_bfloat16_convolution_rounds_factors_and_accumulates_float32(case):
    shape, filters, _, stride, padding = case
    x, kernel = numbers(shape, filters, 16)
    rounded = [jnp.asarray(a, jnp.bfloat16) for a in (x, kernel)]
    near = lambda a: np.asarray(jnp.asarray(a, jnp.bfloat16), np.float64)  # noqa: E731
    for given in (x, rounded[0]):  # observations, and activations between two products
        (y, of_x, of_kernel), g = with_gradients(convolve_by_products, given, rounded[1], stride, padding)
        assert y.dtype == jnp.float32
        exact = [loops(near(x[i]), near(kernel), near(g[i]), stride, padding) for i in range(3)]
        np.testing.assert_allclose(y, [e[0] for e in exact], atol=1e-4)
        # a gradient has the dtype of its primal
        precision = 1e-4 if given.dtype == jnp.float32 else 2.0**-7 * max(np.abs(e[1]).max() for e in exact)
        np.testing.assert_allclose(np.float64(of_x), [e[1] for e in exact], atol=precision)
        whole = sum(e[2] for e in exact)
        np.testing.assert_allclose(np.float64(of_kernel), whole, atol=2.0**-8 * np.abs(whole).max())


@pytest.mark.parametrize("size", [(8, 8), (7, 10), (5, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("equals", [False, True])
def test_max_pool_equals_xla_with_gradients(monkeypatch, size, equals):
    x = np.random.default_rng(0).normal(size=(3, *size, 2)).astype(np.float32)
    x = np.round(x) if equals else x

    def pooled(x):
        y, pull = jax.vjp(jax.vmap(max_pool), x)
        return y, pull(jnp.cos(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape))[0]

    own = jax.jit(pooled, compiler_options=QUICK)(x)
    monkeypatch.setattr(encoders.jax, "default_backend", lambda: "gpu")
    library = jax.jit(lambda x: pooled(x), compiler_options=QUICK)(x)
    np.testing.assert_array_equal(own[0], library[0])
    np.testing.assert_allclose(own[1], library[1], atol=1e-6)


def test_max_pool_propagates_nan():
    x = jnp.zeros((4, 4, 1)).at[1, 1].set(jnp.nan)
    np.testing.assert_array_equal(jnp.isnan(max_pool(x))[..., 0], [[True, False], [False, False]])


def primitives(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(inner, "jaxpr") or hasattr(inner, "eqns"):
                yield from primitives(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize("encoder", [encoders.NatureCNN(), encoders.ImpalaCNN(), encoders.SmallCNN()], ids=str)
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_xla_convolution_is_used_on_accelerators_only(monkeypatch, encoder, backend):
    monkeypatch.setattr(encoders.jax, "default_backend", lambda: backend)
    x = jnp.zeros((40, 40, 4))
    params = jax.eval_shape(encoder.init, jax.random.key(0), x)
    program = jax.make_jaxpr(jax.grad(lambda params, x: encoder(params, x).sum(), (0, 1)))(params, x)
    found = {name for name in primitives(program.jaxpr) if name.startswith(("conv_", "reduce_window", "select_and"))}
    assert bool(found) == (backend == "gpu"), found


def test_xla_convolution_in_bfloat16_accepts_float32_images(monkeypatch):
    monkeypatch.setattr(encoders.jax, "default_backend", lambda: "gpu")
    x, kernel = numbers((6, 6, 2), (3, 3), 4)
    params = {"kernel": jnp.asarray(kernel, jnp.bfloat16), "bias": jnp.zeros(4, jnp.bfloat16)}
    y, pull = jax.vjp(lambda params, x: conv(params, x), params, x[0])
    assert y.dtype == jnp.float32
    of_params, of_x = pull(jnp.ones_like(y))
    assert (of_params["kernel"].dtype, of_x.dtype) == (jnp.bfloat16, jnp.float32)
