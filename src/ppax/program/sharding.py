"""One program on several devices: streams, and rows of a minibatch, are split over them.

On a CPU, XLA runs small matrix products and loops on one core, so ppax asks JAX for one device a core. Code that is
split sees its own share; what must know of the others calls `gather` or `total`. Outside `split` there is one part,
nothing is exchanged, and the result is the same but for rounding.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Tree = TypeVar("Tree")

AXIS = "ppax.parallel"  # a name of our own: a user's `vmap(train, axis_name="devices")` must exchange nothing
MOST_PER_CORE = 64  # devices that a checkpoint may ask for
SPLIT = PartitionSpec(AXIS)  # every device has its share of the leading axis
SAME = PartitionSpec()  # every device has all of it


def use_all_cores() -> None:
    """Ask JAX for one CPU device a core; nothing changes where the user has chosen, or where JAX has started."""
    by_flag = "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.values["jax_num_cpu_devices"] < 0 and not by_flag:
        with contextlib.suppress(RuntimeError):  # JAX has started: programs then run on the devices there are
            jax.config.update("jax_num_cpu_devices", num_cores())


def use_cpu_devices(count: int) -> None:
    """Ask JAX for `count` CPU devices, where it would have fewer, one a core, by `use_all_cores`."""
    if jax.config.values["jax_num_cpu_devices"] == num_cores() < count <= MOST_PER_CORE * num_cores():
        with contextlib.suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", count)


def keep_apart() -> None:
    """Give each thread that XLA computes on a core of its own, on Linux; for programs on a device for each core.

    Left alone, Linux at times runs two of them by turns on one core beside an idle one, for as long as a program lasts,
    and mostly so after a rollout on the host: at half the speed (benchmarks/NOTES.md). It lasts as long as the process;
    what Python starts inside a callback of a program may stay on that core.
    """
    if jax.default_backend() != "cpu" or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError):  # a thread that has ended, or a system that does not let us
        cores, threads = sorted(os.sched_getaffinity(os.getpid())), []
        for thread in sorted(map(int, os.listdir("/proc/self/task"))):
            with open(f"/proc/self/task/{thread}/comm", "rb") as name:  # bytes: a name may be cut inside a letter
                if name.read().strip() == b"tf_XLAEigen":
                    threads.append(thread)
        if len(threads) == len(cores):
            for thread, core in zip(threads, cores, strict=True):
                os.sched_setaffinity(thread, {core})


def num_cores() -> int:
    """Processor cores that this process may use."""
    # of the main thread: others may be kept to a core
    return len(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split(
    function: Callable[..., Any], devices: int, in_specs: Any, out_specs: Any, axis: str = AXIS
) -> Callable[..., Any]:
    """`function` on `devices` devices at once, each with its share of the arguments marked SPLIT."""
    mesh = Mesh(jax.local_devices()[:devices], (axis,))
    if devices == num_cores():
        keep_apart()
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def place(tree: Tree, specs: Any, devices: int, axis: str = AXIS) -> Tree:
    """`tree` as `split` takes and gives it; so the first call finds its arguments where every later one does."""
    if devices == 1:
        return tree
    return jax.lax.with_sharding_constraint(tree, shardings(specs, devices, axis))


def shapes_of(tree: Tree, specs: Any, devices: int, axis: str = AXIS) -> Tree:
    """Shapes and dtypes of what `place` would give; of `tree` nothing more need be there."""
    places = shardings(specs, devices, axis) if devices > 1 else specs

    def one(place: Any, part: Any) -> Any:
        sharding = place if devices > 1 else None
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part)

    shapes: Tree = jax.tree.map(one, places, tree)
    return shapes


def shardings(specs: Any, devices: int, axis: str = AXIS) -> Any:
    """Where arrays lie that `split` takes by `specs`."""
    mesh = Mesh(jax.local_devices()[:devices], (axis,))
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)


def available() -> int:
    """Over how many devices a program can be split here: over one inside a `shard_map` or `pmap` of the user's."""
    return 1 if jax.sharding.get_abstract_mesh().manual_axes else len(jax.local_devices())


def num_parts() -> int:
    """Over how many devices the running code is split."""
    try:
        return int(jax.lax.axis_size(AXIS))
    except NameError:  # not inside `split`
        return 1


def part_index() -> Array | int:
    """Which of the parts this is."""
    return jax.lax.axis_index(AXIS) if num_parts() > 1 else 0


def own(tree: Tree) -> Tree:
    """This device's share, along the leading axis, of arrays that all devices have."""
    parts = num_parts()
    if parts == 1:
        return tree

    def share(x: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(x, part_index() * (x.shape[0] // parts), x.shape[0] // parts)

    return jax.tree.map(share, tree)


def gather(tree: Tree, axis: int = 0) -> Tree:
    """The shares of all devices, joined along `axis`, on every device."""
    if num_parts() == 1:
        return tree
    return jax.tree.map(lambda x: jax.lax.all_gather(x, AXIS, axis=axis, tiled=True), tree)


def total(tree: Tree) -> Tree:
    """Sums over all devices."""
    return jax.lax.psum(tree, AXIS) if num_parts() > 1 else tree


def largest(tree: Tree) -> Tree:
    """Maxima over all devices."""
    return jax.lax.pmax(tree, AXIS) if num_parts() > 1 else tree
