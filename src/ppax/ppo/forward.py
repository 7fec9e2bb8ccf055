"""Forward pass of the network over current observations, stored sequences, or a stored rollout in chunks."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import swap_axes, to_pairs, to_rows, to_sequences
from ppax.core.protocols import Critic, Network
from ppax.core.types import Acting, Decision, ForwardPass, Key, LearnerState, Memory, Params, PyTree, Transition
from ppax.devices.layout import product_dtype, rounding
from ppax.ppo import normalization


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
    """Return the network's outputs over sequences [M, L, ...], each run from its recurrent state `carry` [M, ...].

    `first` [M, L] marks first steps of episodes, at which the memory is reset. Parameters and observation statistics
    are those of `learner`. Observations, features and results are float32; `compute_dtype` is the precision of the
    matrix products (see `precise`).
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
    """Yield the parameters to call `network` with, in a context in which it multiplies matrices in `compute_dtype`.

    A network whose attribute `own_products` is True gets float32 parameters, and rounds the two factors of each matrix
    product itself. Any other network gets parameters cast to that dtype, in which its layers then compute.
    """
    dtype = jnp.dtype(product_dtype(compute_dtype))
    if getattr(network, "own_products", False):
        with rounding(dtype == jnp.bfloat16):
            yield in_float32(params)
    else:
        yield cast(params, dtype)


def forward_sequences(agent: Any, learner: LearnerState, steps: Transition) -> ForwardPass:
    """Return the network's outputs over stored sequences [M, L], each run from the recurrent state stored with it.

    `agent` is a PPO, whose network and critic are used.
    """
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
    """Shapes of what a network computes for one step, without batch axes."""

    encoded: PyTree  # of `Network.encode`
    features: PyTree  # input of `Network.decide`
    distribution: Any
    action: PyTree


def step_shapes(network: Network, observation_space: spaces.Space, key: Key) -> StepShapes:
    """Return the shapes of a network's outputs for one observation of the space; nothing is computed."""

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
    """Return some observation of the space, of which only shapes and dtypes are to be used."""
    # a copy, because sampling changes a space
    return jax.tree.map(jnp.asarray, copy.deepcopy(observation_space).sample())


def in_float32(tree: PyTree) -> PyTree:
    """Return the tree with its floating-point leaves cast to float32."""
    return cast(tree, jnp.dtype("float32"))


def cast(tree: PyTree, dtype: jnp.dtype) -> PyTree:
    """Return the tree with its floating-point leaves cast to `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def remembered(carry: PyTree) -> PyTree:
    """Return the network's memory from `carry`, which is the state that an agent's policy keeps from step to step.

    States of extensions that act, which a carry may also hold, are left out. The carry may be a tree of the carries of
    several groups of agents.
    """
    return jax.tree.map(
        lambda x: x.memory if isinstance(x, Acting) else x, carry, is_leaf=lambda x: isinstance(x, Acting)
    )


def with_memory(carry: PyTree, memory: PyTree) -> PyTree:
    """Return `carry` (the state kept from step to step) with the network's memory replaced by `memory`.

    States of extensions that act, if the carry holds any, stay.
    """
    return carry._replace(memory=memory) if isinstance(carry, Acting) else memory


def sample(policy: ForwardPass, key: Key) -> PyTree:
    """Return an action for every stream, [B, ...], sampled from the policy's distribution.

    A stream is one agent in one environment; `key` is one key, or one for each stream [B].
    """
    keys = jax.random.split(key, policy.value.shape[0]) if key.ndim == 0 else key
    return jax.vmap(lambda distribution, key: distribution.sample(key))(policy.distribution, keys)


def decision_of(policy: ForwardPass, action: PyTree) -> Decision:
    """Return the decision to take `action` in every stream: with its log-probability, V and the policy's next memory.

    A stream is one agent in one environment. `action` [B, ...] is as the policy's distribution samples it, before
    squashing and clipping for the environment.
    """
    distribution = policy.distribution
    return Decision(policy.carry, action, distribution.env_action(action), distribution.log_prob(action), policy.value)


def evaluate_in_chunks(
    evaluate: Callable[[Transition], tuple[Array, Array]], steps: Transition, length: int, rows: int
) -> tuple[Array, Array]:
    """Return V and log-probability of all steps [T, B], as [T, B], computed in chunks of about `rows` rows.

    `evaluate` takes sequences [M, L] of `length` steps, each with the recurrent state at its start [M, 1, ...], and
    returns V and log-probability, [M, L] each.
    """
    num_steps, streams = steps.valid.shape
    starts = to_sequences(steps.carry, 1)
    sequences = dataclasses.replace(to_sequences(dataclasses.replace(steps, carry=()), length), carry=starts)
    at_once = max(1, rows // length)
    if at_once >= num_steps * streams // length:
        pair = evaluate(sequences)
    else:

        def one(sequence: Transition) -> tuple[Array, Array]:
            return evaluate(jax.tree.map(lambda x: x[None], sequence))

        pair = jax.tree.map(lambda x: x[:, 0], jax.lax.map(one, sequences, batch_size=at_once))
    value, log_prob = (jnp.swapaxes(x.reshape(streams, num_steps), 0, 1) for x in pair)
    return value, log_prob
