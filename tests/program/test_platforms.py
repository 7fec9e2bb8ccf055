"""Rules by platform: one table decides; a changed entry changes the program, and nothing else asks for the platform."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import networks
from ppax.networks import memories
from ppax.networks.memories.time import linear_recurrence
from ppax.program import platforms, sharding
from ppax.program.layout import Program, compiler_options, only_if, run_once_options

CHUNKS = platforms.Chunks(4096, 256, 2**20, 1024, 128, {"float32": 3})
SOURCE = Path(ppax.__file__).parent
# Facts of the machine, which no measurement changes: threads and memory of a CPU, its AMX unit, what a record says
FACTS = {"program/sharding.py", "run/restore.py", "run/origin.py", "tools/advice.py"}


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
    assert asking == {"program/platforms.py", *FACTS}


@pytest.mark.parametrize("platform", ["gpu", "tpu", "a platform of tomorrow"])
def test_accelerators_have_one_device_whole_minibatches_and_no_options_of_a_cpu(on, platform):
    images = jax.ShapeDtypeStruct((64, 1, 4, 84, 84), np.uint8)
    on(platform)
    assert Program().num_devices(64, 2048, 1) == 1
    assert Program().rows(16, "bfloat16", images) >= 2**31
    assert Program(chunk_rows=100).rows(1, "float32", images) == 100
    assert (compiler_options(), run_once_options()) == (None, None)


def test_entries_of_the_table_decide(on):
    on("gpu", min_rows=1024, chunks=CHUNKS, compiler_options={"a": 1})
    assert Program().num_devices(64, 2048, 1) == 2
    assert Program().num_devices(64, 2046, 1) == 1
    assert Program().rows(1, "float32") == 4096
    assert Program().rows(2048, "float32") == 3 * 2048
    assert compiler_options() == {"a": 1}


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
def test_a_linear_recurrence_is_parallel_or_sequential(on, parallel):
    on("gpu", parallel_scans=parallel)
    a = jnp.full((5, 2), 0.5)
    program = jax.make_jaxpr(lambda a: linear_recurrence(a, a, a[0], jnp.zeros(5, bool)))(a)
    assert ("scan[" in str(program)) == (not parallel)
