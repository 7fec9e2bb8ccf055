"""Physics of examples/rollers.py against the equations of a rigid disc."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax

RADIUS, GRAVITY = 0.15, 9.81


@pytest.fixture(scope="module")
def rollers():
    path = Path(__file__).parents[2] / "examples" / "rollers.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def discs(rollers, *places):
    """Return discs at rest, of radius 0.15 and, for all but the first, 0.06."""
    position = jnp.array(places, jnp.float32)
    zeros = jnp.zeros(len(places), jnp.float32)
    return rollers.State(position, jnp.zeros_like(position), zeros, zeros, jnp.float32(0.0))


def after(world, state, torque, steps):
    def step(state, _):
        new = world.step(state, jnp.array([torque]), jax.random.key(0)).state
        return new, new

    return jax.jit(lambda state: jax.lax.scan(step, state, length=steps)[1])(state)


def test_a_disc_falls_and_rests_on_the_floor(rollers):
    world = rollers.Rollers(loose=1)
    path = after(world, discs(rollers, (0.0, 0.9), (1.0, 0.06)), 0.0, 100)
    time = 0.05 * np.arange(1, 5)
    np.testing.assert_allclose(path.position[:4, 0, 1], 0.9 - 0.5 * GRAVITY * time**2, atol=GRAVITY * 0.2 * rollers.DT)
    np.testing.assert_allclose(path.position[-1, 0], [0.0, RADIUS - GRAVITY / 5000.0], atol=1e-4)


@pytest.mark.parametrize(("torque", "slips"), [(0.5, False), (2.0, True)])
def test_it_rolls_as_fast_as_its_torque_and_friction_allow(rollers, torque, slips):
    world = rollers.Rollers(loose=1, torque=torque)
    path = after(world, discs(rollers, (1.5, RADIUS - GRAVITY / 5000.0), (-1.9, 0.06)), 1.0, 12)
    # rolling: the torque moves 1.5 masses at its lever arm; slipping: friction alone moves the disc
    pace = 0.6 * GRAVITY if slips else torque / (1.5 * RADIUS)
    speed = np.asarray(path.velocity[:, 0, 0])
    np.testing.assert_allclose(np.diff(speed)[5:] / 0.05, -pace, rtol=0.01)  # counterclockwise is to the left
    slip = RADIUS * np.asarray(path.spin[:, 0]) + speed
    assert slip[-1] > 2.0 if slips else abs(slip[-1]) < 0.3


def test_a_collision_keeps_momentum_and_loses_energy(rollers):
    world = rollers.Rollers(loose=1, gravity=0.0)
    state = discs(rollers, (-0.2, 0.5), (0.2, 0.53))
    state = state._replace(velocity=state.velocity.at[0, 0].set(2.0))
    path = after(world, state, 0.0, 12)
    mass = np.array([1.0, 0.16])
    inertia = 0.5 * mass * np.array([RADIUS, 0.06]) ** 2
    momentum = (mass[:, None] * np.asarray(path.velocity)).sum(axis=1)
    np.testing.assert_allclose(momentum, np.broadcast_to([2.0, 0.0], momentum.shape), atol=1e-4)
    x, v = np.asarray(path.position, float), np.asarray(path.velocity, float)
    turning = (mass * (x[..., 0] * v[..., 1] - x[..., 1] * v[..., 0])).sum(axis=1) + np.asarray(path.spin) @ inertia
    np.testing.assert_allclose(turning, -1.0, atol=2e-2)  # angular momentum, with the spins
    energy = 0.5 * (mass * (v**2).sum(axis=-1)).sum(axis=1) + 0.5 * np.asarray(path.spin) ** 2 @ inertia
    assert energy[-1] < 1.99
    assert abs(path.spin[-1]).min() > 0.1  # the blow is off centre, and the discs rub


def test_its_environment_is_sound(rollers):
    with jax.numpy_rank_promotion("raise"):
        report = ppax.check_env(ppax.envs.TimeLimit(rollers.Rollers(), 20))
    assert report.passed, report
