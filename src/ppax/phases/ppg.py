"""Auxiliary phase of the phasic policy gradient (PPG). Cobbe et al. 2021, https://arxiv.org/abs/2009.04416

Algorithm 1 there: once in N_pi iterations, E_aux epochs of L_joint = L_aux + beta_clone KL[pi_old, pi] and L_value,
with an optimiser of their own, where pi_old is the policy before the phase. Difference: the phase sees the rollout of
its own iteration, not all N_pi since the last phase, so that the state keeps no rollouts.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.arrays.metrics import reduced, unpack
from ppax.arrays.sequences import masked_means, to_rows
from ppax.critics.base import value_losses
from ppax.learning.batches import pick
from ppax.learning.forward import in_float32, replay, step_shapes
from ppax.learning.gradient import mean_gradient
from ppax.losses.base import weighted
from ppax.networks.layers import dense, init_dense
from ppax.program.layout import only_if
from ppax.protocols import Phased
from ppax.types import Batch, Key, LearnerState, LossOutput, Params, PyTree, Scalar, Transition, number, part, static

METRICS = ("phase_auxiliary_value_loss", "phase_policy_kl", "phase_value_loss")


class PPGState(NamedTuple):
    """Auxiliary value head, optimiser, and the phase's course; part of the learner."""

    head: Params  # linear layer from the actor's features to value outputs
    opt_state: PyTree
    key: Key  # of the phase's minibatches
    iterations: Array  # [] int32, done since the last phase
    metrics: Array  # [3] METRICS of the last phase's last epoch; 0 before the first


class Training(NamedTuple):
    """Carry of the scans over the phase's epochs and gradient steps."""

    vector: Array  # [P] parameters of the network and the head
    opt_state: PyTree


@part
class PPG:
    """Auxiliary phase of the phasic policy gradient (PPG). Cobbe et al. 2021, https://arxiv.org/abs/2009.04416

    Trains an auxiliary value head on the actor's features, and the critic, while a KL penalty keeps the policy.
    """

    beta_clone: Scalar = number("weight of KL(policy before the phase || policy)", default=1.0, low=0.0)
    learning_rate: Scalar = number("learning rate of the phase, whose optimiser is Adam", default=5e-4, low=0.0)
    every: int = static("iterations from one phase to the next (N_pi)", default=32, low=1)
    num_epochs: int = static("epochs over the rollout in one phase (E_aux)", default=6, low=1)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> PPGState:
        """Return a random head, and the optimiser for it and the agent's network."""
        shapes_key, head_key, own_key = jax.random.split(key, 3)
        features = actor_features(step_shapes(agent.network, observation_space, shapes_key).features)
        size = sum(x.size for x in jax.tree.leaves(features))
        head = init_dense(head_key, size, agent.critic.num_values, 1.0)
        network = jax.eval_shape(lambda: in_float32(agent.network.init(jax.random.key(0), agent.critic.num_values)))
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), network)
        opt_state = self._optimizer().init(ravel_pytree({"network": zeros, "head": head})[0])
        return PPGState(head, opt_state, own_key, jnp.int32(0), jnp.zeros(len(METRICS), jnp.float32))

    def __call__(self, agent: Any, learner: LearnerState, batch: Batch) -> Phased:
        """Return the learner after this iteration, with a phase or without, and the metrics of the last phase.

        In a sweep and with Independent players a phase is computed in every iteration, and dropped where none is due.
        """
        state: PPGState = learner.phase
        due = state.iterations + 1 >= self.every
        # a copy: the same state is used again where an iteration is discarded
        key, own_key = jax.random.split(jax.random.clone(state.key))
        waiting = learner._replace(phase=state._replace(key=key, iterations=state.iterations + 1))

        def phase() -> LearnerState:
            return self._phase(agent, waiting, batch, own_key)

        # not `only_if`: on an accelerator, too, a phase costs more than waiting for the host
        learner = jax.lax.cond(due, phase, lambda: waiting)
        return Phased(learner, reduced("last", dict(zip(METRICS, learner.phase.metrics, strict=True))))

    def _phase(self, agent: Any, learner: LearnerState, batch: Batch, key: Key) -> LearnerState:
        """Return the learner after the phase's epochs over the sequences of `batch` [M, L]."""
        before = learner.phase
        vector, to_params = ravel_pytree({"network": learner.params, "head": before.head})

        def epoch(training: Training, key: Key) -> tuple[Training, Array]:
            index, weight, _ = agent.minibatch(batch, key)
            step = partial(self._step, agent, learner, batch, to_params)
            training, (means, learns) = jax.lax.scan(step, training, (index, weight))
            means = jnp.where(learns[:, None], means, 0.0).sum(0)
            return training, means / jnp.maximum(learns.sum(dtype=jnp.float32), 1.0)

        keys = jax.random.split(key, self.num_epochs)
        trained, means = jax.lax.scan(epoch, Training(vector, before.opt_state), keys)
        params = to_params(trained.vector)
        own = before._replace(
            head=params["head"], opt_state=trained.opt_state, iterations=jnp.int32(0), metrics=means[-1]
        )
        return learner._replace(params=params["network"], phase=own)

    def _step(
        self, agent: Any, learner: LearnerState, batch: Batch, to_params: Any, before: Training, drawn: Any
    ) -> tuple[Training, tuple[Array, Array]]:
        """Take one gradient step on the sequences `drawn`; also return the metrics, and whether any row is valid."""
        index, weight = drawn
        valid = pick(batch.steps.valid, index)
        loss = partial(self._loss, agent, learner, batch)
        rows = agent.program.rows(valid.shape[1], agent.compute_dtype, batch.steps.obs)
        gradient, metrics = mean_gradient(loss, to_params(before.vector), (index, weight), valid, rows)

        def descend() -> Training:
            updates, opt_state = self._optimizer().update(gradient, before.opt_state)
            return Training(before.vector + updates, opt_state)

        means = unpack(metrics)
        return only_if(valid.any(), descend, before), (jnp.stack([means[name] for name in METRICS]), valid.any())

    def _loss(
        self, agent: Any, learner: LearnerState, batch: Batch, params: Params, drawn: Any, valid: Array
    ) -> LossOutput:
        """Mean of L_joint and L_value over the rows of the sequences `drawn` where `valid` [m, L]."""
        index, weight = drawn
        chosen = jax.tree.map(lambda x: x[index], Batch(batch.steps, batch.targets))
        steps: Transition = dataclasses.replace(chosen.steps, valid=valid)
        forward = partial(replay, agent.network, agent.critic, agent.compute_dtype)
        policy = forward(learner._replace(params=params["network"]), steps)
        old = jax.lax.stop_gradient(forward(learner, steps).distribution)
        rows = to_rows(chosen._replace(steps=steps))
        head = partial(self._value_losses, agent.critic, learner.critic, rows)
        outputs = jax.vmap(lambda x: dense(params["head"], flat(x)))(actor_features(policy.features))
        columns = [head(outputs), old.kl(policy.distribution), head(policy.value_outputs)]
        if weight is not None:
            columns = [weighted(x, jnp.repeat(weight, valid.shape[1])) for x in columns]
        auxiliary, divergence, value = masked_means(columns, rows.steps.valid)
        metrics = dict(zip(METRICS, (auxiliary, divergence, value), strict=True))
        return LossOutput(auxiliary + self.beta_clone * divergence + value, metrics)

    def _value_losses(self, critic: Any, state: PyTree, rows: Batch, outputs: Array) -> Array:
        """Losses of value outputs [N, num_values]; `value_clip` has no effect, because V of before is their own."""
        own = jax.lax.stop_gradient(jax.vmap(critic.value, (None, 0))(state, outputs))
        return value_losses(critic, state, outputs, rows._replace(steps=dataclasses.replace(rows.steps, value=own)))

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)


def actor_features(features: PyTree) -> PyTree:
    """Features that the policy reads: those named `actor`, or all where the network has no such name."""
    return features["actor"] if isinstance(features, dict) and "actor" in features else features


def flat(features: PyTree) -> Array:
    """All leaves of one step as one vector."""
    return jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(features)])
