"""Critics in training: rewards of any scale, checkpoints, options in run files and on the command line."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli.options import add_train, parse_run
from ppax.envs import VectorEnv, builtin
from ppax.networks import mlp
from ppax.ppo.critics import PopArt, Quantile, Regression, TwoHot
from ppax.ppo.optimizers import ActorCritic, Adam
from ppax.run import checkpoint
from support.worlds import QUICK, SGD


@ppax.part
class Scaled:
    """Wrapper that multiplies the rewards of `env` by `factor`."""

    env: Any
    factor: float = ppax.number(default=1000.0)

    observation_space = property(lambda self: self.env.observation_space)
    action_space = property(lambda self: self.env.action_space)
    num_agents = None

    def reset(self, key):
        return self.env.reset(key)

    def step(self, state, action, key):
        out = self.env.step(state, action, key)
        return out._replace(reward=self.factor * out.reward)


def probe_values(critic, iterations=120):
    """Return V in DiscountProbe after some iterations with rewards times 1000; exact with gamma 0.9: 900 and 1000."""
    env = VectorEnv(Scaled(builtin.DiscountProbe()), 64)
    agent = ppax.PPO(mlp(env, hidden=(32,)), gamma=0.9, learning_rate=5e-3, vf_coef=1.0, critic=critic)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(key):
        learner = ppax.train(agent, env, ppax.start(agent, env, 16, key), iterations).state.learner
        return agent.policy(learner, (), jnp.array([[0.0], [1.0]]), jnp.ones(2, bool), None).value

    return np.asarray(run(jax.random.key(0)))


@pytest.mark.parametrize("critic", [PopArt(), TwoHot(), Quantile(kappa=None)], ids=lambda x: type(x).__name__)
def test_values_of_a_thousand_are_learned(critic):
    iterations = 1000 if isinstance(critic, Quantile) else 120  # the gradient of |error| is as small as for errors of 1
    np.testing.assert_allclose(probe_values(critic, iterations), [900.0, 1000.0], atol=50.0)


def test_regression_does_not_learn_values_of_a_thousand():
    """Negative control: with clipped gradients and Adam, V changes by some units, not by hundreds."""
    assert probe_values(Regression()).max() < 500.0


def small(critic):
    env = ppax.make("CartPole-v1", 4)
    return ppax.PPO(mlp(env, hidden=(8,)), critic=critic, learning_rate=1e-3), env


def test_resume_restores_critic_statistics_bit_for_bit(tmp_path):
    agent, env = small(PopArt())
    train = jax.jit(ppax.train, compiler_options=QUICK)
    start = jax.jit(lambda key: ppax.start(agent, env, 8, key), compiler_options=QUICK)
    state, like = train(agent, env, start(jax.random.key(0)), 2, 4).state, jax.eval_shape(start, jax.random.key(0))
    loaded = checkpoint.load(checkpoint.save(tmp_path, state), like)
    assert float(loaded.learner.critic.weight) == float(state.learner.critic.weight) != 0.0
    one, two = (train(agent, env, x, 2, 4).state for x in (state, loaded))
    for a, b in zip(jax.tree.leaves(one.learner), jax.tree.leaves(two.learner), strict=True):
        np.testing.assert_array_equal(a, b)
    plain = jax.eval_shape(lambda key: ppax.start(*small(Regression()), 8, key), jax.random.key(0))
    with pytest.raises(ppax.CheckpointError, match=r"learner\.critic\.mean: in the checkpoint, but not expected"):
        checkpoint.load(checkpoint.save(tmp_path, state), plain)


def test_a_run_file_and_the_command_line_choose_a_critic():
    plan = {"agent": {"critic": {"part": "two_hot", "num_bins": 11, "high": 500}}}
    agent = config.build(plan).agent
    assert agent.critic == TwoHot(high=500.0, num_bins=11)
    shapes = jax.eval_shape(lambda key: agent.init(config.build(plan).env.observation_space, key), jax.random.key(0))
    assert shapes.params["value"]["kernel"].shape == (64, 11)
    assert config.build({"agent": config.describe(agent)}).agent == agent
    given = parse_run(
        "train", ["CartPole-v1", "--agent.critic.part", "popart", "--agent.critic.rate", "0.25"], add_train
    )[1]
    assert config.build(given).agent.critic == PopArt(0.25)
    with pytest.raises(ppax.ConfigError, match=r"agent\.critic\.rate = 1\.5: must be at most 1; nearest"):
        config.resolve({"agent": {"critic": {"part": "popart", "rate": 1.5}}})


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ({"loss": {"value_clip": 0.2}}, r"unknown option 'agent\.loss\.value_clip'; did you mean 'agent\.critic\.val"),
        ({"loss": {"huber_delta": 1.0}}, r"unknown option 'agent\.loss\.huber_delta'; did you mean 'agent\.critic\.h"),
        ({"critic": {"part": "two_hot", "huber_delta": 1.0}}, r"unknown option 'agent\.critic\.huber_delta'"),
        (
            {"critic": {"part": "scalar"}},
            r"agent\.critic\.part = 'scalar': must be one of regression, two_hot, popart, quantile",
        ),
    ],
)
def test_invalid_critic_options_are_refused(agent, message):
    with pytest.raises(ppax.ConfigError, match=message):
        config.resolve({"agent": agent})


def test_optimizer_option_critic_is_an_optimizer(tmp_path):
    plan = {"agent": {"optimizer": {"part": "actor_critic", "critic": {"eps": 1e-3}}, "critic": {"part": "popart"}}}
    agent = config.build(plan).agent
    assert (agent.critic, agent.optimizer) == (PopArt(), ActorCritic(critic=Adam(eps=1e-3)))
    assert config.build({"agent": config.describe(agent)}).agent == agent
    # on the command line: naming the same part keeps its numbers, another part starts from its defaults
    file = tmp_path / "run.toml"
    file.write_text(config.to_toml(plan))
    for name, expected in (("adam", Adam(eps=1e-3)), ("optax:sgd", SGD())):
        given = parse_run("train", [str(file), "--agent.optimizer.critic.part", name], add_train)[1]
        assert config.build(given).agent.optimizer.critic == expected
