"""Rematerialisation: the backward pass computes the inside of a scan again instead of keeping it in memory.

Chen et al. 2016, https://arxiv.org/abs/1604.06174
"""

from __future__ import annotations

import dataclasses

import jax
from jax import Array

from ppax.networks.memories.stack import Stack
from ppax.networks.memories.time import MemoryPart
from ppax.types import Key, Memory, Params, PyTree, part


@part
class Remat:
    """Memory whose scan keeps its inputs only; its results are those of `memory`."""

    memory: MemoryPart

    def init(self, key: Key, size: int) -> Params:
        """Return the memory's parameters."""
        return self.memory.init(key, size)

    def output_size(self, size: int) -> int:
        """Return the memory's output size."""
        return self.memory.output_size(size)

    def initial_carry(self, size: int) -> PyTree:
        """Return the memory's initial carry."""
        return self.memory.initial_carry(size)

    def project_in(self, params: Params, x: Array) -> PyTree:
        """Return the memory's input of `scan`."""
        return self.memory.project_in(params, x)

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Scan a sequence as the memory does; a single step, as in acting, has nothing to save."""
        scan = self.memory.scan if first.shape[0] == 1 else jax.checkpoint(self.memory.scan)
        out: Memory = scan(params, carry, x, first)
        return out

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the memory's features of one step."""
        return self.memory.project_out(params, y)


def rematerialised(memory: MemoryPart) -> MemoryPart:
    """Return `memory` with a checkpoint around its scan; of a stack around that of each layer, one after the other."""
    if isinstance(memory, Stack):
        return dataclasses.replace(memory, cell=Remat(memory.cell))
    return Remat(memory)
