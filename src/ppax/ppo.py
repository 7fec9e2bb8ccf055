"""Proximal Policy Optimization: the agent and its whole learning phase, top to bottom.

Schulman et al. 2017, https://arxiv.org/abs/1707.06347. Equations live in the parts (advantages/, losses/); the order
of things lives here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax import normalize, parallel
from ppax.accumulate import mean_gradient
from ppax.advantages import GAE
from ppax.losses import ClippedSurrogate
from ppax.metrics import Summary, pack
from ppax.minibatches import Shuffle
from ppax.optimizers import Adam
from ppax.program import Program
from ppax.schedules import Constant
from ppax.sequences import masked_mean, masked_means, masked_std, to_pairs, to_rows, to_sequences, zero_rows
from ppax.types import (
    Advantage,
    Batch,
    Decision,
    Key,
    LearnerState,
    Loss,
    LossOutput,
    Metrics,
    Minibatches,
    Network,
    Optimizer,
    Params,
    PyTree,
    Rollout,
    Scalar,
    Schedule,
    Targets,
    number,
    part,
    static,
)


class Policy(NamedTuple):
    """What the network says about the current observation of every stream."""

    carry: PyTree  # [B, ...]
    distribution: Any  # [B]
    value: Array  # [B]


class Update(NamedTuple):
    """The learner after an update, and what happened."""

    learner: LearnerState
    metrics: Metrics


@part
class PPO:
    """A PPO agent: parts and numbers. Numbers are leaves, so `jax.vmap` over agents is a sweep."""

    network: Network
    advantage: Advantage = GAE()
    loss: Loss = ClippedSurrogate()
    minibatch: Minibatches = Shuffle()
    optimizer: Optimizer = Adam()
    schedule: Schedule = Constant()
    program: Program = Program()
    learning_rate: Scalar = number("step size of the optimiser", default=3e-4, low=0.0)
    gamma: Scalar = number("discount of future rewards; defines the objective", default=0.99, low=0.0, high=1.0)
    max_grad_norm: Scalar | None = number("bound on the gradient's global norm", default=0.5, above=0.0)
    num_epochs: int = static("passes over each rollout", default=4, low=1)
    seq_len: int | None = static(
        "steps in a sequence; by default 1 without memory, else a rollout", default=None, low=1
    )
    normalize_obs: bool = static("observations to mean 0 and variance 1, by running statistics", default=False)
    normalize_reward: bool = static("rewards over the running std of the discounted return", default=False)
    normalize_advantage: str = static(
        "where advantages get mean 0 and std 1", default="minibatch", choices=("minibatch", "rollout", "off")
    )

    # ------------------------------------------------------------ the three verbs

    def init(self, observation_space: spaces.Space, key: Key) -> LearnerState:
        """A fresh learner for observations of `observation_space`."""
        params = self.network.init(key)
        shapes = jax.tree.map(jnp.asarray, observation_space.sample()) if self.normalize_obs else None
        return LearnerState(
            params=params,
            opt_state=self._optimizer().init(ravel_pytree(params)[0] if self.optimizer.elementwise else params),
            obs_stats=normalize.init_obs_stats(shapes) if self.normalize_obs else None,
            reward_stats=normalize.init_stats(()) if self.normalize_reward else None,
        )

    def act(
        self,
        learner: LearnerState,
        carry: PyTree,
        obs: PyTree,
        first: Array,
        action_mask: PyTree | None,
        key: Key,
    ) -> Decision:
        """Sample an action for every stream; all arguments are [B, ...], `key` too, or one for all."""
        key = jax.random.split(key, first.shape[0]) if key.ndim == 0 else key
        policy = self.policy(learner, carry, obs, first, action_mask)
        action = jax.vmap(lambda one, key: one.sample(key))(policy.distribution, key)
        return Decision(
            carry=policy.carry,
            action=action,
            env_action=policy.distribution.env_action(action),
            log_prob=policy.distribution.log_prob(action),
            value=policy.value,
        )

    def update(self, learner: LearnerState, rollout: Rollout, key: Key) -> Update:
        """Learn from one rollout: targets once, then `num_epochs` passes in minibatches."""
        learner, batch = self._prepare(learner, rollout)
        transformation = self._optimizer()
        # One vector of all parameters: an elementwise optimiser is a few operations on it, not a few a layer
        vector, to_params = ravel_pytree(learner.params)

        def loss(params: Params, chosen: tuple[Array, Array]) -> LossOutput:
            index, advantage = chosen
            minibatch: Batch = jax.tree.map(lambda x: x[index], batch)
            minibatch = minibatch._replace(targets=minibatch.targets._replace(advantage=advantage))
            return self._loss(params, learner.obs_stats, minibatch)

        def gradient_step(state: tuple[Array, PyTree], index: Array) -> tuple[tuple[Array, PyTree], Summary]:
            vector, opt_state = state
            valid = batch.steps.valid[index]
            # standardised over the whole minibatch, before it is taken in chunks
            advantage, extra = self._advantage(batch.targets.advantage[index], valid)
            gradient, metrics = mean_gradient(loss, to_params(vector), (index, advantage), valid, self.program.rows())
            extra["grad_norm"] = optax.global_norm(gradient)
            if self.optimizer.elementwise:
                steps, opt_state = transformation.update(gradient, opt_state, vector)
            else:
                tree, opt_state = transformation.update(to_params(gradient), opt_state, to_params(vector))
                steps = ravel_pytree(tree)[0]
            return (vector + steps, opt_state), pack({**metrics, **extra})

        def epoch(state: tuple[Array, PyTree], key: Key) -> tuple[tuple[Array, PyTree], Summary]:
            return jax.lax.scan(gradient_step, state, self.minibatch(batch, key))

        (vector, opt_state), history = jax.lax.scan(
            epoch, (vector, learner.opt_state), jax.random.split(key, self.num_epochs)
        )
        obs_stats = learner.obs_stats
        if self.normalize_obs:  # only now: acting and learning saw the same frozen statistics
            obs_stats = normalize.update_obs_stats(obs_stats, batch.steps.obs, batch.steps.valid)
        metrics = self._metrics(batch, history)
        return Update(LearnerState(to_params(vector), opt_state, obs_stats, learner.reward_stats), metrics)

    # ------------------------------------------------------------ the network, for one step and for sequences

    def initial_carry(self, num_streams: int) -> PyTree:
        """Memory at the start of an episode, [B, ...]."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_streams, *x.shape)), self.network.initial_carry())

    def policy(
        self, learner: LearnerState, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None
    ) -> Policy:
        """Distribution, value and next carry for the current observation of every stream, [B, ...]."""
        row = jax.tree.map(lambda x: x[:, None], (obs, first, action_mask))
        return self._sequences(learner.params, learner.obs_stats, carry, *row)

    def _sequences(
        self, params: Params, obs_stats: PyTree, carry: PyTree, obs: PyTree, first: Array, mask: PyTree | None
    ) -> Policy:
        """The network over sequences [M, L, ...]; distribution and value come as rows [N]."""
        network, length = self.network, first.shape[1]
        obs, mask = to_rows(obs), to_rows(mask)
        if self.normalize_obs:
            obs = normalize.normalize_obs(obs_stats, obs)
        # Rows, not [M, L]: only `remember` needs time, and flat matrix products are a third faster
        features = jax.vmap(network.encode, (None, 0))(params, obs)
        memory = jax.vmap(network.remember, (None, 0, 0, 0))(params, carry, to_pairs(features, length), first)
        outputs = jax.vmap(network.decide, (None, 0, 0))(params, to_rows(memory.features), mask)
        return Policy(memory.carry, outputs.distribution, outputs.value)

    # ------------------------------------------------------------ one update, in pieces

    def _optimizer(self) -> optax.GradientTransformation:
        """Clip by global norm, then the optimiser; rebuilt from the traced numbers, state is moments only."""
        steps = self.optimizer(self.learning_rate)
        if self.max_grad_norm is None:
            return steps
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), steps)

    def _prepare(self, learner: LearnerState, rollout: Rollout) -> tuple[LearnerState, Batch]:
        """Targets from the rollout, and both cut into sequences [M, L]; rows that do not count become zero."""
        steps = rollout.steps
        if self.normalize_reward:
            trace, valid = parallel.gather((rollout.reward_trace, steps.valid), axis=1)
            stats = normalize.update_stats(learner.reward_stats, trace, valid)
            learner = learner._replace(reward_stats=stats)
            steps = normalize.scale_rewards(stats, steps)
        next_value = jnp.concatenate([steps.value[1:], rollout.last_value[None]])
        targets = jax.vmap(self.advantage, (1, 1, None), 1)(steps, next_value, self.gamma)
        batch = zero_rows(steps.valid, Batch(rollout.steps, Targets(*jax.lax.stop_gradient(targets))))
        batch = parallel.gather(to_sequences(batch, self.sequence_length(steps.valid.shape[0])))
        if self.normalize_advantage == "rollout":
            advantage = standardize(batch.targets.advantage, batch.steps.valid)
            batch = batch._replace(targets=batch.targets._replace(advantage=advantage))
        return learner, batch

    def _advantage(self, advantage: Array, valid: Array) -> tuple[Array, Metrics]:
        """Advantages of one minibatch [M, L] as its loss sees them."""
        if self.normalize_advantage != "minibatch":
            return advantage, {}
        skipped = (valid.sum() < 2).astype(jnp.float32)
        return standardize(advantage, valid), {"advantage_norm_skipped": skipped}

    def _loss(self, params: Params, obs_stats: PyTree, minibatch: Batch) -> LossOutput:
        """The loss of sequences [M, L]."""
        steps = minibatch.steps
        carry = jax.tree.map(lambda x: x[:, 0], steps.carry)
        policy = self._sequences(params, obs_stats, carry, steps.obs, steps.first, steps.action_mask)
        return self.loss(policy.distribution, policy.value, to_rows(minibatch))

    def _metrics(self, batch: Batch, history: Summary) -> Metrics:
        """Scalars of one update; `history` has one entry a gradient step, [num_epochs, num_minibatches, ...]."""
        valid, value, target = batch.steps.valid, batch.steps.value, batch.targets.value
        reduced = dict(Summary(history.means.mean((0, 1)), history.tops.max((0, 1), initial=-jnp.inf), history.names))
        if "ratio_max" in history:
            first = Summary(history.means[0, 0], history.tops[0, 0], history.names)
            # before the first gradient step the ratio must be 1, or acting and learning saw different things
            deviation = jnp.maximum(first["ratio_max"] - 1.0, 1.0 - first["ratio_min"])
            reduced["ratio_first_max_dev"] = jnp.maximum(0.0, deviation)
        columns = jnp.stack([target, target - value, batch.targets.advantage, value, batch.steps.reward])
        means = masked_means(list(columns), valid)
        variances = masked_means(list((columns - means[:, None, None]) ** 2), valid)
        target_var, unexplained = variances[0], variances[1]
        return reduced | {
            # 0 where targets do not vary: there is nothing to explain
            "explained_variance": jnp.where(target_var > 0.0, 1.0 - unexplained / target_var, 0.0),
            "advantage_std": jnp.sqrt(variances[2]),
            "value_mean": means[3],
            "target_mean": means[0],
            "target_std": jnp.sqrt(target_var),
            "reward_mean": means[4],
            "valid_fraction": valid.mean(dtype=jnp.float32),
            "learning_rate": jnp.asarray(self.learning_rate, jnp.float32),
        }

    def sequence_length(self, num_steps: int) -> int:
        """L: `seq_len`, or by default 1 for a network without memory and the whole rollout for one with."""
        if self.seq_len is not None:
            return self.seq_len
        return num_steps if jax.tree.leaves(self.network.initial_carry()) else 1


def standardize(advantage: Array, valid: Array) -> Array:
    """To mean 0 and population std 1 over the valid entries; left alone where fewer than two are valid."""
    centred = advantage - masked_mean(advantage, valid)
    scaled = centred / (masked_std(advantage, valid) + 1e-8)
    return jnp.where(valid.sum() < 2, advantage, scaled)
