"""Action masks: layout, masks from environments, and steps without any allowed action."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.arrays import masks
from ppax.core.types import EnvReset, EnvStep, part, static
from ppax.envs import VectorEnv
from ppax.networks import mlp
from ppax.networks.memories import GRU
from ppax.ppo.advantages import VTrace
from ppax.ppo.critics import PopArt
from ppax.ppo.forward import forward_sequences
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.ppo.recompute import Epoch, Minibatch
from ppax.training.collection import collect, start_actor
from support.learned import learned
from support.worlds import QUICK, RANDOM_MASKS, SPACES, Leaky, Spaced

NESTED = SPACES["nested"]


def test_mask_layout_and_missing_masks_are_all_true():
    many = jnp.array([[1, 0, 0, 1, 1], [1, 1, 1, 0, 0]], jnp.int8)
    got = masks.complete(NESTED, {"many": many, "pair": (None, None)}, 2)
    assert jax.tree.structure(got) == jax.tree.structure({"bits": 0, "many": 0, "pair": (0, 0)})
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype == bool), got)
    assert shapes == {"bits": ((2, 4), True), "many": ((2, 5), True), "pair": (((2, 2), True), ((2, 1), True))}
    np.testing.assert_array_equal(got["many"], many == 1)
    assert all(x.all() for x in jax.tree.leaves((got["bits"], got["pair"])))
    assert masks.complete(NESTED, None, 2) is None


def test_a_tuple_of_masks_is_concatenated():
    ragged = tuple(jnp.full((2, n), i % 2 == 0) for i, n in enumerate((3, 2, 4)))
    got = masks.complete(SPACES["ragged"], ragged, 2)
    np.testing.assert_array_equal(got, [[1, 1, 1, 0, 0, 1, 1, 1, 1]] * 2)


@pytest.mark.parametrize(
    ("space", "mask", "message"),
    [
        (spaces.Discrete(3), jnp.ones((2, 4), bool), r"shape \(4,\) in one stream, Discrete\(3\) needs \(3,\)"),
        (SPACES["bits"], jnp.ones((2, 4), bool), r"needs \(8,\)"),
        (NESTED, {"pari": None}, r"action_mask\['pari'\]: the action has 'bits', 'many', 'pair' only"),
        (NESTED, {"pair": (None,)}, r"action_mask\['pair'\] has 1 entries, the action 2"),
        (NESTED, {"pair": (jnp.ones((2, 3)), None)}, r"action_mask\['pair'\]\[0\] has shape \(3,\)"),
    ],
)
def test_a_mask_of_the_wrong_shape_is_refused_by_name(space, mask, message):
    with pytest.raises(ppax.ConfigError, match=message):
        masks.complete(space, mask, 2)


def test_a_step_is_idle_only_if_no_component_allows_an_action():
    mask = {"a": jnp.array([[False, False], [False, True], [False, False]]), "b": jnp.array([[False], [False], [True]])}
    np.testing.assert_array_equal(masks.allows_something(mask), [False, True, True])


def test_masks_omitted_by_environments_are_filled_in_like_the_action():
    """Without the filled-in mask, a Box beside a fully masked component would be an idle step."""
    env = VectorEnv(Spaced("hybrid", RANDOM_MASKS["hybrid"]), 2)
    state, _, mask = env.reset(jax.random.key(0))
    action = jax.tree.map(jnp.asarray, {"kind": np.ones(2, np.int32), "where": np.zeros((2, 2), np.float32)})
    for given in (mask, env.step(state, action, jax.random.key(1)).action_mask):
        assert jax.tree.map(lambda x: x.shape, given) == {"kind": (2, 3), "where": (2, 1)}
        assert given["where"].all()


def stuck(time):
    """Return the mask at `time`: both actions allowed, none, both, only the second, and again."""
    return jnp.array([[True, True], [False, False], [True, True], [False, True]])[time % 4]


STUCK = VectorEnv(Spaced("two", stuck), 4)


def prepared(agent, key=0):
    learner = agent.init(STUCK.observation_space, jax.random.key(key))
    actor = start_actor(agent, STUCK, jax.random.key(1))
    return learner, jax.jit(collect, static_argnums=4, compiler_options=QUICK)(
        agent, STUCK, learner, actor, 12, jax.random.key(2)
    ).rollout


@pytest.mark.parametrize("memory", [False, True])
def test_an_idle_step_takes_the_first_action_and_has_weight_0_for_the_policy(memory):
    network = mlp(STUCK, hidden=(4,))
    agent = ppax.PPO(Leaky(network) if memory else network, minibatch=Shuffle(1), num_epochs=1, normalize_obs=True)
    learner, rollout = prepared(agent)
    steps = rollout.steps
    idle = ~np.asarray(steps.action_mask).any(-1) & np.asarray(steps.valid)
    assert 4 <= idle.sum() <= 12
    np.testing.assert_array_equal(np.asarray(steps.action)[idle], 0)
    np.testing.assert_array_equal(np.asarray(steps.log_prob)[idle], 0.0)
    assert steps.valid[idle].all()  # the environment was stepped
    # the environment received action 1, the first of its space: reward tanh(1)
    np.testing.assert_allclose(np.asarray(steps.reward)[idle], np.tanh(1.0), rtol=1e-5)

    update = jax.jit(agent.update, compiler_options=QUICK)
    out = update(learner, rollout, jax.random.key(3))
    assert float(out.metrics["ratio_first_max_dev"]) == 0.0
    # the critic learns from idle rows (V is bootstrapped from them), the policy does not
    np.testing.assert_allclose(out.metrics["valid_fraction"], steps.valid.mean())
    rows, targets, _ = learned(agent, learner, rollout).batch
    policy = forward_sequences(agent, learner, rows)
    valid, acting = np.asarray(rows.valid), np.asarray(rows.valid & rows.action_mask.any(-1))
    assert acting.sum() == valid.sum() - idle.sum()
    entropy = np.asarray(policy.distribution.entropy()).reshape(valid.shape)
    np.testing.assert_allclose(out.metrics["entropy"], entropy[acting].mean(), rtol=1e-5)
    value_loss = 0.5 * np.square(np.asarray(policy.value).reshape(valid.shape) - np.asarray(targets.value))
    np.testing.assert_allclose(out.metrics["value_loss"], value_loss[valid].mean(), rtol=1e-4)
    np.testing.assert_allclose(out.metrics["advantage_std"], np.asarray(targets.advantage)[acting].std(), rtol=1e-4)
    assert abs(out.metrics["policy_loss"]) < 1e-6  # the mean of standardised advantages at ratio 1
    # its log-probability has no effect on ratios, KL or gradients
    poisoned = dataclasses.replace(steps, log_prob=jnp.where(idle, 7.0, steps.log_prob))
    again = update(learner, rollout._replace(steps=poisoned), jax.random.key(3))
    for one, other in zip(jax.tree.leaves(out), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    # its reward reaches the targets of earlier steps
    paid = dataclasses.replace(steps, reward=jnp.where(idle, 50.0, steps.reward))
    richer = update(learner, rollout._replace(steps=paid), jax.random.key(3))
    assert richer.metrics["target_mean"] > out.metrics["target_mean"] + 1.0


# ---------------------------------------------------------------- learning across steps without an allowed action

WAIT = 20  # steps before the reward of 1, which is worth 0.99^20 = 0.818 at the start


@part
class Waiting:
    """A reward of 1 after 20 steps. With `choice`, the first step may instead end the episode with 0.5 at once.

    All other steps (the last one, without `choice`) have nothing to choose: their masks allow nothing, if `masked`.
    """

    choice: bool = static(default=True)
    masked: bool = static(default=True)
    num_agents: int | None = static(default=None)

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def _each(self, x):
        return x if self.num_agents is None else jnp.broadcast_to(x, (self.num_agents, *jnp.shape(x)))

    def _seen(self, time):
        mask = jnp.full(2, time == (0 if self.choice else WAIT)) if self.masked else None
        obs = jnp.stack([time / WAIT, (time == 0).astype(jnp.float32)])
        return self._each(obs), None if mask is None else self._each(mask)

    def reset(self, key):
        return EnvReset(jnp.int32(0), *self._seen(jnp.int32(0)))

    def step(self, state, action, key):
        action = action if self.num_agents is None else action.max()  # all agents wait if one does
        took = jnp.bool_(self.choice) & (state == 0) & (action == 0)
        reward = jnp.where(took, 0.5, (state == WAIT).astype(jnp.float32))
        over = took | (state == WAIT)
        obs, mask = self._seen(state + 1)
        return EnvStep(state + 1, obs, self._each(reward), self._each(over), self._each(over & False), mask)


def start_after_learning(env, iterations, memory=None, **options):
    """Return P(wait) and V at an episode's start, [B] each."""
    network = mlp(env, hidden=(32,))
    network = network if memory is None else dataclasses.replace(network, memory=memory)
    options = {"learning_rate": 3e-3, "ent_coef": 0.02, "minibatch": Shuffle(4)} | options
    agent = ppax.PPO(network, gamma=0.99, **options)
    state = ppax.start(agent, env, 42, jax.random.key(0))
    learner = jax.jit(ppax.train, static_argnums=3, compiler_options=QUICK)(agent, env, state, iterations)[0].learner
    actor = start_actor(agent, env, jax.random.key(1))
    policy = agent.policy(learner, actor.carry, actor.obs, actor.first, actor.action_mask)
    return np.exp(policy.distribution.log_prob(jnp.ones(env.num_streams, jnp.int32))), np.asarray(policy.value)


def test_the_value_of_forced_waiting_is_learned():
    _, value = start_after_learning(VectorEnv(Waiting(choice=False), 8), 40)
    np.testing.assert_allclose(value, 0.99**WAIT, atol=0.06)


VARIANTS = {
    "masked": {},
    "agents and PopArt": {"num_agents": 2, "critic": PopArt()},
    "GRU, recomputed by epoch": {"memory": GRU(8), "seq_len": 21, "recompute": Epoch()},
    "V-trace, recomputed by minibatch": {"recompute": Minibatch(), "seq_len": 21, "advantage": VTrace()},
    "prioritised": {"minibatch": Prioritised(num_minibatches=4)},
    "by rollout": {"normalize_advantage": "rollout", "normalize_obs": True},
}


@pytest.mark.parametrize(
    ("name", "masked"),
    [
        ("masked", True),
        *(pytest.param(name, True, marks=pytest.mark.nightly) for name in list(VARIANTS)[1:]),
        pytest.param("masked", False, id="control", marks=pytest.mark.nightly),
    ],
)
def test_a_larger_reward_after_forced_waiting_is_chosen(name, masked):
    """0.818 after waiting against 0.5 at once; control: the same environment without masks in the waiting steps."""
    options = dict(VARIANTS[name])
    env = VectorEnv(Waiting(masked=masked, num_agents=options.pop("num_agents", None)), 16)
    waits, value = start_after_learning(env, 60, **options)
    assert waits.min() > 0.9
    np.testing.assert_allclose(value, 0.99**WAIT, atol=0.1)
