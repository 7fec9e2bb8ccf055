"""Forward pass of the network: current observations of all streams, or stored sequences."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import swap_axes, to_pairs, to_rows
from ppax.critics.base import value_losses
from ppax.learning import normalization
from ppax.learning.exploration import remembered, with_memory
from ppax.program.layout import product_dtype, rounding
from ppax.protocols import Critic, Loss, Network
from ppax.types import Batch, ForwardPass, Key, LearnerState, Memory, Params, PyTree, Transition


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


def replay(
    network: Network, critic: Critic, compute_dtype: str, learner: LearnerState, steps: Transition
) -> ForwardPass:
    """Run the network over stored sequences [M, L], each from its stored initial carry."""
    carry = jax.tree.map(lambda x: x[:, 0], steps.carry)
    return forward(network, critic, compute_dtype, learner, carry, steps.obs, steps.first, steps.action_mask)


DRAWS = 2**32 - 2  # folded into the update's keys for draws of auxiliary losses


def draw_key(keys: Key) -> Key:
    """Return the key for draws in an update, folded from its epochs' keys [num_epochs], which are not consumed."""
    return jax.vmap(lambda key: jax.random.fold_in(key, DRAWS))(keys)[0]


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
        memory = network.remember(params, remembered(network.initial_carry()), sequence, jnp.ones(1, bool))
        features = jax.tree.map(lambda x: x[0], memory.features)
        distribution = network.decide(params, features, None).distribution
        return StepShapes(*in_float32((encoded, features, distribution, distribution.sample(action_key))))

    shapes: StepShapes = jax.eval_shape(step, key, example_of(observation_space))
    return shapes


def example_of(observation_space: spaces.Space) -> PyTree:
    """One observation of the space, of which only shapes are used."""
    # a copy, because sampling changes a space
    return jax.tree.map(jnp.asarray, copy.deepcopy(observation_space).sample())


class Again(NamedTuple):
    """Forward pass of the current network on other inputs for a minibatch's rows (`protocols.Again`)."""

    agent: Any  # PPO: its network, critic and coefficients
    loss: Loss
    learner: LearnerState  # with the current parameters
    steps: Transition  # [m, L]
    policy: ForwardPass  # of the minibatch's own rows
    key: Key  # of the update
    index: Array  # type: ignore[assignment]  # [m] numbers of the sequences in the rollout

    def forward(self, obs: PyTree, action_mask: PyTree | None = None) -> ForwardPass:
        """Run the network over other observations, rows [N]."""
        obs, action_mask = to_pairs((obs, action_mask), self.steps.valid.shape[1])
        steps = dataclasses.replace(self.steps, obs=obs, action_mask=action_mask)
        return replay(self.agent.network, self.agent.critic, self.agent.compute_dtype, self.learner, steps)

    def draw(self, size: int) -> Array:
        """Draw a number below `size` for each row [N]."""
        length = self.steps.valid.shape[1]
        rows = to_rows(self.index[:, None] * length + jnp.arange(length)[None])
        keys = jax.vmap(jax.random.fold_in, (None, 0))(self.key, rows)
        drawn: Array = jax.vmap(lambda one: jax.random.randint(one, (), 0, size))(keys)
        return drawn

    def inputs(self, obs: PyTree) -> PyTree:
        """Network inputs for other observations, rows [N]: normalised, in float32."""
        stats = self.learner.obs_stats
        return in_float32(obs if stats is None else normalization.normalize_obs(stats, obs))

    def encode(self, obs: PyTree) -> PyTree:
        """Features of other observations, rows [N], before the memory."""
        with precise(self.agent.network, self.agent.compute_dtype, self.learner.params) as params:
            return in_float32(jax.vmap(self.agent.network.encode, (None, 0))(params, self.inputs(obs)))

    def losses(self, batch: Batch) -> Array:
        """PPO's own loss of other rows, [N], without weights."""
        policy = self.forward(batch.steps.obs, batch.steps.action_mask)
        value = value_losses(self.agent.critic, self.learner.critic, policy.value_outputs, batch)
        ent_coef = self.agent.entropy.coef(self.learner.entropy, self.agent.ent_coef)
        policy_loss = self.loss(policy.distribution, batch).loss - ent_coef * policy.distribution.entropy()
        return policy_loss + self.agent.vf_coef * value


def in_float32(tree: PyTree) -> PyTree:
    """Cast floating-point leaves to float32."""
    return cast(tree, jnp.dtype("float32"))


def cast(tree: PyTree, dtype: jnp.dtype) -> PyTree:
    """Cast floating-point leaves to `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)
