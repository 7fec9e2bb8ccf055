"""Every action space in acting, learning, checkpoints and evaluation; hybrid and masked tasks are solved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.agents.metrics import EPISODE_METRICS
from ppax.devices.layout import Program
from ppax.envs import VectorEnv
from ppax.networks import mlp
from ppax.ppo.minibatches import Shuffle
from ppax.run import checkpoint
from support.worlds import QUICK, RANDOM_MASKS, HybridBandit, Leaky, Spaced

# space, masked, options of the network, options of the agent; each choice occurs at least once
CASES = {
    "two, masked": ("two", True, {}, {"compute_dtype": "bfloat16"}),
    "ragged, masked, memory": ("ragged", True, {}, {"memory": True, "program": Program(devices=2)}),
    "grid": ("grid", False, {"shared": True}, {"recompute": ppax.recompute.Epoch()}),
    "bits, masked": ("bits", True, {}, {"normalize_advantage": "rollout", "program": Program(chunk_rows=8)}),
    "half, bounded std": ("half", False, {"std_min": 0.3, "std_max": 1.1}, {"normalize_reward": True}),
    "wide, squashed": ("wide", False, {"distribution": "squashed", "state_std": True}, {"normalize_obs": True}),
    "box, beta": ("box", False, {"distribution": "beta"}, {"program": Program(devices=2)}),
    "hybrid, ball, masked": ("hybrid", True, {"distribution": "ball"}, {"recompute": ppax.recompute.Minibatch()}),
    "nested, squashed, masked, memory": (
        "nested",
        True,
        {"distribution": "squashed"},
        {"memory": True, "compute_dtype": "bfloat16", "program": Program(devices=2, chunk_rows=8)},
    ),
}


def make(name, masked, network, options):
    env = VectorEnv(Spaced(name, RANDOM_MASKS[name]) if masked else Spaced(name), 4)
    options = dict(options)
    inner = mlp(env, hidden=(8,), **network)
    inner = Leaky(inner) if options.pop("memory", False) else inner
    return ppax.PPO(inner, ent_coef=0.01, minibatch=Shuffle(2), num_epochs=2, learning_rate=3e-3, **options), env


def as_sampled(space, sent):
    """Return one stream's action as an element of a Gymnasium space."""
    if isinstance(sent, dict):
        return {name: as_sampled(space[name], x) for name, x in sent.items()}
    if isinstance(sent, tuple):
        return tuple(map(as_sampled, space.spaces, sent))
    return np.asarray(sent)[()]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_three_updates(case, tmp_path):
    agent, env = make(*case)
    state = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, 8, jax.random.key(0))
    train = jax.jit(ppax.train, compiler_options=QUICK)
    for _ in range(3):
        before = state.learner.params
        state, metrics = train(agent, env, state, 1, 10)
        assert float(metrics["ratio_first_max_dev"]) < 2e-6
        assert float(metrics["ratio_max"]) > 1.0 + 1e-6  # the parameters change
        for name in metrics:
            assert np.isfinite(metrics[name]) or name in EPISODE_METRICS, name
        leaves = zip(jax.tree.leaves(before), jax.tree.leaves(state.learner.params), strict=True)
        assert all(np.isfinite(new).all() and (old != new).any() for old, new in leaves)
    received = state.actor.env_state.env[1]
    for stream in range(4):
        one = as_sampled(env.action_space, jax.tree.map(lambda x, stream=stream: x[stream], received))
        assert env.action_space.contains(one), one
    path = checkpoint.save(tmp_path, state)
    loaded = checkpoint.load(path, state)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(loaded), strict=True):
        same = one == other if jnp.issubdtype(one.dtype, jax.dtypes.prng_key) else np.asarray(one) == np.asarray(other)
        assert np.all(same)


def solve(env, learning_rate=1e-2, deterministic=True, **network):
    vector = VectorEnv(env, 64)
    agent = ppax.PPO(mlp(vector, hidden=(32,), **network), learning_rate=learning_rate)
    state = ppax.start(agent, vector, 8, jax.random.key(0))
    state, _ = jax.jit(ppax.train)(agent, vector, state, 80)
    return ppax.evaluate(agent, vector, state.learner, jax.random.key(1), 1000, deterministic).mean_return


@pytest.mark.parametrize("masked", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_hybrid_bandit_is_solved(masked):
    env = HybridBandit(masked)
    # of the 7 masks that allow an action, 4 allow the kind with reward 1, 2 of the others that with reward 0.5
    assert env.best() == pytest.approx(5 / 7 if masked else 1.0)
    assert solve(env, distribution="squashed") > env.best() - 0.03
    if not masked:
        assert solve(env, learning_rate=0.0, deterministic=False, distribution="squashed") < 0.5


def test_evaluation_and_sampling_with_pytree_actions():
    agent, env = make("nested", True, {}, {})
    learner = agent.init(env.observation_space, jax.random.key(0))
    one, other = (
        ppax.evaluate(agent, env, learner, jax.random.key(1), episodes=4, deterministic=d).returns
        for d in (True, False)
    )
    assert one.tolist() != other.tolist()
    assert len(set(one.tolist())) == 1  # all observations and masks are equal
