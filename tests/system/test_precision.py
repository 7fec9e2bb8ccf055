"""`compute_dtype`: bfloat16 for operands of matrix products in acting and learning; float32 accumulation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.networks import mlp
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import collect
from support.rounded import looked, values
from support.worlds import QUICK, Leaky

ENV = VectorEnv(TimeLimit(builtin.Pendulum(), 9), 4)


def make(memory=False, **options):
    network = mlp(ENV, hidden=(16, 16))
    network = Leaky(network) if memory else network
    agent = ppax.PPO(network, minibatch=Shuffle(2), normalize_obs=True, normalize_reward=True, **options)
    return agent, jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, ENV, 8, jax.random.key(0))


def products(jaxpr):
    """Yield the operand dtypes of every matrix product of a program, nested programs included."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("dot_general", "ppax_product"):
            rounds = eqn.params.get("rounded", False)
            yield "rounded" if rounds else tuple(str(x.aval.dtype) for x in eqn.invars)
        for inner in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(inner, "jaxpr") or hasattr(inner, "eqns"):
                yield from products(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_matrix_product_has_the_compute_dtype(dtype, memory):
    agent, state = make(memory, compute_dtype=dtype)
    found = list(products(jax.make_jaxpr(ppax.train)(agent, ENV, state, 1).jaxpr))
    wide, short = found.count("rounded"), found.count(("float32", "float32"))
    assert short > 10  # in the first and the last layer
    assert wide + short == len(found)
    # products of the layer in each tower: acting, last value, forward, and backward for features and weights;
    # without memory also the values of all steps at once, because the streams are few
    assert wide == (2 * (5 if memory else 6) if dtype == "bfloat16" else 0)


def test_networks_receive_parameters_in_bfloat16_and_inputs_in_float32(monkeypatch):
    jax.clear_caches()  # a cached trace would not call the network
    seen = {}

    def spy(name, argument):
        verb = getattr(Leaky, name)

        def watched(self, *arguments):
            seen[name] = arguments[0]["policy"]["kernel"].dtype, arguments[argument].dtype
            return verb(self, *arguments)

        monkeypatch.setattr(Leaky, name, watched)

    spy("encode", 1)
    spy("remember", 1)
    spy("decide", 1)
    agent, state = make(memory=True, compute_dtype="bfloat16")
    jax.eval_shape(ppax.train, agent, ENV, state, 1)
    assert seen == dict.fromkeys(("encode", "remember", "decide"), (jnp.bfloat16, jnp.float32))


@pytest.mark.parametrize(("inputs", "width"), [(1, 16), (15, 64), (64, 15), (64, 64)])
def test_only_operands_with_sides_of_at_least_16_are_rounded(inputs, width):
    """Compare with float64; the output layer is smaller than 16, so it is not rounded."""
    np.testing.assert_allclose(*values(inputs, width), atol=3e-6)


@pytest.mark.parametrize("actions", [2, 16])  # a layer of 16 actions is rounded
@pytest.mark.parametrize("inputs", [1, 64])
def test_the_first_layer_does_not_round_observations(inputs, actions):
    """1000 and 1001 are equal in bfloat16."""
    value, _ = looked((16,), np.repeat([[1000.0], [1001.0]], inputs, axis=1) / 1000, actions)
    assert value[0] != value[1]


@pytest.mark.parametrize("memory", [False, True])
def test_learner_state_and_rollout_stay_float32(memory):
    agent, state = make(memory, compute_dtype="bfloat16")
    out = jax.jit(collect, static_argnums=4, compiler_options=QUICK)(
        agent, ENV, state.learner, state.actor, 8, jax.random.key(1)
    )
    learner, metrics = jax.jit(agent.update, compiler_options=QUICK)(state.learner, out.rollout, jax.random.key(2))[:2]
    for leaf in jax.tree.leaves((out, learner, metrics)):
        assert leaf.dtype != jnp.bfloat16
    assert jax.tree.map(lambda x: x.dtype, learner) == jax.tree.map(lambda x: x.dtype, state.learner)
    # values in float32 are close, but not equal: bfloat16 has 8 bits, a relative error of some 1 %
    exact = dataclasses.replace(agent, compute_dtype="float32")
    value = jax.jit(exact.policy)(
        state.learner, state.actor.carry, state.actor.obs, state.actor.first, state.actor.action_mask
    ).value
    difference = np.abs(value - out.rollout.steps.value[0])
    assert 0.0 < difference.max() < 0.05
