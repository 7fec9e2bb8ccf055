"""Numbers of extensions that declare where they end."""

import jax.numpy as jnp
import pytest

import ppax
from ppax.core.types import Scalar, number, part
from ppax.extensions import RND, Extension
from ppax.ppo.schedules import anneal_parts


@part
class Fading(Extension):
    """Extension whose coefficient moves to its end over training."""

    coef: Scalar = number("coefficient", default=1.0, anneal_to="coef_end")
    coef_end: Scalar = number("coefficient at the end of training", default=0.0)


@pytest.mark.parametrize(("progress", "coef"), [(0.0, 1.0), (0.25, 0.75), (1.0, 0.0)])
def test_a_number_of_an_extension_is_annealed_to_its_end(progress, coef):
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), extensions=(RND(), Fading()))
    annealed = anneal_parts(agent, jnp.float32(progress)).extensions
    assert [type(one) for one in annealed] == [RND, Fading]
    assert float(annealed[1].coef) == pytest.approx(coef)
