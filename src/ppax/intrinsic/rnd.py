"""Random network distillation (RND): a reward for observations that a predictor does not know yet. Burda et al. 2018,
https://arxiv.org/abs/1810.12894

Section 2.2: the reward of a step is the error of a trained predictor of a fixed random network, at the observation
after it. Section 2.4: observations are standardised by their running statistics and clipped, rewards divided by the
running standard deviation of their discounted sum. Differences: the critic has one head, for the weighted sum of
rewards; statistics of observations begin with the first rollout, not with random actions before it; the target is the
encoder of the agent's own network, drawn again, with layers of its own.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.arrays.metrics import unpack
from ppax.arrays.sequences import to_rows, zero_rows
from ppax.intrinsic import returns
from ppax.learning import normalization
from ppax.learning.forward import in_float32
from ppax.learning.gradient import mean_gradient
from ppax.minibatches.shuffle import permutation
from ppax.networks.layers import dense, init_dense, init_layers, layers
from ppax.program import sharding
from ppax.program.layout import Program, only_if
from ppax.protocols import IntrinsicRewards, Network
from ppax.types import Key, LossOutput, Params, PyTree, Rollout, Scalar, number, part, static


class RNDState(NamedTuple):
    """Networks, optimiser and statistics; part of the learner."""

    target: Params  # fixed
    predictor: Params
    opt_state: PyTree
    obs_stats: PyTree
    return_stats: normalization.RunningStats
    key: Key  # of the predictor's minibatches


class Training(NamedTuple):
    """Carry of the scan over the predictor's gradient steps."""

    vector: Array  # [P] the predictor's parameters
    opt_state: PyTree


@part
class RND:
    """Random network distillation (RND). Burda et al. 2018, https://arxiv.org/abs/1810.12894

    Adds coef * (mean squared error of the predictor) / (running std of its discounted sum) to the reward of a step.
    """

    coef: Scalar = number("weight of the intrinsic reward, beside that of the environment", default=0.2, low=0.0)
    gamma: Scalar = number(
        "discount factor of the sum whose std scales the intrinsic reward", default=0.99, low=0.0, high=1.0
    )
    learning_rate: Scalar = number("learning rate of the predictor", default=1e-3, low=0.0)
    episodic: bool = static("end that discounted sum with an episode, instead of going on into the next", default=False)
    num_epochs: int = static("passes of the predictor over each rollout", default=4, low=1)
    num_minibatches: int = static("gradient steps of the predictor in one pass", default=4, low=1)
    embedding: int = static("outputs of the target network", default=64, low=1)
    hidden: tuple[int, ...] = static("widths of the target's hidden layers after the encoder", default=(64,), low=1)
    predictor_hidden: tuple[int, ...] = static(
        "widths of the predictor's hidden layers after the encoder", default=(64, 64), low=1
    )
    obs_clip: float = static("clip range of standardised observations, in standard deviations", default=5.0, above=0.0)

    def init(self, network: Network, observation_space: spaces.Space, key: Key) -> RNDState:
        """Return target and predictor, with encoders as that of `network`, and statistics of nothing."""
        keys = jax.random.split(key, 4)
        target, predictor = (in_float32(network.init(one)) for one in jax.random.split(keys[0]))
        example = copy.deepcopy(observation_space).sample()  # the space draws for others, too; only its shapes are used
        size = jax.eval_shape(lambda: encoded(network, target, jax.tree.map(jnp.asarray, example))).shape[0]
        target = {"encoder": target, "head": self._init_head(keys[1], size, self.hidden)}
        predictor = {"encoder": predictor, "head": self._init_head(keys[2], size, self.predictor_hidden)}
        opt_state = self._optimizer().init(ravel_pytree(predictor)[0])
        stats = normalization.init_obs_stats(observation_space), normalization.init_stats(())
        return RNDState(target, predictor, opt_state, *stats, keys[3])

    def initial_streams(self, num_streams: int) -> Array:
        """Return the discounted sum of each stream's rewards so far, [B]: 0."""
        return jnp.zeros(num_streams, jnp.float32)

    def __call__(self, network: Network, state: RNDState, rollout: Rollout) -> IntrinsicRewards:
        """Return the rewards [T, B] by the predictor before this rollout, and the state after learning from it.

        Where a host environment resets in the same step, the observation after an episode's end is the next one's
        first.
        """
        steps = rollout.steps
        after = jax.tree.map(lambda x, last: jnp.concatenate([x[1:], last[None]]), steps.obs, rollout.last_obs)
        after = zero_rows(steps.valid, after)
        obs, valid = sharding.gather((after, steps.valid), axis=1)
        state = state._replace(obs_stats=normalization.update_obs_stats(state.obs_stats, obs, valid))
        error = to_rows_of(self._errors(network, state, state.predictor, to_rows(after)), steps.valid)
        reward, stats, trace = returns.scaled(
            state.return_stats, rollout.intrinsic, error, steps, self.gamma, self.episodic
        )
        # a copy: the same state is used again where an iteration is discarded
        key, own_key = jax.random.split(jax.random.clone(state.key))
        state, loss = self._train(network, state, to_rows(obs), to_rows(valid), own_key)
        state = state._replace(return_stats=stats, key=key)
        return IntrinsicRewards(self.coef * reward, state, trace, {"predictor_loss": loss})

    def _train(self, network: Network, state: RNDState, obs: PyTree, valid: Array, key: Key) -> tuple[RNDState, Array]:
        """Train the predictor on the rows [N] that are `valid`; also return its mean loss over all steps."""
        vector, to_params = ravel_pytree(state.predictor)

        def loss(params: Params, index: Array, valid: Array) -> LossOutput:
            errors = self._errors(network, state, params, jax.tree.map(lambda x: x[index], obs))
            mean = jnp.where(valid[:, 0], errors, 0.0).sum() / jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)
            return LossOutput(mean, {"predictor_loss": mean})

        def step(before: Training, index: Array) -> tuple[Training, Any]:
            chosen = valid[index] & (index < valid.shape[0])
            gradient, metrics = mean_gradient(loss, to_params(before.vector), index, chosen[:, None], rows_at_once(obs))

            def descend() -> Training:
                updates, opt_state = self._optimizer().update(gradient, before.opt_state)
                return Training(before.vector + updates, opt_state)

            learned = unpack(metrics)["predictor_loss"], chosen.any()
            return only_if(chosen.any(), descend, before), learned

        index = jnp.concatenate(
            [self._minibatches(one, valid.shape[0]) for one in jax.random.split(key, self.num_epochs)]
        )
        trained, (losses, some) = jax.lax.scan(step, Training(vector, state.opt_state), index)
        state = state._replace(predictor=to_params(trained.vector), opt_state=trained.opt_state)
        return state, jnp.where(some, losses, 0.0).sum() / jnp.maximum(some.sum(), 1)

    def _minibatches(self, key: Key, rows: int) -> Array:
        """Draw indices [num_minibatches, n] of all rows once; index `rows` is padding."""
        size, parts = -(-rows // self.num_minibatches), sharding.num_parts()
        order = jnp.pad(permutation(key, rows), (0, size * self.num_minibatches - rows), constant_values=rows)
        shares = order.reshape(self.num_minibatches, size)
        return jnp.pad(shares, ((0, 0), (0, -size % parts)), constant_values=rows)  # the same minibatches on any number

    def _errors(self, network: Network, state: RNDState, predictor: Params, obs: PyTree) -> Array:
        """Mean squared error of the predictor, over the target's outputs, for each of the rows [N] of observations."""
        obs = in_float32(normalization.normalize_obs(state.obs_stats, obs, self.obs_clip))

        def one(row: PyTree) -> Array:
            target = self._embed(network, state.target, self.hidden, row)
            return jnp.square(self._embed(network, predictor, self.predictor_hidden, row) - target).mean()

        at_once, rows = rows_at_once(obs), jax.tree.leaves(obs)[0].shape[0]
        errors: Array = jax.vmap(one)(obs) if rows <= at_once else jax.lax.map(one, obs, batch_size=at_once)
        return errors

    def _embed(self, network: Network, params: Params, hidden: tuple[int, ...], obs: PyTree) -> Array:
        """Return the outputs [embedding] of the target or the predictor for one observation."""
        features = encoded(network, params["encoder"], obs)
        return dense(params["head"], layers(params["head"], features, hidden, "relu"))

    def _init_head(self, key: Key, size: int, hidden: tuple[int, ...]) -> Params:
        """Return parameters of the hidden layers and the linear layer after them."""
        hidden_key, last_key = jax.random.split(key)
        return init_layers(hidden_key, size, hidden) | init_dense(last_key, (size, *hidden)[-1], self.embedding, 1.0)

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)


def encoded(network: Network, params: Params, obs: PyTree) -> Array:
    """Return the network's features of one observation as one vector."""
    return jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(in_float32(network.encode(params, obs)))])


def rows_at_once(obs: PyTree) -> int:
    """Return the rows [N] of observations whose activations fit the processor's cache."""
    return Program().rows(1, "float32", jax.tree.map(lambda x: x[:, None], obs))


def to_rows_of(x: Array, like: Array) -> Array:
    """Return rows [N] in the shape of `like` [T, B]."""
    return x.reshape(like.shape)
