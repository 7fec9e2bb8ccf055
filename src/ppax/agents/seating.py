"""Seating for self-play: the block of environments in which each group is played by past selves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np


class Block(NamedTuple):
    """Environments in which one group is played by past selves."""

    name: str  # of the group
    envs: slice
    members: slice  # of the group, among an environment's agents
    rows: slice  # past selves, among the group's streams [E * A_g]


def blocks(num_envs: int, sizes: Sequence[tuple[str, int]], share: float, opponents: int) -> Iterator[Block]:
    """Yield the block of each group: a `share` of the environments, the last ones, divided among the groups.

    The length of a block is a multiple of `opponents`, the number of past selves that divide it.
    """
    length = int(num_envs * share / len(sizes)) // opponents * opponents
    begin, agent = num_envs - len(sizes) * length, 0
    for name, size in sizes:
        end = begin + length
        yield Block(name, slice(begin, end), slice(agent, agent + size), slice(begin * size, end * size))
        begin, agent = end, agent + size


def current_agents(seats: Sequence[Block], num_envs: int, num_agents: int) -> np.ndarray:
    """Return a mask [E, A] of the agents that are played by current learners."""
    current = np.ones((num_envs, num_agents), bool)
    for block in seats:
        current[block.envs, block.members] = False
    return current


def margin_weights(seats: Sequence[Block], num_envs: int, num_agents: int) -> np.ndarray:
    """Weights [E, A] whose sum with returns has the sign of the past self's mean return minus the others' mean.

    Both means times both sizes: whole numbers, so that equal returns cancel.
    """
    weights = np.zeros((num_envs, num_agents), np.float32)
    for block in seats:
        size = block.members.stop - block.members.start
        weights[block.envs] = -size
        weights[block.envs, block.members] = max(1, num_agents - size)
    return weights
