"""Critic warm-up: the actor's weights stay bit for bit until the given step, and learn from then on."""

import jax
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.core.types import ConfigError
from ppax.devices.layout import Program
from ppax.extensions import PPG, CriticWarmup, EntropyTarget, KLControl
from ppax.networks import mlp
from ppax.ppo.losses import KLPenalty
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.optimizers import ActorCritic
from support.worlds import QUICK

ENV = ppax.make("CartPole-v1", 4)
PARTS = {"actor": ("actor", "policy"), "critic": ("critic", "value")}


def agent_of(**options):
    given = {"optimizer": ActorCritic(), "minibatch": Shuffle(2), "num_epochs": 2} | options
    return ppax.PPO(mlp(ENV, hidden=(4,)), **given)


def iterations(agent, count=4):
    """Learner before and after each iteration of 4 x 8 steps, with its metrics and env_steps before it."""
    state = ppax.start(agent, ENV, 8, jax.random.key(0))
    train = jax.jit(ppax.train, compiler_options=QUICK)
    for _ in range(count):
        before = jax.device_get((state.learner, state.env_steps))
        state, metrics = train(agent, ENV, state, 1, count)
        yield *before, jax.device_get(state.learner), metrics


def moved(before, after, names):
    """Return whether a weight of these parts of the network has changed."""
    pairs = zip(*(jax.tree.leaves([one.params[name] for name in names]) for one in (before, after)), strict=True)
    return any((x != y).any() for x, y in pairs)


@pytest.mark.parametrize("devices", [1, 2])
def test_the_actor_starts_when_the_steps_are_over(devices):
    """Steps 60 lie in the second rollout: the third update is the first of the actor."""
    frozen, alone = [], []
    for before, env_steps, after, metrics in iterations(
        agent_of(extensions=(CriticWarmup(60.0),), program=Program(devices=devices))
    ):
        frozen.append(float(metrics["actor_frozen"]))
        alone.append(not moved(before, after, PARTS["actor"]))
        assert frozen[-1] == float(int(np.sum(env_steps)) < 60)
        assert moved(before, after, PARTS["critic"])
        if frozen[-1]:
            assert float(metrics["ratio_max"]) == pytest.approx(1.0, abs=1e-6)
    assert frozen == [1.0, 1.0, 0.0, 0.0]
    assert alone == [True, True, False, False]


def test_the_actors_first_step_is_that_of_a_new_optimiser():
    """Adam's first step has the size of the learning rate in each weight, whatever the gradients before it were."""
    one_step = {"minibatch": Shuffle(1), "num_epochs": 1, "max_grad_norm": None, "learning_rate": 1e-3}
    rows = [*iterations(agent_of(extensions=(CriticWarmup(20.0),), **one_step), 2)]
    before, _, after, _ = rows[1]
    change = np.abs(after.params["policy"]["kernel"] - before.params["policy"]["kernel"])
    assert 0.9e-3 < np.median(change) <= 1.001e-3


def test_without_steps_training_is_that_of_ppo_alone():
    plain, warmed = ([*iterations(agent_of(extensions=x), 2)][-1] for x in ((), (CriticWarmup(),)))
    jax.tree.map(np.testing.assert_array_equal, plain[2].params, warmed[2].params)


def test_one_optimiser_for_both_is_refused():
    with pytest.raises(
        ConfigError, match=r"critic_warmup: Adam takes the steps of actor and critic together.*actor_critic"
    ):
        agent_of(optimizer=ppax.optimizers.Adam(), extensions=(CriticWarmup(10.0),)).init(
            ENV.observation_space, jax.random.key(0)
        )


def test_a_phase_that_trains_the_actor_is_refused():
    with pytest.raises(ConfigError, match="critic_warmup: a phase of the extension ppg would change the actor"):
        agent_of(extensions=(CriticWarmup(10.0), PPG())).init(ENV.observation_space, jax.random.key(0))


def test_a_run_file_has_it_and_a_negative_number_is_refused():
    plan = {"env": "CartPole-v1", "agent": {"optimizer": {"part": "actor_critic"}}}
    table = {"critic_warmup": {"steps": 50_000}}
    agent = config.build(plan | {"agent": plan["agent"] | {"extensions": table}}).agent
    assert agent.extensions == (CriticWarmup(50_000.0),)
    with pytest.raises(ConfigError, match=r"critic_warmup\.steps = -1.*nearest valid value: 0"):
        config.build(plan | {"agent": plan["agent"] | {"extensions": {"critic_warmup": {"steps": -1}}}})


def test_coefficients_do_not_adapt_to_an_actor_that_is_frozen():
    """Its KL is 0 and its entropy constant: the penalty would vanish, and the entropy coefficient run away."""
    extensions = (CriticWarmup(60.0), KLControl(coef_target=0.01), EntropyTarget(target=0.3))
    agent = agent_of(loss=KLPenalty(), ent_coef=0.01, extensions=extensions)
    shown = [metrics for *_, metrics in iterations(agent)]
    for place, metrics in enumerate(shown):
        same = [float(metrics[name]) == pytest.approx(value) for name, value in (("kl_coef", 1.0), ("ent_coef", 0.01))]
        assert same == [place < 2] * 2, place
