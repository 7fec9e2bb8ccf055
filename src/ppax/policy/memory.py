"""Memory of a policy between calls of `act`: the carry of every stream, and the streams whose episode begins."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ppax.core.types import ConfigError
from ppax.policy.actor import Actor
from ppax.policy.reader import flags
from ppax.training.host.turns import held


class StreamMemory:
    """Carry of the streams of a batch, kept from call to call; nothing for a feedforward policy."""

    def __init__(self, agent: Actor, streams_per_unit: int):
        self._agent, self._size = agent, streams_per_unit
        self.needed = bool(jax.tree.leaves(jax.eval_shape(lambda: agent.initial_carry(streams_per_unit))))
        self.clear()

    def clear(self) -> None:
        """Forget everything; the next batch may have another size."""
        self._carry: list[Any] = []
        self._units = 0
        self._first = np.ones(0, bool)

    def reset(self, where: Any) -> None:
        """Begin an episode where `where` [units] or [units, agents] is True; ConfigError for another shape."""
        if not self.needed or not self._units:
            return
        where = flags(where, "where")
        shapes = [(self._units,), (self._units, self._size)] + [()] * (self._units == 1)
        if where.shape not in shapes:
            raise ConfigError(
                f"where has the shape {list(where.shape)}: the memory is of {self._units} observations: [{self._units}]"
            )
        rows = np.broadcast_to(where.reshape(self._units, -1), (self._units, self._size)).reshape(-1)
        self._first[: len(rows)] |= rows

    def begin(self, units: int, rows: int) -> tuple[list[Any], np.ndarray]:
        """Return the leaves of the carry and `first`, [rows] each, for `units` observations.

        Raises ConfigError where the memory is of another number of observations.
        """
        if not self.needed:
            return [], np.zeros(rows, bool)
        if not self._units:
            leaves, self._structure = jax.tree.flatten(self._agent.initial_carry(rows))
            self._carry = [np.asarray(x) for x in leaves]
            self._units, self._first = units, np.ones(rows, bool)
        if units != self._units:
            raise ConfigError(
                f"obs has {units} observations, and the memory is of {self._units}: the batch of a policy with memory "
                "keeps its size and order; call policy.reset() before another batch"
            )
        return self._carry, self._first

    def keep(self, carry: list[Any], present: np.ndarray | None) -> None:
        """Keep the carry after a step, of all streams or of those `present` [B]."""
        if not self.needed:
            return
        if present is None:
            self._carry, self._first = carry, np.zeros_like(self._first)
            return
        rows = np.zeros(len(self._first), bool)
        rows[: len(present)] = present
        before, after = (jax.tree.unflatten(self._structure, x) for x in (self._carry, carry))
        self._carry = jax.tree.leaves(held(self._agent.requires, rows, before, after))
        self._first = self._first & ~rows
