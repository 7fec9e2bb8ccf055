"""Pictures of other libraries' environments, drawn in NumPy: grids of channels, and bodies of MuJoCo models."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ppax.envs.builtin.drawing import AMBER, BLUE, COLOURS, GREY, INK, Canvas, Colour, squares

CELL = 24  # pixels of a grid cell
ALOFT, ASIDE = np.deg2rad(15.0), np.deg2rad(20.0)  # camera: elevation above the ground, and angle to the y axis
SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX = 2, 3, 4, 5, 6  # MuJoCo's geom types


def draw_observation(obs: Any) -> np.ndarray:
    """Return a picture [H, W, 3] of an observation: a grid by its cells, anything else as a square for each number."""
    values = np.asarray(obs, float)
    if values.ndim in (2, 3) and min(values.shape[:2]) > 1:
        return draw_grid(values)
    return squares(values)


def draw_grid(values: np.ndarray) -> np.ndarray:
    """Return a picture [H', W', 3] of a grid [H, W] or [H, W, C], with a coloured square for each cell.

    A cell of [H, W, C] has the colour of its last channel that is not 0; in a grid [H, W] all numbers but 0 have one
    colour. An array [H, W, 3] with more than two different numbers is drawn as RGB.
    """
    values = values if values.ndim == 3 else values[..., None]
    if values.shape[2] == 3 and len(np.unique(values)) > 2:
        cells = np.clip(255 * values / max(values.max(), 1e-9), 0, 255)
    else:
        cells = np.broadcast_to(np.array(INK, float), (*values.shape[:2], 3)).copy()
        for channel in range(values.shape[2]):
            cells[values[..., channel] != 0] = COLOURS[channel % len(COLOURS)]
    size = max(1, min(CELL, 400 // cells.shape[1]))
    return np.kron(np.rint(cells), np.ones((size, size, 1))).astype(np.uint8)


def draw_bodies(model: Any, positions: Any, width: int = 320) -> np.ndarray:
    """Return a picture [H, W, 3] of a MuJoCo model with the generalised `positions`.

    The camera looks from the side and slightly above, and follows the model.
    """
    mujoco: Any = importlib.import_module("mujoco")
    data = mujoco.MjData(model)
    data.qpos[:] = np.asarray(positions, float)
    mujoco.mj_forward(model, data)
    solid = [g for g in range(model.ngeom) if model.geom_type[g] >= SPHERE]
    places, turns = np.asarray(data.geom_xpos), np.asarray(data.geom_xmat).reshape(-1, 3, 3)
    moving = [g for g in solid if model.geom_bodyid[g] != 0] or solid
    middle = places[moving].mean(axis=0)
    reach = float(np.linalg.norm(places[moving] - middle, axis=1).max()) + float(model.geom_size[moving].max())
    eye = _view()
    centre = eye[:2] @ middle
    half = np.array([1.6, 1.2]) * max(reach, 1e-3)
    canvas = Canvas(centre - half, centre + half, width)
    _ground(canvas, eye, middle, half[0])
    for g in sorted(solid, key=lambda g: float(eye[2] @ places[g])):  # the farthest first
        colour: Colour = BLUE if model.geom_bodyid[g] in (0, 1) else AMBER
        _geom(canvas, eye, int(model.geom_type[g]), model.geom_size[g], places[g], turns[g], colour)
    return canvas.image()


def _view() -> np.ndarray:
    """Return the camera's axes as rows [3, 3]: right, up, and back towards the camera, which looks roughly along y."""
    right = np.array([np.cos(ASIDE), np.sin(ASIDE), 0.0])
    back = np.array([np.sin(ASIDE) * np.cos(ALOFT), -np.cos(ASIDE) * np.cos(ALOFT), np.sin(ALOFT)])
    return np.stack([right, np.cross(back, right), back])


def _ground(canvas: Canvas, eye: np.ndarray, middle: np.ndarray, half: float) -> None:
    """Draw lines at equal distances on the plane z = 0, around the point `middle`, which make motion visible.

    `eye` has the camera's axes as rows; `half` is half the width of the picture, in world coordinates.
    """
    step = 2.0 ** np.floor(np.log2(half))
    for x in step * np.arange(np.floor((middle[0] - 4 * half) / step), np.ceil((middle[0] + 4 * half) / step)):
        ends = np.array([[x, middle[1] - half, 0.0], [x, middle[1] + half, 0.0]])
        canvas.line(eye[:2] @ ends[0], eye[:2] @ ends[1], GREY, 1.0)
    for y in (-half, 0.0, half):
        ends = np.array([[middle[0] - 4 * half, middle[1] + y, 0.0], [middle[0] + 4 * half, middle[1] + y, 0.0]])
        canvas.line(eye[:2] @ ends[0], eye[:2] @ ends[1], GREY, 1.0)


def _geom(
    canvas: Canvas, eye: np.ndarray, kind: int, size: np.ndarray, place: np.ndarray, turn: np.ndarray, colour: Colour
) -> None:
    """Draw one geom (elementary body of MuJoCo) of the type `kind`, with its size, centre `place` and rotation `turn`.

    `turn` is a rotation matrix [3, 3]. `eye` has the camera's axes as rows.
    """
    at = eye[:2] @ place
    if kind in (CAPSULE, CYLINDER):
        along = eye[:2] @ turn[:, 2] * size[1]
        for radius, paint in ((size[0] + 1.5 / canvas.scale, INK), (size[0], colour)):
            canvas.line(at - along, at + along, paint, 2.0 * radius * canvas.scale)
    elif kind == BOX:
        signs = 2.0 * np.array(list(np.ndindex(2, 2, 2))) - 1.0
        corners = [eye[:2] @ (place + turn @ (size * sign)) for sign in signs]
        for i in range(8):
            for bit in (1, 2, 4):
                if not i & bit:
                    canvas.line(corners[i], corners[i | bit], colour, 3.0)
    else:  # a sphere; ellipsoids and meshes with their mean size as radius
        radius = float(size[0] if kind == SPHERE else np.mean(size))
        canvas.disc(at, radius + 1.5 / canvas.scale, INK)
        canvas.disc(at, radius, colour)
