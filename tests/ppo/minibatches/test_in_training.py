"""Minibatches in an update: padding, importance weights, annealing of beta."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import collect
from ppax.core.types import MinibatchIndices, Targets, part, static
from ppax.networks import mlp
from ppax.ppo.batches import RowMasks, make_minibatch
from ppax.ppo.minibatches import Prioritised, Shuffle
from support.worlds import QUICK, SGD


@part
class Fixed:
    """Minibatch part that returns the same indices each time."""

    rows: tuple[tuple[int, ...], ...] = static()
    num_minibatches: int = static(default=2)

    def size(self, sequences, length):
        return len(self.rows[0])

    def __call__(self, batch, key):
        return MinibatchIndices(jnp.array(self.rows), None)


@functools.cache
def played():
    """Return a rollout of five streams and eight steps, and the untrained parameters that acted."""
    env = ppax.make("CartPole-v1", 5)
    agent = ppax.PPO(mlp(env, hidden=(8,)), seq_len=8, minibatch=Shuffle(1))

    def play(key):
        state = ppax.start(agent, env, 8, key)
        return state.learner.params, collect(agent, env, state.learner, state.actor, 8, jax.random.key(1)).rollout

    return env, jax.jit(play, compiler_options=QUICK)(jax.random.key(0))


def update(minibatch, **options):
    env, (params, rollout) = played()
    agent = ppax.PPO(mlp(env, hidden=(8,)), seq_len=8, minibatch=minibatch, num_epochs=1, **options)

    def learn(params, rollout, key):
        learner = agent.init(env.observation_space, jax.random.key(0))
        return agent.update(learner._replace(params=params), rollout, key)

    done = jax.jit(learn, compiler_options=QUICK)(params, rollout, jax.random.key(2))
    return jax.flatten_util.ravel_pytree(done.learner.params)[0], done.metrics


@pytest.mark.parametrize("options", [{}, {"recompute": ppax.recompute.Minibatch()}])
def test_padding_does_not_change_the_update(options):
    with_empty, metrics = update(Fixed(((3, 0, 5), (1, 5, 2))), **options)
    without, expected = update(Fixed(((3, 0), (1, 2))), **options)
    np.testing.assert_allclose(with_empty, without, rtol=1e-5, atol=1e-6)
    for name in expected:
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    # sensitivity: including the last sequence, to which JAX clamps an index out of range, changes the result
    counted, _ = update(Fixed(((3, 0, 4), (1, 4, 2))), **options)
    assert np.abs(counted - without).max() > 1e-4


def test_training_with_padded_minibatches():
    env = ppax.make("CartPole-v1", 5)
    agent = ppax.PPO(mlp(env, hidden=(8,)), seq_len=8, minibatch=Shuffle(4, "pad"))
    state = ppax.start(agent, env, 8, jax.random.key(0))
    trained = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 3)
    assert np.isfinite(trained.metrics["loss"])
    with pytest.raises(ppax.ConfigError, match=r"num_minibatches = 4 .* 5 sequences .* nearest that do: 1, 5; .*pad"):
        ppax.start(ppax.PPO(mlp(env), seq_len=8), env, 8, jax.random.key(0))


def test_importance_weights_scale_the_policy_gradient():
    # one minibatch of all sequences with uniform probabilities has weight 1: equal to Shuffle
    uniform, _ = update(Prioritised(0.0, 1.0, num_minibatches=1))
    plain, _ = update(Shuffle(1))
    np.testing.assert_allclose(uniform, plain, rtol=1e-5, atol=1e-6)
    weighed, _ = update(Prioritised(1.0, 1.0, num_minibatches=1), optimizer=SGD(), learning_rate=1.0)
    unweighed, _ = update(Prioritised(1.0, 0.0, num_minibatches=1), optimizer=SGD(), learning_rate=1.0)
    assert np.abs(weighed - unweighed).max() > 1e-5


def rows_missing(rollout):
    """Rollout with invalid rows, more in some streams than in others."""
    missing = jnp.zeros_like(rollout.steps.valid).at[2:, 1].set(True).at[5, 3].set(True)
    return rollout._replace(steps=dataclasses.replace(rollout.steps, valid=rollout.steps.valid & ~missing))


@pytest.mark.parametrize(
    "options",
    [
        {"replacement": True},
        {"weights": "inclusion"},
        pytest.param({"replacement": True, "weighted": "advantage"}, id="advantage"),
    ],
)
def test_importance_weights_make_the_expected_gradient_unbiased(options, vmapped_keys):
    """Mean loss terms and gradient over draws against those of the whole rollout; beta = 1, 5 sigma.

    One step of gradient descent with rate 1 from other parameters than those that acted, so that ratios are not 1.
    """
    env, (params, rollout) = played()
    rollout = rollout if options.get("weighted") else rows_missing(rollout)
    reward = rollout.steps.reward * (1.0 + 3.0 * jnp.arange(5.0))[None]  # so that probabilities and losses differ
    rollout, draws = rollout._replace(steps=dataclasses.replace(rollout.steps, reward=reward)), 4000
    params = jax.tree.map(lambda x: 1.3 * x + 0.05, params)
    part = Prioritised(1.0, 1.0, num_minibatches=1, minibatch_size=2, **options)

    def learn(minibatch, key):
        agent = ppax.PPO(
            mlp(env, hidden=(8,)),
            seq_len=8,
            minibatch=minibatch,
            num_epochs=1,
            optimizer=SGD(),
            learning_rate=1.0,
            max_grad_norm=None,
            normalize_advantage="rollout",
            ent_coef=0.1,
        )
        learner = agent.init(env.observation_space, jax.random.key(0))._replace(params=params)
        learner, metrics = agent.update(learner, rollout, key)[:2]
        gradient = jax.flatten_util.ravel_pytree(params)[0] - jax.flatten_util.ravel_pytree(learner.params)[0]
        return {name: metrics[name] for name in ("policy_loss", "value_loss", "entropy")} | {"gradient": gradient}

    whole = jax.jit(functools.partial(learn, Shuffle(1)), compiler_options=QUICK)(jax.random.key(5))
    keys = jax.random.split(jax.random.key(6), draws)
    drawn = jax.jit(jax.vmap(functools.partial(learn, part)), compiler_options=QUICK)(keys)
    sigmas = {}
    for name, x in drawn.items():
        x = np.asarray(x, np.float64)
        error = np.abs(x.mean(0) - np.asarray(whole[name])) - 1e-5
        sigmas[name] = (error / (x.std(0) / np.sqrt(draws) + 1e-9)).max()
    if part.weighted == "loss":
        assert max(sigmas.values()) < 5.0, sigmas
    else:  # only the policy's terms are unbiased: the value loss is not weighted
        assert sigmas["policy_loss"] < 5.0, sigmas
        assert sigmas["value_loss"] > 8.0, sigmas
        assert sigmas["gradient"] > 8.0, sigmas


def test_advantages_are_standardised_with_importance_weights():
    """For draws with probability proportional to |A|, weighted mean and std equal those of a uniform draw."""
    advantage = np.arange(16.0, dtype=np.float32)
    index = np.repeat(np.arange(16), np.arange(16))  # as many times as its advantage
    weight = 1.0 / np.maximum(advantage, 1.0)
    drawn = make_minibatch(
        RowMasks(jnp.ones((16, 1), bool), None),
        "minibatch",
        Targets(jnp.asarray(advantage)[:, None], jnp.zeros((16, 1))),
        MinibatchIndices(jnp.asarray(index), jnp.asarray(weight[index])),
    )
    rest = advantage[1:]  # 0 is never drawn
    expected = (advantage[index] - rest.mean()) / rest.std()
    np.testing.assert_allclose(drawn.targets.advantage[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_beta_is_annealed_over_training():
    env = ppax.make("CartPole-v1", 8)

    def params(beta, beta_end, iteration):
        part = Prioritised(1.0, beta, beta_end, num_minibatches=1, minibatch_size=4)
        agent = ppax.PPO(mlp(env, hidden=(8,)), seq_len=8, minibatch=part, learning_rate=1e-2)
        state = ppax.start(agent, env, 8, jax.random.key(0))
        state = dataclasses.replace(state, iteration=jnp.int32(iteration))
        done = jax.jit(ppax.train, static_argnums=(3, 4))(agent, env, state, 1, 4)
        return jax.flatten_util.ravel_pytree(done.state.learner.params)[0]

    # iteration 2 of 4: half way from 0 to 1
    np.testing.assert_allclose(params(0.0, 1.0, 2), params(0.5, 0.5, 2), rtol=1e-5, atol=1e-6)
    assert np.abs(params(0.0, 1.0, 2) - params(0.0, 1.0, 0)).max() > 1e-5
