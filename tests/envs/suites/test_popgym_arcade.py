"""Games of POPGym Arcade; needs the extra popgym_arcade, which cannot be installed beside gymnax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.envs.suites import registry

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the library's own
    pytest.mark.usefixtures("lenient"),
    pytest.mark.skipif(not registry.installed("popgym_arcade"), reason='pip install "ppax[popgym_arcade]"'),
]


@pytest.fixture
def lenient():
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        yield


def test_a_fallen_pole_terminates_and_the_limit_truncates():
    env = ppax.make("popgym_arcade/CartPoleEasy", 1, env_params={"obs_size": 128}).env
    begin, step = jax.jit(env.reset)(jax.random.key(0)), jax.jit(env.step)
    fallen = begin.state.replace(theta=jnp.float32(1.0))
    end = step(fallen, 0, jax.random.key(0))
    assert (bool(end.terminated), bool(end.truncated)) == (True, False)
    late = begin.state.replace(time=jnp.full_like(begin.state.time, 200))
    cut = step(late, 0, jax.random.key(0))
    assert (bool(cut.terminated), bool(cut.truncated)) == (False, True)
    goes_on = step(begin.state, 0, jax.random.key(0))
    assert not (goes_on.terminated | goes_on.truncated)


def test_observations_are_pictures_and_partial_ones_differ():
    full, partial = (
        jax.jit(ppax.make("popgym_arcade/CartPoleEasy", 1, env_params={"partial_obs": hidden}).env.step)
        for hidden in (False, True)
    )
    env = ppax.make("popgym_arcade/CartPoleEasy", 1).env
    state = jax.jit(env.reset)(jax.random.key(0)).state
    a, b = (step(state, 0, jax.random.key(0)).obs for step in (full, partial))
    assert a.dtype == b.dtype == np.uint8
    assert a.shape == env.observation_space.shape == (128, 128, 3)
    assert (a != b).any()
