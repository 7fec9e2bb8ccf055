"""Rules by platform: one table decides; a changed entry changes the program, and nothing else asks for the platform."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import networks
from ppax.arrays.sequences import discounted_sum
from ppax.core.types import part
from ppax.devices import platforms, sharding
from ppax.devices.layout import Program, only_if
from ppax.networks import memories
from ppax.networks.memories.recurrence import linear_recurrence
from ppax.ppo.minibatches import Shuffle

CHUNKS = platforms.ChunkRule(4096, 256, 2**20, 1024, 128, {"float32": 3})
SOURCE = Path(ppax.__file__).parent
# Facts of the machine, which no measurement changes: threads and memory of a CPU, its AMX unit, what a record says
FACTS = {"devices/sharding.py", "run/restore.py", "run/provenance.py", "training/bench.py"}


@pytest.fixture
def on(monkeypatch):
    """Let JAX's default platform be another, with changed rules."""

    def be(platform, **changes):
        monkeypatch.setattr(jax, "default_backend", lambda: platform)
        monkeypatch.setitem(platforms.RULES, platform, platforms.rules()._replace(**changes))

    return be


def test_only_the_table_and_descriptions_of_the_machine_ask_for_the_platform():
    asking = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if "default_backend()" in path.read_text()
    }
    assert asking == {"devices/platforms.py", *FACTS}


@pytest.mark.parametrize("platform", ["gpu", "tpu", "a platform of tomorrow"])
def test_accelerators_have_one_device_large_chunks_and_no_options_of_a_cpu(on, platform):
    images = jax.ShapeDtypeStruct((64, 1, 4, 84, 84), np.uint8)
    on(platform)
    assert Program().num_devices(64, 2048, 1) == 1
    # whole minibatches of 131,072 environments, 128 steps and 4 minibatches; a million environments are split
    assert 128 * 131_072 // 4 <= Program().rows(1, "float32") < 128 * 1_048_576 // 4
    assert Program().rows(16, "bfloat16", images) == 2**30 // (4 * 84 * 84)
    assert Program(chunk_rows=100).rows(1, "float32", images) == 100
    assert (platforms.rules().compiler_options, platforms.rules().run_once_options) == (None, None)


def test_entries_of_the_table_decide(on):
    on("gpu", min_rows=1024, chunks=CHUNKS, compiler_options={"a": 1})
    assert Program().num_devices(64, 2048, 1) == 2
    assert Program().num_devices(64, 2046, 1) == 1
    assert Program().rows(1, "float32") == 4096
    assert Program().rows(2048, "float32") == 3 * 2048
    assert platforms.rules().compiler_options == {"a": 1}


@part
class OfSomebodyElse:
    """Memory like the LRU, written outside of ppax."""

    lru: memories.LRU = memories.LRU()

    def __getattr__(self, name):  # its methods
        if name in ("init", "output_size", "initial_carry", "project_in", "scan", "project_out"):
            return getattr(self.lru, name)
        raise AttributeError(name)


@part
class Declared(OfSomebodyElse):
    steps_at_once = True


LRU, GRU, NONE = memories.LRU(), memories.GRU(), memories.NoMemory()


@pytest.mark.parametrize(
    ("actor", "critic", "at_once"),
    [
        (LRU, LRU, True),
        (LRU, NONE, True),
        (memories.Stack(memories.MinGRU()), memories.Window(), True),
        (LRU, GRU, False),
        (memories.Stack(GRU), LRU, False),
        (NONE, NONE, False),
        (OfSomebodyElse(), LRU, False),
        (Declared(), LRU, True),
    ],
)
def test_chunks_are_smaller_with_memories_whose_products_are_computed_for_all_steps_at_once(on, actor, critic, at_once):
    env = ppax.envs.make("gymnax/CartPole-v1", num_envs=2)
    network = networks.network(env, actor=networks.Tower(memory=actor), critic=networks.Tower(memory=critic))
    on("cpu", chunks=CHUNKS)
    rows = Program().rows
    split = jax.vmap(lambda x: x + rows(32, "float32", (), network), axis_name=sharding.AXIS)(jnp.zeros(2))
    assert network.steps_at_once == at_once
    assert rows(32, "float32", (), network) == (1024 if at_once else 4096)
    assert split[0] == (128 if at_once else 256)
    assert rows(1, "float32", (), network) == rows(32, "float32") == 4096


@pytest.mark.parametrize("branches", [True, False])
def test_a_conditional_is_a_branch_or_a_selection(on, branches):
    on("gpu", branches=branches)
    program = jax.make_jaxpr(lambda x: only_if(x[0] > 0, lambda: x + 1.0, x))(jnp.ones(3))
    assert ("cond[" in str(program), "select_n" in str(program)) == (branches, not branches)


@pytest.mark.parametrize("parallel", [True, False])
def test_a_discounted_sum_is_parallel_or_sequential(on, parallel):
    on("gpu", parallel_scans=parallel)
    program = jax.make_jaxpr(lambda x: discounted_sum(x, 0.9, x > 0))(jnp.ones(5))
    assert ("scan[" in str(program)) == (not parallel)


def test_small_steps_are_unrolled_on_accelerators_and_large_ones_are_not(on):
    def small(state, x):
        return state + x, state

    def large(state, x):
        return jax.lax.fori_loop(0, 3, lambda _, s: s * x + 1.0, state), state

    inputs = jnp.ones(16)
    assert Program().unrolled(small, inputs, 0.0) == 1
    on("gpu", unroll=8, unrolled_operations=2)
    assert Program().unrolled(small, inputs, 0.0) == 8
    assert Program().unrolled(large, inputs, 0.0) == 1  # operations inside of a loop count
    assert Program(unroll=4).unrolled(large, inputs, 0.0) == 4


@pytest.mark.parametrize("cell", [memories.GRU(3), memories.LSTM(3), memories.LRU(4)])
def test_unrolled_memories_give_the_same_features_and_gradients(on, cell):
    params, carry = cell.init(jax.random.key(0), 2), cell.initial_carry(2)
    x, first = jax.random.normal(jax.random.key(1), (11, 2)), jnp.arange(11) % 4 == 0

    def loss(params):
        x_in = jax.vmap(lambda x: cell.project_in(params, x))(x)
        return (jax.vmap(lambda y: cell.project_out(params, y))(cell.scan(params, carry, x_in, first)[1]) ** 2).sum()

    plain = jax.value_and_grad(loss)(params)
    on("gpu", unroll=8, parallel_scans=False, rounds_float32=False)
    text = str(jax.make_jaxpr(jax.grad(loss))(params))
    assert "unroll=8" in text
    assert "unroll=1\n" not in text
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), plain, jax.value_and_grad(loss)(params)
    )


def products(program, *arguments):
    """Lines of products and convolutions in the program that is compiled."""
    text = jax.jit(program).lower(*arguments).as_text()
    return [line for line in text.splitlines() if "stablehlo.dot_general" in line or "stablehlo.convolution" in line]


NETWORKS = {
    "dense": {"hidden": (20, 20)},
    "GRU": {"memory": memories.GRU(20)},
    "attention": {"memory": memories.Attention(20, steps=3, heads=2)},
    "LRU": {"memory": memories.LRU(20)},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_products_are_not_rounded_on_accelerators_unless_jax_is_told_so(on, name):
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(networks.network(env, **NETWORKS[name]), compute_dtype="float32", minibatch=Shuffle(1))
    state = jax.eval_shape(lambda key: ppax.start(agent, env, 4, key), jax.random.key(0))

    def train(state):
        return ppax.train(agent, env, state, 1, 1)

    with jax.default_matmul_precision(None):
        on("gpu")
        found = products(train, state)
        assert found
        assert all("HIGHEST" in line for line in found)
        on("gpu", rounds_float32=False)
        assert not any("HIGHEST" in line for line in products(lambda state: train(state), state))
    with jax.default_matmul_precision("tensorfloat32"):
        on("gpu", rounds_float32=True)
        assert not any("HIGHEST" in line for line in products(lambda state: (train(state),), state))


def test_products_of_physics_are_not_rounded_on_accelerators(on):
    from ppax.envs.suites.brax import Brax

    class Physics:
        def reset(self, key):
            return State(jnp.ones((3, 3)) @ jnp.ones(3), jnp.float32(0.0), jnp.float32(0.0), {})

        def step(self, state, action):
            return State(jnp.ones((3, 3)) @ state.obs, jnp.float32(0.0), jnp.float32(0.0), {})

    class State(NamedTuple):
        obs: jax.Array
        reward: jax.Array
        done: jax.Array
        info: dict

    def step(action):
        env = Brax(Physics())
        return env.step(env.reset(jax.random.key(0)).state, action, jax.random.key(1)).obs

    with jax.default_matmul_precision(None):
        assert not any("HIGHEST" in line for line in products(step, jnp.ones(1)))
        on("gpu")
        assert all("HIGHEST" in line for line in products(lambda action: step(action), jnp.ones(1)))


@pytest.mark.parametrize("parallel", [True, False])
def test_a_linear_recurrence_is_parallel_or_sequential(on, parallel):
    on("gpu", parallel_scans=parallel)
    a = jnp.full((5, 2), 0.5)
    program = jax.make_jaxpr(lambda a: linear_recurrence(a, a, a[0], jnp.zeros(5, bool)))(a)
    assert ("scan[" in str(program)) == (not parallel)
