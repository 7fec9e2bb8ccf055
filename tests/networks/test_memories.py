"""Memories: single steps and sequences agree, and both equal float64 NumPy implementations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.devices.layout import rounding
from ppax.networks.memories import (
    GRU,
    LRU,
    LSTM,
    Attention,
    MinGRU,
    NoMemory,
    Stack,
    Window,
    recurrence,
    rematerialised,
)
from ppax.networks.memories.window import Recent
from support.memory_oracles import (
    LENGTH,
    MEMORIES,
    ORACLES,
    RESETS,
    SIZE,
    attention,
    data,
    expected,
    features,
    init_of,
    mid_episode_carry,
    params_of,
    run,
    stages,
)
from support.worlds import QUICK


@pytest.mark.parametrize("resets", RESETS)
@pytest.mark.parametrize("name", MEMORIES)
def test_sequences_equal_float64_equations(name, resets):
    got, exact = features(name, resets)
    np.testing.assert_allclose(got, exact, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("resets", RESETS)
@pytest.mark.parametrize("name", MEMORIES)
def test_single_steps_equal_the_sequence(name, resets):
    memory = MEMORIES[name]
    params, (x, first) = params_of(memory), data(resets)
    start = carry = mid_episode_carry(memory, params)
    rows = []
    for t in range(LENGTH):
        carry, y = run(memory, params, carry, x[t : t + 1], first[t : t + 1])
        rows.append(y[0])
    last, whole = run(memory, params, start, x, first)
    # attention's features reach 6, and are sums of products, whose order differs by processor
    np.testing.assert_allclose(np.stack(rows), whole, atol=3e-6, rtol=3e-6)
    for one, other in zip(*(jax.tree.leaves(without_padding(x)) for x in (carry, last)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6, rtol=1e-6)


def without_padding(carry):
    """Zero the padding of a window's carry, in each layer."""
    recent = lambda x: isinstance(x, Recent)  # noqa: E731
    return jax.tree.map(lambda x: (x.steps * x.real[:, None], x.real) if recent(x) else x, carry, is_leaf=recent)


@pytest.mark.parametrize("name", [name for name in MEMORIES if name != "none"])
def test_resets_clear_the_carry_even_of_nan(name):
    memory = MEMORIES[name]
    params = params_of(memory)
    x, _ = data("never")
    clean = run(memory, params, mid_episode_carry(memory, params), x[:1], jnp.ones(1, bool))
    spoilt = jax.tree.map(lambda c: c * jnp.nan if c.dtype == jnp.float32 else c, mid_episode_carry(memory, params))
    again = run(memory, params, spoilt, x[:1], jnp.ones(1, bool))
    for one, other in zip(jax.tree.leaves(clean[1]), jax.tree.leaves(again[1]), strict=True):
        np.testing.assert_array_equal(one, other)
    kept = run(memory, params, mid_episode_carry(memory, params), x[:1], jnp.zeros(1, bool))[1]
    assert np.abs(kept - clean[1]).max() > 1e-3  # without a reset the carry matters


@pytest.mark.parametrize("name", [name for name in MEMORIES if name != "none"])
def test_gradients_stop_at_resets_only(name):
    memory = MEMORIES[name]
    params, (x, _) = params_of(memory), data("never")
    first = jnp.arange(LENGTH) == 6

    def eighth(x, carry):
        return stages(memory, params, carry, x, first)[1][8].sum()

    gradient = jax.jit(jax.grad(eighth), compiler_options=QUICK)(x, mid_episode_carry(memory, params))
    gradient = np.abs(np.asarray(gradient)).sum(axis=1)
    assert (gradient[:6] == 0).all()
    assert (gradient[6:9] > 0).all()
    assert (gradient[9:] == 0).all()


@pytest.mark.parametrize("name", [name for name in MEMORIES if "wide" not in name])
def test_parameter_gradients_equal_finite_differences(name):
    """Compare along random directions with finite differences of the float64 oracle, for two streams at once."""
    memory, params = MEMORIES[name], params_of(MEMORIES[name])
    x, first = jax.tree.map(lambda *leaves: jnp.stack(leaves), data("often"), data("ends", seed=5))
    weight = np.random.default_rng(3).normal(size=(*x.shape[:2], memory.output_size(SIZE)))
    empty = jax.tree.map(lambda leaf: jnp.zeros((2, *leaf.shape), leaf.dtype), memory.initial_carry(SIZE))

    def loss(params, x):
        y = jax.vmap(functools.partial(stages, memory), (None, 0, 0, 0))(params, empty, x, first)[1]
        return (y * jnp.asarray(weight, jnp.float32)).sum()

    def oracle(params, x):
        rows = [expected(name, params, ORACLES[name][1](), *stream) for stream in zip(x, first, strict=True)]
        return (np.stack(rows) * weight).sum()

    point = np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in jax.tree.leaves((params, x))])
    found = jax.jit(jax.grad(loss, (0, 1)), compiler_options=QUICK)(params, x)
    gradient = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])
    rng, (leaves, structure) = np.random.default_rng(4), jax.tree.flatten((params, x))
    ends = np.cumsum([leaf.size for leaf in leaves])

    def at(point):
        parts = zip(np.split(point, ends[:-1]), leaves, strict=True)
        return oracle(*jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in parts]))

    for low, high in zip([0, *ends[:-1]], ends, strict=True):
        along = np.zeros_like(point)
        along[low:high] = rng.normal(size=high - low)
        slope = (at(point + 1e-6 * along) - at(point - 1e-6 * along)) / 2e-6
        np.testing.assert_allclose(gradient @ along, slope, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["attention", "window"])
def test_window_length_is_steps(name):
    memory = MEMORIES[name]
    params, (x, first) = params_of(memory), data("never")
    run_of = lambda x: run(memory, params, memory.initial_carry(SIZE), x, first)[1]  # noqa: E731
    moved = np.abs(np.asarray(run_of(x.at[3].add(1.0)) - run_of(x))).max(axis=1) > 1e-7
    assert np.flatnonzero(moved).tolist() == list(range(3, 3 + memory.steps))


@pytest.mark.parametrize(("length", "steps"), [(1, 5), (4, 5), (5, 5), (12, 5), (7, 3), (12, 1), (12, 40)])
def test_attention_does_not_depend_on_block_size(length, steps):
    """Compare sequences cut into blocks of queries with an oracle without blocks."""
    memory = Attention(6, steps=steps, heads=3)
    params, (x, first) = params_of(memory), data("often")
    params = jax.tree.map(np.asarray, params)
    carry, rows = [], []
    for now, begins in zip(np.asarray(x[:length], np.float64), np.asarray(first[:length]), strict=True):
        carry, y = attention(memory, params, [] if begins else carry, now)
        rows.append(y)
    got = run(memory, params, memory.initial_carry(SIZE), x[:length], first[:length])[1]
    np.testing.assert_allclose(got, np.stack(rows), atol=5e-6)


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
@pytest.mark.parametrize("form", [recurrence.sequential_scan, recurrence.parallel_scan])
def test_sequential_and_parallel_scan_equal_the_loop(form, kind):
    """Check both forms: sequential on a CPU, parallel on an accelerator."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, 13, 3)) + (1j * rng.uniform(-1, 1, (2, 13, 3)) if kind is np.complex64 else 0)
    a[[6, 12]] = 0  # resets
    h, rows = np.full(3, 0.5), []
    for factor, further in zip(a, b, strict=True):
        h = factor * h + further
        rows.append(h)
    carry, got = jax.jit(form, compiler_options=QUICK)(a.astype(kind), b.astype(kind), np.full(3, 0.5, kind))
    np.testing.assert_allclose(got, np.stack(rows), atol=1e-6)
    np.testing.assert_allclose(carry, rows[-1], atol=1e-6)


def test_long_sequence_does_not_overflow():
    """Products of 4096 coefficients underflow; outputs still equal those of the float64 loop."""
    memory, length = MinGRU(6), 4096
    rng = np.random.default_rng(0)
    x = jnp.asarray(3 * rng.normal(size=(length, SIZE)), jnp.float32)
    params = params_of(memory)
    got = run(memory, params, memory.initial_carry(SIZE), x, jnp.zeros(length, bool))[1]
    np.testing.assert_allclose(got, expected("mingru", params, np.zeros(6), x, np.zeros(length, bool)), atol=1e-5)


def test_initial_weights_of_gru_and_lru():
    kernel = init_of(GRU(6))["recurrent"]
    for gate in np.split(np.asarray(kernel, np.float64), 3, axis=1):
        np.testing.assert_allclose(gate.T @ gate, np.eye(6), atol=1e-5)
    params = init_of(LRU(128, r_min=0.6, r_max=0.9))
    radius = np.exp(-np.exp(np.asarray(params["nu"], np.float64)))
    assert 0.6 <= radius.min() < 0.63 < 0.88 < radius.max() <= 0.9 + 1e-6
    assert abs((radius**2).mean() - (0.6**2 + 0.9**2) / 2) < 0.04  # uniform in area
    np.testing.assert_allclose(np.exp(np.asarray(params["gamma"])), np.sqrt(1 - radius**2), rtol=1e-4)


def test_lru_refuses_odd_width():
    with pytest.raises(ppax.ConfigError, match="width = 7 must be even; nearest: 8"):
        LRU(7).init(jax.random.key(0), SIZE)


def test_attention_refuses_heads_that_do_not_divide_width():
    with pytest.raises(ppax.ConfigError, match="heads = 4 does not divide width = 6"):
        Attention(6, heads=4).init(jax.random.key(0), SIZE)


def test_mingru_initial_time_scales_are_spread():
    """Without input a gate of 1 / (1 + s) leaves (s / (1 + s))^k after k steps; s is uniform from 1 to `longest`."""
    cell = MinGRU(512, longest=32)
    bias = np.asarray(cell.init(jax.random.key(0), 4)["input"]["bias"], np.float64)
    kept = 1.0 - 1.0 / (1.0 + np.exp(-bias[:512]))
    steps = kept / (1.0 - kept)
    assert steps.min() >= 1.0 - 1e-4
    assert steps.max() <= 32.0 + 1e-3
    np.testing.assert_allclose(np.quantile(steps, [0.25, 0.5, 0.75]), [8.75, 16.5, 24.25], atol=2.0)
    assert not bias[512:].any()
    assert not np.asarray(MinGRU(8, longest=1).init(jax.random.key(0), 4)["input"]["bias"]).any()


def test_lstm_initial_forget_gate_is_open():
    """Without input and output the cell decays by sigmoid(1) at each step."""
    memory = LSTM(6)
    params = jax.tree.map(jnp.zeros_like, init_of(memory)) | {"input": init_of(memory)["input"]}
    params["input"]["kernel"] = jnp.zeros_like(params["input"]["kernel"])
    carry = memory.initial_carry(SIZE)._replace(c=jnp.ones(6))
    carry, _ = run(memory, params, carry, np.zeros((3, SIZE), np.float32), np.zeros(3, bool))
    np.testing.assert_allclose(carry.c, (1.0 / (1.0 + np.exp(-1.0))) ** 3, rtol=1e-5)


# ---------------------------------------------------------------- stacks


def test_gradients_of_a_stack_reach_every_layer():
    memory = MEMORIES["stack of gru"]
    params, (x, first) = params_of(memory), data("often")
    gradient = jax.jit(jax.grad(lambda p: stages(memory, p, memory.initial_carry(SIZE), x, first)[1].sum()))(params)
    assert all(np.abs(leaf).max() > 1e-4 for leaf in jax.tree.leaves(gradient))
    assert set(gradient) == {"0", "1", "2"}


def test_each_layer_of_a_stack_has_weights_of_its_own():
    params = init_of(Stack(GRU(6), 3))
    assert [params[name]["cell"]["input"]["kernel"].shape for name in "012"] == [(SIZE, 18), (6, 18), (6, 18)]
    assert np.abs(params["1"]["cell"]["recurrent"] - params["2"]["cell"]["recurrent"]).max() > 0.1


@pytest.mark.parametrize(
    ("memory", "named"),
    [
        (Stack(NoMemory()), r"network\.memory\.cell = NoMemory\(\): it carries nothing .* nearest valid value: gru"),
        (Stack(Window(4, hidden=()), 3), r"cell\.hidden = \[\]: .* one longer window; write .* steps = 10"),
    ],
)
def test_cells_that_cannot_be_stacked_are_refused(memory, named):
    with pytest.raises(ppax.ConfigError, match=named):
        memory.init(jax.random.key(0), SIZE)


@pytest.mark.parametrize("name", ["mingru", "lru"])
def test_parallel_cells_stay_parallel_in_a_stack(name, monkeypatch):
    """On an accelerator there is no loop over steps, and the numbers are those of the loop on a CPU."""
    memory = MEMORIES[f"stack of {name}"]
    params, (x, first) = params_of(memory), data("often")
    whole = jax.jit(stages, static_argnums=0)(memory, params, memory.initial_carry(SIZE), x, first)[1]
    assert "scan[" in str(
        jax.make_jaxpr(functools.partial(stages, memory))(params, memory.initial_carry(SIZE), x, first)
    )
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    parallel = functools.partial(stages, memory)
    arguments = params, memory.initial_carry(SIZE), x, first
    assert "scan[" not in str(jax.make_jaxpr(parallel)(*arguments))
    np.testing.assert_allclose(jax.jit(parallel)(*arguments)[1], whole, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- rematerialisation


def gradients(memory, params, x, first):
    """Return features and the gradients of parameters and inputs of streams [M, L]."""
    empty = jax.tree.map(lambda leaf: jnp.zeros((len(x), *leaf.shape), leaf.dtype), memory.initial_carry(SIZE))

    def loss(params, x):
        y = jax.vmap(functools.partial(stages, memory), (None, 0, 0, 0))(params, empty, x, first)[1]
        return jnp.square(y).sum(), y

    return jax.value_and_grad(loss, (0, 1), has_aux=True)(params, x)


@pytest.mark.parametrize(
    "name", ["gru", "stack of lstm", "stack of lru", pytest.param("stack of attention", marks=pytest.mark.nightly)]
)
def test_rematerialised_memories_have_the_same_results(name):
    memory, params = MEMORIES[name], params_of(MEMORIES[name])
    x, first = jax.tree.map(lambda *leaves: jnp.stack(leaves), data("often"), data("ends", seed=5))
    plain, again = (
        jax.jit(functools.partial(gradients, one))(params, x, first) for one in (memory, rematerialised(memory))
    )
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * max(1.0, np.abs(one).max()))


@pytest.mark.parametrize("memory", [GRU(32), Stack(LSTM(32), 2)], ids=str)
def test_rematerialised_memories_round_products_in_both_passes(memory):
    """The second computation is traced after the context that rounds has been left."""
    params = init_of(memory)
    x, first = jax.tree.map(lambda *leaves: jnp.stack(leaves), data("often"), data("ends", seed=5))

    def rounded(one, x):
        with rounding(True):
            features, pull_back = jax.vjp(
                lambda params, x: jax.vmap(functools.partial(stages, one), (None, None, 0, 0))(
                    params, one.initial_carry(SIZE), x, first
                )[1],
                params,
                x,
            )
        return features, pull_back(2.0 * features)

    plain, again = (jax.jit(functools.partial(rounded, one))(x) for one in (memory, rematerialised(memory)))
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(one).max()))


@pytest.mark.parametrize(("memory", "share"), [(Stack(GRU(32), 4), 0.75), (Stack(LRU(32), 3), 0.9)])
def test_rematerialised_memories_take_less_memory(memory, share):
    """Compare the temporary memory of the compiled gradient, as the compiler plans it; nothing runs."""
    params = jax.eval_shape(lambda: memory.init(jax.random.key(0), SIZE))
    x, first = jax.ShapeDtypeStruct((4, 512, SIZE), jnp.float32), jax.ShapeDtypeStruct((4, 512), bool)

    def planned(one):
        program = jax.jit(functools.partial(gradients, one)).lower(params, x, first).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert planned(rematerialised(memory)) < share * planned(memory)
