"""Feedforward network: dense layers, no memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ppax.networks.composed import Composed, network


def mlp(
    env: Any,
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    shared: bool = False,
    log_std_init: float = 0.0,
    **box: Any,
) -> Composed:
    """Return a feedforward network for the spaces of `env`.

    `box`: options of Box actions, as in `network`, which also offers encoders and memories.
    """
    return network(env, hidden=hidden, activation=activation, shared=shared, log_std_init=log_std_init, **box)
