"""A minibatch without one valid row: no optimiser step, no adaptation, no statistics."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.core.types import MinibatchIndices, part, static
from ppax.devices.layout import Program
from ppax.envs import VectorEnv, grouped
from ppax.extensions import KLControl
from ppax.networks import mlp
from ppax.networks.memories import GRU
from ppax.ppo.critics import PopArt
from ppax.ppo.losses import KLPenalty
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.ppo.optimizers import ActorCritic, Muon
from ppax.ppo.recompute import Minibatch
from ppax.training.collection import collect
from support.worlds import QUICK, SGD, AdamW, Team

ENV = ppax.make("CartPole-v1", 4)
MOMENTUM = SGD(momentum=0.9)
DECAYS = AdamW(weight_decay=1.0)  # would shrink every parameter by learning_rate of itself a step


@part
class Fixed:
    """The same minibatches each time."""

    rows: tuple[tuple[int, ...], ...] = static()
    num_minibatches: int = static(default=2)

    def size(self, sequences, length):
        return len(self.rows[0])

    def __call__(self, batch, key):
        return MinibatchIndices(jnp.array(self.rows), None)


def without_rows(rollout, which=slice(None)):
    """`rollout`, whose streams `which` have no valid row."""
    return rollout._replace(steps=dataclasses.replace(rollout.steps, valid=rollout.steps.valid.at[:, which].set(False)))


@functools.partial(jax.jit, compiler_options=QUICK)
def learn(agent, learner, rollout, key):
    return agent.update(learner, rollout, key)


def learned(agent, env, steps=8):
    """A learner whose optimiser has momentum, and one more rollout."""
    state = ppax.start(agent, env, steps, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    rollout = gather(agent, env, state.learner, state.actor, steps, jax.random.key(1)).rollout
    return learn(agent, state.learner, rollout, jax.random.key(2)).learner, rollout


def same_bits(one, other):
    pairs = zip(*map(jax.tree.leaves, (one, other)), strict=True)
    return [np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs]


ALL_ON = {
    "loss": KLPenalty(),
    "extensions": (KLControl(target_kl=1e3, rate_target=1e-3, coef_target=1e-3),),
    "critic": PopArt(),
    "normalize_obs": True,
    "normalize_reward": True,
}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"optimizer": DECAYS, **ALL_ON}, id="all statistics"),
        pytest.param({"optimizer": Muon(weight_decay=1.0)}, id="muon", marks=pytest.mark.nightly),
        pytest.param(
            {
                "optimizer": ActorCritic(DECAYS, MOMENTUM),
                "recompute": Minibatch(),
                "program": Program(chunk_rows=8),
            },
            id="recomputed in chunks",
        ),
        pytest.param(
            {"minibatch": Prioritised(num_minibatches=2), "optimizer": DECAYS, **ALL_ON},
            id="prioritised",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_rollout_without_a_valid_row_changes_no_bit_of_the_learner(options):
    agent = ppax.PPO(mlp(ENV, hidden=(8,)), **{"minibatch": Shuffle(2), "learning_rate": 0.01} | options)
    learner, rollout = learned(agent, ENV)
    update = learn(agent, learner, without_rows(rollout), jax.random.key(3))
    assert all(same_bits(learner, update.learner))
    for name, x in update.metrics.items():
        assert np.isfinite(x), name
    assert update.metrics["ratio_max"] == update.metrics["ratio_min"] == 1.0
    # with its rows every kind of state moves
    moved = learn(agent, learner, rollout, jax.random.key(3)).learner
    for name in learner._fields:
        if jax.tree.leaves(getattr(learner, name)):
            assert not all(same_bits(getattr(learner, name), getattr(moved, name))), name


def test_an_empty_minibatch_skips_its_gradient_step_and_its_metrics():
    options = {"optimizer": DECAYS, "learning_rate": 0.01, "num_epochs": 2, "seq_len": 8, "loss": KLPenalty()}
    control = KLControl(coef_target=1e-4)
    agent = ppax.PPO(mlp(ENV, hidden=(8,)), minibatch=Fixed(((0, 1), (2, 3))), extensions=(control,), **options)
    learner, rollout = learned(agent, ENV)
    half = without_rows(rollout, slice(2, None))
    beside = learn(agent, learner, half, jax.random.key(3))
    alone = learn(dataclasses.replace(agent, minibatch=Fixed(((0, 1),), 1)), learner, half, jax.random.key(3))
    for one, other in zip(jax.tree.leaves(beside), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("memory", [None, GRU(6)])
def test_a_player_without_valid_rows_does_not_change_while_others_learn(memory, vmapped_keys):
    env = VectorEnv(Team(), 4)
    network = mlp(env, hidden=(8,)) if memory is None else dataclasses.replace(mlp(env, hidden=(8,)), memory=memory)
    agent = ppax.Independent(ppax.PPO(network, minibatch=Shuffle(2), optimizer=DECAYS, learning_rate=0.01), 3)
    learner, rollout = learned(agent, env, 4)
    moved = learn(agent, learner, without_rows(rollout, slice(1, None, 3)), jax.random.key(3)).learner
    of_player = lambda tree, i: jax.tree.map(lambda x: x[i], tree)  # noqa: E731
    rests = [all(same_bits(of_player(learner, i), of_player(moved, i))) for i in range(3)]
    assert rests == [False, True, False]


@pytest.mark.nightly
def test_a_group_without_valid_rows_does_not_change_while_the_other_learns():
    env = grouped(VectorEnv(Team(), 4), {"old": [0, 2], "young": [1]})
    agents = {
        name: ppax.PPO(mlp(env.groups[name], hidden=(8,)), minibatch=Shuffle(2), optimizer=DECAYS, learning_rate=0.01)
        for name in ("old", "young")
    }
    agent = ppax.Groups(agents, env.sizes)
    learner, rollout = learned(agent, env, 4)
    young = jnp.arange(rollout.last_value.shape[0]) % 3 == 2  # streams stand group by group in an environment
    moved = learn(agent, learner, without_rows(rollout, young), jax.random.key(3)).learner
    assert all(same_bits(learner["young"], moved["young"]))
    assert not all(same_bits(learner["old"].params, moved["old"].params))
