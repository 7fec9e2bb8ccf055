"""Masks: their layout, what environments may give, and steps in which nothing can be chosen."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import masks
from ppax.collect import collect, start_actor
from ppax.envs import VectorEnv
from ppax.minibatches import Shuffle
from ppax.networks import mlp
from worlds import QUICK, RANDOM_MASKS, SPACES, Leaky, Spaced

NESTED = SPACES["nested"]


def test_the_layout_and_what_stands_in_for_missing_masks():
    many = jnp.array([[1, 0, 0, 1, 1], [1, 1, 1, 0, 0]], jnp.int8)
    got = masks.complete(NESTED, {"many": many, "pair": (None, None)}, 2)
    assert jax.tree.structure(got) == jax.tree.structure({"bits": 0, "many": 0, "pair": (0, 0)})
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype == bool), got)
    assert shapes == {"bits": ((2, 4), True), "many": ((2, 5), True), "pair": (((2, 2), True), ((2, 1), True))}
    np.testing.assert_array_equal(got["many"], many == 1)
    assert all(x.all() for x in jax.tree.leaves((got["bits"], got["pair"])))
    assert masks.complete(NESTED, None, 2) is None


def test_a_tuple_of_masks_is_one_after_the_other():
    ragged = tuple(jnp.full((2, n), i % 2 == 0) for i, n in enumerate((3, 2, 4)))
    got = masks.complete(SPACES["ragged"], ragged, 2)
    np.testing.assert_array_equal(got, [[1, 1, 1, 0, 0, 1, 1, 1, 1]] * 2)


@pytest.mark.parametrize(
    ("space", "mask", "message"),
    [
        (spaces.Discrete(3), jnp.ones((2, 4), bool), r"shape \(4,\) in one stream, Discrete\(3\) takes \(3,\)"),
        (SPACES["bits"], jnp.ones((2, 4), bool), r"takes \(8,\)"),
        (NESTED, {"pari": None}, r"action_mask\['pari'\]: the action has 'bits', 'many', 'pair' only"),
        (NESTED, {"pair": (None,)}, r"action_mask\['pair'\] has 1 entries, the action 2"),
        (NESTED, {"pair": (jnp.ones((2, 3)), None)}, r"action_mask\['pair'\]\[0\] has shape \(3,\)"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused_by_name(space, mask, message):
    with pytest.raises(ppax.ConfigError, match=message):
        masks.complete(space, mask, 2)


def test_a_step_is_idle_only_where_nothing_at_all_can_be_chosen():
    mask = {"a": jnp.array([[False, False], [False, True], [False, False]]), "b": jnp.array([[False], [False], [True]])}
    np.testing.assert_array_equal(masks.allows_something(mask), [False, True, True])


def test_environments_may_leave_masks_out_and_the_agent_still_sees_a_tree_like_the_action():
    """Else a free Box beside a kind of which nothing is allowed would be an idle step."""
    env = VectorEnv(Spaced("hybrid", RANDOM_MASKS["hybrid"]), 2)
    state, _, mask = env.reset(jax.random.key(0))
    action = jax.tree.map(jnp.asarray, {"kind": np.ones(2, np.int32), "where": np.zeros((2, 2), np.float32)})
    for given in (mask, env.step(state, action, jax.random.key(1)).action_mask):
        assert jax.tree.map(lambda x: x.shape, given) == {"kind": (2, 3), "where": (2, 1)}
        assert given["where"].all()


def stuck(time):
    """Both actions, then none, both, only the second."""
    return jnp.array([[True, True], [False, False], [True, True], [False, True]])[time % 4]


STUCK = VectorEnv(Spaced("two", stuck), 4)


def prepared(agent, key=0):
    learner = agent.init(STUCK.observation_space, jax.random.key(key))
    actor = start_actor(agent, STUCK, jax.random.key(1))
    return learner, jax.jit(collect, static_argnums=4, compiler_options=QUICK)(
        agent, STUCK, learner, actor, 12, jax.random.key(2)
    ).rollout


@pytest.mark.parametrize("memory", [False, True])
def test_an_idle_step_takes_the_first_action_counts_for_the_environment_and_weighs_nothing(memory):
    network = mlp(STUCK, hidden=(4,))
    agent = ppax.PPO(Leaky(network) if memory else network, minibatch=Shuffle(1), num_epochs=1, normalize_obs=True)
    learner, rollout = prepared(agent)
    steps = rollout.steps
    idle = ~np.asarray(steps.action_mask).any(-1) & np.asarray(steps.valid)
    assert 4 <= idle.sum() <= 12
    np.testing.assert_array_equal(np.asarray(steps.action)[idle], 0)
    np.testing.assert_array_equal(np.asarray(steps.log_prob)[idle], 0.0)
    assert steps.valid[idle].all()  # in the environment it was a step like others
    # the action received was 1, the space's first: tanh(1)
    np.testing.assert_allclose(np.asarray(steps.reward)[idle], np.tanh(1.0), rtol=1e-5)

    update = jax.jit(agent.update, compiler_options=QUICK)
    out = update(learner, rollout, jax.random.key(3))
    assert float(out.metrics["ratio_first_max_dev"]) == 0.0
    kept = float((np.asarray(steps.valid) & ~idle).mean())
    np.testing.assert_allclose(out.metrics["valid_fraction"], kept)
    # its own critic's error does not matter: with its value and the next changed so that no other target moves
    poisoned = dataclasses.replace(steps, log_prob=jnp.where(idle, 7.0, steps.log_prob))
    again = update(learner, rollout._replace(steps=poisoned), jax.random.key(3))
    for one, other in zip(jax.tree.leaves(out), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    # but what it leads to is seen by the steps before
    paid = dataclasses.replace(steps, reward=jnp.where(idle, 50.0, steps.reward))
    richer = update(learner, rollout._replace(steps=paid), jax.random.key(3))
    assert richer.metrics["target_mean"] > out.metrics["target_mean"] + 1.0
