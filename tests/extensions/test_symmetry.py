"""Symmetry: mirror images by hand, terms against a second computation, refusals, fewer steps on a mirrored task."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.core.types import ConfigError, EnvReset, EnvStep, part, static
from ppax.envs import VectorEnv
from ppax.extensions import EntropyTarget, ExtensionState, Symmetry
from ppax.extensions.symmetry import mirror
from ppax.networks import network
from ppax.networks.memories import GRU
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.training.collection import collect
from support.learned import extended
from support.worlds import QUICK, SGD

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


@part
class Hand:
    """Two numbers, any actions of a space, an episode of four steps; the reward is the sum of the action."""

    action_space: spaces.Space = static()

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    num_agents = None

    def reset(self, key):
        obs = jax.random.normal(key, (2,))
        return EnvReset((obs, jnp.int32(0)), obs)

    def step(self, state, action, key):
        obs, time = state[0] + 0.1 * jnp.cos(jnp.arange(2.0) + state[1]), state[1] + 1
        reward = sum(x.astype(jnp.float32).sum() for x in jax.tree.leaves(action))
        return EnvStep((obs, time), obs, reward, jnp.bool_(False), time >= 4)


@part
class Waiting(Hand):
    """The same, in which every second step allows no action."""

    def _mask(self, time):
        return jnp.broadcast_to(time % 2 == 0, 2)

    def reset(self, key):
        return super().reset(key)._replace(action_mask=self._mask(0))

    def step(self, state, action, key):
        return super().step(state, action, key)._replace(action_mask=self._mask(state[1] + 1))


def of_space(space, world=Hand, **options):
    """Agent, learner and rollout on an environment with the actions `space`."""
    env = VectorEnv(world(space), 4)
    net_options = {name: options.pop(name) for name in ("distribution", "gsde", "state_std") if name in options}
    net = network(env, hidden=(5,), **net_options)
    plain = {"optimizer": SGD(), "max_grad_norm": None, "learning_rate": 1.0, "num_epochs": 1}
    agent = ppax.PPO(net, **{"minibatch": Shuffle(1), "vf_coef": 0.7, "ent_coef": 0.1} | plain | options)
    state = ppax.start(agent, env, 8, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    return agent, state.learner, gather(agent, env, state.learner, state.actor, 8, jax.random.key(1)).rollout


def lopsided(params):
    """Return parameters of a policy that is not symmetric."""
    return jax.tree.map(lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size) + 1.0).reshape(x.shape), params)


def with_symmetry(agent, learner, rollout, symmetry):
    """Agent, learner and rollout with the symmetry after their other extensions."""
    others, states = agent.extensions, learner.extensions
    agent, learner, rollout = extended(agent, learner, rollout, *others, symmetry)
    return agent, learner._replace(extensions={**learner.extensions, **states}), rollout


def updated(agent, learner, rollout):
    return jax.jit(agent.update, compiler_options=QUICK)(learner, rollout, jax.random.key(2))


def step(agent, learner, rollout):
    """Gradient of the loss: one step of gradient descent with rate 1."""
    after = updated(agent, learner, rollout).learner.params
    return jax.tree.map(lambda x, y: np.asarray(x, np.float64) - y, learner.params, after)


@pytest.mark.parametrize(
    ("name", "images", "target"),
    [("CartPole-v1", POLE, None), ("Pendulum-v1", PENDULUM, None), ("CartPole-v1", POLE, 0.5)],
)
def test_augmentation_is_the_loss_of_the_mirrored_rollout(name, images, target):
    """The gradient is the sum of those of the rollout and of the rollout mirrored by hand."""
    others = () if target is None else (EntropyTarget(target),)
    agent, learner, rollout = setting(name, extensions=others)
    if target is not None:  # entropy coefficient learned so far: 0.1 e^2
        learned = {"entropy_target": ExtensionState(jnp.float32(2.0))}
        learner = learner._replace(extensions=learned, params=lopsided(learner.params))
    # log-probabilities that are not the policy's, so that ratios differ from 1
    noise = 0.1 * jax.random.normal(jax.random.key(3), rollout.steps.log_prob.shape)
    rollout = rollout._replace(steps=dataclasses.replace(rollout.steps, log_prob=rollout.steps.log_prob + noise))
    obs = np.asarray(rollout.steps.obs) * ([-1, -1, -1, -1] if name == "CartPole-v1" else [1, -1, -1])
    action = 1 - rollout.steps.action if name == "CartPole-v1" else -rollout.steps.action
    steps = dataclasses.replace(rollout.steps, obs=obs.astype(np.float32), action=action)
    both = step(*with_symmetry(agent, learner, rollout, Symmetry(**images)))
    one, other = step(agent, learner, rollout), step(agent, learner, rollout._replace(steps=steps))
    for x, y, z in zip(*map(jax.tree.leaves, (both, one, other)), strict=True):
        np.testing.assert_allclose(x, y + z, atol=2e-6)
    assert max(np.abs(x).max() for x in jax.tree.leaves(other)) > 1e-3


# the second Box has another centre in each element, the third a free element
AROUND, OFF = spaces.Box(-2.0, 2.0, (2,)), spaces.Box(np.float32([1.0, -9.0]), np.float32([5.0, -5.0]))
FREE = spaces.Box(np.float32([1.0, -np.inf]), np.float32([5.0, np.inf]))
# image, and mirror image of a stored action by hand
BY_HAND = {
    "around 0": (AROUND, {}, (-2, -1), lambda x: -x[..., ::-1]),
    "off centre": (OFF, {}, (-2, -1), lambda x: [-4, -4] - x[..., ::-1]),
    "gsde": (OFF, {"gsde": True}, (-2, -1), lambda x: [-4, -4] - x[..., ::-1]),
    "free": (FREE, {}, (-1, 2), lambda x: [6, 0] + x * [-1, 1]),
    "squashed": (OFF, {"distribution": "squashed"}, (-2, -1), lambda x: -x[..., ::-1]),
    "ball": (OFF, {"distribution": "ball"}, (-1, 2), lambda x: x * [-1, 1]),
    "beta": (OFF, {"distribution": "beta"}, (-2, -1), lambda x: 1 - x[..., ::-1]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_vectors_are_mirrored_around_the_centre_of_their_box(name):
    """The gradient is the sum of those of the rollout and of the rollout mirrored by hand, whatever is stored."""
    space, options, image, by_hand = BY_HAND[name]
    agent, learner, rollout = of_space(space, **options)
    action = by_hand(np.asarray(rollout.steps.action, np.float64)).astype(np.float32)
    steps = dataclasses.replace(rollout.steps, obs=-rollout.steps.obs, action=jnp.asarray(action))
    mirrored = rollout._replace(steps=steps)
    both = step(*with_symmetry(agent, learner, rollout, Symmetry((-1, -2), image)))
    apart = step(agent, learner, rollout), step(agent, learner, mirrored)
    for x, y, z in zip(*map(jax.tree.leaves, (both, *apart)), strict=True):
        np.testing.assert_allclose(x, y + z, atol=2e-5, rtol=1e-4)
    # the environment's actions are mirror images around the centre
    carry = agent.initial_carry(4)
    policy = agent.policy(learner, carry, rollout.steps.obs[0], rollout.steps.first[0], None).distribution
    own, other = (np.asarray(policy.env_action(x[0]), np.float64) for x in (rollout.steps.action, action))
    centre = np.where(np.isfinite(space.low), [3.0, -7.0] if space is not AROUND else 0.0, 0.0)
    wanted = -(own - centre)[:, ::-1] if image == (-2, -1) else (own - centre) * [-1, 1]
    np.testing.assert_allclose(other - centre, wanted, atol=2e-6)


def test_the_mirror_loss_of_a_beta_policy_is_around_the_middle():
    """Modes of Beta(a, b) in float64; the mirror image of Beta(a, b) is Beta(b, a)."""
    agent, learner, rollout = of_space(OFF, distribution="beta")
    symmetry = Symmetry((-1, -2), (-1, 2), augmentation_coef=None, mirror_coef=2.0)
    learner = learner._replace(params=lopsided(learner.params))
    agent, learner, rollout = with_symmetry(agent, learner, rollout, symmetry)
    metrics = updated(agent, learner, rollout).metrics
    tower, head = learner.params["actor"]["0"], learner.params["policy"]

    def mode(obs):
        hidden = np.tanh(obs @ np.float64(tower["kernel"]) + np.float64(tower["bias"]))
        above = np.log1p(np.exp(hidden @ np.float64(head["kernel"]) + np.float64(head["bias"])))
        return above[..., :2] / (above[..., :2] + above[..., 2:])

    obs = np.float64(rollout.steps.obs)
    distance = mode(-obs) - (mode(obs) * [-1, 1] + [1, 0])
    wanted = 2.0 * (distance**2).mean(axis=-1)[rollout.steps.valid].mean()
    assert wanted > 1e-6
    np.testing.assert_allclose(metrics["mirror_loss"], wanted, rtol=1e-3)


@pytest.mark.parametrize(
    ("space", "image", "said"),
    [
        (spaces.Box(np.float32([-1, 0]), np.float32([1, 3])), (2, 1), "element 2 has the bounds 0 and 3"),
        (spaces.Box(0.0, np.inf, (2,)), (-1, 2), "must be of equal width, and with two bounds or none"),
        (spaces.Discrete(3), (2, 1), "must have each place from 1 to 3 once, a permutation of the choices"),
        (spaces.Discrete(3), (1, 2, 2), "must have each place from 1 to 3 once"),
        (spaces.Discrete(3), (2, 3, 1), "mirrored twice, a choice must be itself again"),
        (spaces.MultiDiscrete([2, 2]), (2, 1), "not the actions of a Factorised"),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1.0, 1.0, (1,))}), (2, 1), "of a Joint"),
    ],
)
def test_actions_without_this_image_are_refused(space, image, said):
    agent, learner, rollout = of_space(space, extensions=(Symmetry((-1, -2), image, mirror_coef=1.0),))
    with pytest.raises(ConfigError, match=said):
        jax.eval_shape(agent.update, learner, rollout, jax.random.key(2))


def test_a_minus_of_bytes_is_refused():
    agent, learner, rollout = of_space(AROUND, extensions=(Symmetry((-1, 2), (-1, 2)),))
    steps = dataclasses.replace(rollout.steps, obs=rollout.steps.obs.astype(jnp.uint8))
    with pytest.raises(ConfigError, match=r"observations are uint8, which have no negative numbers"):
        jax.eval_shape(agent.update, learner, rollout._replace(steps=steps), jax.random.key(2))


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([3, 3]), spaces.MultiBinary(2)])
def test_a_minus_of_categories_is_refused(space):
    key = jax.random.key(0)
    with pytest.raises(ConfigError, match=r"observation = \[-2, -1\]: .* categories.*nearest valid value: \[2, 1\]"):
        Symmetry((-2, -1), (2, 1)).init(None, space, key)
    Symmetry((2, 1), (2, 1)).init(None, space, key)


def test_the_mirror_loss_of_choices_is_a_divergence():
    """KL of the mirrored policy of the original from the policy of the mirror image, from logits in float64."""
    agent, learner, rollout = setting("CartPole-v1")
    agent, learner, rollout = with_symmetry(
        agent, learner, rollout, Symmetry(**POLE, augmentation_coef=None, mirror_coef=2.0)
    )
    # an initial policy has biases of 0, and is symmetric
    learner = learner._replace(params=lopsided(learner.params))
    metrics = updated(agent, learner, rollout).metrics
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


def test_rows_without_an_action_count_as_in_the_policy_loss():
    """The augmentation is the gradient of the mirrored rollout, the mirror loss a mean over rows that allow an action.

    In a row without an action the mirror loss was the largest float, with a gradient.
    """
    choice, images = spaces.Discrete(2), {"observation": (-1, -2), "action": (2, 1)}
    agent, learner, rollout = of_space(choice, Waiting, normalize_advantage="off")
    learner = learner._replace(params=lopsided(learner.params))
    steps = rollout.steps
    mirrored = dataclasses.replace(steps, obs=-steps.obs, action=1 - steps.action)
    apart = step(agent, learner, rollout), step(agent, learner, rollout._replace(steps=mirrored))
    both = step(*with_symmetry(agent, learner, rollout, Symmetry(**images)))
    for x, y, z in zip(*map(jax.tree.leaves, (both, *apart)), strict=True):
        np.testing.assert_allclose(x, y + z, atol=2e-6)

    symmetry = Symmetry(**images, augmentation_coef=None, mirror_coef=1.0)
    metrics = updated(*with_symmetry(agent, learner, rollout, symmetry)).metrics
    acts = np.asarray(steps.action_mask).any(-1) & np.asarray(steps.valid)

    def log_probs(obs):
        policy = agent.policy(learner, (), obs.reshape(-1, 2), jnp.ones(obs.shape[0] * obs.shape[1], bool), None)
        return np.asarray(policy.distribution.log_probs, np.float64)[acts.reshape(-1)]

    own, image = log_probs(steps.obs), log_probs(-steps.obs)[:, ::-1]
    wanted = (np.exp(own) * (own - image)).sum(-1).mean()
    assert 0 < acts.sum() < acts.size
    np.testing.assert_allclose(metrics["mirror_loss"], wanted, rtol=1e-4)


def test_the_mirror_loss_of_vectors_is_a_square_of_means():
    agent, learner, rollout = setting("Pendulum-v1")
    agent, learner, rollout = with_symmetry(
        agent, learner, rollout, Symmetry(**PENDULUM, augmentation_coef=None, mirror_coef=0.5)
    )
    metrics = updated(agent, learner, rollout).metrics
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
        ({"observation": (-1, -2, -3, -4), "action": (-1,)}, "a permutation of the choices"),
        ({}, r"symmetry.observation = \[\]"),
    ],
)
def test_images_that_do_not_fit_are_refused(images, said):
    agent, learner, rollout = setting("CartPole-v1", extensions=(Symmetry(**images),))
    with pytest.raises(ConfigError, match=said):
        jax.eval_shape(agent.update, learner, rollout, jax.random.key(2))


@pytest.mark.parametrize(
    ("options", "said"), [({"memory": GRU(3)}, "without memory"), ({"minibatch": Prioritised()}, "importance weights")]
)
def test_memories_and_importance_weights_are_refused(options, said):
    agent, learner, rollout = setting("CartPole-v1", extensions=(Symmetry(**POLE),), **options)
    with pytest.raises(ConfigError, match=said):
        jax.eval_shape(agent.update, learner, rollout, jax.random.key(2))


def test_run_files_and_the_ratio():
    tables = {"symmetry": {"observation": [-1, -2, -3, -4], "action": [2, 1], "mirror_coef": 0.5}}
    rate = {"learning_rate": 0.03}  # a policy that has learnt nothing yet is symmetric to rounding
    agent, env, _ = config.build({"env": "CartPole-v1", "num_envs": 4, "agent": {"extensions": tables} | rate})
    assert agent.extensions == (Symmetry(**POLE, mirror_coef=0.5),)
    assert config.describe(agent)["extensions"]["symmetry"]["part"] == "symmetry"
    state = ppax.start(agent, env, 8, jax.random.key(0))
    _, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 2)
    assert float(metrics["ratio_first_max_dev"]) < 1e-6
    assert float(metrics["mirror_loss"]) > 1e-6


def iterations_to(extensions, name, bar, seeds, total, **options):
    """Iterations until the mean return of a row first is `bar`, for each seed."""
    env = ppax.make(name, 16)
    agent = ppax.PPO(network(env), extensions=extensions, **options)
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
    plain = iterations_to((), "CartPole-v1", 300.0, 5, 120, **own)
    mirrored = iterations_to((Symmetry(**POLE),), "CartPole-v1", 300.0, 5, 120, **own)
    wrong = iterations_to((Symmetry((1, 2, 3, 4), (2, 1)),), "CartPole-v1", 300.0, 5, 120, **own)
    print(plain, mirrored, wrong)
    assert mirrored.mean() < 0.8 * plain.mean()
    assert wrong.min() == 120
