"""Work done before a loop: results are those of the loop as it was, and draws leave its body."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

import ppax
from ppax.devices.hoisting import hoisted
from ppax.networks import memories, mlp, network
from ppax.training import collection

STEPS = 12
STATE = {"x": jnp.arange(3.0), "n": jnp.int32(0)}
SCALE = jnp.array([0.5, 2.0, 3.0])
MOST = 10**6


def keys():
    return jax.random.split(jax.random.key(0), (STEPS, 5))


def walk(state, keys):
    """Random walk; noise of a fixed scale, an inner loop and a branch, which reads a key only in some steps."""
    noise = SCALE * jnp.tanh(jax.vmap(jax.random.normal)(keys[:3]) + SCALE[::-1])
    turns = jax.lax.fori_loop(0, 3, lambda i, x: x + state["n"] * i, jax.random.randint(keys[3], (), 0, 9))
    x = jax.lax.cond(state["n"] % 3 == 0, lambda: jax.random.uniform(keys[4], (3,)), lambda: state["x"] * 0.5 + noise)
    return {"x": x, "n": state["n"] + 1}, {"x": state["x"], "turns": turns, "draw": noise, "n": state["n"]}


def names(program):
    """Names of all operations of a program, those of inner ones too."""
    for equation in program.eqns:
        yield equation.primitive.name
        for inner in core.jaxprs_in_params(equation.params):
            yield from names(inner)


def scans(program):
    return [equation.params["jaxpr"].jaxpr for equation in program.eqns if equation.primitive.name == "scan"]


def same(a, b):
    """Equal except for rounding: a kernel of all steps may round the last bit otherwise than one of a step."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


def run(step, inputs):
    return jax.jit(lambda inputs: jax.lax.scan(step, STATE, inputs))(inputs)


def test_results_are_those_of_the_loop_as_it_was():
    same(run(*hoisted(walk, keys(), STATE, MOST)), run(walk, keys()))


def test_draws_that_read_only_the_input_are_made_before_the_loop():
    def program(state, keys):
        loop = hoisted(walk, keys, state, MOST)
        return jax.lax.scan(*loop[:1], state, loop.inputs)

    whole = jax.make_jaxpr(program)(STATE, keys()).jaxpr
    (body,) = (x for x in scans(whole) if "tanh" not in names(x))
    inside = list(names(body))
    assert "erf_inv" not in inside  # of `jax.random.normal`
    assert inside.count("random_bits") == 1  # that of the branch stays in it
    assert list(names(whole)).count("tanh") == 1


def test_a_loop_that_would_read_too_much_stays_as_it_is():
    # read by the loop: noise, keys and the drawn integer of each step
    read = sum(x.size for x in jax.tree.leaves(hoisted(walk, keys(), STATE, MOST).inputs))
    assert hoisted(walk, keys(), STATE, read).step is not walk
    assert hoisted(walk, keys(), STATE, read - 1).step is walk


def test_operations_with_effects_stay_in_the_loop():
    seen = []

    def step(state, key):
        jax.debug.callback(lambda x: seen.append(float(x)), jax.random.uniform(key), ordered=True)
        return state + 1, None

    loop = hoisted(step, keys()[:, 0], jnp.int32(0), MOST)
    jax.block_until_ready(jax.lax.scan(loop.step, jnp.int32(0), loop.inputs))
    jax.effects_barrier()
    np.testing.assert_allclose(seen, jax.vmap(jax.random.uniform)(keys()[:, 0]), rtol=1e-6)


MEMORY = {"memory": memories.GRU(8), "hidden": (8,)}


@pytest.mark.parametrize(
    ("name", "options"), [("CartPole-v1", {}), ("Pendulum-v1", {}), ("Pursuit-2", {}), ("CartPole-v1", MEMORY)]
)
def test_a_rollout_is_the_same_with_and_without(name, options, monkeypatch):
    env = ppax.make(name, 4)
    agent = ppax.PPO(network(env, **options) if options else mlp(env, hidden=(8,)), seq_len=5 if options else None)
    state = ppax.start(agent, env, 20, jax.random.key(0))

    def rollout():
        return jax.jit(lambda actor: ppax.collect(agent, env, state.learner, actor, 20, jax.random.key(1)))(state.actor)

    with_draws_before = rollout()
    assert env.num_streams <= 32
    monkeypatch.setattr(collection, "MOST_HOISTED", 0)
    same(*map(numbers, (with_draws_before, rollout())))


def numbers(tree):
    keys = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x  # noqa: E731
    return jax.tree.map(keys, tree)
