"""Rendering of other libraries' environments: positions of objects, by arithmetic on pixels."""

import jax
import numpy as np
import pytest

import ppax
from ppax.envs.builtin.drawing import AMBER, BLUE, COLOURS, INK
from ppax.envs.suites import pictures
from ppax.envs.wrappers.wrapper import render

MODEL = """<mujoco><worldbody><geom type="plane" size="9 9 1"/><body pos="0 0 1"><freejoint/><geom size="0.2"/>
<body pos="0.5 0 0"><joint type="hinge" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.05"/></body></body></worldbody></mujoco>"""


def centre_of(picture, colour):
    """Return the mean row and column of a colour's pixels."""
    rows, columns = np.nonzero((picture == np.array(colour)).all(axis=-1))
    assert len(rows) > 0
    return rows.mean(), columns.mean()


def test_a_grid_has_the_colours_of_its_channels():
    values = np.zeros((3, 4, 2))
    values[0, 1, 0] = values[2, 3, 1] = 1
    picture = pictures.draw_grid(values)
    assert picture.shape == (3 * pictures.CELL, 4 * pictures.CELL, 3)
    cell = pictures.CELL // 2
    for (row, column), colour in {(0, 1): COLOURS[0], (2, 3): COLOURS[1], (1, 1): INK}.items():
        assert tuple(picture[row * pictures.CELL + cell, column * pictures.CELL + cell]) == colour


def test_a_limb_is_on_the_side_of_its_joint_angle():
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(MODEL)
    still = np.array([0.0, 0, 1, 1, 0, 0, 0, 0.0])
    straight, down = (pictures.draw_bodies(model, still + np.eye(8)[7] * angle) for angle in (0.0, np.pi / 2))
    (body_row, body_column), (row, column) = centre_of(straight, BLUE), centre_of(straight, AMBER)
    assert column > body_column + 20, "to the right"
    assert abs(row - body_row) < 0.3 * (column - body_column)
    assert centre_of(down, AMBER)[0] > centre_of(down, BLUE)[0] + 20, "turned by 90 degrees about y it hangs down"


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Breakout-MinAtar", "UmbrellaChain-bsuite"]
)
def test_gymnax_environments_are_rendered(name):
    pytest.importorskip("gymnax")
    env = ppax.make(f"gymnax/{name}", 1).env
    picture = render(env, jax.jit(env.reset)(jax.random.key(0)).state)
    assert picture.std() > 1, "not of one colour"


def test_the_rendered_pole_leans_as_in_gymnax():
    pytest.importorskip("gymnax")
    env = ppax.make("gymnax/CartPole-v1", 1).env
    state = env.reset(jax.random.key(0)).state
    leaning = state._replace(inner=state.inner.replace(x=0.0, theta=0.5))
    picture = render(env, leaning)
    assert centre_of(picture, AMBER)[1] > centre_of(picture, INK)[1] + 5
