"""LIDAR in 2-D and 3-D: the oracle is ray marching in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ppax.types import ConfigError

from ppax.envs import lidar, lidar_rays

PACE, RANGE = 5e-4, 6.0


def marched(position, rays, centres, radius, low, high):
    """Return the first distance [R] at which a point on each ray is in a body or outside the box; RANGE for none."""
    distance = np.arange(0.0, RANGE, PACE)
    found = []
    for ray in np.asarray(rays, float):
        points = position + distance[:, None] * ray
        hit = ((points < low) | (points > high)).any(axis=1)
        for centre, own in zip(centres, np.broadcast_to(radius, len(centres)), strict=True):
            hit |= np.linalg.norm(points - centre, axis=1) < own
        found.append(distance[np.argmax(hit)] if hit.any() else RANGE)
    return np.array(found)


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_distances_equal_ray_marching(dimensions, seed):
    rng = np.random.default_rng(seed)
    low, high = np.full(dimensions, -1.5), np.linspace(0.9, 1.6, dimensions)
    low[-1] = -np.inf  # no floor
    position = rng.uniform(-0.3, 0.3, dimensions)
    radius = rng.uniform(0.1, 0.4, 8)
    centres = rng.uniform(-1.2, 1.2, (8, dimensions))
    away = np.linalg.norm(centres - position, axis=1) > radius  # bodies that do not contain the sensor
    centres, radius = centres[away], radius[away]
    rays = lidar_rays(40, dimensions)
    seen = jax.jit(lidar)(*(jnp.float32(x) for x in (position, rays, centres, radius)), (low, high))
    expected = marched(position, rays, centres, radius, low, high)
    seen = np.minimum(seen, RANGE)
    np.testing.assert_allclose(seen, expected, atol=4e-3)  # a ray that grazes a body is ill-conditioned
    assert np.median(abs(seen - expected)) < PACE
    assert np.ptp(expected) > 1.0


def test_its_own_body_is_not_seen_and_nothing_is_infinitely_far():
    centres = jnp.array([[0.0, 0.0], [1.0, 0.0]])
    seen = jax.vmap(lidar, (0, None, None, None))(centres, lidar_rays(4), centres, 0.25)
    np.testing.assert_allclose(seen, [[0.75, np.inf, np.inf, np.inf], [np.inf, np.inf, 0.75, np.inf]], rtol=1e-6)
    floorless = lidar(jnp.zeros(2), lidar_rays(4), jnp.zeros((0, 2)), 0.25, (jnp.array([-1.0, -jnp.inf]), 2.0))
    np.testing.assert_allclose(floorless, [2.0, 2.0, 1.0, np.inf], rtol=1e-6)
    assert np.all(np.isinf(lidar(jnp.zeros(3), lidar_rays(5, 3), jnp.zeros((0, 3)), 0.25)))


def test_a_body_around_the_sensor_is_at_distance_zero_towards_its_centre():
    seen = lidar(jnp.zeros(2), lidar_rays(4), jnp.array([[0.1, -0.01]]), 0.5, (-2.0, 2.0))
    np.testing.assert_allclose(seen, [0.0, 2.0, 2.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize("number", [1, 2, 5, 200])
def test_rays_are_even_unit_vectors(number):
    flat, round_ = lidar_rays(number), lidar_rays(number, 3)
    for rays in (flat, round_):
        assert rays.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rays, axis=1), 1.0, rtol=1e-6)
    turns = np.unwrap(np.arctan2(flat[:, 1], flat[:, 0]))
    np.testing.assert_allclose(turns, 2 * np.pi * np.arange(number) / number, atol=1e-5)
    if number == 200:  # as many rays in every octant, and none close to another
        octant, counts = np.unique(round_ > 0, axis=0, return_counts=True)
        assert len(octant) == 8
        assert abs(counts - 25).max() <= 3
        apart = np.linalg.norm(round_[:, None] - round_[None], axis=-1) + 2.0 * np.eye(number)
        assert apart.min() > 0.7 * np.sqrt(4 * np.pi / number)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="num_rays = 0: must be at least 1; nearest valid value: 1"):
        lidar_rays(0)
    with pytest.raises(ConfigError, match="dimensions = 4: must be 2 or 3; nearest valid value: 3"):
        lidar_rays(8, 4)
