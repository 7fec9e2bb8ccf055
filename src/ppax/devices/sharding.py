"""Sharding of one program over several devices, by streams and by rows of a minibatch.

A stream is one agent in one environment. On a CPU, XLA runs small matrix products and loops on one core, so ppax asks
JAX for one device per core. Code inside `split` sees its device's shard and communicates by `gather` (all-gather),
`total` (sum) and `largest` (maximum). Outside `split` these return their argument. Results depend on the number of
devices only by rounding, except for initial states from `envs.vector.PoolResets`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ppax.core.types import ConfigError

Tree = TypeVar("Tree")

AXIS = "ppax.parallel"  # mesh axis name; unique, so that a user's `vmap(train, axis_name="devices")` is unaffected
THREADS = "NPROC"  # environment variable: the number of XLA's threads on a CPU; default: one per core
MOST_PER_CORE = 64  # largest number of CPU devices per core that a checkpoint may ask for


class Platform(NamedTuple):
    """Platform of JAX that the option --device names: its plugins, and what JAX calls its devices."""

    plugins: tuple[str, ...]  # names in jax_platforms, one of which is installed
    backend: str  # name of its devices


PLATFORMS = {
    "cpu": Platform(("cpu",), "cpu"),
    "gpu": Platform(("cuda", "rocm"), "gpu"),
    "cuda": Platform(("cuda",), "gpu"),
    "rocm": Platform(("rocm",), "gpu"),
    "tpu": Platform(("tpu",), "tpu"),
}
ON_THE_CPU = "to run on the CPU write --device cpu, in Python or for any command JAX_PLATFORMS=cpu"
SPLIT = PartitionSpec(AXIS)  # sharded along the leading axis
SAME = PartitionSpec()  # replicated


def use_all_cores() -> None:
    """Set JAX's number of CPU devices to one per core, at most the environment variable NPROC.

    Nothing changes where the user has set a number or JAX is already initialised.
    """
    by_flag = "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.values["jax_num_cpu_devices"] < 0 and not by_flag:
        with contextlib.suppress(RuntimeError):  # JAX is initialised: programs run on its existing devices
            jax.config.update("jax_num_cpu_devices", _usual_devices())


def use_cpu_devices(count: int) -> None:
    """Set JAX's number of CPU devices to `count`, as a resumed run needs them, if `use_all_cores` has asked for fewer.

    Nothing changes where the user has set a number or JAX is already initialised.
    """
    if jax.config.values["jax_num_cpu_devices"] == _usual_devices() < count <= MOST_PER_CORE * num_cores():
        with contextlib.suppress(RuntimeError):  # JAX is initialised
            jax.config.update("jax_num_cpu_devices", count)


def _usual_devices() -> int:
    """Return the number of CPU devices to ask for: one per core, at most the environment variable NPROC."""
    limit = os.environ.get(THREADS, "")
    return min(num_cores(), int(limit)) if limit.isdecimal() and int(limit) > 0 else num_cores()


def use_only(count: int) -> None:
    """Set JAX's number of CPU devices to `count`, whatever the number of cores; no effect once JAX is initialised."""
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", count)


def keep_apart() -> None:
    """Pin each XLA compute thread to its own core, on Linux, for programs with one CPU device per core.

    Without pinning, Linux sometimes keeps two of these threads on one core beside an idle one, at half the speed,
    mostly after a rollout of host environments (benchmarks/NOTES.md). Pinning lasts until the process ends; threads
    that Python starts inside a JAX callback may inherit it.
    """
    if jax.default_backend() != "cpu" or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError):  # a thread that has ended, or no permission
        cores, threads = sorted(os.sched_getaffinity(os.getpid())), []
        for thread in sorted(map(int, os.listdir("/proc/self/task"))):
            with open(f"/proc/self/task/{thread}/comm", "rb") as name:  # bytes: a name may be cut inside a letter
                if name.read().strip() == b"tf_XLAEigen":
                    threads.append(thread)
        if len(threads) == len(cores):
            for thread, core in zip(threads, cores, strict=True):
                os.sched_setaffinity(thread, {core})


def require_backend() -> None:
    """Raise ConfigError if JAX cannot start, on the platform that JAX_PLATFORMS names or on those that it finds.

    JAX_PLATFORMS is an environment variable. Without it, a plugin for GPUs that is installed and broken is an error.
    """
    try:
        jax.local_devices()
    except (AssertionError, RuntimeError) as error:  # AssertionError without a text: "cuda" without JAX's plugin for it
        named = os.environ.get("JAX_PLATFORMS")
        if not named:
            raise ConfigError(f"JAX cannot start: {error or 'no backend'}; {ON_THE_CPU}") from error
        raise ConfigError(
            f"JAX_PLATFORMS = {named!r}: {error or 'no such backend here'}; unset it to use an installed backend, or "
            f'install JAX for it, pip install "ppax[cuda13]"; {ON_THE_CPU}'
        ) from error


def use_device(name: str) -> None:
    """Start JAX on the platform `name` ("cpu", "gpu", "cuda", "rocm", "tpu"), or on a single GPU ("cuda:1").

    Raises ConfigError where there is no such device here, or where JAX runs already, on another platform.
    """
    platform, colon, number = name.partition(":")
    if platform not in PLATFORMS or (colon and not (number.isdecimal() and PLATFORMS[platform].backend == "gpu")):
        raise ConfigError(f"--device {name}: must be one of {', '.join(PLATFORMS)}, or a single GPU, as cuda:1")
    before, why = jax.config.values["jax_platforms"], ""
    for plugin in PLATFORMS[platform].plugins:
        jax.config.update("jax_platforms", plugin if plugin == "cpu" else f"{plugin},cpu")
        if number:
            jax.config.update(f"jax_{plugin}_visible_devices", number)
        try:
            if jax.default_backend() == PLATFORMS[platform].backend:
                return
        except (AssertionError, RuntimeError) as error:
            why = why or f" ({error})"
    jax.config.update("jax_platforms", before)
    raise ConfigError(
        f"--device {name}: JAX finds no such device here{why}; leave it out to use what JAX finds, or install JAX for "
        f'it, for NVIDIA GPUs by pip install "ppax[cuda13]"; {ON_THE_CPU}'
    )


def num_cores() -> int:
    """Return the number of processor cores that this process may use."""
    # Affinity of the main thread; other threads may be pinned to one core
    return len(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split(
    function: Callable[..., Any], devices: int, in_specs: Any, out_specs: Any, axis: str = AXIS
) -> Callable[..., Any]:
    """Return `function` as a `shard_map` over `devices` devices, where it sees its device's shard of its arguments.

    `in_specs` and `out_specs` are trees of SPLIT (sharded along the leading axis) and SAME (replicated on all devices).
    """
    mesh = _mesh(devices, axis)
    if devices == num_cores():
        keep_apart()
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def place_on_devices(tree: Tree, specs: Any, devices: int, axis: str = AXIS) -> Tree:
    """Return `tree` sharded like results of `split`, so that a first call gets the same shardings as later calls.

    `specs` are trees of SPLIT (along the leading axis) and SAME (on all devices); on one device nothing changes.
    """
    if devices == 1:
        return tree
    places = shardings(specs, devices, axis)
    if jax.process_count() > 1 and not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree)):
        # every process has the whole tree; `device_put` cannot place it on devices of others
        placed: Tree = jax.jit(lambda whole: whole, out_shardings=places)(tree)
        return placed
    return jax.lax.with_sharding_constraint(tree, places)


def shapes_of(tree: Tree, specs: Any, devices: int, axis: str = AXIS) -> Tree:
    """Return shapes, dtypes and shardings of what `place_on_devices` returns for the same arguments.

    `tree` may have shapes in place of arrays.
    """
    places = shardings(specs, devices, axis) if devices > 1 else specs

    def one(place: Any, part: Any) -> Any:
        sharding = place if devices > 1 else None
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part)

    shapes: Tree = jax.tree.map(one, places, tree)
    return shapes


def shardings(specs: Any, devices: int, axis: str = AXIS) -> Any:
    """Return `specs`, trees of SPLIT and SAME, with each of them replaced by its NamedSharding over `devices` devices.

    These are the shardings of the arguments of a function that `split` has made with `in_specs=specs`.
    """
    mesh = _mesh(devices, axis)
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)


def _mesh(devices: int, axis: str) -> Mesh:
    """Return a mesh with one axis, over the first `devices` devices of this process, or of all processes of the run."""
    return Mesh(_devices()[:devices], (axis,))


def _devices() -> list[jax.Device]:
    return jax.devices() if jax.process_count() > 1 else jax.local_devices()


def local(tree: Any) -> Any:
    """Return arrays on several devices as arrays of one device or of NumPy, so that a caller computes on one device.

    Arrays that are replicated over devices become arrays of one device, and sharded arrays, which are complete on no
    device, become NumPy arrays. Traced arrays stay as they are.
    """

    def one(x: Any) -> Any:
        if not isinstance(x, Array) or isinstance(x, jax.core.Tracer) or len(x.sharding.device_set) == 1:
            return x
        return x.addressable_data(0) if x.is_fully_replicated else np.asarray(x)

    return jax.tree.map(one, tree)


def available() -> int:
    """Return the number of devices over which `split` can shard a program.

    The number is 1 inside a `shard_map` or `pmap` of the user, and under `jax.disable_jit`.
    """
    if jax.config.jax_disable_jit or jax.sharding.get_abstract_mesh().manual_axes:  # type: ignore[attr-defined]
        return 1
    return len(_devices())


def num_parts() -> int:
    """Return the number of devices over which the enclosing `split` runs; 1 outside of one."""
    try:
        return int(jax.lax.axis_size(AXIS))
    except NameError:  # not inside `split`
        return 1


def part_index() -> Array | int:
    """Return this device's index in the enclosing `split`; 0 outside of one."""
    return jax.lax.axis_index(AXIS) if num_parts() > 1 else 0


def own(tree: Tree) -> Tree:
    """Return this device's share, along the leading axis, of arrays that all devices of the enclosing `split` have.

    Outside of a `split` it is `tree` itself.
    """
    parts = num_parts()
    if parts == 1:
        return tree

    def shard(x: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(x, part_index() * (x.shape[0] // parts), x.shape[0] // parts)

    return jax.tree.map(shard, tree)


def gather(tree: Tree, axis: int = 0) -> Tree:
    """Return the shards of all devices of the enclosing `split`, joined along `axis` (all-gather).

    Outside of a `split` it is `tree` itself. Leaves of equal shapes and dtypes are exchanged as one array: an exchange
    takes 50 us on a CPU, whatever its size.
    """
    if num_parts() == 1:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    alike: dict[Any, list[int]] = {}
    for i, leaf in enumerate(leaves):
        alike.setdefault((leaf.shape, leaf.dtype), []).append(i)
    for places in alike.values():
        stacked = jnp.stack([leaves[i] for i in places])
        for i, joined in zip(places, jax.lax.all_gather(stacked, AXIS, axis=axis + 1, tiled=True), strict=True):
            leaves[i] = joined
    joined_tree: Tree = jax.tree.unflatten(structure, leaves)
    return joined_tree


def total(tree: Tree) -> Tree:
    """Return the sum over all devices of the enclosing `split` (psum); `tree` itself outside of one."""
    return jax.lax.psum(tree, AXIS) if num_parts() > 1 else tree


def largest(tree: Tree) -> Tree:
    """Return the maximum over all devices of the enclosing `split` (pmax); `tree` itself outside of one."""
    return jax.lax.pmax(tree, AXIS) if num_parts() > 1 else tree
