"""Environment objects of suites where an environment of ppax is expected."""

import pytest

import ppax
from ppax.core.types import ConfigError
from ppax.training.arguments import require_env


class CartPole:
    """Class as gymnax has it; only its module counts."""

    def reset(self, key, params=None):
        raise NotImplementedError

    def step(self, key, state, action, params=None):
        raise NotImplementedError

    def observation_space(self, params):
        raise NotImplementedError


SUITES = [("gymnax.environments.x", "gymnax"), ("mujoco_playground.x", "playground")]


@pytest.mark.parametrize(("module", "suite"), SUITES)
def test_an_object_of_a_suite_is_made_by_name(monkeypatch, module, suite):
    monkeypatch.setattr(CartPole, "__module__", module)
    env = CartPole()
    words = rf'a CartPole is an environment of {suite}.*ppax\.make\("{suite}/ID"'
    for wrong in (env, ppax.envs.VectorEnv(env, 4)):
        with pytest.raises(ConfigError, match=words):
            require_env(wrong)
        with pytest.raises(ConfigError, match=words):
            ppax.networks.network(wrong)
