"""`Policy.act` gives the actions of the forward pass with which training acts, for all networks and spaces."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.networks import Tower, memories, network
from ppax.policy.programs import InJax, InNumpy
from support.trained import OBSERVATIONS, env_of, masks_of, observations, policy_of, random_learner, rows
from support.worlds import QUICK

pytestmark = pytest.mark.usefixtures("cached_programs")

NETWORKS = {
    "mlp": ("vector", {}),
    "shared": ("vector", {"shared": True, "activation": "relu"}),
    "dict": ("dict", {}),
    "cnn": ("image", {}),
    "tuple": ("tuple", {"head_hidden": (5,)}),
    "kind": ("kind", {}),
    "gru": ("vector", {"memory": memories.GRU(5)}),
    "lstm": ("vector", {"memory": memories.LSTM(5), "shared": True}),
    "mingru": ("dict", {"memory": memories.MinGRU(5)}),
    "lru": ("vector", {"memory": memories.LRU(6)}),
    "attention": ("vector", {"memory": memories.Attention(width=8, steps=3, heads=2)}),
    "window": ("matrix", {"memory": memories.Window(3)}),
    "stack": ("vector", {"memory": memories.Stack(memories.GRU(5), 3, residual=True, norm=True), "remat": True}),
    "apart": ("dict", {"actor": Tower(memory=memories.LSTM(4)), "critic": Tower(hidden=(3, 6), layer_norm=True)}),
    "critic": ("vector", {"critic": Tower(memory=memories.GRU(4)), "activation": "mish"}),
}
ACTIONS = {
    "discrete": ("two", False, {}),
    "masked": ("two", True, {}),
    "multi": ("ragged", False, {}),
    "masked multi": ("ragged", True, {}),
    "masked bits": ("bits", True, {}),
    "normal": ("box", False, {}),
    "half": ("half", False, {"state_std": True}),
    "wide": ("wide", False, {"std_max": 0.5}),
    "squashed": ("box", False, {"distribution": "squashed"}),
    "beta": ("box", False, {"distribution": "beta"}),
    "ball": ("wide", False, {"distribution": "ball"}),
    "hybrid": ("hybrid", False, {}),
    "masked hybrid": ("hybrid", True, {}),
    "masked nested": ("nested", True, {}),
}
EVERY = list(itertools.product(NETWORKS, ACTIONS, (False, True)))
# daily: each network and each action once or twice, with and without normalisation
DAILY = {
    (n, a, bool(i % 2))
    for i, (n, a) in enumerate(
        itertools.islice(zip(itertools.cycle(NETWORKS), itertools.cycle(ACTIONS), strict=False), len(ACTIONS))
    )
}
CASES = [pytest.param(*case, marks=[] if case in DAILY else pytest.mark.nightly) for case in EVERY]
STREAMS, STEPS = 5, 4


def own_steps(agent, learner, obs, masks, first):
    """Environment actions of training's forward pass, step by step; the carry is handed on."""
    carry, taken = agent.initial_carry(first.shape[1]), []
    forward = jax.jit(agent.policy, compiler_options=QUICK)
    for t in range(len(first)):
        mask = None if masks is None else jax.tree.map(jnp.asarray, rows(masks, t))
        out = forward(learner, carry, rows(obs, t), first[t], mask)
        carry = out.carry
        taken.append(jax.device_get(out.distribution.env_action(out.distribution.mode())))
    return taken


def complete(env, masks, streams):
    """Masks as an environment's steps give them to training."""
    return None if masks is None else jax.tree.map(np.asarray, env._to_masks(jax.tree.map(jnp.asarray, masks)))


def assert_same(mine, own):
    assert jax.tree.structure(mine) == jax.tree.structure(own)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(own), strict=True):
        assert a.shape == b.shape
        if np.issubdtype(a.dtype, np.integer):
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("net", "action", "normalize"), CASES)
def test_actions_are_those_of_training(net, action, normalize):
    seen, options = NETWORKS[net]
    space, masked, box = ACTIONS[action]
    env = env_of(space, seen, masked)
    agent = ppax.PPO(network(env, hidden=(7,), **options, **box), normalize_obs=normalize)
    learner, rng = random_learner(agent, env), np.random.default_rng(0)
    policy, single = (policy_of(agent, env, learner) for _ in range(2))
    obs = observations(OBSERVATIONS[seen], rng, (STEPS, STREAMS))
    masks = masks_of(space, rng, (STEPS, STREAMS)) if masked else None
    first = rng.random((STEPS, STREAMS)) < 0.3
    first[0] = True
    flat = None if masks is None else [complete(env, rows(masks, t), STREAMS) for t in range(STEPS)]
    stacked = None if flat is None else jax.tree.map(lambda *x: np.stack(x), *flat)
    own = own_steps(agent, learner, obs, stacked, first)
    for t in range(STEPS):
        policy.reset(first[t])
        mask = None if masks is None else rows(masks, t)
        acted = policy.act(rows(obs, t), mask=mask)
        assert_same(acted, own[t])
        for i in range(STREAMS):
            assert policy.spec.action_space.contains(rows(acted, i)), rows(acted, i)
        if first[t, 0]:
            single.reset()
        one = single.act(rows(obs, (t, 0)), mask=None if masks is None else rows(masks, (t, 0)))
        assert_same(jax.tree.map(np.asarray, one), jax.tree.map(np.asarray, rows(own[t], 0)))
        assert policy.spec.action_space.contains(one), one


@pytest.mark.parametrize(
    ("seen", "options", "kind"),
    [("vector", {}, InNumpy), ("image", {}, InJax), ("vector", {"memory": memories.GRU(4)}, InJax)],
)
def test_small_feedforward_policies_run_in_numpy_others_in_one_compiled_call(seen, options, kind):
    env = env_of(seen=seen)
    policy = policy_of(ppax.PPO(network(env, hidden=(4,), **options)), env)
    policy.act(observations(OBSERVATIONS[seen], np.random.default_rng(0), (1,))[0])
    assert {type(one) for one in policy._programs.values()} == {kind}


@pytest.mark.parametrize("seen", ["vector", "image"])
def test_samples_have_the_probabilities_of_the_distribution(seen):
    """Frequencies of 2,000 draws in batches, within 5 sigma; equal seeds give equal actions."""
    env = env_of("ragged", seen)
    agent = ppax.PPO(network(env, hidden=(4,)))
    policy = policy_of(agent, env)
    obs = rows(observations(OBSERVATIONS[seen], np.random.default_rng(0), (1,)), 0)
    batch = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], 200, axis=0), obs)
    out = agent.policy(policy.learner, (), jax.tree.map(lambda x: x[:1], batch), np.ones(1, bool), None)
    choose = partial(policy.act, batch, deterministic=False)
    policy.reset(seed=3)
    drawn = np.concatenate([choose() for _ in range(10)])
    policy.reset(seed=3)
    np.testing.assert_array_equal(choose(), drawn[:200])
    assert not np.array_equal(choose(), drawn[:200])
    wanted = np.exp([float(out.distribution.log_prob(jnp.array([[i, j, k]]))[0]) for i, j, k in np.ndindex(3, 2, 4)])
    counted = [(drawn - [0, 5, -1] == index).all(-1).mean() for index in np.ndindex(3, 2, 4)]
    assert wanted.sum() == pytest.approx(1.0, abs=1e-5)
    assert (np.abs(counted - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / len(drawn)) + 1e-9).all()
