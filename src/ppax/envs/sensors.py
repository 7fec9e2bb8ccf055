"""LIDAR for environments in JAX: distances along rays to the nearest disc or sphere, and to the walls of a box."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import ConfigError, Scalar

GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))


def lidar_rays(num_rays: int, dimensions: int = 2) -> np.ndarray:
    """Return directions for `lidar`, unit vectors [num_rays, dimensions] as float32.

    In 2-D they divide the circle evenly; the first is (1, 0), the others follow counterclockwise. In 3-D they are a
    Fibonacci lattice, which covers the sphere almost evenly (Gonzalez 2010, https://arxiv.org/abs/0912.4540). Rays that
    turn with a body are these, rotated. Raises ConfigError for fewer than one ray and for other numbers of dimensions.
    """
    if num_rays < 1:
        raise ConfigError(f"num_rays = {num_rays}: must be at least 1; nearest valid value: 1")
    number = np.arange(num_rays)
    if dimensions == 2:
        angle = 2.0 * np.pi * number / num_rays
        rays = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    elif dimensions == 3:
        height = 1.0 - (2.0 * number + 1.0) / num_rays
        across, angle = np.sqrt(1.0 - height**2), GOLDEN_ANGLE * number
        rays = np.stack([across * np.cos(angle), across * np.sin(angle), height], axis=-1)
    else:
        nearest = 2 if dimensions < 2 else 3
        raise ConfigError(f"dimensions = {dimensions}: must be 2 or 3; nearest valid value: {nearest}")
    return rays.astype(np.float32)


def lidar(
    position: Array,
    rays: Array | np.ndarray,
    centres: Array,
    radius: Scalar,
    walls: tuple[Scalar, Scalar] | None = None,
) -> Array:
    """Return the distance from one sensor to the nearest surface along each of R rays, [R]; infinity if there is none.

    `position` [D] is that of the sensor, in D = 2 or 3 dimensions; `rays` [R, D] are unit vectors, as of `lidar_rays`.
    `centres` [N, D] and `radius`, [] or [N], describe N discs or spheres. `walls` are the lowest and the highest corner
    of a box that the sensor is in, numbers or [D] each; an infinite one is no wall.

    A body with its centre at the sensor is not seen, so `centres` may include the sensor's own; one that merely
    contains the sensor is at distance 0 in the directions towards its centre. The distances from sensors at all N
    centres, [N, R]:

    `jax.vmap(lidar, (0, None, None, None))(centres, rays, centres, radius)`
    """
    rays = jnp.asarray(rays)
    # ray [R, 1] and way [1, N] for each axis, bodies last, so that the minimum over them is vectorised
    axes = [(rays[:, axis, None], (centres[:, axis] - position[axis])[None]) for axis in range(rays.shape[1])]
    ahead = sum(way * ray for ray, way in axes)  # the centre's coordinate along the ray, [R, N]
    aside2 = sum((way - ahead * ray) ** 2 for ray, way in axes)  # its squared distance from the ray
    radius2 = jnp.broadcast_to(jnp.asarray(radius) ** 2, len(centres))
    half_chord2 = radius2[None] - aside2
    enters = jnp.maximum(ahead - jnp.sqrt(jnp.maximum(half_chord2, 0.0)), 0.0)
    nearest = jnp.where((half_chord2 > 0.0) & (ahead > 0.0), enters, jnp.inf).min(axis=-1, initial=jnp.inf)
    if walls is None:
        return nearest
    low, high = walls
    # to the wall that the ray goes towards, [R, D]
    gap = jnp.where(rays > 0.0, (high - position)[None], (position - low)[None])
    pace = jnp.abs(rays)
    wall = jnp.where(pace > 1e-6, gap / jnp.maximum(pace, 1e-6), jnp.inf).min(axis=-1)
    return jnp.minimum(nearest, wall)
