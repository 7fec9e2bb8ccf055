"""Terms of extensions in the loss: by hand, weights of rows, accumulation, players, run files; none costs nothing."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ppax
from ppax import config
from ppax.cli.options import add_train, parse_run
from ppax.core.protocols import PolicyTerms
from ppax.core.types import ConfigError, ForwardPass, LearnerState, part
from ppax.devices.layout import Program
from ppax.envs import VectorEnv
from ppax.extensions import Extension, FeatureNorm, Rows, Terms
from ppax.networks import mlp, network
from ppax.networks.memories import GRU
from ppax.ppo.extension import Chain
from ppax.ppo.losses import ClippedSurrogate, RowWeights, total_loss
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.training.collection import collect
from support.learned import extended
from support.loss_rows import Fixed, batch_of
from support.worlds import QUICK, SGD, Masked

FEATURES = {"actor": np.array([[1.0, 3.0], [0.0, 2.0], [4.0, 0.0]]), "critic": np.array([[2.0], [1.0], [3.0]])}
SQUARES = np.array([5.0 + 4.0, 2.0 + 1.0, 8.0 + 9.0])  # (1 + 9) / 2 + 4, and so on


@part
class Reads(Extension):
    """Terms that read parameters, features and the batch."""

    coef: float = 0.3

    def terms(self, rows):
        kernel = jnp.square(rows.learner.params["policy"]["kernel"]).sum()
        actor = jnp.square(rows.policy.features["actor"] - rows.batch.steps.reward[:, None]).sum(axis=1)
        return Terms({"one": self.coef * actor, "other": self.coef * kernel + 0.0 * actor}, {"actor": actor})


def rows_of(features, batch=None):
    """Rows of a loss with these features."""
    learner = LearnerState({}, (), None, None)
    return Rows(None, batch, ForwardPass((), None, None, None, features), learner, None, None, None)


def named(terms):
    """Arguments of the loss for the terms of extensions."""
    return {"further": terms.losses, "metrics": terms.metrics}


def loss_of(further, batch, vf_coef=0.5, ent_coef=0.1):
    rows = np.zeros(len(batch.targets.advantage), np.float32)
    terms = ClippedSurrogate()(Fixed(rows, rows), batch)
    return total_loss(terms, rows, Fixed(rows, rows), vf_coef=vf_coef, ent_coef=ent_coef, batch=batch, **named(further))


def test_feature_norm_is_the_mean_square_of_each_torso():
    terms = FeatureNorm(0.5).terms(rows_of(FEATURES))
    np.testing.assert_allclose(terms.losses["feature_norm_loss"], 0.5 * SQUARES)


def test_terms_are_means_over_valid_rows_by_their_importance():
    terms = FeatureNorm(0.5).terms(rows_of(FEATURES))
    batch = batch_of([0.0, 0.0, 0.0], valid=[True, False, True])
    loss, metrics = loss_of(terms, batch)
    np.testing.assert_allclose([loss, metrics["loss"], metrics["feature_norm_loss"]], 0.5 * (9.0 + 17.0) / 2)
    # rows without an allowed action count, as for the critic
    weights = RowWeights(policy=np.zeros(3), value=np.array([1.0, 5.0, 3.0]), acting=np.zeros(3))
    loss, _ = loss_of(terms, batch._replace(weights=weights))
    np.testing.assert_allclose(loss, 0.5 * (9.0 + 3.0 * 17.0) / 2)


def test_metrics_are_logged_and_not_added():
    rows = np.array([1.0, 2.0, 6.0], np.float32)
    loss, metrics = loss_of(Terms({"a": rows, "b": 2.0 * rows}, {"c": 3.0 * rows}), batch_of(np.zeros(3)))
    np.testing.assert_allclose([loss, metrics["a"], metrics["b"], metrics["c"]], [9.0, 3.0, 6.0, 9.0])


@pytest.mark.parametrize("name", ["loss", "value_loss", "approx_kl", "clip_fraction", "ratio_max"])
def test_a_name_that_is_taken_is_refused(name):
    rows = np.zeros(3)
    for terms in (Terms({name: rows}), Terms({}, {name: rows})):
        with pytest.raises(ConfigError, match=f"the metric '{name}' exists already; give the term .* another name"):
            loss_of(terms, batch_of(rows))


@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        ((), r"jnp\.full\(batch\.steps\.valid\.shape, mine\)"),
        ((2,), r"jnp\.full"),
        ((3, 2), r"mine\.reshape\(3, -1\)\.mean\(axis=-1\)"),
    ],
)
@pytest.mark.parametrize("place", ["losses", "metrics", "policy"])
def test_a_term_that_is_not_per_row_is_refused(shape, remedy, place):
    batch, rows, x = batch_of(np.zeros(3)), np.zeros(3, np.float32), {"mine": np.zeros(shape, np.float32)}
    terms = Terms({} if place != "losses" else x, {} if place != "metrics" else x)
    policy = PolicyTerms(rows, rows, x if place == "policy" else {})
    slot = "loss" if place == "policy" else "extensions"
    said = rf"agent\.{slot}: its term 'mine' has shape {re.escape(str(list(shape)))}, .* each row, \[3\]: .*{remedy}"
    with pytest.raises(ConfigError, match=said):
        total_loss(policy, rows, Fixed(rows, rows), vf_coef=0.5, ent_coef=0.0, batch=batch, **named(terms))


@pytest.mark.parametrize(
    ("value", "entropy", "shown", "place"),
    [
        (np.zeros((3, 1)), np.zeros(3), {}, r"agent\.critic: its term 'value_loss' has shape \[3, 1\]"),
        (np.zeros(3), np.float32(0), {}, r"agent\.network\.distribution: its term 'entropy' has shape \[\]"),
        (
            np.zeros(3),
            np.zeros(3),
            {"std": np.zeros(1)},
            r"agent\.network\.distribution: its term 'std' has shape \[1\]",
        ),
    ],
)
def test_the_part_whose_term_is_not_per_row_is_named(value, entropy, shown, place):
    class Own(Fixed):
        def metrics(self):
            return shown

    rows = np.zeros(3, np.float32)
    rest = {"vf_coef": 0.5, "ent_coef": 0.0, "further": {}, "metrics": {}}
    with pytest.raises(ConfigError, match=place):
        total_loss(PolicyTerms(rows, rows), value, Own(rows, entropy), batch=batch_of(rows), **rest)


def test_a_metric_of_the_distribution_does_not_replace_one_of_the_loss():
    class Own(Fixed):
        def metrics(self):
            return {"mine": rows}

    rows = np.zeros(3, np.float32)
    rest = {"vf_coef": 0.5, "ent_coef": 0.0, "further": {}, "metrics": {}}
    with pytest.raises(ConfigError, match="the metric 'mine' exists already"):
        total_loss(PolicyTerms(rows, rows, {"mine": rows}), rows, Own(rows, rows), batch=batch_of(rows), **rest)


def test_no_extension_is_not_in_the_program():
    batch = batch_of(np.zeros(3))

    def size(*extensions):
        def loss(features):
            return loss_of(Chain(extensions).terms(rows_of(features, batch)), batch)

        return len(jax.make_jaxpr(loss)(FEATURES).jaxpr.eqns)

    plain = len(jax.make_jaxpr(lambda x: loss_of(Terms({}), batch))(FEATURES).jaxpr.eqns)
    assert size() == size(Extension()) == plain < size(FeatureNorm())


ENV = VectorEnv(Masked(), 6)


@functools.cache
def world(memory, seq_len):
    net = network(ENV, hidden=(6,), memory=GRU(5)) if memory else mlp(ENV, hidden=(6,))
    agent = ppax.PPO(net, minibatch=Shuffle(2), num_epochs=2, learning_rate=0.01, seq_len=seq_len)
    state = ppax.start(agent, ENV, 12, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    return agent, state.learner, gather(agent, ENV, state.learner, state.actor, 12, jax.random.key(1)).rollout


def updated(agent, learner, rollout):
    return jax.jit(agent.update, compiler_options=QUICK)(learner, rollout, jax.random.key(2))


@pytest.mark.parametrize(
    ("memory", "minibatch"), [(False, Prioritised(num_minibatches=2)), (True, Shuffle(2, remainder="pad"))]
)
def test_gradient_accumulation_does_not_change_it(memory, minibatch):
    agent, learner, rollout = world(memory, 4 if memory else None)
    agent = dataclasses.replace(agent, minibatch=minibatch)
    plain = updated(agent, learner, rollout)
    agent, learner, rollout = extended(agent, learner, rollout, Reads())
    assert not rollout.steps.valid.all()
    whole = updated(dataclasses.replace(agent, program=Program(1, 10**6)), learner, rollout)
    chunks = updated(dataclasses.replace(agent, program=Program(1, 5)), learner, rollout)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(chunks), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5, rtol=1e-4)
    pairs = zip(jax.tree.leaves(plain.learner.params), jax.tree.leaves(whole.learner.params), strict=True)
    assert max(np.abs(a - b).max() for a, b in pairs) > 1e-3  # else agreement would mean little


@pytest.mark.parametrize("memory", [False, True])
def test_features_are_the_input_of_decide(memory):
    """One step of plain gradient descent on their mean square alone, with rate 1: p - d mean square / d p."""
    agent, _, rollout = world(memory, 12)
    own = {"optimizer": SGD(), "max_grad_norm": None, "learning_rate": 1.0, "num_epochs": 1, "minibatch": Shuffle(1)}
    agent = dataclasses.replace(agent, extensions=(FeatureNorm(1.0),), vf_coef=0.0, normalize_advantage="off", **own)
    learner, nothing = agent.init(ENV.observation_space, jax.random.key(3)), jnp.zeros_like(rollout.steps.value)
    obs = jax.random.normal(jax.random.key(4), rollout.steps.obs.shape)  # the environment's own are 0
    steps = dataclasses.replace(rollout.steps, obs=obs, reward=nothing, value=nothing)  # all advantages are 0
    rollout = rollout._replace(steps=steps, last_value=nothing[0], extensions={"feature_norm": ()})
    after = updated(agent, learner, rollout).learner.params
    net = agent.network

    def mean_square(params):
        def of_stream(obs, first):  # the rollout begins with an episode
            encoded = jax.vmap(net.encode, (None, 0))(params, obs)
            return net.remember(params, net.initial_carry(), encoded, first).features

        features = jax.tree.leaves(jax.vmap(of_stream, 1, 1)(steps.obs, steps.first))
        return sum(jnp.square(x).mean(axis=-1)[steps.valid].mean() for x in features)

    gradient = jax.grad(mean_square)(learner.params)
    assert optax.tree.norm(gradient) > 0.1
    wanted = jax.tree.map(lambda p, g: p - g, learner.params, gradient)
    for one, other in zip(jax.tree.leaves(after), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    ("made", "tables"), [((FeatureNorm(0.25),), {"feature_norm": {"part": "feature_norm", "coef": 0.25}}), ((), {})]
)
def test_a_run_file_chooses_it(made, tables):
    agent = config.build({"agent": {"extensions": tables}}).agent
    assert agent.extensions == made
    assert config.describe(agent)["extensions"] == (tables or [])


def test_a_command_line_chooses_it():
    line = ["CartPole-v1", "--agent.extensions", "feature_norm", "--agent.extensions.feature_norm.coef", "0.125"]
    assert config.build(parse_run("train", line, add_train)[1]).agent.extensions == (FeatureNorm(0.125),)
    assert config.build({}).agent.extensions == ()


def test_each_player_may_have_a_weight_of_its_own(vmapped_keys):
    env = ppax.make("Pursuit-2", 4)
    options = {"minibatch": Shuffle(2), "num_epochs": 1, "extensions": (FeatureNorm(np.array([0.0, 1.0])),)}
    agent = ppax.Independent(ppax.PPO(network(env, hidden=(4,)), **options), 2)
    state = ppax.start(agent, env, 8, jax.random.key(0))
    metrics = jax.jit(ppax.train, static_argnums=3, compiler_options=QUICK)(agent, env, state, 1).metrics
    assert float(metrics["feature_norm_loss/agent_0"]) == 0.0 < float(metrics["feature_norm_loss/agent_1"])
