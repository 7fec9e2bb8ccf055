"""Precision of matrix products in training: what `auto` and `bfloat16_where_safe` of `compute_dtype` mean.

Programs that train on compiled environments round the factors of products to bfloat16 where that is faster and where
learning curves cannot be told from those in float32 (docs/speed.md). Everything else computes in float32: acting of a
trained policy, evaluations, exports, host environments. `auto` is decided once, on the machine where a run or a sweep
begins. The run file records the decision, so that the run goes on, or is repeated, in the same precision elsewhere.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from ppax.core.options import Config
from ppax.devices.layout import AUTO, WHERE_SAFE, product_dtype
from ppax.devices.platforms import bfloat16_unit
from ppax.networks.composed import Composed, Torso
from ppax.networks.encoders import EntryReader
from ppax.networks.memories import Stack, Window
from ppax.networks.products import MIN_SIDE
from ppax.ppo.ppo import PPO

Tree = TypeVar("Tree")


def machine_dtype() -> str:
    """Return the compute_dtype that `auto` stands for on this machine: `bfloat16_where_safe` if faster, or float32.

    The result is float32 where jax_default_matmul_precision is set, and with several processes, whose processors may
    differ.
    """
    unset = jax.config.jax_default_matmul_precision is None  # type: ignore[attr-defined]
    return WHERE_SAFE if bfloat16_unit() and jax.process_count() == 1 and unset else "float32"


def decide_dtype(agent: Tree, dtype: str = "") -> Tree:
    """Return `agent` with each compute_dtype `auto` replaced by `dtype`, or if that is "" by this machine's choice."""

    def one(node: PPO) -> PPO:
        auto = node.compute_dtype == AUTO
        return dataclasses.replace(node, compute_dtype=dtype or machine_dtype()) if auto else node

    changed: Tree = _of_learners(one, agent)
    return changed


def in_float32(agent: Tree) -> Tree:
    """Return `agent` with all products in float32, whatever its compute_dtype is."""
    changed: Tree = _of_learners(lambda node: dataclasses.replace(node, compute_dtype="float32"), agent)
    return changed


def acting_dtypes(agent: Any, num_streams: int) -> set[str]:
    """Return the dtypes of the products of an agent that acts in `num_streams` streams, such as {"float32"}."""
    return {product_dtype(learner.compute_dtype) for learner, _ in agent.learners(num_streams)}


def in_training(agent: Tree) -> Tree:
    """Return `agent` with compute_dtype replaced by the dtype of its matrix products in training on this machine.

    `auto` and `bfloat16_where_safe` become float32 or bfloat16.
    """

    def one(node: PPO) -> PPO:
        dtype = machine_dtype() if node.compute_dtype == AUTO else node.compute_dtype
        if dtype == WHERE_SAFE:
            dtype = "bfloat16" if may_round(node.network) else "float32"
        return node if dtype == node.compute_dtype else dataclasses.replace(node, compute_dtype=dtype)

    changed: Tree = _of_learners(one, agent)
    return changed


def _of_learners(one: Callable[[PPO], PPO], agent: Any) -> Any:
    """Return `agent` with every PPO in it replaced by the result of the function `one` for it.

    Groups keep their order, which `jax.tree.map` would sort by name.
    """
    if isinstance(agent, PPO):
        return one(agent)
    if isinstance(agent, dict):
        return {name: _of_learners(one, x) for name, x in agent.items()}
    if not dataclasses.is_dataclass(agent) or isinstance(agent, type):
        return agent
    return dataclasses.replace(
        agent, **{field.name: _of_learners(one, getattr(agent, field.name)) for field in dataclasses.fields(agent)}
    )


def may_round(network: Any) -> bool:
    """Return True if a network's products may be in bfloat16: its layers are ppax's, and none rounds observations.

    Even standardised observations must not be rounded: a goal and a position that differ by less than 2^-8 standard
    deviations would be equal. The first hidden layer is never rounded (networks/composed.py). Without hidden layers,
    the memory or the head multiplies the observations, a window memory those of several steps at once. The result is
    then True only if these inputs are fewer than MIN_SIDE, because products with so few inputs are never rounded
    (networks/products.py).
    """
    if not isinstance(network, Composed) or not network.own_products:
        return False
    return all(torso.hidden or _longest(torso) < MIN_SIDE for torso in network.torsos().values())


def _longest(torso: Torso) -> int:
    """Return the number of inputs of the product that reads observations in a network without hidden layers.

    The product is that of the memory or of the head; a window memory reads the observations of several steps. `torso`
    has the encoders and the memory. `may_round` compares the result with MIN_SIDE, the least number of inputs of a
    product that is rounded.
    """
    cell = torso.memory.cell if isinstance(torso.memory, Stack) else torso.memory
    return _width(torso.readers) * (cell.steps if isinstance(cell, Window) else 1)


@functools.lru_cache(maxsize=256)  # once for the members of a sweep: it traces
def _width(torso: tuple[EntryReader, ...]) -> int:
    """Return the number of inputs of a network whose encoders `torso` all pass elements on unchanged (`Flat`)."""
    return sum(reader.size() for reader in torso)


def products_of(agent: Any, num_streams: int) -> str:
    """Return the dtype of an agent's matrix products in training, such as "float32".

    If an agent of several groups has learners with different dtypes, the result names the dtype of every learner, in
    the order of `agent.learners` and separated by commas, such as "bfloat16, float32, float32".
    """
    found = [product_dtype(learner.compute_dtype) for learner, _ in in_training(agent).learners(num_streams)]
    return found[0] if len(set(found)) == 1 else ", ".join(found)


def recorded_dtype(run_config: Config) -> str:
    """Return the compute_dtype that `auto` stood for when a run began, from its run file's options.

    The run file records the chosen dtype in place of `auto`: "bfloat16_where_safe" or "float32". If its agents have
    both, the result is the former; if they have neither, it is "".
    """
    tables = [run_config["agent"], *(group["agent"] for group in run_config.get("groups", {}).values())]
    given = {table.get("compute_dtype") for table in tables}
    return next((dtype for dtype in (WHERE_SAFE, "float32") if dtype in given), "")
