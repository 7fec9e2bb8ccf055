"""Proximal Policy Optimization: the agent and its whole learning phase, top to bottom.

Schulman et al. 2017, https://arxiv.org/abs/1707.06347. `update` calls `_prepare`, then `_epoch` num_epochs times.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax import protocols, types
from ppax.advantages import GAE
from ppax.arrays.metrics import Table, pack
from ppax.arrays.sequences import to_pairs, to_rows
from ppax.critics import Regression
from ppax.critics.base import adapt, rescaled, value_losses
from ppax.gradients import Plain
from ppax.intrinsic import NoIntrinsic
from ppax.learning import auxiliary, batches, exploration, normalization, recompute, rewards
from ppax.learning.descent import Step, UpdateData, UpdateState, descend
from ppax.learning.diagnostics import History, update_metrics
from ppax.learning.entropy_target import EntropyTarget
from ppax.learning.forward import Again, draw_key, forward, in_float32, replay
from ppax.learning.gradient import by_rule, mean_gradient
from ppax.learning.kl_control import KLControl
from ppax.learning.stored import evaluate_in_chunks
from ppax.losses import ClippedSurrogate, NoAuxiliary
from ppax.losses.base import total_loss, with_metrics
from ppax.minibatches import Shuffle
from ppax.optimizers import Adam, clipped
from ppax.parts import number, part, slot, static
from ppax.phases import NoPhase
from ppax.program.layout import AUTO, WHERE_SAFE, Program
from ppax.schedules import Constant, anneal_parts
from ppax.types import Batch, Key, LearnerState, LossOutput, Params, PyTree, Rollout, Scalar, Transition


@part
class PPO:
    """PPO agent: a frozen dataclass of parts and numbers; `jax.vmap` over agents is a hyperparameter sweep."""

    network: protocols.Network = slot("network", "actor-critic network")
    advantage: protocols.Advantage = slot("advantage", "advantage estimator", default=GAE())
    loss: protocols.Loss = slot("loss", "policy loss", default=ClippedSurrogate())
    auxiliary: protocols.AuxiliaryLoss = slot("auxiliary", "auxiliary loss added to PPO's loss", default=NoAuxiliary())
    phase: protocols.Phase = slot("phase", "auxiliary phase after the gradient steps", default=NoPhase())
    intrinsic: protocols.IntrinsicReward = slot("intrinsic", "reward added to the environment's", default=NoIntrinsic())
    critic: protocols.Critic = slot("critic", "value loss", default=Regression())
    minibatch: protocols.Minibatches = slot("minibatch", "sampling of minibatches", default=Shuffle())
    gradient: protocols.GradientRule = slot("gradient", "gradient of a gradient step", default=Plain())
    optimizer: protocols.Optimizer = slot("optimizer", "optimiser", default=Adam())
    schedule: protocols.Schedule = slot("schedule", "annealing of numbers over training", default=Constant())
    kl: KLControl = KLControl()
    entropy: EntropyTarget = EntropyTarget()
    program: Program = Program()
    learning_rate: Scalar = number("learning rate of the optimiser", default=3e-4, low=0.0)
    gamma: Scalar = number("discount factor of future rewards", default=0.99, low=0.0, high=1.0)
    vf_coef: Scalar = number("value coefficient: weight of the value loss", default=0.5, low=0.0)
    ent_coef: Scalar = number("entropy coefficient: weight of the entropy bonus", default=0.0, low=0.0)
    max_grad_norm: Scalar | None = number("gradient clipping: largest global norm; none: off", default=0.5, above=0.0)
    reward_spread_decay: Scalar | None = number(
        "reward spreading: d in r'_t = r_t + d r'_{t+1} within an episode; none: off", default=None, low=0.0, high=1.0
    )
    num_epochs: int = static("passes over each rollout in one update", default=4, low=1)
    seq_len: int | None = static(
        "steps of a sequence; default: num_steps if recurrent or recompute = minibatch, else 1", default=None, low=1
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
        "mixed precision: dtype of the factors of products, sums stay float32; bfloat16_where_safe: only in training, "
        "for networks that lose no precision which the policy needs; auto: bfloat16_where_safe if it is faster here",
        default=AUTO,
        choices=(AUTO, "float32", "bfloat16", WHERE_SAFE),
    )
    requires: ClassVar[types.Requirements] = types.Requirements()
    sharing: ClassVar[str] = "shared"
    pool: ClassVar[None] = None

    def init(self, observation_space: spaces.Space, key: Key) -> LearnerState:
        """Create a learner for observations of `observation_space`; ConfigError where options contradict each other."""
        self.kl.check(self.num_epochs * self.minibatch.num_minibatches)
        recompute.check_ratios(self.advantage, self.recompute)
        critic_state, rescale = self.critic.init()
        params = rescaled(self.network, in_float32(self.network.init(key, self.critic.num_values)), rescale)
        own = auxiliary.init(self, params, observation_space, key)
        moments = clipped(self.optimizer, self.learning_rate, self.max_grad_norm, self.num_epochs).init
        trained = auxiliary.joined(params, own)
        opt_state = in_float32(moments(ravel_pytree(trained)[0] if self.optimizer.elementwise else trained))
        stats = normalization.initial(observation_space, self.normalize_obs, self.normalize_reward)
        intrinsic = self.intrinsic.init(self.network, observation_space, jax.random.fold_in(key, rewards.INTRINSIC))
        rest = self.kl.init(self.loss), critic_state, intrinsic, self.entropy.init(self.ent_coef), own
        phase = self.phase.init(self, observation_space, jax.random.fold_in(key, rewards.PHASE))
        return LearnerState(params, opt_state, *stats, *rest, phase)

    def act(
        self, learner: LearnerState, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key
    ) -> types.Decision:
        """Sample an action for every stream; arguments are [B, ...], `key` is one key or [B]."""
        policy = self.policy(learner, carry, obs, first, action_mask)
        return auxiliary.guided(self.auxiliary, policy, exploration.sample(policy, key), (obs, first, action_mask), key)

    def update(self, learner: LearnerState, rollout: Rollout, key: Key) -> types.Update:
        """Learn from one rollout: targets, then `num_epochs` epochs of minibatches; `key` is [] or [num_epochs]."""
        intrinsic = self.intrinsic(self.network, learner.intrinsic, rollout)
        rollout, streams = auxiliary.with_inputs(self.auxiliary, rollout)
        added = intrinsic.reward, intrinsic.advantage
        learner, experience = self._prepare(learner._replace(intrinsic=intrinsic.state), rollout, *added)
        steps, targets, _ = experience
        learner = auxiliary.together(adapt(self.critic, self.network, self.phase, learner, targets.value, steps.valid))
        rows = batches.row_masks(steps), len(rollout.steps.valid)
        key = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        vector, to_params = ravel_pytree(learner.params)
        data = UpdateData(learner, experience, *rows, to_params, draw_key(key))
        own = self.kl.begin(learner.control), targets if self.recompute == "minibatch" else None
        state = UpdateState(learner.params, vector, learner.opt_state, *own, jnp.int32(0))
        state, history = jax.lax.scan(partial(self._epoch, data), state, key)
        control = self.kl.end(state.kl, history.metrics, history.acts)
        learner = auxiliary.apart(learner._replace(params=state.params, opt_state=state.opt_state, control=control))
        learner, phase_metrics = self.phase(self, learner, Batch(steps, targets))
        learner = normalization.with_obs(learner, steps)  # after learning, which must use the same statistics as acting
        metrics = update_metrics(Batch(steps, targets), data.rows.choices, history)
        learner, metrics = self.entropy.adapt(learner, metrics, history.acts, self.ent_coef)
        metrics |= self.kl.metrics(control, self.loss, self.learning_rate)
        metrics |= self.critic.metrics(learner.critic, targets.value, steps.valid)
        metrics |= phase_metrics
        metrics = rewards.with_intrinsic(metrics, intrinsic, rollout.steps.valid)
        return types.Update(learner, metrics, intrinsic=intrinsic.streams, auxiliary=streams)

    def _prepare(
        self, learner: LearnerState, rollout: Rollout, intrinsic: Array | None = None, advantage: Array | None = None
    ) -> batches.Prepared:
        """Scale rewards, compute targets from the stored values, and cut steps and targets into sequences [M, L]."""
        learner, steps = rewards.learned(learner, rollout, self.reward_spread_decay, intrinsic)
        next_value = jax.vmap(batches.next_values, (1, 0), 1)(steps, rollout.last_value)
        targets = jax.vmap(self.advantage, (1, 1, None), 1)(steps, next_value, self.gamma)
        targets = rewards.with_advantage(targets, advantage)
        length = self.sequence_length(len(steps.valid))
        if self.recompute == "never":
            return learner, batches.cut(rollout.steps, targets, length)
        return learner, recompute.cut_with_inputs(rollout.steps, targets, steps.reward, next_value, length, advantage)

    def _epoch(self, data: UpdateData, state: UpdateState, key: Key) -> Step:
        """Draw the minibatches of one epoch, and take a gradient step on each."""
        steps, targets, _ = data.experience
        recomputed = partial(recompute.recomputed_targets, self.evaluate_actions, self.advantage, self.gamma)
        make_minibatch = partial(batches.make_minibatch, data.rows, self.normalize_advantage)
        if state.targets is not None:
            drawn = self.minibatch(Batch(steps, state.targets), key)
            step = partial(recompute.before_step, recomputed, make_minibatch, self._gradient_step, data)
            state, history = jax.lax.scan(step, state, drawn)
        else:
            if self.recompute == "epoch":
                targets = recompute.before_epoch(recomputed, data, state.params)
            drawn = self.minibatch(Batch(steps, targets), key)
            minibatches = jax.vmap(partial(make_minibatch, targets))(drawn)  # at once: fewer operations in the loop
            state, history = jax.lax.scan(partial(self._gradient_step, data), state, minibatches)
        return state._replace(epoch=state.epoch + 1), history

    def _gradient_step(self, data: UpdateData, state: UpdateState, minibatch: batches.Minibatch) -> Step:
        """Compute the gradient of a minibatch's loss, apply the KL controls, and take one optimiser step."""
        index, valid, targets, weights, learns, acts, extra = minibatch
        loss = partial(self._loss, data, self.kl.loss(state.kl, self.loss))
        chunk_rows = self.program.rows(valid.shape[1], self.compute_dtype, data.experience.steps.obs, self.network)

        def gradient_at(params: Params) -> protocols.LossGradient:
            return mean_gradient(loss, params, (index, targets, weights), valid, chunk_rows).unpacked()

        gradient, metrics = by_rule(self.gradient, gradient_at, state.params)
        kl = self.kl.adapt(state.kl, self.learning_rate, metrics, acts)
        table = Table({}) | metrics | extra | {"grad_norm": optax.tree.norm(gradient)} | self.kl.step_metrics(kl)
        tx = clipped(self.optimizer, self.kl.learning_rate(kl, self.learning_rate), self.max_grad_norm, self.num_epochs)
        state = descend(tx, self.optimizer.elementwise, data.to_params, state, gradient, self.kl.goes_on(kl, learns))
        return state._replace(kl=kl), History(pack(table), learns, acts)

    def _loss(self, data: UpdateData, loss: protocols.Loss, params: Params, sequences: Any, valid: Array) -> LossOutput:
        """Mean loss of `sequences` (index [m], targets and weights [m, L]) over their rows where `valid` [m, L]."""
        index, *of_rows = sequences
        steps = dataclasses.replace(jax.tree.map(lambda x: x[index], data.experience.steps), valid=valid)
        learner, batch = data.learner._replace(params=params), to_rows(Batch(steps, *of_rows))
        policy = replay(self.network, self.critic, self.compute_dtype, learner, steps)
        value = value_losses(self.critic, learner.critic, policy.value_outputs, batch)
        terms = with_metrics(loss(policy.distribution, batch), policy.distribution)
        again = Again(self, loss, learner, steps, policy, data.key, index)
        beside = self.auxiliary(params, policy.features, batch._replace(again=again))
        ent_coef = self.entropy.coef(learner.entropy, self.ent_coef)
        return total_loss(terms, value, policy.distribution.entropy(), beside, batch, self.vf_coef, ent_coef)

    def initial_carry(self, num_streams: int) -> PyTree:
        """Memory at the start of an episode, [B, ...]."""
        return exploration.remembered(self.start_carry(num_streams))

    def start_carry(self, num_streams: int) -> PyTree:
        """Carry at the start of collection, [B, ...]: memory, and noise and guide of acting (`types.Exploring`)."""
        return auxiliary.with_guide(self.auxiliary, self.network.initial_carry(), num_streams)

    def policy(
        self, learner: LearnerState, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None
    ) -> types.ForwardPass:
        """Distribution, value and next carry for the current observation of every stream, [B, ...]."""
        inputs = jax.tree.map(lambda x: x[:, None], (obs, first, action_mask))
        return forward(self.network, self.critic, self.compute_dtype, learner, carry, *inputs)

    def evaluate_actions(self, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
        """Return V and the log-probability of the stored action, both [M, L], for stored sequences [M, L]."""
        policy = replay(self.network, self.critic, self.compute_dtype, learner, steps)
        return to_pairs((policy.value, policy.distribution.log_prob(to_rows(steps.action))), steps.valid.shape[1])

    def evaluate_rollout(self, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
        """Return V and action log-probability, both [T, B], of the steps [T, B] of a rollout, from stored carries."""
        length = self.sequence_length(len(steps.valid)) if jax.tree.leaves(steps.carry) else 1
        rows = self.program.rows(length, self.compute_dtype, steps.obs, self.network)
        return evaluate_in_chunks(partial(self.evaluate_actions, learner), steps, length, rows)

    def initial_streams(self, num_streams: int) -> types.StreamStates:
        """First states of intrinsic reward and auxiliary loss for each stream, [B, ...]."""
        own = auxiliary.initial_streams(self.auxiliary, num_streams)
        return types.StreamStates(self.intrinsic.initial_streams(num_streams), own)

    def sequence_length(self, num_steps: int) -> int:
        """Sequence length L: `seq_len`, or by default `num_steps` if a target or memory spans several steps, else 1."""
        whole = self.recompute == "minibatch" or jax.tree.leaves(self.initial_carry(1))
        return self.seq_len or (num_steps if whole else 1)

    def annealed(self, progress: Array, env_steps: Array) -> PPO:
        """Agent with its schedule applied at `progress` of training, in [0, 1], and after `env_steps` valid steps."""
        return anneal_parts(self.schedule(self, progress, env_steps), progress)

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Agents that learn, each with its number of streams: this one alone."""
        return ((self, num_streams),)

    def discount(self, num_streams: int) -> Scalar:
        """Discount factor of the streams' rewards, [] or [B]."""
        return self.gamma

    def check(self) -> None:
        """Raise ConfigError for numbers that contradict each other; they must be concrete, without tracers."""
        jax.eval_shape(lambda: (self.critic.init(), self.entropy.init(self.ent_coef), self.annealed(*jnp.zeros(2))))
