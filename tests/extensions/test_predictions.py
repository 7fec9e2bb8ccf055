"""Predictions in training: loss and gradient in float64 by differences, learning with shuffled targets as a control."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.arrays.sequences import to_rows
from ppax.cli.options import add_train, parse_run
from ppax.config import Log
from ppax.core.types import ConfigError, EnvReset, EnvStep, LearnerState, part, static
from ppax.envs import TimeLimit, VectorEnv, builtin, grouped
from ppax.extensions import Extension, NextObservation, SelfPrediction
from ppax.extensions.next_observations import following_in_episode
from ppax.extensions.predictions import number_leaves, numbers_of
from ppax.networks import network
from ppax.networks.memories import GRU
from ppax.ppo.extension import Chain
from ppax.ppo.forward import example_of
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.optimizers import ActorCritic
from ppax.training.collection import collect
from support.worlds import QUICK, SGD

SHORT = VectorEnv(TimeLimit(builtin.CartPole(), 5), 3)  # an episode ends in each rollout of 8 steps
# wide enough that no row has all units of the hidden layer off: the cosine of zeros is not defined
BOTH = pytest.mark.parametrize("loss", [SelfPrediction(0.5, (8,)), NextObservation(0.5, (8,))])


def gathered(env, num_steps, **options):
    """Agent of plain gradient descent with rate 1, its learner, and a rollout."""
    net = network(env, hidden=(5,), **({"memory": options.pop("memory")} if "memory" in options else {}))
    plain = {"optimizer": SGD(), "max_grad_norm": None, "learning_rate": 1.0, "num_epochs": 1, "minibatch": Shuffle(1)}
    agent = ppax.PPO(net, **(plain | options))
    state = ppax.start(agent, env, num_steps, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    return agent, state.learner, gather(agent, env, state.learner, state.actor, num_steps, jax.random.key(1)).rollout


def model_of(learner):
    """Parameters of the prediction in a learner with one extension."""
    (own,) = learner.extensions.values()
    return own.params


def flat(tree):
    return np.concatenate([np.asarray(x, np.float64).reshape(-1) for x in jax.tree.leaves(tree)])


def in_float64(loss, params, own, frozen, steps, after):
    """Loss of the rows in NumPy: one hidden layer of tanh in actor and critic, one of relu in the model."""

    def features(params, obs):
        towers = (params[name]["0"] for name in ("actor", "critic"))
        return [np.tanh(obs @ tower["kernel"] + tower["bias"]) for tower in towers]

    choice = np.eye(2)[np.asarray(steps.action)]
    inputs = np.concatenate([*features(params, np.asarray(steps.obs, np.float64)), choice], axis=-1)
    hidden = np.maximum(inputs @ own["0"]["kernel"] + own["0"]["bias"], 0.0)
    outputs = hidden @ own["kernel"] + own["bias"]
    if isinstance(loss, NextObservation):
        error = ((outputs - after) ** 2).mean(-1)
    else:
        cosines = [
            (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
            for x, y in zip((outputs[..., :5], outputs[..., 5:]), features(frozen, after), strict=True)
        ]
        error = 1.0 - np.mean(cosines, axis=0)
    return 0.5 * error[np.asarray(steps.valid)].mean()


@BOTH
def test_loss_and_gradient_are_those_of_float64(loss):
    """The gradient is that of differences, with the target's parameters held; PPO's own is taken off."""
    agent, learner, rollout = gathered(SHORT, 8, extensions=(loss,))
    assert rollout.steps.truncated.any()
    update = jax.jit(lambda agent, learner: agent.update(learner, rollout, jax.random.key(2)), compiler_options=QUICK)
    after = update(agent, learner)
    without = dataclasses.replace(agent, extensions=())
    moments = without.init(SHORT.observation_space, jax.random.key(0)).opt_state
    plain = update(without, learner._replace(extensions={}, opt_state=moments))
    double = lambda tree: jax.tree.map(lambda x: np.asarray(x, np.float64), tree)  # noqa: E731
    params, own, steps = *map(double, (learner.params, model_of(learner))), rollout.steps
    obs = np.concatenate([steps.obs, rollout.last_obs[None]]).astype(np.float64)[1:]
    # rows after a reset are no targets: the first observation of the next episode stands two rows on
    value = lambda params, own: in_float64(loss, params, own, double(learner.params), steps, obs)  # noqa: E731
    name = "self_prediction_loss" if isinstance(loss, SelfPrediction) else "next_observation_loss"
    np.testing.assert_allclose(after.metrics[name], value(params, own), rtol=1e-4)
    leaves, structure = jax.tree.flatten((params, own))
    slopes = []
    for i, leaf in enumerate(leaves):
        for place in np.ndindex(leaf.shape):
            ends = []
            for change in (1e-5, -1e-5):
                moved = [x.copy() for x in leaves]
                moved[i][place] += change
                ends.append(value(*jax.tree.unflatten(structure, moved)))
            slopes.append((ends[0] - ends[1]) / 2e-5)
    change = flat(plain.learner.params) - flat(after.learner.params), flat(own) - flat(model_of(after.learner))
    assert np.abs(change[0]).max() > 1e-3
    np.testing.assert_allclose(np.concatenate(change), slopes, atol=2e-5)


# ---------------------------------------------------------------- learning


@part
class Ring:
    """Six places on a ring, seen as fixed vectors; an action moves by one place. Without a reward all stay likely."""

    pays: float = static(default=0.0)  # for place 0

    observation_space = spaces.Dict({"seen": spaces.Box(-5.0, 5.0, (4,)), "bias": spaces.Box(-1.0, 1.0, (1,))})
    action_space = spaces.Discrete(2)
    num_agents = None

    def seen(self, place):
        return {"seen": jax.random.normal(jax.random.key(7), (6, 4))[place], "bias": jnp.ones(1)}

    def reset(self, key):
        place = jax.random.randint(key, (), 0, 6)
        return EnvReset(place, self.seen(place))

    def step(self, state, action, key):
        place = (state + 2 * action - 1) % 6
        reward, over = (place == 0) * jnp.float32(self.pays), jnp.zeros((), bool)
        return EnvStep(place, self.seen(place), reward, over, over)


@part
class Shuffled(Extension):
    """Prediction of another row's next observation."""

    loss: NextObservation | SelfPrediction = static(default=None)

    def init(self, agent, observation_space, key):
        return self.loss.init(agent, observation_space, key)

    def before(self, agent, state, streams, rollout, reward):
        out = self.loss.before(agent, state, streams, rollout, reward)
        after = out.extras
        order = jax.random.permutation(jax.random.key(3), after.known.size)
        mixed = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[order].reshape(x.shape), after.obs)
        return out._replace(extras=after._replace(obs=mixed))

    def terms(self, rows):
        return self.loss.terms(rows)


RING = VectorEnv(TimeLimit(Ring(), 7), 16)
PAYING = VectorEnv(TimeLimit(Ring(1.0), 7), 16)


def learned(loss, env=RING, iterations=40, **options):
    net = network(env, hidden=(32,), memory=options.pop("memory", network(env).memory))
    agent = ppax.PPO(net, extensions=(loss,), learning_rate=3e-3, ent_coef=0.05, minibatch=Shuffle(4), **options)
    state = ppax.start(agent, env, 32, jax.random.key(0))
    return agent, *jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, iterations)


@pytest.mark.parametrize("memory", [None, pytest.param(GRU(16), marks=pytest.mark.nightly)])
def test_the_next_observation_is_learned_and_shuffled_ones_are_not(memory):
    options = {} if memory is None else {"memory": memory, "seq_len": 8}

    def error(loss):
        """Error of the prediction, and of the mean observation."""
        agent, state, *_ = learned(loss, **options)
        rollout = collect(agent, RING, state.learner, state.actor, 32, jax.random.key(5)).rollout
        metrics = agent.update(state.learner, rollout, jax.random.key(6)).metrics
        after = following_in_episode(rollout)
        seen = np.asarray(after.obs["seen"])[np.asarray(after.known)]
        return float(metrics["next_observation_loss"]) / 0.5, seen.var(axis=0).sum() / 5  # the fifth number is constant

    right, wrong = error(NextObservation(0.5)), error(Shuffled(loss=NextObservation(0.5), name="next_observation"))
    print(right, wrong)
    assert right[1] > 0.1
    assert right[0] < 0.1 * right[1]
    assert wrong[0] > 0.7 * wrong[1]


def test_features_are_learned_and_shuffled_ones_are_not():
    """Distance of the prediction and that of the mean direction of the features, which have not collapsed."""

    def distances(loss):
        agent, state, *_ = learned(loss, PAYING)
        rollout = collect(agent, PAYING, state.learner, state.actor, 32, jax.random.key(5)).rollout
        metrics = agent.update(state.learner, rollout, jax.random.key(6)).metrics
        obs = to_rows(jax.tree.map(lambda x: x[1:], rollout.steps.obs))
        features = jax.vmap(agent.network.encode, (None, 0))(state.learner.params, obs)
        units = [np.asarray(x / jnp.linalg.norm(x, axis=1, keepdims=True)) for x in features.values()]
        means = [x.mean(0) / np.linalg.norm(x.mean(0)) for x in units]
        baseline = np.mean([1.0 - (x @ y).mean() for x, y in zip(units, means, strict=True)])
        return float(metrics["self_prediction_loss"]) / 0.5, baseline

    right, wrong = distances(SelfPrediction(0.5)), distances(Shuffled(loss=SelfPrediction(0.5)))
    print(right, wrong)
    assert right[1] > 0.05
    assert right[0] < 0.3 * right[1]
    assert wrong[0] > 0.7 * wrong[1]


# ---------------------------------------------------------------- agents and runs

ALIKE = ppax.make("Pursuit-2", 4)
GROUPED = grouped(ALIKE, {"prey": [0], "hunters": [1]})


def agent_of(env, loss, **options):
    return ppax.PPO(network(env, hidden=(4,)), extensions=(loss,), minibatch=Shuffle(2), num_epochs=2, **options)


@BOTH
@pytest.mark.parametrize(
    "kind", [pytest.param("Independent", marks=pytest.mark.nightly), pytest.param("Groups", marks=pytest.mark.nightly)]
)
def test_every_agent_trains_with_it(kind, loss):
    agent, env = ppax.Independent(agent_of(ALIKE, loss), 2), ALIKE
    if kind == "Groups":
        env = GROUPED
        agent = ppax.Groups({name: agent_of(one, loss) for name, one in env.groups.items()}, env.sizes)
    with jax.debug_key_reuse(False):
        state = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, 8, jax.random.key(0))
        after, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 2)
    assert int(after.iteration) == 2
    assert float(metrics["ratio_first_max_dev"]) < 1e-6
    is_learner = lambda node: isinstance(node, LearnerState)  # noqa: E731
    for one, other in zip(*(jax.tree.leaves(x.learner, is_leaf=is_learner) for x in (state, after)), strict=True):
        pairs = zip(jax.tree.leaves(model_of(one)), jax.tree.leaves(model_of(other)), strict=True)
        assert all((np.asarray(x) != y).any() for x, y in pairs)
        assert jax.tree.structure(one.params) == jax.tree.structure(other.params)


def test_an_optimiser_of_actor_and_critic_trains_the_model_with_the_actor():
    agent = agent_of(SHORT, NextObservation(), optimizer=ActorCritic(actor_scale=0.0))
    state = ppax.start(agent, SHORT, 8, jax.random.key(0))
    after, _ = jax.jit(ppax.train, compiler_options=QUICK)(agent, SHORT, state, 1)
    assert (flat(model_of(after.learner)) == flat(model_of(state.learner))).all()
    assert (flat(after.learner.params["critic"]) != flat(state.learner.params["critic"])).any()


def test_a_name_that_the_network_has_is_refused():
    learner = agent_of(SHORT, SelfPrediction()).init(SHORT.observation_space, jax.random.key(0))
    with pytest.raises(ConfigError, match=r"self_prediction has parameters; those .*without the name 'extensions'"):
        Chain((SelfPrediction(),)).trained(learner._replace(params={"extensions": {}}))


@BOTH
def test_a_resumed_run_equals_an_uninterrupted_one_and_policies_have_no_model(tmp_path, loss):
    agent, log = agent_of(SHORT, loss), Log(every=1, checkpoint_seconds=0.0, console=False)
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 2]}
    whole = ppax.fit(agent, SHORT, 4 * 24, num_steps=8, log=log, run_dir=tmp_path / "whole")
    ppax.fit(agent, SHORT, 4 * 24, num_steps=8, log=log, run_dir=tmp_path / "half", **stop)
    resumed = ppax.resume(tmp_path / "half", agent, SHORT, console=False)
    assert (flat(model_of(whole.state.learner)) == flat(model_of(resumed.state.learner))).all()
    for x, y in zip(*(jax.tree.leaves(run.state.learner) for run in (whole, resumed)), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    policy = ppax.load(tmp_path / "whole")
    assert policy.learner.extensions == {}
    assert "extensions" not in policy.learner.params
    assert policy.act(np.zeros(4, np.float32)) in (0, 1)


@pytest.mark.parametrize(("name", "cls"), [("self_prediction", SelfPrediction), ("next_observation", NextObservation)])
def test_run_files_and_the_command_line_choose_it(name, cls):
    agent = config.build({"agent": {"extensions": {name: {"coef": 0.25, "hidden": [8]}}}}).agent
    assert agent.extensions == (cls(coef=0.25, hidden=(8,)),)
    assert config.describe(agent)["extensions"][name]["part"] == name
    line = ["CartPole-v1", "--agent.extensions", name, f"--agent.extensions.{name}.coef", "0.125"]
    assert config.build(parse_run("train", line, add_train)[1]).agent.extensions == (cls(coef=0.125),)


def test_without_a_model_nothing_is_added():
    _, learner, rollout = gathered(SHORT, 8)
    assert learner.extensions == {}
    chain = Chain(())
    assert chain.before(None, learner, rollout, rollout.steps.reward).steps is rollout.steps
    assert chain.trained(learner) is learner.params
    assert chain.with_trained(learner, learner.params) == learner


@pytest.mark.parametrize("normalize_obs", [False, True])
def test_categories_are_no_targets_with_normalised_observations_either(normalize_obs):
    """Normalisation makes floating point of MultiBinary, whose numbers have no output in the predictor."""
    spaced = spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (1,)), "kind": spaces.MultiBinary(2)})
    inputs = {"kind": jnp.zeros(2), "x": jnp.zeros(1)} if normalize_obs else example_of(spaced)
    assert [x.shape for x in number_leaves(numbers_of(spaced), inputs)] == [(1,)]


def test_whole_numbers_of_a_box_are_predicted():
    space = spaces.Dict({"count": spaces.Box(0, 10, (3,), np.int32), "x": spaces.Box(-1.0, 1.0, (1,))})
    places = numbers_of(space)
    got = number_leaves(places, {"count": jnp.array([[1, 2, 3]]), "x": jnp.array([[0.5]])})
    assert [x.dtype for x in got] == [jnp.float32] * 2
    np.testing.assert_array_equal(jnp.concatenate(got, axis=1), [[1.0, 2.0, 3.0, 0.5]])
