"""Memories beside float64 NumPy implementations of their equations, one step at a time.

For tests/networks/test_memories.py, and for benchmarks/accelerator.py on machines without pytest.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from ppax.devices.platforms import rules
from ppax.networks.memories import GRU, LRU, LSTM, Attention, MinGRU, NoMemory, Stack, Window

SIZE, LENGTH = 4, 12
MEMORIES = {
    "none": NoMemory(),
    "gru": GRU(6),
    "lstm": LSTM(6),
    "mingru": MinGRU(6),
    "lru": LRU(6),
    "mingru as wide": MinGRU(SIZE),  # equal to the features: identity skip connection
    "lru as wide": LRU(SIZE),
    "attention": Attention(6, steps=4, heads=2),
    "window": Window(steps=3, hidden=(6,)),
}
# Three layers, the first of another input size than the others
MEMORIES |= {
    f"stack of {name}": Stack(MEMORIES[name], 3, residual=name != "gru", norm=name not in ("gru", "mingru"))
    for name in ("gru", "lstm", "mingru", "lru", "attention", "window")
}
RESETS = {"never": [], "ends": [0, LENGTH - 1], "often": [1, 2, 6], "always": range(LENGTH)}


def init_of(memory, seed=0):
    return jax.jit(lambda key: memory.init(key, SIZE), compiler_options=rules().run_once_options)(jax.random.key(seed))


@functools.cache
def params_of(memory, seed=0):
    """Return initial parameters plus noise, so that none is zero."""
    params = init_of(memory, seed)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + 0.2 * jnp.asarray(rng.normal(size=x.shape), x.dtype), params)


def data(resets, seed=1):
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=(LENGTH, SIZE)), jnp.float32)
    return x, jnp.asarray(np.isin(np.arange(LENGTH), list(RESETS[resets])))


def stages(memory, params, carry, x, first):
    """Apply all three stages to a sequence [L, size]; return the last carry and the features [L, ...]."""
    inputs = jax.vmap(memory.project_in, (None, 0))(params, x)
    carry, y = memory.scan(params, carry, inputs, first)
    return carry, jax.vmap(memory.project_out, (None, 0))(params, y)


@functools.cache
def _compiled():
    return jax.jit(stages, static_argnums=0, compiler_options=rules().run_once_options)


def run(*arguments):
    """Run `stages` as a compiled program."""
    return _compiled()(*arguments)


def mid_episode_carry(memory, params):
    """Return a carry in the middle of an episode."""
    x, first = data("ends", seed=7)
    return run(memory, params, memory.initial_carry(SIZE), x, first & False)[0]


# ---------------------------------------------------------------- float64 oracles, one step at a time


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def norm(p, x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-6) * p["scale"] + p["bias"]


def affine(p, x):
    return np.dot(x, p["kernel"]) + p["bias"]


def gru(memory, p, h, x):
    kernel, bias = p["input"]["kernel"], p["input"]["bias"]
    part = lambda i: slice(6 * i, 6 * i + 6)  # noqa: E731
    inputs = [np.dot(x, kernel[:, part(i)]) + bias[part(i)] for i in range(3)]
    recurrent = [np.dot(h, p["recurrent"][:, part(i)]) for i in range(3)]
    r, z = sigmoid(inputs[0] + recurrent[0]), sigmoid(inputs[1] + recurrent[1])
    n = np.tanh(inputs[2] + r * (recurrent[2] + p["bias_n"]))
    h = (1 - z) * n + z * h
    return h, h


def lstm(memory, p, carry, x):
    c, h = carry
    i, f, g, o = np.split(affine(p["input"], x) + np.dot(h, p["recurrent"]), 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return (c, h), h


def mingru(memory, p, h, x):
    gates = affine(p["input"], x)
    gates = np.concatenate([gates, x]) if len(gates) == 3 * memory.width else gates
    k, candidate, highway, skip = np.split(gates, 4)
    candidate = np.array([v + 0.5 if v >= 0 else sigmoid(v) for v in candidate])
    # the paper's form in logarithms, by logaddexp
    with np.errstate(divide="ignore"):
        log_keep, log_take = -np.logaddexp(0, k), -np.logaddexp(0, -k)
        h = np.exp(np.logaddexp(log_keep + np.log(h), log_take + np.log(candidate)))
    return h, sigmoid(highway) * h + (1 - sigmoid(highway)) * skip


def lru(memory, p, h, x):
    if not np.iscomplexobj(h):
        h = h[: memory.width // 2] + 1j * h[memory.width // 2 :]
    n, u = memory.width // 2, affine(p["embed"], x) if "embed" in p else x
    inputs = np.dot(u, p["in"][:, :n] + 1j * p["in"][:, n:])
    h = np.exp(-np.exp(p["nu"]) + 1j * np.exp(p["theta"])) * h + np.exp(p["gamma"]) * inputs
    y = np.dot(h, p["out"][:n] - 1j * p["out"][n:]).real + p["skip"] * u
    y = gelu(y)
    return h, u + y * sigmoid(affine(p["gate"], y))


def attention(memory, p, past, x):
    """Attend over `past`, a list of (key, value), the latest last."""
    u = affine(p["embed"], x)
    q, k, v = np.split(affine(p["qkv"], norm(p["norm"], u)), 3)
    past = ([*past, (k, v)])[-memory.steps :]
    seen, d = [], memory.width // memory.heads
    for head in range(memory.heads):
        own = slice(head * d, head * d + d)
        ago = range(len(past) - 1, -1, -1)
        scores = [q[own] @ k[own] / math.sqrt(d) + p["distance"][head, n] for (k, _), n in zip(past, ago, strict=True)]
        weights = np.exp(scores) / np.exp(scores).sum()
        seen.append(sum(w * v[own] for w, (_, v) in zip(weights, past, strict=True)))
    y = u + affine(p["out"], np.concatenate(seen))
    return past, y + affine(p["shrink"], gelu(affine(p["grow"], norm(p["norm2"], y))))


def window(memory, p, past, x):
    past = ([*past, x])[-memory.steps :]
    rows = [np.zeros_like(x)] * (memory.steps - len(past)) + past
    return past, np.tanh(affine(p["0"], np.concatenate(rows)))


def stack(memory, p, carries, x):
    step, after = ORACLES[next(name for name in MEMORIES if MEMORIES[name] == memory.cell)][0], []
    for i in range(memory.num_layers):
        layer = p[str(i)]
        carry, y = step(memory.cell, layer["cell"], carries[i], norm(layer["norm"], x) if memory.norm else x)
        after.append(carry)
        x = y + x if memory.residual and len(x) == len(y) else y
    return after, x


ORACLES = {
    "none": (lambda memory, p, carry, x: ((), x), lambda: ()),
    "gru": (gru, lambda: np.zeros(6)),
    "lstm": (lstm, lambda: (np.zeros(6), np.zeros(6))),
    "mingru": (mingru, lambda: np.zeros(6)),
    "lru": (lru, lambda: np.zeros(6)),
    "mingru as wide": (mingru, lambda: np.zeros(SIZE)),
    "lru as wide": (lru, lambda: np.zeros(SIZE)),
    "attention": (attention, list),
    "window": (window, list),
}
ORACLES |= {
    f"stack of {name}": (stack, functools.partial(lambda empty: [empty() for _ in range(3)], ORACLES[name][1]))
    for name in ("gru", "lstm", "mingru", "lru", "attention", "window")
}


def expected(name, params, carry, x, first):
    step, empty = ORACLES[name]
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    rows = []
    for now, begins in zip(np.asarray(x, np.float64), np.asarray(first), strict=True):
        carry = empty() if begins else carry
        carry, y = step(MEMORIES[name], params, carry, now)
        rows.append(y)
    return np.stack(rows)


def features(name, resets):
    """Return features of a sequence in the middle of an episode, and those of the float64 equations."""
    memory = MEMORIES[name]
    params, (x, first) = params_of(memory), data(resets)
    # the oracle's carry before the sequence comes from the same preceding steps
    before, never = data("ends", seed=7)[0], np.zeros(LENGTH, bool)
    whole = expected(name, params, ORACLES[name][1](), np.concatenate([before, x]), np.concatenate([never, first]))
    return np.asarray(run(memory, params, mid_episode_carry(memory, params), x, first)[1]), whole[LENGTH:]
