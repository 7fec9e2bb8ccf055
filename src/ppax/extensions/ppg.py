"""Auxiliary phase of the phasic policy gradient (PPG). Cobbe et al. 2021, https://arxiv.org/abs/2009.04416

Algorithm 1 there: once in N_pi iterations, E_aux epochs of L_joint = L_aux + beta_clone KL[pi_old, pi] and L_value,
with an optimiser of their own, where pi_old is the policy before the phase. The phase learns from the last `rollouts`
of these iterations; in the paper from all of them.
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

from ppax.arrays.metrics import reduced
from ppax.arrays.sequences import masked_means, to_rows
from ppax.core.types import (
    Batch,
    ConfigError,
    ExtensionState,
    Key,
    LearnerState,
    LossOutput,
    MinibatchIndices,
    Params,
    PyTree,
    Scalar,
    Transition,
    number,
    part,
    static,
)
from ppax.devices.layout import only_if
from ppax.extensions.auxiliary_networks import as_vector
from ppax.networks.layers import dense, init_dense, rescaled_dense
from ppax.ppo.batches import pick
from ppax.ppo.critics import value_losses
from ppax.ppo.extension import After, Extension, Learned
from ppax.ppo.forward import forward_sequences, in_float32, step_shapes
from ppax.ppo.gradients import mean_gradient
from ppax.ppo.losses import weighted

METRICS = ("phase_auxiliary_value_loss", "phase_policy_kl", "phase_value_loss")


class PPGState(NamedTuple):
    """State of the extension PPG: its value head, optimiser, key, count of iterations, metrics and rollouts."""

    head: Params  # linear layer from the actor's features to value outputs
    opt_state: PyTree
    key: Key | tuple[()]  # of the phase's minibatches; () inside a phase
    iterations: Array  # [] int32, done since the last phase
    metrics: Array  # [3] METRICS of the last phase's last epoch; 0 before the first
    kept: Batch | tuple[()] = ()  # [rollouts, M, L] ring buffer of the last rollouts; () with rollouts = 1


class Descent(NamedTuple):
    """Parameters and optimiser state that the gradient steps of a PPG phase change, from step to step."""

    vector: Array  # [P] parameters of the network and the head
    opt_state: PyTree


@part
class PPG(Extension):
    """Auxiliary phase of the phasic policy gradient (PPG). Cobbe et al. 2021, https://arxiv.org/abs/2009.04416

    The phase comes once in `every` iterations. It trains the critic, and an auxiliary value head on the actor's
    features, while a KL penalty holds the policy in place.
    """

    beta_clone: Scalar = number("weight of KL(policy before the phase || policy)", default=1.0, low=0.0)
    learning_rate: Scalar = number("learning rate of the phase, whose optimiser is Adam", default=5e-4, low=0.0)
    every: int = static("iterations from one phase to the next (N_pi)", default=32, low=1)
    num_epochs: int = static("epochs over the phase's rollouts in one phase (E_aux)", default=6, low=1)
    rollouts: int = static(
        "number of last rollouts that a phase learns from; at most `every`, as in the paper; above 1 they are stored",
        default=1,
        low=1,
    )

    @property
    def grows(self) -> bool:
        """True if the first update adds arrays to PPG's state: stored rollouts, where a phase learns from several.

        `ppax.start` then allocates these arrays as zeros, so that the state has the same structure before and after
        every update.
        """
        return self.rollouts > 1

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return PPG's first state: a random auxiliary value head, and an optimiser of it and the agent's network.

        Raises ConfigError where a phase would learn from rollouts collected before the previous phase.
        """
        if self.rollouts > self.every:
            raise ConfigError(
                f"ppg.rollouts = {self.rollouts}: must be at most ppg.every = {self.every}, the rollouts since the "
                f"last phase; nearest valid value: {self.every}"
            )
        shapes_key, head_key, own_key = jax.random.split(key, 3)
        features = actor_features(step_shapes(agent.network, observation_space, shapes_key).features)
        size = sum(x.size for x in jax.tree.leaves(features))
        head = init_dense(head_key, size, agent.critic.num_values, 1.0)
        rescale = agent.critic.init().rescale  # as the critic's own head begins
        head = head if rescale is None else rescaled_dense(head, *rescale)
        network = jax.eval_shape(lambda: in_float32(agent.network.init(jax.random.key(0), agent.critic.num_values)))
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), network)
        opt_state = self._optimizer().init(ravel_pytree({"network": zeros, "head": head})[0])
        zero = jnp.zeros(len(METRICS), jnp.float32)
        return ExtensionState(PPGState(head, opt_state, own_key, jnp.int32(0), zero))

    def rescale_value(self, state: PPGState, scale: Scalar, shift: Scalar) -> PPGState:
        """Return PPG's state with its value head changed: new outputs = `scale` * old outputs + `shift`."""
        return state._replace(head=rescaled_dense(state.head, scale, shift))

    def after(self, agent: Any, learner: LearnerState, state: PPGState, inner: PyTree, learned: Learned) -> After:
        """Return the learner after an auxiliary phase, if one is due, and the metrics of the last phase.

        If no phase is due, the learner stays as it is. PPO calls it once an update, after the gradient steps. In a
        sweep on an accelerator, and with Independent players (each with its own parameters), a phase is computed in
        every iteration, and its result dropped where none is due.
        """
        batch, due = learned.batch, state.iterations + 1 >= self.every
        # a copy: the same state is used again where an iteration is discarded
        key, own_key = jax.random.split(jax.random.clone(state.key))
        ring: Any = with_rollout(state.kept, batch, self.rollouts, state.iterations) if self.grows else ()
        seen = to_rows(ring) if self.grows else batch
        waiting = state._replace(key=(), iterations=state.iterations + 1, kept=())  # what the phase does not change

        def phase() -> tuple[Params, PPGState]:
            return self._phase(agent, learner, waiting, seen, own_key)

        # not `only_if`: on an accelerator, too, a phase costs more than waiting for the host
        params, own = jax.lax.cond(due, phase, lambda: (learner.params, waiting))
        metrics = reduced("last", dict(zip(METRICS, own.metrics, strict=True)))
        return After(learner._replace(params=params), own._replace(key=key, kept=ring), metrics)

    def _phase(
        self, agent: Any, learner: LearnerState, before: PPGState, batch: Batch, key: Key
    ) -> tuple[Params, PPGState]:
        """Return the network's parameters and PPG's state after an auxiliary phase that learns from `batch`.

        `batch` has the sequences of the last rollouts, [rollouts * M, L]: M sequences of L steps from each rollout.
        `before` is PPG's state before the phase.
        """
        vector, to_params = ravel_pytree({"network": learner.params, "head": before.head})
        sequences, length = batch.steps.valid.shape
        size = agent.minibatch.size(sequences // self.rollouts, length)  # as large as PPO's own

        def epoch(training: Descent, key: Key) -> tuple[Descent, Array]:
            drawn = split_minibatches(agent.minibatch(batch, key), size, sequences)
            step = partial(self._step, agent, learner, batch, to_params)
            training, (means, learns) = jax.lax.scan(step, training, (drawn.index, drawn.weight))
            means = jnp.where(learns[:, None], means, 0.0).sum(0)
            return training, means / jnp.maximum(learns.sum(dtype=jnp.float32), 1.0)

        keys = jax.random.split(key, self.num_epochs)
        trained, means = jax.lax.scan(epoch, Descent(vector, before.opt_state), keys)
        params = to_params(trained.vector)
        return params["network"], before._replace(
            head=params["head"], opt_state=trained.opt_state, iterations=jnp.int32(0), metrics=means[-1]
        )

    def _step(
        self, agent: Any, learner: LearnerState, batch: Batch, to_params: Any, before: Descent, drawn: Any
    ) -> tuple[Descent, tuple[Array, Array]]:
        """Return parameters and optimiser state after one gradient step of the phase on the sequences `drawn`.

        The second result is (values of METRICS [3], whether any row is valid). `drawn` is (indices, weights or None).
        `to_params` is a function: it makes the parameters of network and auxiliary value head, a dict of both, from the
        vector in `before`. If no row of the sequences is valid, nothing is changed.
        """
        index, weight = drawn
        valid = pick(batch.steps.valid, index)
        loss = partial(self._loss, agent, learner, batch)
        rows = agent.program.rows(valid.shape[1], agent.compute_dtype, batch.steps.obs, agent.network)
        gradient, metrics = mean_gradient(loss, to_params(before.vector), (index, weight), valid, rows)

        def descend() -> Descent:
            updates, opt_state = self._optimizer().update(gradient, before.opt_state)
            return Descent(before.vector + updates, opt_state)

        return only_if(valid.any(), descend, before), (jnp.stack([metrics[name] for name in METRICS]), valid.any())

    def _loss(
        self, agent: Any, learner: LearnerState, batch: Batch, params: Params, drawn: Any, valid: Array
    ) -> LossOutput:
        """Return the phase's loss L_joint + L_value, a mean over rows of the sequences `drawn` where `valid` [m, L].

        `drawn` is (indices, weights or None).
        """
        index, weight = drawn
        chosen = jax.tree.map(lambda x: x[index], Batch(batch.steps, batch.targets))
        steps: Transition = dataclasses.replace(chosen.steps, valid=valid)
        policy = forward_sequences(agent, learner._replace(params=params["network"]), steps)
        old = jax.lax.stop_gradient(forward_sequences(agent, learner, steps).distribution)
        rows = to_rows(chosen._replace(steps=steps))
        head = partial(self._value_losses, agent.critic, learner.critic, rows)
        outputs = jax.vmap(lambda x: dense(params["head"], as_vector(x)))(actor_features(policy.features))
        columns = [head(outputs), old.kl(policy.distribution), head(policy.value_outputs)]
        if weight is not None:
            columns = [weighted(x, jnp.repeat(weight, valid.shape[1])) for x in columns]
        auxiliary, divergence, value = masked_means(columns, rows.steps.valid)
        metrics = dict(zip(METRICS, (auxiliary, divergence, value), strict=True))
        return LossOutput(auxiliary + self.beta_clone * divergence + value, metrics)

    def _value_losses(self, critic: Any, state: PyTree, rows: Batch, outputs: Array) -> Array:
        """Return the critic's losses [N] of value outputs [N, num_values], without an effect of its `value_clip`.

        V of these outputs is passed to the critic as the old V, so that clipping around it changes nothing.
        """
        own = jax.lax.stop_gradient(jax.vmap(critic.value, (None, 0))(state, outputs))
        return value_losses(critic, state, outputs, rows._replace(steps=dataclasses.replace(rows.steps, value=own)))

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)


def actor_features(features: PyTree) -> PyTree:
    """Return the features that the policy reads: the entry "actor" of a dict of features, or else all features."""
    return features["actor"] if isinstance(features, dict) and "actor" in features else features


def with_rollout(ring: Batch | tuple[()], batch: Batch, rollouts: int, number: Array) -> Batch:
    """Return the ring buffer of the last rollouts, [rollouts, M, L], with `batch` [M, L] in the place of the oldest.

    A rollout is M sequences of L steps. `number` [] is the number of rollouts before this one. If `ring` is (), a new
    buffer is made, in which all rows but those of `batch` are invalid.
    """
    # every field that a minibatch sampler may read, but not inputs of other extensions
    steps = dataclasses.replace(batch.steps, final_value=None, extras=())
    own = Batch(steps, batch.targets)
    if not jax.tree.leaves(ring):
        ring = jax.tree.map(lambda x: jnp.zeros((rollouts, *x.shape), x.dtype), own)
    write = jax.lax.dynamic_update_index_in_dim
    written: Batch = jax.tree.map(lambda all_of_them, x: write(all_of_them, x, number % rollouts, 0), ring, own)
    return written


def split_minibatches(drawn: MinibatchIndices, size: int, padding: int) -> MinibatchIndices:
    """Return minibatches that were drawn from several rollouts at once, split into minibatches of `size` sequences.

    Where the last piece of a minibatch is shorter, the index `padding` fills it up.
    """
    pieces = -(-drawn.index.shape[1] // size)

    def one(x: Array, fill: float) -> Array:
        return jnp.pad(x, ((0, 0), (0, pieces * size - x.shape[1])), constant_values=fill).reshape(-1, size)

    weight = None if drawn.weight is None else one(drawn.weight, 0.0)
    return MinibatchIndices(one(drawn.index, padding), weight)
