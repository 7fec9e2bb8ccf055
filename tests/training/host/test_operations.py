"""Operations of the NumPy programs against XLA: those of memories and distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.training.host.numpy_program import NoNumpyVersion, NumpyProgram

RNG = np.random.default_rng(0)
X, Y = (RNG.normal(size=shape).astype(np.float32) for shape in ((3, 4, 5), (3, 5, 2)))
PLACES = np.array([2, 0, 3], np.int32)
FUNCTIONS = {
    "a batched product": lambda x: jnp.einsum("bij,bjk->bik", x, Y),
    "a batched product of other axes": lambda x: jnp.einsum("ibj,bjk->kib", x.transpose(1, 0, 2), Y),
    "a table": lambda x: x[:, PLACES],
    "rows of a table": lambda x: x[jnp.array([1, 1]), :, 2:4],
    "an entry for each row": lambda x: jnp.take_along_axis(x, jnp.abs(x[:, :1]).astype(jnp.int32), axis=1),
    "a window that moves": lambda x: jax.lax.dynamic_slice(x, (1, jnp.int32(9), 0), (2, 3, 5)),
    "windows that move": lambda x: jax.vmap(lambda y, i: jax.lax.dynamic_slice_in_dim(y, i, 2))(x, jnp.arange(3)),
    "sums so far": lambda x: jnp.cumsum(x, axis=1),
    "sums to come": lambda x: jax.lax.cumsum(x, axis=2, reverse=True),
    "crop and pad": lambda x: jax.lax.pad(x, jnp.float32(7.0), ((1, -1, 0), (-2, 0, 0), (0, 3, 0))),
    "log gamma": lambda x: jax.lax.lgamma(jnp.abs(x) + 1.0),
    "error function": jax.lax.erf,
    "complex numbers": lambda x: (jnp.exp(jax.lax.complex(x, 2.0 * x)) * jax.lax.complex(x, x)).imag,
    "a loop over one step": lambda x: jax.lax.scan(lambda h, y: (h + y, h * y), x[0], x[1:2] * 2.0),
    "a loop over one step of a batch": lambda x: jax.vmap(lambda y: jax.lax.scan(_step, y[0], y[1:2]))(x),
    "trigonometry": lambda x: jnp.sin(x) + jnp.cos(x) + jnp.ceil(x) + jnp.exp2(x),
}


def _step(h, y):
    return h - y, (jnp.tanh(h), y + h)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_gives_the_numbers_of_xla(name):
    function = FUNCTIONS[name]
    program = NumpyProgram(lambda slow, x: function(x * slow), np.float32(1.0), X)
    program.bind(np.float32(1.0))
    with jax.numpy_rank_promotion("allow"):
        wanted = jax.tree.leaves(jax.jit(function)(X))
    found = program(X)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)


def test_a_loop_over_several_steps_is_refused():
    with pytest.raises(NoNumpyVersion, match="scan"):
        NumpyProgram(lambda slow, x: jax.lax.scan(_step, x[0] * slow, x[1:]), np.float32(1.0), X)
