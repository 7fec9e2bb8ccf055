"""Several devices compute the same as one; ppax requests one device per core unless the user has chosen."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli.options import parse_run
from ppax.devices import sharding
from ppax.devices.layout import Program
from ppax.envs import VectorEnv
from ppax.networks import mlp
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import stream_keys
from ppax.training.loop import check_sizes
from support.sharded import require_same
from support.worlds import Team


@pytest.mark.parametrize(
    "case",
    ["continuous", "memory", "smooth", *(pytest.param(c, marks=pytest.mark.nightly) for c in ("discrete", "agents"))],
)
def test_training_on_two_devices_equals_one(case):
    require_same(case, 2)


def test_every_stream_and_step_has_a_key_of_its_own():
    env = VectorEnv(Team(), 5)
    keys = stream_keys(jax.random.key(0), 7, env)
    assert keys.shape == (7, 5, 4)  # for the environment and three agents
    assert len(np.unique(jax.random.key_data(keys).reshape(-1, 2), axis=0)) == 7 * 5 * 4
    fewer = stream_keys(jax.random.key(0), 7, VectorEnv(Team(), 2))
    np.testing.assert_array_equal(*(jax.random.key_data(x) for x in (fewer, keys[:, :2])))


def test_gather_keeps_the_order():
    x = np.arange(12.0).reshape(6, 2)

    def whole(part):
        return sharding.gather(part), sharding.own(sharding.gather(part)), sharding.total(part.sum())

    out = sharding.split(whole, 2, sharding.SPLIT, (sharding.SAME, sharding.SPLIT, sharding.SAME))(x)
    np.testing.assert_array_equal(out[0], x)
    np.testing.assert_array_equal(out[1], x)
    assert out[2] == x.sum()


def test_gather_keeps_the_places_of_leaves():
    """Leaves of equal shapes are exchanged as one array; others, and other dtypes, on their own."""
    x = np.arange(12.0, dtype=np.float32).reshape(6, 2)
    tree = {"a": x, "b": x > 4, "c": x + 1, "d": x[:, 0], "e": x.astype(np.int32), "f": x + 2}
    for axis in (0, 1):
        spec = jax.sharding.PartitionSpec(*[None] * axis, sharding.AXIS)
        turned = {name: leaf.T for name, leaf in tree.items() if leaf.ndim == 2} if axis else tree
        gather = sharding.split(lambda part, axis=axis: sharding.gather(part, axis), 2, spec, sharding.SAME)
        for name, leaf in gather(turned).items():
            assert leaf.dtype == turned[name].dtype
            np.testing.assert_array_equal(leaf, turned[name])


def test_default_number_of_devices():
    rule = Program().num_devices
    assert rule(num_envs=64, minibatch=2048, seq_len=1) == 2
    assert rule(num_envs=64, minibatch=16, seq_len=128) == 2
    assert rule(num_envs=4, minibatch=128, seq_len=1) == 1  # too few rows for the cost of communication
    assert rule(num_envs=63, minibatch=2048, seq_len=1) == 1  # odd
    assert rule(num_envs=64, minibatch=2049, seq_len=1) == 1
    assert Program(devices=1).num_devices(64, 2048, 1) == 1


def test_all_devices():
    """`devices = "all"` in a run file takes every device, also where the default would not pay, and never fewer."""
    written = config.resolve({"env": "CartPole-v1", "agent": {"program": {"devices": "all"}}})
    program = Program(devices=written["agent"]["program"]["devices"])
    assert program.num_devices(num_envs=4, minibatch=4, seq_len=1) == jax.local_device_count() == 2
    with pytest.raises(ppax.ConfigError, match=r"program.devices = 2: does not divide num_envs = 3"):
        program.num_devices(num_envs=3, minibatch=4, seq_len=1)
    _, run_config = parse_run("train", ["CartPole-v1", "--agent.program.devices", "all"], lambda parser: None)
    assert run_config["agent"]["program"]["devices"] == written["agent"]["program"]["devices"]


def test_chunks_of_large_images_have_fewer_rows():
    atari, minatar = (jax.ShapeDtypeStruct((64, 1, *shape), np.uint8) for shape in ((4, 84, 84), (10, 10, 4)))
    rows = Program().rows
    assert rows(1, "float32", atari) == 2**20 // (4 * 84 * 84) == 37
    assert rows(1, "float32", {"eyes": atari, "speed": minatar}) < 37
    assert rows(16, "float32", atari) == 4 * 16  # at least 4 sequences, as for other observations
    assert rows(1, "float32", minatar) == rows(1, "float32") == 8192
    assert Program(chunk_rows=100).rows(1, "float32", atari) == 100


@pytest.mark.parametrize(
    ("devices", "num_envs", "minibatch", "text"),
    [
        (
            2,
            4,
            3,
            r"program.devices = 2: does not divide minibatches of 3 sequences; devices that do: 1; nearest .* 2, 4",
        ),
        (2, 4, 1, "does not divide minibatches of 1 sequences; devices that do: 1; nearest minibatches: 2 sequences"),
        (2, 3, 4, "does not divide num_envs = 3; devices that do: 1; nearest num_envs: 2, 4"),
        (8, 8, 8, rf"program.devices = 8: must be at most {jax.local_device_count()}, the devices; nearest"),
    ],
)
def test_devices_that_do_not_divide_are_refused(devices, num_envs, minibatch, text):
    with pytest.raises(ppax.ConfigError, match=text):
        Program(devices=devices).num_devices(num_envs, minibatch, 1)


def test_device_sizes_are_checked_before_anything_is_built():
    """Four environments, rollouts of 3 steps, 4 minibatches of 3 sequences: 3 is not divisible by two devices."""
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env, hidden=(4,)), minibatch=Shuffle(4), program=Program(devices=2))
    with pytest.raises(
        ppax.ConfigError, match=r"a rollout of .* program\.devices = 2: does not divide minibatches of 3"
    ):
        check_sizes(agent, env, 3)
    check_sizes(agent, env, 4)


@pytest.mark.parametrize("axis", ["devices", "members", "batch"])
@pytest.mark.parametrize("mapped", ["vmap", "pmap", "shard_map"])
def test_no_communication_over_a_users_mapped_axis(mapped, axis):
    """Seeds under a mapped axis of any name are separate runs."""
    x = np.arange(2.0, dtype=np.float32)

    def whole(part):
        return sharding.total(part) + sharding.largest(part) + sharding.part_index() + sharding.num_parts()

    mesh = jax.sharding.Mesh(jax.local_devices()[:2], (axis,))
    spec = jax.sharding.PartitionSpec(axis)
    maps = {
        "vmap": lambda: jax.vmap(whole, axis_name=axis),
        "pmap": lambda: jax.pmap(whole, axis_name=axis),
        "shard_map": lambda: jax.shard_map(whole, mesh=mesh, in_specs=spec, out_specs=spec),
    }
    np.testing.assert_array_equal(maps[mapped]()(x), 2.0 * x + 1.0)


@pytest.mark.parametrize("mapped", ["pmap", "shard_map"])
def test_one_device_inside_a_users_pmap_or_shard_map(mapped):
    """Inside a pmap or shard_map a second split over devices is impossible and refused."""
    found, mesh = [], jax.sharding.Mesh(jax.local_devices()[:2], ("seeds",))
    spec = jax.sharding.PartitionSpec("seeds")

    def look(x):
        found.append(Program().num_devices(64, 2048, 1))
        with pytest.raises(ppax.ConfigError, match=r"must be at most 1, the devices inside a shard_map"):
            Program(devices=2).num_devices(64, 2048, 1)
        return x

    run = jax.pmap(look) if mapped == "pmap" else jax.shard_map(look, mesh=mesh, in_specs=spec, out_specs=spec)
    run(np.arange(2.0))
    assert found == [1]


@pytest.mark.parametrize(
    ("before", "environment", "devices"),
    [
        ("", {}, sharding.num_cores()),
        ("", {"JAX_NUM_CPU_DEVICES": "3"}, 3),
        ("", {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, 5),
        ("import jax; jax.config.update('jax_num_cpu_devices', 4)", {}, 4),
        ("import jax; jax.devices()", {}, 1),
        ("", {"NPROC": "1"}, 1),
        ("", {"NPROC": "1000"}, sharding.num_cores()),
        ("", {"NPROC": "0"}, sharding.num_cores()),  # XLA reads only positive numbers
        ("", {"NPROC": "many"}, sharding.num_cores()),
    ],
)
def test_a_users_device_count_takes_precedence(before, environment, devices):
    code = f"{before}\nimport ppax, jax\nprint(jax.device_count())"
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "NPROC")}
    out = subprocess.run([sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert int(out.stdout) == devices


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads have no names elsewhere")
@pytest.mark.skipif(sharding.num_cores() < 2, reason="one core")
@pytest.mark.parametrize(("devices", "apart"), [(sharding.num_cores(), True), (1, False)])
def test_xla_threads_are_pinned_if_each_core_has_a_device(devices, apart):
    code = f"""
import os, threading, time, jax, jax.numpy as jnp
from ppax.devices import sharding
def sleep():  # under a name that was cut inside a letter
    open(f"/proc/self/task/{{threading.get_native_id()}}/comm", "wb").write("esswerte lesen\u00fc".encode()[:15])
    time.sleep(60)
threading.Thread(target=sleep, daemon=True).start()
time.sleep(0.2)
whole = lambda x: sharding.total(x.sum())
x = jnp.ones(2 * {devices})
jax.jit(sharding.split(whole, {devices}, sharding.SPLIT, sharding.SAME))(x).block_until_ready()
tasks = map(int, os.listdir("/proc/self/task"))
own = [task for task in tasks if open(f"/proc/self/task/{{task}}/comm", "rb").read().strip() == b"tf_XLAEigen"]
print([sorted(os.sched_getaffinity(task)) for task in own], end=";")
print(sorted(os.sched_getaffinity(0)))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    threads, process = (json.loads(text) for text in out.stdout.split(";"))
    assert len(threads) == len(process) == sharding.num_cores()
    assert sorted(threads) == ([[core] for core in process] if apart else [process] * len(process))
