"""Exploration task: a long winding corridor, with a reward only at its end.

Random actions do not reach the end within a time limit of a few times its length: for a random walk the time grows with
the square of the distance.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, part, static
from ppax.envs.builtin.drawing import AMBER, BLUE, GREY, PAPER, Canvas

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)  # row and column: up, down, left, right


class MazeState(NamedTuple):
    """State of the maze: the agent's position."""

    cell: Array  # [2] int32, row and column


@part
class Maze:
    """Environment of a long winding corridor, with a reward only at its end.

    Observation: number of the cell, row by row. Actions: up, down, left, right; a step into a wall has no effect. The
    maze is a square of `size` rows and columns: rows 0, 2, 4, ... are open, each row between them has one opening,
    alternately at the right and at the left end. The start is at the beginning of the first row, the goal at the end of
    the last: `shortest` steps away. At the goal the reward is 1 and the episode terminates; all other rewards are 0.
    """

    size: int = static("rows and columns, an odd number", default=9, low=3)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Discrete:
        """Space of observations, which are discrete: the number of the cell, row * size + column."""
        return spaces.Discrete(self.size**2)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: up, down, left, right."""
        return spaces.Discrete(4)

    @property
    def shortest(self) -> int:
        """Number of steps from the start to the goal on the shortest way."""
        return (self.size + 1) // 2 * (self.size - 1) + self.size - 1

    def reset(self, key: Key) -> EnvReset:
        """Return the start of an episode in the maze: at the beginning of the first row."""
        cell = jnp.zeros(2, jnp.int32)
        return EnvReset(MazeState(cell), self._observe(cell))

    def step(self, state: MazeState, action: Array, key: Key) -> EnvStep:
        """Return the result of a move to the next cell in a direction; the agent stays if that cell is closed."""
        wanted = state.cell + jnp.asarray(MOVES)[action]
        inside = ((wanted >= 0) & (wanted < self.size)).all()
        cell = jnp.where(inside & jnp.asarray(self._open())[tuple(wanted)], wanted, state.cell)
        over = (cell == jnp.array(self._goal())).all()
        return EnvStep(MazeState(cell), self._observe(cell), over.astype(jnp.float32), over, jnp.zeros((), bool))

    def render(self, state: MazeState) -> np.ndarray:
        """Return a picture [H, W, 3] of open cells, the goal and the agent."""
        canvas = Canvas((-0.6, -0.6), (self.size - 0.4, self.size - 0.4), paper=GREY)
        for row, column in np.argwhere(self._open()):
            x, y = float(column), float(self.size - 1 - row)
            canvas.rectangle((x - 0.5, y - 0.5), (x + 0.5, y + 0.5), PAPER)
        for (row, column), colour in ((self._goal(), AMBER), (np.asarray(state.cell), BLUE)):
            canvas.disc((float(column), float(self.size - 1 - row)), 0.3, colour)
        return canvas.image()

    def _observe(self, cell: Array) -> Array:
        return cell[0] * self.size + cell[1]

    def _open(self) -> np.ndarray:
        """Return which cells of the maze are open, [size, size]; ConfigError for an even size."""
        if self.size % 2 == 0:
            raise ConfigError(f"size = {self.size}: must be odd; nearest valid value: {self.size + 1}")
        cells = np.zeros((self.size, self.size), bool)
        cells[::2] = True
        cells[1::4, -1] = cells[3::4, 0] = True
        return cells

    def _goal(self) -> tuple[int, int]:
        last = self.size - 1
        return (last, last if last % 4 == 0 else 0)
