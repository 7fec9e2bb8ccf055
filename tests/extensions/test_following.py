"""Rows that are not valid: NaN in them changes no bit with any part; NaN in the last observation of a termination."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.core.types import part
from ppax.envs import VectorEnv
from ppax.extensions import (
    PPG,
    RND,
    EntropyTarget,
    FeatureNorm,
    KLControl,
    NextObservation,
    OwnCritic,
    RewardSpreading,
    SelfPrediction,
    Symmetry,
)
from ppax.extensions.imitation import clone, distill
from ppax.networks import network
from ppax.networks.memories import GRU
from ppax.ppo.advantages import CanonicalVTrace, VTrace
from ppax.ppo.critics import PopArt, Quantile, TwoHot
from ppax.ppo.losses import NoPolicyLoss
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.ppo.recompute import Epoch, Minibatch
from ppax.training.collection import collect
from support.worlds import QUICK, Counter, Team

NUM_STEPS = 8  # the rollout ends in an episode, where two agents of three are absent
SMALL = {"embedding": 3, "hidden": (3,), "predictor_hidden": (3,), "num_epochs": 1, "num_minibatches": 2}


@part
class Busy:
    """Team with a Box of actions that is not around 0."""

    observation_space = Team.observation_space
    action_space = spaces.Box(1.0, 3.0, (2,))
    num_agents = 3

    def reset(self, key):
        return Team().reset(key)

    def step(self, state, action, key):
        return Team().step(state, action, key)


ENV = VectorEnv(Team(), 4)
BOX = VectorEnv(Busy(), 4)


def demonstrations():
    ends = np.arange(6) % 3 == 2
    obs = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    return {"observations": obs, "actions": np.arange(6) % 2, "terminations": ends, "truncations": ends & False}


def teacher():
    net = network(ENV, hidden=(3,), memory=GRU(2))
    agent = ppax.PPO(net, minibatch=Shuffle(2), num_epochs=1)
    return ppax.fit(agent, ENV, total_steps=4 * 12, num_steps=4, log=ppax.Log(console=False)).policy()


# agents that together have every part that reads rows of a rollout
AGENTS = {
    "statistics": lambda: agent_of(
        recompute=Epoch(),
        normalize_obs=True,
        normalize_reward=True,
        critic=PopArt(),
        extensions=(RND(**SMALL), NextObservation(hidden=(3,)), PPG(every=1, num_epochs=1, rollouts=1)),
    ),
    "memory": lambda: agent_of(
        memory=GRU(3),
        seq_len=4,
        advantage=VTrace(),
        recompute=Minibatch(),
        critic=Quantile(4),
        extensions=(
            RewardSpreading(0.5),
            OwnCritic(RND(**SMALL, episodic=True), episodic=True, hidden=(3,)),
            SelfPrediction(hidden=(3,)),
            PPG(every=1, num_epochs=1),
        ),
    ),
    "control": lambda: agent_of(
        advantage=CanonicalVTrace(),
        recompute=Epoch(),
        critic=TwoHot(num_bins=11),
        ent_coef=0.01,
        normalize_advantage="rollout",
        extensions=(
            OwnCritic(RND(**SMALL), hidden=(3,)),
            Symmetry((-1, 2), (2, 1), mirror_coef=0.5),
            EntropyTarget(0.5),
            KLControl(rate_target=0.01),
        ),
    ),
    "priorities": lambda: agent_of(
        minibatch=Prioritised(num_minibatches=2), extensions=(RND(**SMALL, episodic=True), FeatureNorm())
    ),
    "beta": lambda: agent_of(
        BOX, distribution="beta", extensions=(Symmetry((-1, 2), (-1, 2), mirror_coef=0.5),), ent_coef=0.1
    ),
    "cloning": lambda: agent_of(extensions=(clone(ENV, demonstrations()),)),
    "distillation": lambda: agent_of(extensions=(distill(ENV, teacher(), beta=0.5),), loss=NoPolicyLoss()),
}


def agent_of(env=ENV, **options):
    own = {name: options.pop(name) for name in ("memory", "distribution") if name in options}
    plain = {"minibatch": Shuffle(2), "num_epochs": 2, "learning_rate": 1e-2}
    return ppax.PPO(network(env, hidden=(4,), **own), **plain | options), env


def spoilt(tree, rows):
    """Rows [T, B] or [B] of a tree filled with NaN, and numbers that mean nothing."""

    def one(x):
        bad = jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 99
        return jnp.where(rows.reshape(rows.shape + (1,) * (x.ndim - rows.ndim)), jnp.asarray(bad, x.dtype), x)

    return jax.tree.map(one, tree)


def with_nan(rollout):
    """The rollout with NaN in every row that is not valid, but for final observations and their values."""
    steps, invalid = rollout.steps, ~rollout.steps.valid
    after = lambda flags: jnp.concatenate([jnp.zeros_like(flags[:1]), flags[:-1]])  # noqa: E731
    spoilt_steps = dataclasses.replace(
        steps,
        obs=spoilt(steps.obs, invalid & ~after(steps.ended)),
        value=spoilt(steps.value, invalid & ~after(steps.truncated)),
        action=spoilt(steps.action, invalid),
        log_prob=spoilt(steps.log_prob, invalid),
        reward=spoilt(steps.reward, invalid),
    )
    return rollout._replace(
        steps=spoilt_steps,
        reward_trace=spoilt(rollout.reward_trace, invalid),
        last_obs=spoilt(rollout.last_obs, invalid[-1]),
        last_value=spoilt(rollout.last_value, invalid[-1]),
    )


@pytest.mark.parametrize("name", AGENTS)
def test_nan_in_invalid_rows_changes_no_bit(name):
    agent, env = AGENTS[name]()
    state = ppax.start(agent, env, NUM_STEPS, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    rollout = gather(agent, env, state.learner, state.actor, NUM_STEPS, jax.random.key(1)).rollout
    assert not rollout.steps.valid[-1].all()
    update = jax.jit(lambda rollout: agent.update(state.learner, rollout, jax.random.key(2)), compiler_options=QUICK)
    clean, dirty = update(rollout), update(with_nan(rollout))
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(clean), jax.tree.leaves(dirty), strict=True):
        x, y = (jax.random.key_data(z) if jnp.issubdtype(z.dtype, jax.dtypes.prng_key) else z for z in (x, y))
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), jax.tree_util.keystr(path)
    moved = zip(*(jax.tree.leaves(one.params) for one in (state.learner, clean.learner)), strict=True)
    assert any((x != y).any() for x, y in moved)


@part
class Failing(Counter):
    """Counter whose final observation is not finite, as that of a simulation that failed."""

    def step(self, state, action, key):
        out = Counter.step(self, state, action, key)
        return out._replace(obs=jnp.where(out.terminated | out.truncated, jnp.inf, out.obs))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"extensions": (RND(**SMALL), NextObservation(hidden=(3,)))},
        {"extensions": (OwnCritic(RND(**SMALL), hidden=(3,)), SelfPrediction(hidden=(3,)))},
    ],
    ids=["plain", "rnd", "own critic"],
)
def test_a_termination_with_an_infinite_observation_is_learned_from(options):
    env = VectorEnv(Failing(), 4)
    agent, _ = agent_of(env, **options)
    state = ppax.start(agent, env, 7, jax.random.key(0))
    after, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 2)
    assert int(after.iteration) == 2
    assert np.isfinite(float(metrics["grad_norm"]))
    assert np.isfinite(float(metrics.get("predictor_loss", 0.0)))


def test_a_truncation_with_an_infinite_observation_is_refused():
    """Its value is the bootstrap value: the iteration is discarded, and the error names the observation."""
    env = VectorEnv(Failing(terminates=False), 4)
    agent, _ = agent_of(env, extensions=(RND(**SMALL),))
    state = ppax.start(agent, env, 7, jax.random.key(0))
    after, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 1)
    assert int(after.iteration) == 0
    assert np.isnan(float(metrics["grad_norm"]))
