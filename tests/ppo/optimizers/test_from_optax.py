"""Optimisers of optax as parts: equal to optax's own, elementwise or not, options from signatures, sweeps, refusals."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import ppax
from ppax import config
from ppax.config import Log
from ppax.core.types import ConfigError
from ppax.networks import mlp
from ppax.ppo import optimizers
from ppax.ppo.optimizers import ELEMENTWISE, Adam, Optax

RATE = 0.03
OF_TREES = ["lamb", "lars", "adafactor", "novograd", "sm3", "fromage", "contrib:muon"]


def factory(name):
    space, _, last = name.rpartition(":")
    return getattr(optax.contrib if space else optax, last)


def tree(seed):
    """Parameters wide enough for Adafactor to factor their second moments."""
    rng = np.random.default_rng(seed)
    shapes = {"a": (130, 140), "b": (140,), "c": (3, 4), "d": (2, 2, 3, 4)}
    return {name: jnp.float32(rng.normal(size=shape)) for name, shape in shapes.items()}


def after(steps, params, gradients):
    state = steps.init(params)
    for gradient in gradients:
        change, state = steps.update(gradient, state, params)
        params = optax.apply_updates(params, change)
    return params


@pytest.mark.parametrize("name", [*sorted(ELEMENTWISE), *OF_TREES])
def test_elementwise_is_what_gives_the_same_on_one_vector(name):
    """The claim by what it promises: the same parameters from the flattened vector as from the tree, or not."""
    gradients = [tree(seed) for seed in (1, 2, 3)]
    steps = factory(name)(RATE)
    alone = ravel_pytree(after(steps, tree(0), gradients))[0]
    flat = after(steps, ravel_pytree(tree(0))[0], [ravel_pytree(gradient)[0] for gradient in gradients])
    same = np.allclose(alone, flat, rtol=1e-4, atol=1e-6)
    assert Optax(factory(name)).elementwise == same == (name in ELEMENTWISE)


def test_options_decide_whether_an_optimiser_is_elementwise():
    assert not Optax(optax.adamw, mask=lambda params: jax.tree.map(lambda x: x.ndim > 1, params)).elementwise
    assert Optax(optax.sgd, momentum=0.9, nesterov=True).elementwise


def noisy(learning_rate, scale=0.1):
    """SGD with noise, whose operations are not of one place each."""

    def update(gradient, state, params=None):
        noise = jax.random.normal(jax.random.key(0), jax.tree.leaves(gradient)[0].shape)
        return jax.tree.map(lambda g: -learning_rate * (g + scale * noise.sum()), gradient), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def test_a_factory_of_the_users_gets_the_tree():
    assert not Optax(noisy).elementwise


def test_every_optimiser_of_optax_is_a_part_or_refused_with_the_reason():
    refused = {}
    for space in optimizers.NAMESPACES:
        for name, one in optimizers._factories(space).items():
            try:
                cls = optimizers.optax_class(one)
            except ConfigError as error:
                refused[name] = str(error)
            else:
                assert all(field.metadata["doc"] for field in dataclasses.fields(cls))
    reasons = ("its update must work with gradient and parameters", "first argument")
    assert all(any(reason in text for reason in reasons) for text in refused.values())
    assert {"lbfgs", "momo", "momo_adam", "sophia"} <= refused.keys()
    assert refused.keys() <= {"lbfgs", "momo", "momo_adam", "sophia", "schedule_free", "galore", "noisy_sgd"}


def test_options_are_numbers_where_their_default_is_one():
    options = {field.name: field for field in dataclasses.fields(optimizers.optax_class(optax.contrib.muon))}
    traced = {name for name, field in options.items() if not field.metadata.get("static")}
    assert {"beta", "eps", "weight_decay", "adam_b1", "adam_learning_rate", "consistent_rms"} <= traced
    assert not {"ns_steps", "nesterov", "preconditioning", "ns_coeffs"} & traced
    plan = config.describe(Optax(optax.lion, b1=0.8))
    assert plan == {"b1": 0.8, "b2": 0.99, "weight_decay": 1e-3}  # neither mask nor dtype


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Optax(optax.lion, b3=0.5), r"optax:lion: unknown option 'b3'; did you mean 'b[12]'"),
        (lambda: Optax(optax.sign_sgd, b3=0.5), "unknown option 'b3'; it has none"),
        (lambda: Optax(optax.lion, learning_rate=0.5), "learning_rate is a number of the agent"),
        (
            lambda: Optax(optax.adamw, weight_decay=lambda step: 0.1),
            r"must be a number; anneal it",
        ),
        (lambda: Optax(optax.adamw, mask={"a": True}), "mask: must be hashable"),
        (lambda: Optax(optax.adam(0.1)), r"must be a function learning rate, options -> optax"),
        (lambda: Optax(optax.scale_by_adam), "whose first argument is learning_rate"),
        (lambda: Optax(optax.lbfgs), "its update must work with gradient and parameters"),
    ],
)
def test_what_cannot_be_used_is_refused(make, text):
    with pytest.raises(ConfigError, match=text):
        make()


def concrete(learning_rate, decay=0.1):
    """An optimiser that branches on its option."""
    return optax.sgd(learning_rate, momentum=0.9 if decay > 0.05 else None)


def concrete_rate(learning_rate):
    return optax.sgd(float(learning_rate))


def test_an_option_that_cannot_be_traced_is_static_and_a_sweep_over_it_is_refused():
    assert [field.metadata["static"] for field in dataclasses.fields(Optax(concrete))] == [True]
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(mlp(env, (4,)), optimizer=Optax(concrete))
    swept = dataclasses.replace(agent, optimizer=dataclasses.replace(agent.optimizer, decay=jnp.array([0.1, 0.2])))
    with pytest.raises(ConfigError, match=r"optimizer\.decay: an array, but this field is static"):
        ppax.start_sweep(swept, env, 8, jax.random.split(jax.random.key(0)))
    with pytest.raises(ConfigError, match=r"concrete_rate cannot be used .* with a traced learning rate"):
        Optax(concrete_rate)


def test_a_part_of_optax_equals_the_same_part_of_ppax_in_training():
    """Adam by optax's name and as ppax's own part, with a learning rate that is annealed: the same bits."""
    env = ppax.make("CartPole-v1", 4)
    states = []
    for optimizer in (Adam(b1=0.8, eps=1e-6), Optax(optax.adam, b1=0.8, eps=1e-6)):
        schedule = ppax.schedules.Linear(leaves=("learning_rate", "optimizer.b1"))
        agent = ppax.PPO(mlp(env, (4,)), optimizer=optimizer, schedule=schedule, num_epochs=2, learning_rate=1e-2)
        state = ppax.start(agent, env, 8, jax.random.key(0))
        states.append(jax.jit(ppax.train, static_argnums=3)(agent, env, state, 3).state.learner)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(states[0].params), jax.tree.leaves(states[1].params))


def test_numbers_and_learning_rate_are_swept():
    """One program for all values: a vmapped update equals single ones."""
    part, params = Optax(optax.lion), tree(0)
    rates, b1 = jnp.array([0.01, 0.02]), jnp.array([0.8, 0.9])

    def step(rate, b1):
        steps = dataclasses.replace(part, b1=b1)(rate)
        return after(steps, params, [tree(1), tree(2)])

    together = jax.vmap(step)(rates, b1)
    for i in range(2):
        alone = after(optax.lion(float(rates[i]), b1=float(b1[i])), params, [tree(1), tree(2)])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-5, atol=1e-6), together, alone)


def test_a_partial_of_optax_is_a_part_as_its_functions_are():
    """`optax.nadam` is `functools.partial(optax.adam, nesterov=True)`."""
    plan = {"env": "CartPole-v1", "agent": {"optimizer": {"part": "optax:nadam", "b1": 0.8}}}
    one = config.build(plan).agent.optimizer
    assert config.describe(one) == {"b1": 0.8, "b2": 0.999, "eps": 1e-8, "eps_root": 0.0, "nesterov": True}
    assert config.describe(config.build(plan).agent)["optimizer"]["part"] == "optax:nadam"
    assert one == Optax(optax.nadam, b1=0.8) == pickle.loads(pickle.dumps(one))
    params, gradient = {"a": jnp.float32([1.0, 2.0])}, {"a": jnp.float32([0.5, -1.0])}
    wanted = after(optax.adam(RATE, b1=0.8, nesterov=True), params, [gradient] * 3)
    np.testing.assert_array_equal(after(one(RATE), params, [gradient] * 3)["a"], wanted["a"])


def test_a_part_of_optax_is_pickled_and_equal():
    one = Optax(optax.lion, b1=0.8)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != Optax(optax.lion)
    assert type(one) is type(Optax(optax.lion))  # one class, so that programs are shared


def test_a_part_of_optax_resumes_bit_for_bit(tmp_path):
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env, (4,)), optimizer=Optax(optax.adabelief, b1=0.8), num_epochs=1, learning_rate=1e-2)
    log = Log(every=1, checkpoint_seconds=0.0, console=False)
    whole = ppax.fit(agent, env, 192, run_dir=tmp_path / "whole", num_steps=8, log=log)
    stop = [lambda state, row: row["iteration"] >= 3]
    ppax.fit(agent, env, 192, run_dir=tmp_path / "run", num_steps=8, log=log, callbacks=stop)
    resumed = ppax.resume(tmp_path / "run", console=False)
    assert int(resumed.state.iteration) == 6
    jax.tree.map(
        np.testing.assert_array_equal, jax.tree.leaves(resumed.state.learner), jax.tree.leaves(whole.state.learner)
    )


@pytest.mark.parametrize("factory", [optax.adam, optax.lion])
def test_a_moment_may_have_fewer_bits(factory):
    """It is rounded to the dtype asked for in each step, and stored in float32."""
    steps = optimizers.clipped(Optax(factory, mu_dtype="bfloat16"), 0.1, None, 1)
    params, gradient = jnp.array([1.0, 2.0]), jnp.array([0.1234, -0.4321])
    state = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x, steps.init(params))
    _, after = steps.update(gradient, state, params)
    assert jax.tree.map(lambda x: x.dtype, after) == jax.tree.map(lambda x: x.dtype, state)
    moment = optax.tree.get(after, "mu")
    np.testing.assert_array_equal(moment, moment.astype(jnp.bfloat16).astype(jnp.float32))
    assert np.all(moment != 0.0)


def test_a_run_with_a_moment_of_fewer_bits():
    env = ppax.make("CartPole-v1", 2)
    for optimizer in (
        Optax(optax.adam, mu_dtype=jnp.bfloat16),
        optimizers.ActorCritic(Optax(optax.lion, mu_dtype="bfloat16")),
    ):
        agent = ppax.PPO(mlp(env, hidden=(4,)), optimizer=optimizer)
        assert ppax.fit(agent, env, 16, num_steps=8, log=Log(console=False)).steps_done
