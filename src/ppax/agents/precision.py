"""Precision of matrix products in training programs: what `compute_dtype = "auto"` means on this machine.

Programs that train on compiled environments round the factors of products to bfloat16 where that is faster and where
learning curves cannot be told from those in float32 (docs/speed.md). Everything else computes in float32: acting of a
trained policy, evaluations, exports, host environments.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeVar

import jax

from ppax.networks.composed import Composed
from ppax.networks.encoders import Reader
from ppax.networks.products import MIN_SIDE
from ppax.ppo import PPO
from ppax.program.layout import AUTO, product_dtype
from ppax.program.platforms import bfloat16_unit

Tree = TypeVar("Tree")


def in_training(agent: Tree, products: str = "") -> Tree:
    """Return `agent` with compute_dtype `auto` replaced by `products`, by default by the dtype for this machine."""

    def one(node: Any) -> Any:
        if not isinstance(node, PPO) or node.compute_dtype != AUTO:
            return node
        return dataclasses.replace(node, compute_dtype=products or automatic(node))

    return jax.tree.map(one, agent, is_leaf=lambda node: isinstance(node, PPO))


def automatic(agent: PPO) -> str:
    """Return the dtype of products in training that `auto` stands for.

    It is float32 where jax_default_matmul_precision is set, and with several processes, whose processors may differ.
    """
    unset = jax.config.jax_default_matmul_precision is None  # type: ignore[attr-defined]
    here = bfloat16_unit() and jax.process_count() == 1 and unset
    return "bfloat16" if here and may_round(agent.network, agent.normalize_obs) else "float32"


def may_round(network: Any, standardised: bool) -> bool:
    """Return whether bfloat16 products are safe: only layers and memories of ppax, and no raw observation is rounded.

    Observations are rounded where a torso reads `MIN_SIDE` numbers or more; if they are `standardised`, that is safe.
    """
    if not isinstance(network, Composed) or not network.own_products:
        return False
    return standardised or all(_width(torso) < MIN_SIDE for torso in (network.actor_readers, network.critic_readers))


@functools.lru_cache(maxsize=256)  # once for the members of a sweep: it traces
def _width(torso: tuple[Reader, ...]) -> int:
    """Return the number of inputs of a torso whose encoders are all `Flat`."""
    return sum(reader.size() for reader in torso)


def products_of(agent: Any, num_streams: int) -> str:
    """Return the dtype of products in training, "" where the learners of `agent` differ in it."""
    found = {product_dtype(learner.compute_dtype) for learner, _ in in_training(agent).learners(num_streams)}
    return found.pop() if len(found) == 1 else ""
