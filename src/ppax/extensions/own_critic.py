"""Separate critic of intrinsic rewards, whose advantages are added to PPO's.

Burda et al. 2018, https://arxiv.org/abs/1810.12894, section 2.3: A = A_E + A_I, the advantages of the environment's
(extrinsic) and of intrinsic rewards; returns of intrinsic rewards have a discount of their own and do not end with an
episode. Unlike there, the critic of intrinsic rewards is a network of its own, without memory, not a second head of the
agent's; the weight of A_I is that of the rewards (`coef` of RND).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.arrays.sequences import to_rows, where_rows, zero_rows
from ppax.core.parts import slot
from ppax.core.protocols import Network
from ppax.core.types import (
    ConfigError,
    ExtensionState,
    Key,
    Params,
    PyTree,
    Rollout,
    Scalar,
    Targets,
    number,
    part,
    static,
)
from ppax.devices import sharding
from ppax.extensions.auxiliary_networks import init_network, map_rows, network_outputs, train_network
from ppax.extensions.next_observations import following, following_in_episode
from ppax.extensions.rnd import RND, mean_reward
from ppax.ppo import normalization
from ppax.ppo.extension import Before, Extension
from ppax.ppo.forward import in_float32


class OwnCriticState(NamedTuple):
    """State of the extension OwnCritic: the state of its intrinsic reward, and its critic's parameters and optimiser.

    It also has running statistics of observations, and the key of the critic's minibatches.
    """

    reward: PyTree
    critic: Params
    opt_state: PyTree
    obs_stats: PyTree
    key: Key  # of the critic's minibatches


@part
class OwnCritic(Extension):
    """Separate critic of an intrinsic reward, besides PPO's. Burda et al. 2018, https://arxiv.org/abs/1810.12894

    This critic's advantages, by GAE over intrinsic rewards alone, are added to PPO's advantages of the environment's
    rewards.
    """

    reward: Extension = slot(
        "extension", "intrinsic reward whose value the critic learns", default=RND(), first={"rnd": RND}
    )
    gamma: Scalar = number("discount factor of intrinsic rewards", default=0.99, low=0.0, high=1.0)
    gae_lambda: Scalar = number("GAE lambda of intrinsic rewards", default=0.95, low=0.0, high=1.0)
    learning_rate: Scalar = number("learning rate of this critic", default=1e-3, low=0.0)
    episodic: bool = static(
        "end intrinsic returns with an episode, bootstrapped at a truncation; false: go on into the next",
        default=False,
    )
    num_epochs: int = static("passes of this critic over each rollout", default=4, low=1)
    num_minibatches: int = static("gradient steps of this critic in one pass", default=4, low=1)
    hidden: tuple[int, ...] = static("widths of this critic's hidden layers after the encoder", default=(64,), low=1)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return OwnCritic's first state: that of the intrinsic reward, and a critic with random parameters."""
        network: Network = agent.network
        reward_key, encoder_key, head_key, own_key = jax.random.split(key, 4)
        encoder = in_float32(network.init(encoder_key))
        critic = init_network(network, observation_space, encoder, self.hidden, 1, head_key)
        opt_state = self._optimizer().init(ravel_pytree(critic)[0])
        reward = self.reward.init(agent, observation_space, reward_key).state
        stats = normalization.init_obs_stats(observation_space)
        return ExtensionState(OwnCriticState(reward, critic, opt_state, stats, own_key))

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the initial state that the intrinsic reward keeps for each stream, [B, ...].

        A stream is one agent in one environment.
        """
        return self.reward.init_streams(num_streams)

    def before(self, agent: Any, state: OwnCriticState, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return the advantages [T, B] of intrinsic rewards, and the state after the critic's training on the rollout.

        The advantages are computed with the critic before this training. PPO's rewards are returned as they are; the
        hook `targets` adds the advantages. Raises ConfigError where `self.reward`, the extension that computes the
        intrinsic rewards, returns none.
        """
        network, steps, none = agent.network, rollout.steps, jnp.zeros_like(reward)
        inner = self.reward.before(agent, state.reward, streams, rollout, none)
        if inner.reward is none:
            name = type(self.reward).__name__
            raise ConfigError(f'own_critic.reward: {name} gives no rewards to learn the value of; write part = "rnd"')
        obs = zero_rows(steps.valid, steps.obs)
        every, valid = sharding.gather((obs, steps.valid), axis=1)
        stats = normalization.update_obs_stats(state.obs_stats, every, valid)
        state = state._replace(reward=inner.state, obs_stats=stats)
        value, after_value = self._values_of(network, state, rollout)
        estimate = jax.vmap(stream_targets, (1, 1, 1, 1, 1, 1, None, None, None), 1)
        targets = estimate(
            value,
            after_value,
            inner.reward,
            steps.valid,
            steps.terminated,
            steps.ended,
            self.gamma,
            self.gae_lambda,
            self.episodic,
        )
        targets = zero_rows(steps.valid, targets)
        # a copy: the same state is used again where an iteration is discarded
        key, own_key = jax.random.split(jax.random.clone(state.key))
        goals = to_rows(sharding.gather(targets.value, axis=1))
        state, loss = self._train(network, state, to_rows(every), goals, to_rows(valid), own_key)
        own = {"intrinsic_reward": mean_reward(inner.reward, steps.valid), "intrinsic_value_loss": loss}
        return Before(state._replace(key=key), reward, targets.advantage, inner.streams, {**inner.metrics, **own})

    def targets(self, targets: Targets, extras: Array) -> Targets:
        """Return PPO's targets with the advantages of intrinsic rewards, `extras`, added; value targets stay."""
        return targets._replace(advantage=targets.advantage + extras)

    def _values_of(self, network: Network, state: OwnCriticState, rollout: Rollout) -> tuple[Array, Array]:
        """Return the intrinsic critic's V of each step's observation, and of the observation after it, [T, B] each.

        Where the observation after a step is not known, both are V of the step's own observation. With `episodic`, the
        observation also counts as not known if it already belongs to the next episode.
        """
        valid = rollout.steps.valid
        after, known = following_in_episode(rollout) if self.episodic else following(rollout)
        # a row after a valid step is read twice: as its own observation, and as the one after that step
        own = zero_rows(valid, rollout.steps.obs)
        first = jax.tree.map(lambda x: x[:1], own)
        rest = where_rows(known, after, jax.tree.map(lambda x: jnp.concatenate([x[1:], jnp.zeros_like(x[:1])]), own))
        every = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), first, rest)
        value = self._values(network, state, state.critic, to_rows(every)).reshape(len(valid) + 1, -1)
        return value[:-1], jnp.where(known, value[1:], value[:-1])

    def _train(
        self, network: Network, state: OwnCriticState, obs: PyTree, goals: Array, valid: Array, key: Key
    ) -> tuple[OwnCriticState, Array]:
        """Return the state after training the intrinsic critic towards value targets `goals` [N], and the loss, [].

        Only rows that are `valid` [N] count. The loss is the mean over the gradient steps.
        """

        def losses(params: Params, obs: PyTree, index: Array) -> Array:
            return 0.5 * jnp.square(self._values(network, state, params, obs) - goals[index])

        trained = train_network(
            losses,
            self._optimizer(),
            state.critic,
            state.opt_state,
            obs,
            valid,
            self.num_epochs,
            self.num_minibatches,
            key,
        )
        return state._replace(critic=trained.params, opt_state=trained.opt_state), trained.loss

    def _values(self, network: Network, state: OwnCriticState, critic: Params, obs: PyTree) -> Array:
        """Return V of intrinsic rewards, [N], for observations [N, ...], with the critic's parameters `critic`."""
        obs = in_float32(normalization.normalize_obs(state.obs_stats, obs))
        return map_rows(lambda row: network_outputs(network, critic, self.hidden, row)[0], obs)

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)


def stream_targets(
    value: Array,
    after_value: Array,
    reward: Array,
    valid: Array,
    terminated: Array,
    ended: Array,
    gamma: Scalar,
    gae_lambda: Scalar,
    episodic: bool,
) -> Targets:
    """Return advantages (by GAE) and value targets, [T] each, of the intrinsic rewards of one stream.

    A stream is one agent in one environment; only its `valid` steps count. `value` and `after_value` are V of the
    observation of each step and of the observation after it.

    If not `episodic`, returns go on through the ends of episodes: the next value there is V of the next episode's first
    observation, or where the rollout has none, of the final observation. If `episodic`, returns end with an episode:
    the next value is 0 after a termination, and V of the final observation after a truncation.
    """

    def step(later: tuple[Array, Array, Array], row: tuple[Array, ...]) -> tuple[tuple[Array, Array, Array], Array]:
        later_value, later_advantage, some = later  # of the next valid step, if there is one
        value_t, after_t, reward_t, valid_t, terminated_t, ended_t = row
        if episodic:
            next_value = jnp.where(terminated_t, 0.0, after_t)
            next_advantage = jnp.where(ended_t, 0.0, later_advantage)
        else:
            next_value = jnp.where(ended_t & some, later_value, after_t)
            next_advantage = later_advantage
        advantage = reward_t + gamma * next_value - value_t + gamma * gae_lambda * next_advantage
        before = jnp.where(valid_t, value_t, later_value), jnp.where(valid_t, advantage, later_advantage)
        return (*before, some | valid_t), before[1]

    zero = jnp.zeros((), value.dtype)
    rows = value, after_value, reward, valid, terminated, ended
    advantage = jax.lax.scan(step, (zero, zero, jnp.zeros((), bool)), rows, reverse=True)[1]
    return Targets(advantage, advantage + value)
