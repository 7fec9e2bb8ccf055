"""Proximal Policy Optimization: the agent and its whole learning phase, top to bottom.

Schulman et al. 2017, https://arxiv.org/abs/1707.06347. The parts (advantages/, losses/, critics/) hold the
equations; this file holds the order of the steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.advantages import GAE, check_ratios, spread_rewards
from ppax.arrays import masks
from ppax.arrays.metrics import pack, reduced, unpack
from ppax.arrays.sequences import to_pairs, to_rows, zero_rows
from ppax.critics import Regression
from ppax.critics.base import adapt, rescaled, value_losses
from ppax.learning import batches, normalization
from ppax.learning.diagnostics import History, Update, update_metrics
from ppax.learning.forward import Policy, forward, in_float32
from ppax.learning.gradient import mean_gradient
from ppax.learning.kl_control import KLControl, KLState
from ppax.learning.stored import evaluate_in_chunks
from ppax.losses import ClippedSurrogate
from ppax.losses.base import bounded_log_ratio
from ppax.minibatches import Shuffle
from ppax.optimizers import Adam, clipped
from ppax.parts import slot
from ppax.program import sharding
from ppax.program.layout import Program, only_if
from ppax.protocols import Advantage, Critic, Loss, Minibatches, Network, Optimizer, Schedule
from ppax.schedules import Constant, anneal_parts
from ppax.types import (
    Batch,
    Decision,
    Key,
    LearnerState,
    LossOutput,
    Params,
    PyTree,
    Requirements,
    Rollout,
    Scalar,
    Targets,
    Transition,
    number,
    part,
    static,
)


class UpdateState(NamedTuple):
    """Carry of the scan over gradient steps."""

    params: Params
    vector: Array  # [P] `params` flattened: an elementwise optimiser needs few operations on one vector
    opt_state: PyTree
    kl: KLState
    targets: Targets | None  # [M, L] with recompute = minibatch, else None
    epoch: Array  # [] number of the epoch, from 0


@part
class PPO:
    """PPO agent: a frozen dataclass of parts and numbers (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

    Numbers are pytree leaves, so that `jax.vmap` over agents is a hyperparameter sweep.
    """

    network: Network = slot("network", "actor-critic network")
    advantage: Advantage = slot("advantage", "advantage estimator", default=GAE())
    loss: Loss = slot("loss", "policy loss", default=ClippedSurrogate())
    critic: Critic = slot("critic", "value loss", default=Regression())
    minibatch: Minibatches = slot("minibatch", "draw of the minibatches", default=Shuffle())
    optimizer: Optimizer = slot("optimizer", "optimiser", default=Adam())
    schedule: Schedule = slot("schedule", "annealing of numbers over training", default=Constant())
    kl: KLControl = KLControl()
    program: Program = Program()
    learning_rate: Scalar = number("learning rate of the optimiser", default=3e-4, low=0.0)
    gamma: Scalar = number("discount factor of future rewards", default=0.99, low=0.0, high=1.0)
    max_grad_norm: Scalar | None = number(
        "gradient clipping: largest global norm of the gradient; none: no clipping", default=0.5, above=0.0
    )
    reward_spread_decay: Scalar | None = number(
        "reward spreading: r_t <- r_t + this * r_{t+1}, backwards through the episode; none: off",
        default=None,
        low=0.0,
        high=1.0,
    )
    num_epochs: int = static("passes over each rollout in one update", default=4, low=1)
    seq_len: int | None = static(
        "steps in a training sequence; default: num_steps if the network is recurrent or recompute = minibatch, else 1",
        default=None,
        low=1,
    )
    recompute: str = static(
        "recompute values, ratios and targets: never; before each epoch (all steps); before each minibatch (its steps)",
        default="never",
        choices=("never", "epoch", "minibatch"),
    )
    normalize_obs: bool = static("standardise observations by their running mean and variance", default=False)
    normalize_reward: bool = static("divide rewards by the running std of the discounted return", default=False)
    normalize_advantage: str = static(
        "standardise advantages to mean 0 and std 1: over each minibatch, over the rollout, or off",
        default="minibatch",
        choices=("minibatch", "rollout", "off"),
    )
    compute_dtype: str = static(
        "mixed precision: dtype of the inputs of matrix products and convolutions; sums stay float32",
        default="float32",
        choices=("float32", "bfloat16"),
    )
    requires: ClassVar[Requirements] = Requirements()
    sharing: ClassVar[str] = "shared"
    pool: ClassVar[None] = None

    def init(self, observation_space: spaces.Space, key: Key) -> LearnerState:
        """Create a learner for observations of `observation_space`; ConfigError where options contradict each other."""
        self.kl.check(self.num_epochs * self.minibatch.num_minibatches)
        check_ratios(self.advantage, self.recompute)
        critic_state, rescale = self.critic.init()
        params = rescaled(self.network, in_float32(self.network.init(key, self.critic.num_values)), rescale)
        moments = self._optimizer(self.learning_rate).init
        return LearnerState(
            params=params,
            opt_state=in_float32(moments(ravel_pytree(params)[0] if self.optimizer.elementwise else params)),
            obs_stats=normalization.init_obs_stats(observation_space) if self.normalize_obs else None,
            reward_stats=normalization.init_stats(()) if self.normalize_reward else None,
            control=self.kl.init(self.loss),
            critic=critic_state,
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
        """Sample an action for every stream; arguments are [B, ...], `key` is one key or [B]."""
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
        """Learn from one rollout: targets, then `num_epochs` epochs of minibatches; `key` is [] or [num_epochs]."""
        learner, (steps, old_targets, source) = self._prepare(learner, rollout)
        learner = adapt(self.critic, self.network, learner, old_targets.value, steps.valid)
        vector, to_params = ravel_pytree(learner.params)
        row_masks = batches.RowMasks(steps.valid, masks.acting(steps))
        make_minibatch = partial(batches.make_minibatch, row_masks, self.normalize_advantage)

        def gradient_step(
            state: UpdateState, drawn: Any
        ) -> tuple[UpdateState, History]:  # Minibatch or MinibatchIndices
            params, index, latest = state.params, drawn.index, state.targets
            current = learner._replace(params=params)
            if latest is not None:
                fresh = self._recompute(current, *jax.tree.map(lambda x: x[index], (steps, source)))
                latest = jax.tree.map(lambda x, new: x.at[index].set(new), latest, fresh)
                drawn = make_minibatch(latest, drawn)
            _, valid, chosen, weights, learns, acts, extra = drawn
            objective = self.kl.loss(state.kl, self.loss)

            def loss(params: Params, data: Any, valid: Array) -> LossOutput:
                index, *of_rows = data
                rows = dataclasses.replace(jax.tree.map(lambda x: x[index], steps), valid=valid)
                policy, batch = self._replay(learner._replace(params=params), rows), to_rows(Batch(rows, *of_rows))
                return objective(
                    policy.distribution, value_losses(self.critic, learner.critic, policy.value_outputs, batch), batch
                )

            chunk_rows = self.program.rows(valid.shape[1], self.compute_dtype, steps.obs)
            gradient, metrics = mean_gradient(loss, params, (index, chosen, weights), valid, chunk_rows)
            kl = self.kl.adapt(state.kl, self.learning_rate, metrics, acts)
            table = unpack(metrics) | extra | {"grad_norm": optax.global_norm(gradient)} | self.kl.step_metrics(kl)
            vector, opt_state = self._descend(state, gradient, kl, learns, to_params)
            state = UpdateState(to_params(vector), vector, opt_state, kl, latest, state.epoch)
            return state, History(pack(table), learns, acts)

        def epoch(state: UpdateState, key: Key) -> tuple[UpdateState, History]:
            targets = old_targets if state.targets is None else state.targets
            if self.recompute == "epoch":
                streams = batches.join(steps, source, rollout.steps.valid.shape[0])
                fresh = self._recompute(learner._replace(params=state.params), *streams)
                targets = to_pairs(to_rows(fresh), steps.valid.shape[1])
            drawn = self.minibatch(Batch(steps, targets), key)
            # prepare all minibatches of the epoch at once, if targets are fixed: fewer operations in the inner loop
            ready = jax.vmap(partial(make_minibatch, targets))(drawn) if state.targets is None else drawn
            state, history = jax.lax.scan(gradient_step, state, ready)
            return state._replace(epoch=state.epoch + 1), history

        latest = old_targets if self.recompute == "minibatch" else None
        kl = self.kl.begin(learner.control)
        state = UpdateState(learner.params, vector, learner.opt_state, kl, latest, jnp.int32(0))
        keys = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        state, history = jax.lax.scan(epoch, state, keys)
        obs_stats = learner.obs_stats
        if self.normalize_obs:  # after learning: acting and learning must use the same statistics
            obs_stats = normalization.update_obs_stats(obs_stats, steps.obs, steps.valid)
        control = self.kl.end(state.kl, history.metrics, history.acts)
        metrics = update_metrics(Batch(steps, old_targets), row_masks.choices, history)
        metrics |= self.kl.metrics(control, self.loss)
        metrics |= reduced("last", {"learning_rate": jnp.float32(self.kl.learning_rate(control, self.learning_rate))})
        metrics |= self.critic.metrics(learner.critic, old_targets.value, steps.valid)
        changed = {"params": state.params, "opt_state": state.opt_state, "obs_stats": obs_stats, "control": control}
        return Update(learner._replace(**changed), metrics)

    def initial_carry(self, num_streams: int) -> PyTree:
        """Carry at the start of an episode, [B, ...]."""
        carry = in_float32(self.network.initial_carry())
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_streams, *x.shape)), carry)

    def policy(
        self, learner: LearnerState, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None
    ) -> Policy:
        """Distribution, value and next carry for the current observation of every stream, [B, ...]."""
        return self._forward(learner, carry, *jax.tree.map(lambda x: x[:, None], (obs, first, action_mask)))

    def _replay(self, learner: LearnerState, steps: Transition) -> Policy:
        """Forward pass over stored sequences [M, L], each from its stored initial carry."""
        carry = jax.tree.map(lambda x: x[:, 0], steps.carry)
        return self._forward(learner, carry, steps.obs, steps.first, steps.action_mask)

    def evaluate_actions(self, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
        """Return V and the log-probability of the stored action, both [M, L], for stored sequences [M, L]."""
        policy = self._replay(learner, steps)
        return to_pairs((policy.value, policy.distribution.log_prob(to_rows(steps.action))), steps.valid.shape[1])

    def evaluate_rollout(self, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
        """Return V and action log-probability, both [T, B], of the steps [T, B] of a rollout, from stored carries."""
        length = self.sequence_length(len(steps.valid)) if jax.tree.leaves(steps.carry) else 1
        rows = self.program.rows(length, self.compute_dtype, steps.obs)
        return evaluate_in_chunks(partial(self.evaluate_actions, learner), steps, length, rows)

    @property
    def _forward(self) -> Callable[..., Policy]:
        return partial(forward, self.network, self.critic, jnp.dtype(self.compute_dtype))

    def _optimizer(self, learning_rate: Scalar) -> optax.GradientTransformationExtraArgs:
        """Gradient clipping by global norm, then the optimiser; rebuilt in each update from the traced numbers."""
        return clipped(self.optimizer, learning_rate, self.max_grad_norm, self.num_epochs)

    def _descend(
        self, state: UpdateState, gradient: Array, kl: KLState, learns: Array, to_params: Callable[[Array], Params]
    ) -> tuple[Array, PyTree]:
        """Parameters and optimiser state after a gradient step; unchanged unless `learns`, or if `kl` has stopped."""
        transformation = self._optimizer(self.kl.learning_rate(kl, self.learning_rate))

        def step() -> tuple[Array, PyTree]:
            if self.optimizer.elementwise:
                steps, opt_state = transformation.update(gradient, state.opt_state, state.vector, epoch=state.epoch)
                return state.vector + steps, opt_state
            trees = to_params(gradient), state.opt_state, state.params
            tree, opt_state = transformation.update(*trees, epoch=state.epoch)
            return state.vector + ravel_pytree(tree)[0], opt_state

        return only_if(self.kl.goes_on(kl, learns), step, (state.vector, state.opt_state))

    def _prepare(self, learner: LearnerState, rollout: Rollout) -> tuple[LearnerState, batches.Experience]:
        """Scale rewards, compute targets from the stored values, and cut steps and targets into sequences [M, L]."""
        steps = rollout.steps
        if self.normalize_reward:
            trace, valid = sharding.gather((rollout.reward_trace, steps.valid), axis=1)
            stats = normalization.update_stats(learner.reward_stats, trace, valid)
            learner = learner._replace(reward_stats=stats)
            steps = normalization.scale_rewards(stats, steps)
        if self.reward_spread_decay is not None:
            reward = jax.vmap(spread_rewards, (1, None, 1), 1)(steps.reward, self.reward_spread_decay, steps.ended)
            steps = dataclasses.replace(steps, reward=reward)
        next_value = jax.vmap(batches.next_values, (1, 0), 1)(steps, rollout.last_value)
        targets = jax.vmap(self.advantage, (1, 1, None), 1)(steps, next_value, self.gamma)
        length = self.sequence_length(steps.valid.shape[0])
        if self.recompute == "never":
            return learner, batches.cut(rollout.steps, targets, length)
        return learner, batches.cut_with_source(rollout.steps, targets, steps.reward, next_value, length)

    def _recompute(self, learner: LearnerState, steps: Transition, source: batches.TargetInputs) -> Targets:
        """Recompute targets [M, L] with the current network; bootstrap after a sequence's end from the stored value."""
        steps, (reward, end_value) = sharding.own((steps, source))
        value, log_prob = self.evaluate_actions(learner, steps)
        ratio = jnp.exp(bounded_log_ratio(log_prob, steps))
        current = dataclasses.replace(steps, value=value, reward=reward)
        next_value = jax.vmap(batches.next_values)(current, end_value)
        targets = jax.vmap(self.advantage, (0, 0, None, 0))(current, next_value, self.gamma, ratio)
        return sharding.gather(zero_rows(steps.valid, Targets(*targets)))

    def sequence_length(self, num_steps: int) -> int:
        """Sequence length L: `seq_len`, or by default `num_steps` if a target or memory spans several steps, else 1."""
        if self.seq_len is not None:
            return self.seq_len
        together = jax.tree.leaves(self.network.initial_carry()) or self.recompute == "minibatch"
        return num_steps if together else 1

    def annealed(self, progress: Array, env_steps: Array) -> PPO:
        """Agent with its schedule applied at `progress` of training, in [0, 1], and after `env_steps` valid steps."""
        return anneal_parts(self.schedule(self, progress, env_steps), progress)

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Agents that learn, each with its number of streams: this one alone, with all of them."""
        return ((self, num_streams),)

    def discount(self, num_streams: int) -> Scalar:
        """Discount factor of the streams' rewards, [] or [B]."""
        return self.gamma

    def check(self) -> None:
        """Raise ConfigError for numbers that contradict each other; they must be concrete, without tracers."""
        jax.eval_shape(lambda: self.critic.init())
