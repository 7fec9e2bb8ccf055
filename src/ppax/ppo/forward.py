"""Forward pass of the network: current observations of all streams, or stored sequences."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import swap_axes, to_pairs, to_rows
from ppax.core.protocols import Critic, Network
from ppax.core.types import ForwardPass, Key, LearnerState, Memory, Params, PyTree, Transition
from ppax.devices.layout import product_dtype, rounding
from ppax.ppo import normalization
from ppax.ppo.exploration import remembered, with_memory


def forward(
    network: Network,
    critic: Critic,
    compute_dtype: str,
    learner: LearnerState,
    carry: PyTree,
    obs: PyTree,
    first: Array,
    action_mask: PyTree | None,
) -> ForwardPass:
    """Run the network over sequences [M, L, ...], each from its initial `carry` [M, ...].

    Reads the parameters and observation statistics of `learner`. Observations, features and results are float32;
    `compute_dtype` is the precision of the matrix products (see `precise`).
    """
    sequences = first.shape[0]
    # time-major rows: a scan over time gets and returns arrays as they lie in memory
    obs, action_mask = to_rows(swap_axes((obs, action_mask)))
    if learner.obs_stats is not None:
        obs = normalization.normalize_obs(learner.obs_stats, obs)
    obs = in_float32(obs)
    with precise(network, compute_dtype, learner.params) as params:
        # Flat rows: only `remember` needs the time axis, and flat matrix products are a third faster
        features = to_pairs(jax.vmap(network.encode, (None, 0))(params, obs), sequences)
        remember = jax.vmap(network.remember, (None, 0, 1, 0), Memory(0, 1))
        memory = remember(params, remembered(carry), features, first)
        features = in_float32(to_rows(memory.features))
        outputs = jax.vmap(network.decide, (None, 0, 0))(params, features, action_mask)
    features, outputs = to_rows(swap_axes(to_pairs((features, outputs), sequences)))
    new, distribution, value_outputs = in_float32((memory.carry, outputs.distribution, outputs.value))
    carry, value = with_memory(carry, new), jax.vmap(critic.value, (None, 0))(learner.critic, value_outputs)
    return ForwardPass(carry, distribution, value_outputs, value, features, outputs.noise_basis)


@contextlib.contextmanager
def precise(network: Network, compute_dtype: str, params: Params) -> Iterator[Params]:
    """Context in which `network` multiplies matrices in `compute_dtype`; yields the parameters to call it with.

    A network whose attribute `own_products` is True gets float32 parameters and rounds the factors of its products
    itself. Any other network gets parameters cast to that dtype, in which its layers then compute.
    """
    dtype = jnp.dtype(product_dtype(compute_dtype))
    if getattr(network, "own_products", False):
        with rounding(dtype == jnp.bfloat16):
            yield in_float32(params)
    else:
        yield cast(params, dtype)


def forward_sequences(agent: Any, learner: LearnerState, steps: Transition) -> ForwardPass:
    """Run the network of `agent` (a PPO) over stored sequences [M, L], each from its stored initial carry."""
    carry = jax.tree.map(lambda x: x[:, 0], steps.carry)
    return forward(
        agent.network,
        agent.critic,
        agent.compute_dtype,
        learner,
        carry,
        steps.obs,
        steps.first,
        steps.action_mask,
    )


class StepShapes(NamedTuple):
    """Shapes of one step, without axes of rows."""

    encoded: PyTree  # of `Network.encode`
    features: PyTree  # input of `Network.decide`
    distribution: Any
    action: PyTree


def step_shapes(network: Network, observation_space: spaces.Space, key: Key) -> StepShapes:
    """Shapes that a network gives for an observation, without computing them."""

    def step(key: Key, obs: PyTree) -> StepShapes:
        network_key, action_key = jax.random.split(key)
        params = in_float32(network.init(network_key))
        encoded = network.encode(params, in_float32(obs))
        sequence = jax.tree.map(lambda x: x[None], encoded)
        memory = network.remember(params, network.initial_carry(), sequence, jnp.ones(1, bool))
        features = jax.tree.map(lambda x: x[0], memory.features)
        distribution = network.decide(params, features, None).distribution
        return StepShapes(*in_float32((encoded, features, distribution, distribution.sample(action_key))))

    shapes: StepShapes = jax.eval_shape(step, key, example_of(observation_space))
    return shapes


def example_of(observation_space: spaces.Space) -> PyTree:
    """One observation of the space, of which only shapes are used."""
    # a copy, because sampling changes a space
    return jax.tree.map(jnp.asarray, copy.deepcopy(observation_space).sample())


def in_float32(tree: PyTree) -> PyTree:
    """Cast floating-point leaves to float32."""
    return cast(tree, jnp.dtype("float32"))


def cast(tree: PyTree, dtype: jnp.dtype) -> PyTree:
    """Cast floating-point leaves to `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)
