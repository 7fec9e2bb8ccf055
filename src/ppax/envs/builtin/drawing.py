"""Drawing in NumPy: anti-aliased shapes in world coordinates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

Colour = tuple[int, int, int]
Point = Sequence[Any] | np.ndarray  # x, y

PAPER, INK, GREY = (250, 250, 247), (40, 44, 52), (190, 192, 196)
BLUE, RED, GREEN, AMBER = (56, 108, 176), (202, 62, 57), (67, 140, 84), (222, 155, 52)
COLOURS = (BLUE, AMBER, GREEN, RED, (128, 92, 164), (70, 160, 168), (150, 110, 80), (215, 120, 165))


class Canvas:
    """Image of the rectangle from `low` to `high` in world coordinates, y upwards, `width` pixels wide."""

    def __init__(self, low: Point, high: Point, width: int = 300, paper: Colour = PAPER):
        self.low = np.asarray(low, float)
        self.scale = width / (high[0] - low[0])  # pixels for each unit of length
        height = max(1, round((high[1] - low[1]) * self.scale))
        self.pixels = np.broadcast_to(np.asarray(paper, float), (height, width, 3)).copy()
        x = self.low[0] + (np.arange(width) + 0.5) / self.scale
        y = self.low[1] + (height - np.arange(height) - 0.5) / self.scale
        self.x, self.y = x[None, :], y[:, None]

    def image(self) -> np.ndarray:
        """Return the image that was drawn so far, uint8 [H, W, 3]."""
        return np.rint(self.pixels).astype(np.uint8)

    def disc(self, centre: Point, radius: Any, colour: Colour) -> None:
        """Draw a filled circle, in world coordinates."""
        self._fill(np.hypot(self.x - float(centre[0]), self.y - float(centre[1])) - float(radius), colour)

    def ring(self, centre: Point, radius: Any, colour: Colour, thickness: float = 2.0) -> None:
        """Draw a circle in world coordinates, with a line of `thickness` pixels."""
        distance = np.hypot(self.x - float(centre[0]), self.y - float(centre[1]))
        self._fill(np.abs(distance - float(radius)) - 0.5 * thickness / self.scale, colour)

    def line(self, begin: Point, end: Point, colour: Colour, thickness: float = 2.0) -> None:
        """Draw a line segment in world coordinates with round ends, `thickness` pixels wide."""
        a, b = np.asarray(begin, float), np.asarray(end, float)
        way = b - a
        share = ((self.x - a[0]) * way[0] + (self.y - a[1]) * way[1]) / max(float(way @ way), 1e-12)
        share = np.clip(share, 0.0, 1.0)
        distance = np.hypot(self.x - a[0] - share * way[0], self.y - a[1] - share * way[1])
        self._fill(distance - 0.5 * thickness / self.scale, colour)

    def path(self, points: Any, colour: Colour, thickness: float = 2.0) -> None:
        """Draw line segments between successive points, [N, 2] in world coordinates."""
        for begin, end in itertools.pairwise(points):
            self.line(begin, end, colour, thickness)

    def rectangle(self, low: Point, high: Point, colour: Colour) -> None:
        """Draw a filled rectangle from corner `low` to corner `high`, in world coordinates."""
        across = np.abs(self.x - 0.5 * (float(low[0]) + float(high[0]))) - 0.5 * (float(high[0]) - float(low[0]))
        upwards = np.abs(self.y - 0.5 * (float(low[1]) + float(high[1]))) - 0.5 * (float(high[1]) - float(low[1]))
        self._fill(np.maximum(across, upwards), colour)

    def _fill(self, distance: np.ndarray, colour: Colour) -> None:
        """Paint the pixels inside a shape, from their signed `distance` [H, W] to its edge, which is negative inside.

        `distance` is in world coordinates. The edge of the shape is blended over one pixel.
        """
        cover = np.clip(0.5 - distance * self.scale, 0.0, 1.0)[..., None]
        self.pixels = (1.0 - cover) * self.pixels + cover * np.asarray(colour, float)


def squares(numbers: Any, width: int = 300) -> np.ndarray:
    """Return a picture [H, W, 3] of numbers as squares side by side: blue if negative, amber if positive, grey for 0.

    The colour is the stronger the larger the absolute value. `numbers` may have any shape, and are drawn in the order
    of memory; `width` is W.
    """
    values = np.ravel(np.asarray(numbers, float))
    canvas = Canvas((0.0, 0.0), (max(len(values), 4), 1.0), width)
    for index, value in enumerate(values):
        share = float(np.tanh(abs(value)))
        colour = tuple(
            round((1 - share) * g + share * c) for g, c in zip(GREY, AMBER if value > 0 else BLUE, strict=True)
        )
        canvas.rectangle((index + 0.1, 0.1), (index + 0.9, 0.9), (colour[0], colour[1], colour[2]))
    return canvas.image()
