"""Random network distillation (RND): a reward for observations that a predictor does not know yet. Burda et al. 2018,
https://arxiv.org/abs/1810.12894

Section 2.2: the reward of a step is the error of a trained predictor of a fixed random network, at the observation
after it. Section 2.4: observations are standardised by their running statistics and clipped, rewards divided by the
running standard deviation of their discounted sum. Differences: the critic has one head, for the weighted sum of
rewards (see own_critic.py for two); statistics of observations begin with the first rollout, not with random actions
before it; the target is the encoder of the agent's own network, drawn again, with layers of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.arrays.sequences import to_rows
from ppax.core.protocols import Network
from ppax.core.types import ExtensionState, Key, Params, PyTree, Rollout, Scalar, Transition, number, part, static
from ppax.devices import sharding
from ppax.extensions.auxiliary_networks import init_network, map_rows, network_outputs, train_network
from ppax.extensions.next_observations import following
from ppax.ppo import normalization
from ppax.ppo.extension import Before, Extension
from ppax.ppo.forward import in_float32

LEAST_VARIANCE = 1e-12  # lower bound of the variance: near-zero rewards of a perfect predictor are not scaled up


class RNDState(NamedTuple):
    """State of the extension RND: target network, predictor with optimiser, running statistics, and key."""

    target: Params  # fixed
    predictor: Params
    opt_state: PyTree
    obs_stats: PyTree
    return_stats: normalization.RunningStats
    key: Key  # of the predictor's minibatches


@part
class RND(Extension):
    """Random network distillation (RND). Burda et al. 2018, https://arxiv.org/abs/1810.12894

    It adds coef * (mean squared error of the predictor) / (running std of this error's discounted sum) to the reward of
    a step, so that observations which the predictor does not know yet are rewarded.
    """

    coef: Scalar = number("weight of the intrinsic reward; the environment's has weight 1", default=0.2, low=0.0)
    gamma: Scalar = number(
        "discount factor of the sum of intrinsic rewards whose std scales them", default=0.99, low=0.0, high=1.0
    )
    learning_rate: Scalar = number("learning rate of the predictor", default=1e-3, low=0.0)
    episodic: bool = static(
        "end the discounted sum of `gamma` with an episode, instead of going on into the next", default=False
    )
    num_epochs: int = static("passes of the predictor over each rollout", default=4, low=1)
    num_minibatches: int = static("gradient steps of the predictor in one pass", default=4, low=1)
    embedding: int = static("outputs of the target network", default=64, low=1)
    hidden: tuple[int, ...] = static("widths of the target's hidden layers after the encoder", default=(64,), low=1)
    predictor_hidden: tuple[int, ...] = static(
        "widths of the predictor's hidden layers after the encoder", default=(64, 64), low=1
    )
    obs_clip: float = static("clip range of standardised observations, in standard deviations", default=5.0, above=0.0)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return RND's first state: random target and predictor, with encoders like the agent's; empty statistics."""
        network: Network = agent.network
        keys = jax.random.split(key, 4)
        encoders = [in_float32(network.init(one)) for one in jax.random.split(keys[0])]
        target = init_network(network, observation_space, encoders[0], self.hidden, self.embedding, keys[1])
        predictor = init_network(
            network, observation_space, encoders[1], self.predictor_hidden, self.embedding, keys[2]
        )
        opt_state = self._optimizer().init(ravel_pytree(predictor)[0])
        obs_stats, reward_stats = normalization.init_obs_stats(observation_space), normalization.init_stats(())
        return ExtensionState(RNDState(target, predictor, opt_state, obs_stats, reward_stats, keys[3]))

    def init_streams(self, num_streams: int) -> Array:
        """Return RND's initial state of each stream, [B]: its discounted sum of intrinsic rewards so far, which is 0.

        A stream is one agent in one environment.
        """
        return jnp.zeros(num_streams, jnp.float32)

    def before(self, agent: Any, state: RNDState, streams: Array, rollout: Rollout, reward: Array) -> Before:
        """Return the rewards [T, B] with intrinsic ones added, and the state after the predictor's training.

        The intrinsic rewards are those of the predictor before it learns from this rollout. Where a host environment
        resets in the same step, the observation after an episode's end is the first of the next episode. A final
        observation that is not finite gives no reward, and is not learned from.
        """
        network, steps = agent.network, rollout.steps
        after, known = following(rollout)
        obs, valid = sharding.gather((after, known), axis=1)
        state = state._replace(obs_stats=normalization.update_obs_stats(state.obs_stats, obs, valid))
        error = self._errors(network, state, state.predictor, to_rows(after)).reshape(known.shape)
        error = jnp.where(known, error, 0.0)
        scaled, stats, trace = scale_rewards(state.return_stats, streams, error, steps, self.gamma, self.episodic)
        own = self.coef * scaled
        # a copy: the same state is used again where an iteration is discarded
        key, own_key = jax.random.split(jax.random.clone(state.key))
        state, loss = self._train(network, state, to_rows(obs), to_rows(valid), own_key)
        state = state._replace(return_stats=stats, key=key)
        metrics = {"intrinsic_reward": mean_reward(own, steps.valid), "predictor_loss": loss}
        return Before(state, reward + own, (), trace, metrics)

    def _train(self, network: Network, state: RNDState, obs: PyTree, valid: Array, key: Key) -> tuple[RNDState, Array]:
        """Return RND's state after training the predictor on `valid` rows [N], and the mean loss of gradient steps."""

        def errors(params: Params, obs: PyTree, index: Array) -> Array:
            return self._errors(network, state, params, obs)

        trained = train_network(
            errors,
            self._optimizer(),
            state.predictor,
            state.opt_state,
            obs,
            valid,
            self.num_epochs,
            self.num_minibatches,
            key,
        )
        return state._replace(predictor=trained.params, opt_state=trained.opt_state), trained.loss

    def _errors(self, network: Network, state: RNDState, predictor: Params, obs: PyTree) -> Array:
        """Return the predictor's mean squared error for each row of observations [N, ...], [N].

        It is the mean over all outputs of the target network. `predictor` are the predictor's parameters.
        """
        obs = in_float32(normalization.normalize_obs(state.obs_stats, obs, self.obs_clip))

        def one(row: PyTree) -> Array:
            target = network_outputs(network, state.target, self.hidden, row)
            return jnp.square(network_outputs(network, predictor, self.predictor_hidden, row) - target).mean()

        return map_rows(one, obs)

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)


class Scaled(NamedTuple):
    """Result of `scale_rewards`: scaled rewards, and the statistics and discounted sums after these rewards."""

    reward: Array  # [T, B]
    stats: normalization.RunningStats  # of the discounted sums
    trace: Array  # [B] discounted sum of each stream's rewards so far


def scale_rewards(
    stats: normalization.RunningStats, trace: Array, reward: Array, steps: Transition, gamma: Scalar, episodic: bool
) -> Scaled:
    """Return `reward` [T, B] divided by the running standard deviation of its discounted sum.

    Section 2.4 of the paper on RND. The returned statistics are `stats` with these steps. `trace` [B] is the
    discounted sum before these steps in each stream (one agent in one environment). If `episodic`, the sum begins anew
    with each episode, also if the reset was between two rollouts; otherwise it goes on. Steps that are not valid have
    no reward and are left out.
    """
    sums = jax.vmap(discounted_so_far, (0, 1, 1, 1, None, None), (0, 1))
    trace, traces = sums(trace, reward, steps.valid, steps.first, gamma, episodic)
    stats = normalization.update_stats(stats, *sharding.gather((traces, steps.valid), axis=1))
    variance = jnp.maximum(stats.var.high, LEAST_VARIANCE)
    return Scaled(jnp.where(steps.valid, reward * jax.lax.rsqrt(variance), 0.0), stats, trace)


def discounted_so_far(
    trace: Array, reward: Array, valid: Array, first: Array, gamma: Scalar, episodic: bool
) -> tuple[Array, Array]:
    """Return the discounted sum of one stream's rewards after all steps, [], and after each step, [T].

    A stream is one agent in one environment. `trace` [] is the sum before these steps. With `episodic` the sum begins
    anew where `first` [T] is True, at first steps of episodes.
    """

    def step(before: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward_t, valid_t, first_t = row
        before = jnp.where(first_t & episodic, 0.0, before)
        after = jnp.where(valid_t, gamma * before + reward_t, before)
        return after, after

    return jax.lax.scan(step, trace, (reward, valid, first))


def mean_reward(reward: Array, valid: Array) -> Array:
    """Return the mean reward, [], of the steps where `valid` [T, B], over all devices."""
    total, count = sharding.total((jnp.where(valid, reward, 0.0).sum(), valid.sum(dtype=jnp.float32)))
    mean: Array = total / jnp.maximum(count, 1.0)
    return mean
