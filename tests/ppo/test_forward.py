"""Forward pass over stored sequences against one step at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.networks import memories, network
from ppax.ppo.forward import forward

SEQUENCES, LENGTH = 4, 5


@pytest.mark.parametrize("cell", [memories.NoMemory(), memories.GRU(8), memories.MinGRU(8)])
def test_rows_of_sequences_are_those_of_single_steps(cell):
    """Every output row, sequence by sequence, and the carry after each sequence."""
    env = ppax.envs.make("CartPole-v1", num_envs=SEQUENCES)
    agent = ppax.PPO(network(env, hidden=(8,), memory=cell), compute_dtype="float32")
    state = ppax.start(agent, env, LENGTH, jax.random.key(0))
    obs = jax.random.normal(jax.random.key(1), (SEQUENCES, LENGTH, 4))
    first = jnp.zeros((SEQUENCES, LENGTH), bool).at[1, 2].set(True).at[2, 0].set(True)
    carry = jax.tree.map(lambda x: jnp.full((SEQUENCES, *x.shape), 0.5), agent.network.initial_carry())

    whole = forward(agent.network, agent.critic, "float32", state.learner, carry, obs, first, None)
    rows = {"value": [], "logits": [], "features": []}
    for t in range(LENGTH):
        step = agent.policy(state.learner, carry, obs[:, t], first[:, t], None)
        carry = step.carry
        for name, row in outputs(step).items():
            rows[name].append(row)
    for name, found in outputs(whole).items():
        np.testing.assert_allclose(found, np.stack(rows[name], 1).reshape(found.shape), atol=1e-6, err_msg=name)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), whole.carry, carry)


def outputs(policy):
    """Return outputs of a forward pass by name, rows first."""
    features = jnp.concatenate(jax.tree.leaves(policy.features), -1)
    return {"value": policy.value, "logits": policy.distribution.logits, "features": features}
