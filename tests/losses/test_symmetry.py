"""Symmetry: mirror images by hand, terms against a second computation, refusals, fewer steps on a mirrored task."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import QUICK

import ppax
from ppax import config
from ppax.collection import collect
from ppax.learning.entropy_target import EntropyTarget
from ppax.losses import NoAuxiliary, Symmetry
from ppax.losses.symmetry import mirror
from ppax.minibatches import Prioritised, Shuffle
from ppax.networks import network
from ppax.networks.memories import GRU
from ppax.optimizers import SGD
from ppax.types import ConfigError

POLE = {"observation": (-1, -2, -3, -4), "action": (2, 1)}
PENDULUM = {"observation": (1, -2, -3), "action": (-1,)}


def test_a_mirror_image_by_hand():
    np.testing.assert_array_equal(mirror(jnp.array([[1.0, 2.0, 3.0]]), (-2, 1, -3)), [[-2.0, 1.0, -3.0]])


def setting(name, **options):
    env = ppax.make(name, 4)
    net = network(env, hidden=(5,), memory=options.pop("memory", None) or network(env).memory)
    plain = {"optimizer": SGD(), "max_grad_norm": None, "learning_rate": 1.0, "num_epochs": 1}
    agent = ppax.PPO(net, **{"minibatch": Shuffle(1), "vf_coef": 0.7, "ent_coef": 0.1} | plain | options)
    state = ppax.start(agent, env, 8, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    return agent, state.learner, gather(agent, env, state.learner, state.actor, 8, jax.random.key(1)).rollout


def lopsided(params):
    """Return parameters of a policy that is not symmetric."""
    return jax.tree.map(lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size) + 1.0).reshape(x.shape), params)


def step(agent, learner, rollout):
    """Gradient of the loss: one step of gradient descent with rate 1."""
    after = jax.jit(agent.update, compiler_options=QUICK)(learner, rollout, jax.random.key(2)).learner.params
    return jax.tree.map(lambda x, y: np.asarray(x, np.float64) - y, learner.params, after)


@pytest.mark.parametrize(
    ("name", "images", "target"),
    [("CartPole-v1", POLE, None), ("Pendulum-v1", PENDULUM, None), ("CartPole-v1", POLE, 0.5)],
)
def test_augmentation_is_the_loss_of_the_mirrored_rollout(name, images, target):
    """The gradient is the sum of those of the rollout and of the rollout mirrored by hand."""
    agent, learner, rollout = setting(name, entropy=EntropyTarget(target))
    if target is not None:  # entropy coefficient learned so far: 0.1 e^2
        learner = learner._replace(entropy=jnp.float32(2.0), params=lopsided(learner.params))
    # log-probabilities that are not the policy's, so that ratios differ from 1
    noise = 0.1 * jax.random.normal(jax.random.key(3), rollout.steps.log_prob.shape)
    rollout = rollout._replace(steps=dataclasses.replace(rollout.steps, log_prob=rollout.steps.log_prob + noise))
    obs = np.asarray(rollout.steps.obs) * ([-1, -1, -1, -1] if name == "CartPole-v1" else [1, -1, -1])
    action = 1 - rollout.steps.action if name == "CartPole-v1" else -rollout.steps.action
    steps = dataclasses.replace(rollout.steps, obs=obs.astype(np.float32), action=action)
    both = step(dataclasses.replace(agent, auxiliary=Symmetry(**images)), learner, rollout)
    one, other = step(agent, learner, rollout), step(agent, learner, rollout._replace(steps=steps))
    for x, y, z in zip(*map(jax.tree.leaves, (both, one, other)), strict=True):
        np.testing.assert_allclose(x, y + z, atol=2e-6)
    assert max(np.abs(x).max() for x in jax.tree.leaves(other)) > 1e-3


def test_the_mirror_loss_of_choices_is_a_divergence():
    """KL of the mirrored policy of the original from the policy of the mirror image, from logits in float64."""
    agent, learner, rollout = setting("CartPole-v1")
    agent = dataclasses.replace(agent, auxiliary=Symmetry(**POLE, augmentation_coef=None, mirror_coef=2.0))
    # an initial policy has biases of 0, and is symmetric
    learner = learner._replace(params=lopsided(learner.params))
    metrics = jax.jit(agent.update, compiler_options=QUICK)(learner, rollout, jax.random.key(2)).metrics
    tower, head = learner.params["actor"]["0"], learner.params["policy"]

    def log_probs(obs):
        hidden = np.tanh(obs @ np.float64(tower["kernel"]) + np.float64(tower["bias"]))
        logits = hidden @ np.float64(head["kernel"]) + np.float64(head["bias"])
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    obs = np.float64(rollout.steps.obs)
    own, image = log_probs(obs)[..., ::-1], log_probs(-obs)
    wanted = 2.0 * (np.exp(own) * (own - image)).sum(-1)[rollout.steps.valid].mean()
    assert wanted > 1e-7
    np.testing.assert_allclose(metrics["mirror_loss"], wanted, rtol=1e-3)
    assert "augmentation_loss" not in metrics


def test_the_mirror_loss_of_vectors_is_a_square_of_means():
    agent, learner, rollout = setting("Pendulum-v1")
    agent = dataclasses.replace(agent, auxiliary=Symmetry(**PENDULUM, augmentation_coef=None, mirror_coef=0.5))
    metrics = jax.jit(agent.update, compiler_options=QUICK)(learner, rollout, jax.random.key(2)).metrics
    tower, head = learner.params["actor"]["0"], learner.params["policy"]

    def mean(obs):
        hidden = np.tanh(obs @ np.float64(tower["kernel"]) + np.float64(tower["bias"]))
        return hidden @ np.float64(head["kernel"]) + np.float64(head["bias"])

    obs = np.float64(rollout.steps.obs)
    wanted = 0.5 * ((mean(obs * [1, -1, -1]) + mean(obs)) ** 2)[rollout.steps.valid].mean()
    np.testing.assert_allclose(metrics["mirror_loss"], wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ({"observation": (1, 2, 3), "action": (2, 1)}, r"observation = \[1, 2, 3\]: must have each place from 1 to 4"),
        ({"observation": (2, -1, 3, 4), "action": (2, 1)}, "mirrored twice, a vector must be itself again"),
        ({"observation": (-1, -2, -3, -4), "action": (-1,)}, "a permutation of its choices"),
        ({}, r"auxiliary.observation = \[\]"),
    ],
)
def test_images_that_do_not_fit_are_refused(images, said):
    agent, learner, rollout = setting("CartPole-v1", auxiliary=Symmetry(**images))
    with pytest.raises(ConfigError, match=said):
        jax.eval_shape(agent.update, learner, rollout, jax.random.key(2))


@pytest.mark.parametrize(
    ("options", "said"), [({"memory": GRU(3)}, "without memory"), ({"minibatch": Prioritised()}, "importance weights")]
)
def test_memories_and_importance_weights_are_refused(options, said):
    agent, learner, rollout = setting("CartPole-v1", auxiliary=Symmetry(**POLE), **options)
    with pytest.raises(ConfigError, match=said):
        jax.eval_shape(agent.update, learner, rollout, jax.random.key(2))


def test_run_files_and_the_ratio():
    table = {"part": "symmetry", "observation": [-1, -2, -3, -4], "action": [2, 1], "mirror_coef": 0.5}
    rate = {"learning_rate": 0.03}  # a policy that has learnt nothing yet is symmetric to rounding
    agent, env, _ = config.build({"env": "CartPole-v1", "num_envs": 4, "agent": {"auxiliary": table} | rate})
    assert agent.auxiliary == Symmetry(**POLE, mirror_coef=0.5)
    assert config.describe(agent)["auxiliary"]["part"] == "symmetry"
    state = ppax.start(agent, env, 8, jax.random.key(0))
    _, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 2)
    assert float(metrics["ratio_first_max_dev"]) < 1e-6
    assert float(metrics["mirror_loss"]) > 1e-6


def iterations_to(auxiliary, name, bar, seeds, total, **options):
    """Iterations until the mean return of a row first is `bar`, for each seed."""
    env = ppax.make(name, 16)
    agent = ppax.PPO(network(env), auxiliary=auxiliary, **options)
    states = ppax.start_sweep(agent, env, 64, jax.random.split(jax.random.key(5), seeds))
    run, reached = jax.jit(ppax.sweep), np.full(seeds, total)
    for i in range(0, total, 4):
        states, metrics = run(agent, env, states, 4, total)
        first = (np.asarray(metrics["episode_return"]) >= bar) & (reached == total)
        reached[first] = i + 4
    return reached


@pytest.mark.nightly
def test_a_mirrored_task_is_learned_in_fewer_steps():
    """CartPole, whose mirror image is itself; the negative control is a wrong image."""
    own = {"learning_rate": 1e-3, "gamma": 0.98}
    plain = iterations_to(NoAuxiliary(), "CartPole-v1", 300.0, 5, 120, **own)
    mirrored = iterations_to(Symmetry(**POLE), "CartPole-v1", 300.0, 5, 120, **own)
    wrong = iterations_to(Symmetry((1, 2, 3, 4), (2, 1)), "CartPole-v1", 300.0, 5, 120, **own)
    print(plain, mirrored, wrong)
    assert mirrored.mean() < 0.8 * plain.mean()
    assert wrong.min() == 120
