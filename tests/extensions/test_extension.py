"""Extensions and their chain: order, names, states, what each hook changes, and that one without hooks is nothing."""

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.core.types import ConfigError, LearnerState, Rollout, Targets, part
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.extensions import RND, Acted, After, Before, Extension, ExtensionState, FeatureNorm, Observed, Terms
from ppax.networks import mlp
from ppax.ppo.extension import Chain, name_of
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import collect
from support.learned import extended
from support.worlds import QUICK, SGD

SHORT = VectorEnv(TimeLimit(builtin.CartPole(), 5), 3)  # an episode ends in each rollout of 8 steps
ONE_STEP = {"optimizer": SGD(), "max_grad_norm": None, "num_epochs": 1, "minibatch": Shuffle(1)}
SMALL = RND(embedding=3, hidden=(3,), predictor_hidden=(3,))
EMPTY = LearnerState({}, (), None, None)


@functools.cache
def plain():
    """Agent without extensions that takes one gradient step, its learner, and a rollout with rows that are invalid."""
    agent = ppax.PPO(mlp(SHORT, hidden=(4,)), **ONE_STEP)
    state = ppax.start(agent, SHORT, 8, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    rollout = gather(agent, SHORT, state.learner, state.actor, 8, jax.random.key(1)).rollout
    assert not rollout.steps.valid.all()
    return agent, state.learner, rollout


def updated(agent, learner, rollout):
    return jax.jit(agent.update, compiler_options=QUICK)(learner, rollout, jax.random.key(2))


def shapes(*extensions, **changed):
    """Shapes of an update with these extensions; tracing alone finds what is refused."""
    agent, _, rollout = plain()
    agent = dataclasses.replace(agent, extensions=extensions, **changed)
    learner = agent.init(SHORT.observation_space, jax.random.key(0))
    rollout = rollout._replace(extensions=agent.init_streams(3))
    return jax.eval_shape(agent.update, learner, rollout, jax.random.key(2))


def leaves_equal(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return [bool((np.asarray(x) == np.asarray(y)).all()) for x, y in pairs]


# ---------------------------------------------------------------- order and names


@part
class Affine(Extension):
    """Hooks that multiply, then add: the order of two such is seen in every result."""

    factor: float = 1.0
    more: float = 0.0

    def move(self, x):
        return self.factor * x + self.more

    def before(self, agent, state, streams, rollout, reward):
        return Before(state, self.move(reward))

    def targets(self, targets, extras):
        return Targets(self.move(targets.advantage), targets.value)

    def adapt(self, agent, inner):
        return dataclasses.replace(agent, learning_rate=self.move(agent.learning_rate))

    def act(self, agent, acting, choice, key):
        return Acted(acting, self.move(choice.action))

    def after(self, agent, learner, state, inner, learned):
        return After(learner._replace(params=self.move(learner.params)), state)


TWICE, PLUS = Affine(2.0, name="twice"), Affine(1.0, 1.0, name="plus")


@pytest.mark.parametrize(("order", "wanted"), [((TWICE, PLUS), 7.0), ((PLUS, TWICE), 8.0)])
def test_hooks_are_called_in_the_order_of_the_tuple(order, wanted):
    """From 3: twice and one more is 7, one more and twice is 8."""
    chain, states = Chain(order), {"twice": ExtensionState(), "plus": ExtensionState()}
    learner = EMPTY._replace(params=jnp.float32(3.0), extensions=states)
    rollout = Rollout(SimpleNamespace(extras=()), None, None, extensions={"twice": (), "plus": ()})
    assert chain.before(None, learner, rollout, jnp.full((2, 2), 3.0)).reward.tolist() == [[wanted] * 2] * 2
    assert chain.targets(Targets(3.0, 5.0), SimpleNamespace(extras=())) == Targets(wanted, 5.0)
    inner = chain.begin(learner)
    assert chain.adapt(ppax.PPO(None, learning_rate=3.0), inner).learning_rate == wanted
    learned = SimpleNamespace(metrics=ppax.arrays.metrics.Table({}), _replace=lambda **changed: None)
    finished = chain.after(None, learner, inner, learned, ppax.arrays.metrics.Table({}))
    assert finished.learner.params == wanted


def test_names_are_those_of_classes_in_words_or_given():
    assert [name_of(x) for x in (SMALL, FeatureNorm(), Affine(), TWICE)] == ["rnd", "feature_norm", "affine", "twice"]


def test_the_same_class_twice_has_two_states_keys_and_metrics():
    agent, *_ = plain()
    both = dataclasses.replace(agent, extensions=(SMALL, dataclasses.replace(SMALL, name="second")))
    learner = both.init(SHORT.observation_space, jax.random.key(0))
    heads = [learner.extensions[name].state.predictor["head"]["kernel"] for name in ("rnd", "second")]
    assert (heads[0] != heads[1]).all()
    keys = [jax.random.key_data(learner.extensions[name].state.key).tolist() for name in ("rnd", "second")]
    assert keys[0] != keys[1]
    # the key of an extension depends on its name, not on its place, nor on others
    alone = dataclasses.replace(agent, extensions=(dataclasses.replace(SMALL, name="second"),))
    found = alone.init(SHORT.observation_space, jax.random.key(0)).extensions["second"].state
    assert all(leaves_equal(found._replace(key=()), learner.extensions["second"].state._replace(key=())))
    assert set(both.init_streams(3)) == {"rnd", "second"}
    update = shapes(*both.extensions)
    assert {"intrinsic_reward", "second_intrinsic_reward", "predictor_loss", "second_predictor_loss"} <= set(
        update.metrics
    )
    assert set(update.extensions) == set(update.learner.extensions) == {"rnd", "second"}


def test_two_of_one_name_are_refused():
    said = r'extensions: two are named rnd; give one another name, RND\(name="rnd_2"\)'
    with pytest.raises(ConfigError, match=said):
        Chain((SMALL, FeatureNorm(), RND(coef=1.0)))
    agent, *_ = plain()
    with pytest.raises(ConfigError, match=said):
        ppax.start(dataclasses.replace(agent, extensions=(SMALL, SMALL)), SHORT, 8, jax.random.key(0))


# ---------------------------------------------------------------- hooks that do nothing


def test_an_extension_without_hooks_adds_nothing_to_the_program():
    agent, learner, rollout = plain()
    texts = []
    for extensions in ((), (Extension(),), (Extension(), Extension(name="other"))):
        one, *given = extended(agent, learner, rollout, *extensions)
        inputs = one.start_carry(3), rollout.steps.obs[0], rollout.steps.first[0], None, jax.random.key(0)
        act = jax.make_jaxpr(one.act)(given[0], *inputs)
        texts.append((str(jax.make_jaxpr(one.update)(*given, jax.random.key(2))), str(act)))
    assert texts[0] == texts[1] == texts[2]
    some, *given = extended(agent, learner, rollout, FeatureNorm())
    assert str(jax.make_jaxpr(some.update)(*given, jax.random.key(2))) != texts[0][0]


# ---------------------------------------------------------------- hooks inside an update


@part
class Gate(Extension):
    """Early stop before the first gradient step, unless the state is true."""

    def begin(self, state):
        return state

    def observe(self, agent, inner, metrics, acts):
        return Observed(inner, inner, {"gate": inner.astype(jnp.float32)})


def test_a_gradient_step_that_does_not_proceed_leaves_parameters_and_optimiser():
    agent, learner, rollout = plain()
    agent = dataclasses.replace(agent, optimizer=ppax.optimizers.Adam(), num_epochs=2)
    learner = agent.init(SHORT.observation_space, jax.random.key(0))
    agent, learner, rollout = extended(agent, learner, rollout, Extension(), Gate(), Extension(name="last"))
    update = jax.jit(agent.update, compiler_options=QUICK)
    outs = {}
    for proceeds in (False, True):
        states = learner.extensions | {"gate": ExtensionState(jnp.bool_(proceeds))}
        outs[proceeds] = update(learner._replace(extensions=states), rollout, jax.random.key(2))
    assert all(leaves_equal(outs[False].learner[:2], learner[:2]))
    assert not any(leaves_equal(outs[True].learner.params["policy"], learner.params["policy"]))
    assert int(jax.tree.leaves(outs[True].learner.opt_state)[0]) == 2
    assert [float(outs[proceeds].metrics["gate"]) for proceeds in (False, True)] == [0.0, 1.0]
    assert float(outs[False].metrics["grad_norm"]) > 0.0


@part
class Changes(Extension):
    """Value coefficient and learning rate from the state: `first` in the loss, `then` from its observation on."""

    first: float = 1.0
    then: float = 1.0

    def begin(self, state):
        return jnp.float32(self.first)

    def adapt(self, agent, inner):
        return dataclasses.replace(agent, vf_coef=agent.vf_coef * inner, learning_rate=agent.learning_rate * inner)

    def observe(self, agent, inner, metrics, acts):
        return Observed(jnp.float32(self.then))


def test_numbers_are_those_of_the_loss_and_then_of_the_optimiser():
    """With 3 in the loss and 5 in the step, the result is that of an agent with these numbers."""
    agent, learner, rollout = plain()
    agent = dataclasses.replace(agent, learning_rate=0.01)
    changed = updated(*extended(agent, learner, rollout, Changes(3.0, 5.0)))
    wanted = updated(dataclasses.replace(agent, vf_coef=1.5, learning_rate=0.05), learner, rollout)
    np.testing.assert_allclose(changed.metrics["loss"], wanted.metrics["loss"], rtol=1e-6)
    np.testing.assert_allclose(changed.metrics["grad_norm"], wanted.metrics["grad_norm"], rtol=1e-5)
    np.testing.assert_allclose(changed.metrics["learning_rate"], 0.05, rtol=1e-6)
    moved = []
    trees = changed.learner.params, wanted.learner.params, learner.params
    for x, y, z in zip(*map(jax.tree.leaves, trees), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
        moved.append(np.abs(x - z).max())
    assert max(moved) > 1e-3


@part
class Fits(Extension):
    """Trained number with the loss 3 (w - 2)^2, from w = 5."""

    def init(self, agent, observation_space, key):
        return ExtensionState(params={"w": jnp.full(2, 5.0)})

    def terms(self, rows):
        loss = 3.0 * jnp.square(rows.params["w"] - 2.0).sum()
        return Terms({f"{name_of(self)}_loss": jnp.full(rows.batch.steps.valid.shape, loss)})


def test_parameters_of_an_extension_are_trained_and_kept_apart_from_those_of_the_network():
    """One step of gradient descent with rate 0.1: w - 0.1 * 6 (w - 2) = 3.2."""
    agent, learner, rollout = plain()
    agent = dataclasses.replace(agent, learning_rate=0.1)
    without = updated(agent, learner, rollout)
    agent = dataclasses.replace(agent, extensions=(Extension(), Fits()))
    fresh = agent.init(SHORT.observation_space, jax.random.key(0))
    states = {"extension": ExtensionState(), "fits": fresh.extensions["fits"]}
    learner = learner._replace(extensions=states, opt_state=fresh.opt_state)
    after = updated(agent, learner, rollout._replace(extensions=agent.init_streams(3)))
    np.testing.assert_allclose(after.learner.extensions["fits"].params["w"], 3.2, rtol=1e-6)
    np.testing.assert_allclose(after.metrics["fits_loss"], 2 * 3.0 * 9.0)
    assert "extensions" not in after.learner.params
    assert jax.tree.structure(after.learner.params) == jax.tree.structure(learner.params)
    for x, y in zip(*map(jax.tree.leaves, (after.learner.params, without.learner.params)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    assert after.learner.extensions["extension"] == ExtensionState()


def test_each_extension_has_its_own_parameters():
    _, learner, _ = plain()
    chain = Chain((Fits(), Extension(), Fits(name="other")))
    states = chain.init(None, None, jax.random.key(0))
    trained = chain.trained(learner._replace(extensions=states))
    assert set(trained["extensions"]) == {"fits", "other"}
    moved = trained | {"extensions": {"fits": {"w": 1.0}, "other": {"w": 2.0}}}
    after = chain.with_trained(learner._replace(extensions=states), moved)
    assert [one.params for one in after.extensions.values()] == [{"w": 1.0}, (), {"w": 2.0}]
    assert after.params == learner.params


@part
class Flat:
    """Network whose parameters are one array."""

    network: Any = None

    def init(self, key, num_values=1):
        return jnp.zeros(3)


def test_parameters_beside_those_of_a_network_that_are_no_dict_are_refused():
    said = r"extensions: fits has parameters; those of the network must be a dict without the name 'extensions'"
    with pytest.raises(ConfigError, match=said):
        ppax.PPO(Flat(), extensions=(Fits(),)).init(SHORT.observation_space, jax.random.key(0))
    with pytest.raises(ConfigError, match=said):
        Chain((Fits(),)).trained(
            EMPTY._replace(params={"extensions": 1.0}, extensions={"fits": ExtensionState(params={"w": 1.0})})
        )
    # without parameters any network goes
    assert ppax.PPO(Flat(), extensions=(Extension(),)).init(
        SHORT.observation_space, jax.random.key(0)
    ).params.shape == (3,)


# ---------------------------------------------------------------- further inputs of rows


@part
class Marks(Extension):
    """Extras that are more than the reward, and NaN in rows that are not valid."""

    more: float = 1.0

    def before(self, agent, state, streams, rollout, reward):
        return Before(state, reward, {"mark": jnp.where(rollout.steps.valid, reward + self.more, jnp.nan)})

    def terms(self, rows):
        return Terms({}, {"mark": rows.extras["mark"]})

    def after(self, agent, learner, state, inner, learned):
        return After(learner, learned.batch.steps)


def test_extras_reach_the_rows_of_their_extension_and_are_zero_in_invalid_rows():
    agent, learner, rollout = plain()
    out = updated(*extended(agent, learner, rollout, Marks(1.0), Extension(), Marks(2.0, name="others")))
    valid = np.asarray(rollout.steps.valid)
    for name, more in (("marks", 1.0), ("others", 2.0)):
        wanted = np.where(valid, np.asarray(rollout.steps.reward) + more, 0.0)
        steps = out.learner.extensions[name].state
        found = np.asarray(steps.extras[name]["mark"]).reshape(3, 8).T
        np.testing.assert_array_equal(found, wanted)
        assert set(steps.extras) == {"marks", "others"}
        metric = out.metrics["mark" if name == "marks" else "others_mark"]
        np.testing.assert_allclose(metric, wanted[valid].mean(), rtol=1e-6)


# ---------------------------------------------------------------- metrics


@part
class Named(Extension):
    """Metric of each hook that may return some, with names of its own."""

    before_name: str = ppax.static("metric of `before`", default="b")
    terms_name: str = ppax.static("metric of `terms`", default="t")
    observe_name: str = ppax.static("metric of `observe`", default="o")
    after_name: str = ppax.static("metric of `after`", default="a")

    def before(self, agent, state, streams, rollout, reward):
        return Before(state, reward, metrics={self.before_name: jnp.float32(1.0)})

    def terms(self, rows):
        return Terms({}, {self.terms_name: jnp.ones(rows.batch.steps.valid.shape)})

    def observe(self, agent, inner, metrics, acts):
        return Observed(inner, None, {self.observe_name: jnp.float32(1.0)})

    def after(self, agent, learner, state, inner, learned):
        return After(learner, state, {self.after_name: jnp.float32(1.0)})


def test_metrics_of_every_hook_are_logged():
    assert {"b", "t", "o", "a"} <= set(shapes(Named()).metrics)


@pytest.mark.parametrize(
    ("hook", "name", "said"),
    [
        ("before_name", "loss", r"extensions\.named: the metric 'loss' exists already"),
        ("before_name", "reward_mean", r"extensions\.named: the metric 'reward_mean' exists already"),
        ("terms_name", "entropy", "the metric 'entropy' exists already"),
        ("observe_name", "approx_kl", r"extensions\.named: the metric 'approx_kl' exists already"),
        ("after_name", "explained_variance", r"extensions\.named: the metric 'explained_variance' exists already"),
        ("after_name", "b", r"extensions\.named: the metric 'b' exists already"),
        ("terms_name", "reward_mean", "the metric 'reward_mean' exists already"),
        ("terms_name", "grad_norm", "the metric 'grad_norm' exists already"),
        ("observe_name", "grad_norm", "the metric 'grad_norm' exists already"),
        ("after_name", "learning_rate", "the metric 'learning_rate' exists already"),
    ],
)
def test_a_metric_whose_name_is_taken_is_refused(hook, name, said):
    with pytest.raises(ConfigError, match=said):
        shapes(Named(**{hook: name}))


@pytest.mark.parametrize("name", ["episode_return", "env_steps", "eval_return", "seconds"])
def test_a_metric_with_the_name_of_a_column_of_log_rows_is_refused(name):
    agent = dataclasses.replace(plain()[0], extensions=(Named(after_name=name),))
    with pytest.raises(ConfigError, match=f"the agent's metric '{name}': log rows have a column"):
        jax.eval_shape(lambda key: ppax.train(agent, SHORT, ppax.start(agent, SHORT, 8, key), 1), jax.random.key(0))


@part
class Other(Named):
    """Named as another class."""


@pytest.mark.parametrize("hook", ["before_name", "terms_name", "observe_name", "after_name"])
def test_two_extensions_do_not_share_a_metric(hook):
    apart = {"before_name": "b2", "terms_name": "t2", "observe_name": "o2", "after_name": "a2"}
    shared = apart | {hook: getattr(Named(), hook)}
    with pytest.raises(ConfigError, match=r"extensions\.other: the metric '[a-z]' exists already; give this metric"):
        shapes(Named(), Other(**shared))
    shapes(Named(), Other(**apart))


# ---------------------------------------------------------------- acting


@part
class Alternates(Extension):
    """Action 0, 1, 0, ... in every stream, or with `flips` the other one than chosen; the state counts steps."""

    flips: bool = ppax.static("turn the choice around", default=False)

    def init_acting(self, agent, num_streams):
        return jnp.zeros(num_streams, jnp.int32)

    def act(self, agent, acting, choice, key):
        assert key.shape == acting.shape
        return Acted(acting + 1, 1 - choice.action if self.flips else acting % 2)


@pytest.mark.parametrize("flips", [False, True])
def test_an_extension_that_acts_replaces_actions_and_not_log_probabilities(flips):
    agent, learner, _ = plain()
    others = (Alternates(flips=True, name="flips"),) if flips else ()
    agent = dataclasses.replace(agent, extensions=(Extension(), Alternates(), *others))
    learner = learner._replace(
        extensions={name_of(one): ExtensionState() for one in agent.extensions},
        params=jax.tree.map(lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size)).reshape(x.shape), learner.params),
    )
    actor = ppax.start(agent, SHORT, 8, jax.random.key(0)).actor
    assert set(actor.carry.extensions) == {"alternates", *(name_of(one) for one in others)}
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    actor, rollout, _ = gather(agent, SHORT, learner, actor, 8, jax.random.key(1))
    steps = rollout.steps
    wanted = np.tile((np.arange(8)[:, None] + flips) % 2, (1, 3))
    np.testing.assert_array_equal(steps.action, wanted)
    np.testing.assert_array_equal(actor.carry.extensions["alternates"], 8)
    # the log-probability is the policy's of that action, and rollouts store no states of acting
    policy = agent.policy(learner, agent.initial_carry(24), steps.obs.reshape(24, 4), steps.first.reshape(24), None)
    found = policy.distribution.log_prob(steps.action.reshape(24)).reshape(8, 3)
    np.testing.assert_allclose(steps.log_prob, found, rtol=1e-5)
    assert len(np.unique(np.asarray(steps.log_prob).round(5))) > 8
    assert steps.carry == ()


@pytest.mark.parametrize("host", [False, True])
def test_an_evaluation_acts_without_extensions(host):
    """The policy always takes 1, the extension alternates: episodes of the policy alone are shorter than the limit."""
    agent, learner, _ = plain()
    params = learner.params | {"policy": jax.tree.map(jnp.zeros_like, learner.params["policy"])}
    params["policy"]["bias"] = jnp.array([-40.0, 40.0])
    env = ppax.make("gymnasium/CartPole-v1", 3) if host else VectorEnv(TimeLimit(builtin.CartPole(), 30), 3)
    agent = dataclasses.replace(agent, extensions=(Alternates(),))
    out = ppax.evaluate(agent, env, learner._replace(params=params), jax.random.key(0), 3, deterministic=False)
    assert (out.returns < 15.0).all()
