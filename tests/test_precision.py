"""bfloat16 is for factors of products, in acting and learning alike; whatever is summed up stays float32."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.collect import collect
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.minibatches import Shuffle
from ppax.networks import mlp
from worlds import QUICK, Leaky

ENV = VectorEnv(TimeLimit(builtin.Pendulum(), 9), 4)


def make(memory=False, **options):
    network = mlp(ENV, hidden=(16, 16))
    network = Leaky(network) if memory else network
    agent = ppax.PPO(network, minibatch=Shuffle(2), normalize_obs=True, normalize_reward=True, **options)
    return agent, jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, ENV, 8, jax.random.key(0))


def products(jaxpr):
    """Every matrix product, with those of programs inside: the types of its factors, or that it rounds them."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("dot_general", "rounded_product"):
            rounds = eqn.primitive.name == "rounded_product"
            yield "rounded" if rounds else tuple(str(x.aval.dtype) for x in eqn.invars)
        for inner in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(inner, "jaxpr") or hasattr(inner, "eqns"):
                yield from products(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_matrix_product_has_the_type_asked_for(dtype, memory):
    agent, state = make(memory, compute_dtype=dtype)
    found = list(products(jax.make_jaxpr(ppax.train)(agent, ENV, state, 1).jaxpr))
    wide, short = found.count("rounded"), found.count(("float32", "float32"))
    assert short > 10  # the first and the last layer
    assert wide + short == len(found)
    # of the layer in each tower: to act, for the last value, forwards, and backwards by features and weights
    assert wide == (2 * 5 if dtype == "bfloat16" else 0)


def test_memory_stays_float32_and_its_features_are_cast_again(monkeypatch):
    jax.clear_caches()  # a program traced before has already asked the network
    seen = {}

    def spy(name, argument):
        verb = getattr(Leaky, name)

        def watched(self, *arguments):
            seen[name] = arguments[argument].dtype
            return verb(self, *arguments)

        monkeypatch.setattr(Leaky, name, watched)

    spy("remember", 1)
    spy("decide", 1)
    agent, state = make(memory=True, compute_dtype="bfloat16")
    jax.eval_shape(ppax.train, agent, ENV, state, 1)
    assert seen == {"remember": jnp.float32, "decide": jnp.bfloat16}


@pytest.mark.parametrize("memory", [False, True])
def test_what_is_kept_stays_float32(memory):
    agent, state = make(memory, compute_dtype="bfloat16")
    out = jax.jit(collect, static_argnums=4, compiler_options=QUICK)(
        agent, ENV, state.learner, state.actor, 8, jax.random.key(1)
    )
    learner, metrics = jax.jit(agent.update, compiler_options=QUICK)(state.learner, out.rollout, jax.random.key(2))
    for leaf in jax.tree.leaves((out, learner, metrics)):
        assert leaf.dtype != jnp.bfloat16
    assert jax.tree.map(lambda x: x.dtype, learner) == jax.tree.map(lambda x: x.dtype, state.learner)
    # the same rollout in float32: near, and not the same. bfloat16 has 8 bits, so values are right to some 1 %
    exact = dataclasses.replace(agent, compute_dtype="float32")
    value = jax.jit(exact.policy)(
        state.learner, state.actor.carry, state.actor.obs, state.actor.first, state.actor.action_mask
    ).value
    difference = np.abs(value - out.rollout.steps.value[0])
    assert 0.0 < difference.max() < 0.05
