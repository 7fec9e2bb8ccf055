"""Proximal Policy Optimization: the agent, and in `update` its algorithm from top to bottom.

Schulman et al. 2017, https://arxiv.org/abs/1707.06347. `update` calls its formulas where they are due: the advantage
(eq. 11) is in ppo/advantages.py, the clipped ratio (eq. 7) and the sum of the losses (eq. 9) in ppo/losses.py, the
standardised advantage in ppo/batches.py, the order of a shuffle in ppo/minibatches.py. Rollouts are collected by `act`
in training/collection.py; training/loop.py anneals the agent (`annealed`), collects and updates, in a loop.

Axes: T steps of a rollout, B streams (environments times agents); M sequences of L steps, cut from the rollout (by
default L is 1 for a network without memory: a sequence is a row); m sequences of a minibatch, N = m * L rows in a loss.
Rows are valid unless they are steps of an automatic reset, of an absent agent, or padding. The critic learns from valid
rows, the policy from those of them in which an action was allowed (`RowMasks.policy`).

Another algorithm for a step is a part, such as another loss; features that add to the steps are extensions
(ppo/extension.py). Below, `extensions` calls a hook of each of them in their order; without extensions a hook returns
what it is given:

| hook | example |
|---|---|
| `act` | DAgger: a teacher acts in some steps |
| `before` | RND: learns from the rollout, and adds to its rewards |
| `targets` | a second critic adds its advantage |
| `terms` | symmetry: further terms of the loss |
| `begin`, `observe`, `adapt` | KL control: adapts the learning rate between gradient steps, or ends the update |
| `after` | PPG: learns further from the rollout |
| `rescale_value` | PPG's value head follows PopArt's scale |

`trained` and `with_trained` take the parameters of extensions that the same optimiser trains together with the
network's, as those of a prediction of the next observation.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.arrays.metrics import merged, pack, reduced
from ppax.arrays.sequences import to_pairs, to_rows
from ppax.core import protocols, types
from ppax.core.parts import number, part, slot, slot_chain, static
from ppax.core.types import (
    Acting,
    Batch,
    Key,
    LearnerState,
    LossOutput,
    Params,
    PyTree,
    Rollout,
    Scalar,
    Targets,
    Transition,
)
from ppax.devices.layout import AUTO, WHERE_SAFE, Program, only_if
from ppax.ppo import batches, normalization
from ppax.ppo.advantages import GAE
from ppax.ppo.critics import Regression, value_losses
from ppax.ppo.diagnostics import History, update_metrics
from ppax.ppo.extension import Chain, Choice, Extension, Learned, Rows
from ppax.ppo.forward import evaluate_in_chunks, forward, forward_sequences, in_float32, remembered, sample
from ppax.ppo.gradients import Plain, by_rule, mean_gradient
from ppax.ppo.losses import ClippedSurrogate, total_loss
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.normalization import Normalization
from ppax.ppo.optimizers import Adam, clipped
from ppax.ppo.recompute import Never, Recomputation, Recompute
from ppax.ppo.schedules import Constant, anneal_parts, check_values


class Chunk(NamedTuple):
    """Sequences whose loss is computed at once: all of a minibatch or, with gradient accumulation, some of them."""

    index: Array  # type: ignore[assignment]  # [m] sequences of the rollout
    targets: Targets  # [m, L] advantages standardised and weighted
    weights: Any  # [m, L] weights in the means (losses.RowWeights); None: 1 for every valid row


class DescentState(NamedTuple):
    """State that gradient steps change: parameters, optimiser state, states of extensions and, if recomputed, targets.

    It is carried from step to step and from epoch to epoch of one update.
    """

    trained: Params  # of the network, and of extensions that train some
    vector: Array  # [P] `trained` flattened: an elementwise optimiser needs few operations on one vector
    opt_state: PyTree
    extensions: dict[str, PyTree]  # states inside the update, by name
    targets: Targets  # [M, L] which change only where they are recomputed
    epoch: Array  # [] number of the epoch, from 0: optimizers.ActorCritic may train the actor in the first ones alone


@part
class PPO:
    """PPO agent: a frozen dataclass of parts and numbers; `jax.vmap` over agents is a hyperparameter sweep.

    Parts are swappable frozen dataclasses, such as the network or the loss; numbers are traced by JAX.
    """

    network: protocols.Network = slot("network", "actor-critic network")
    advantage: protocols.Advantage = slot("advantage", "advantage estimator", default=GAE())
    loss: protocols.Loss = slot("loss", "policy loss", default=ClippedSurrogate())
    critic: protocols.Critic = slot("critic", "value loss", default=Regression())
    minibatch: protocols.Minibatches = slot("minibatch", "sampling of minibatches", default=Shuffle())
    recompute: Recompute = slot("recompute", "when values, ratios and targets are computed again", default=Never())
    gradient: protocols.GradientRule = slot(
        "gradient", "rule that computes the gradient of each gradient step", default=Plain()
    )
    optimizer: protocols.Optimizer = slot("optimizer", "optimiser", default=Adam())
    schedule: protocols.Schedule = slot("schedule", "annealing of numbers over training", default=Constant())
    extensions: tuple[Extension, ...] = slot_chain(
        "extension", "optional features, in the order of their tables", default=()
    )
    program: Program = Program()
    learning_rate: Scalar = number("learning rate of the optimiser", default=3e-4, low=0.0)
    gamma: Scalar = number("discount factor of future rewards", default=0.99, low=0.0, high=1.0)
    vf_coef: Scalar = number("value coefficient: weight of the value loss", default=0.5, low=0.0)
    ent_coef: Scalar = number("entropy coefficient: weight of the entropy bonus", default=0.0, low=0.0)
    max_grad_norm: Scalar | None = number("gradient clipping: largest global norm; none: off", default=0.5, above=0.0)
    num_epochs: int = static("passes over each rollout in one update", default=4, low=1)
    seq_len: int | None = static(
        "steps of a sequence; default: num_steps if recurrent or recompute = minibatch, else 1", default=None, low=1
    )
    normalize_obs: bool = static("standardise observations by their running mean and variance", default=False)
    normalize_reward: bool = static("divide rewards by the running std of the discounted return", default=False)
    normalize_advantage: str = static(
        "standardise advantages to mean 0 and std 1: over each minibatch, over the rollout, or off",
        default="minibatch",
        choices=("minibatch", "rollout", "off"),
    )
    compute_dtype: str = static(
        "mixed precision: dtype of the factors of matrix products, sums stay float32; bfloat16_where_safe: only in "
        "training, for networks that lose no precision that the policy needs; auto: bfloat16_where_safe if faster here",
        default=AUTO,
        choices=(AUTO, "float32", "bfloat16", WHERE_SAFE),
    )
    normalization: Normalization = Normalization()  # of the two options `normalize_obs` and `normalize_reward`
    # Of the agents in agents/, which train this one in other ways, these differ
    requires: ClassVar[types.Requirements] = types.Requirements()  # what the environment must have; here nothing
    sharing: ClassVar[str] = "shared"  # how the agents of an environment share parameters; here one policy plays all
    pool: ClassVar[None] = None  # past selves to play against, in self-play

    def init(self, observation_space: spaces.Space, key: Key) -> LearnerState:
        """Return a new learner for observations of `observation_space`: parameters, optimiser state and statistics.

        Raises ConfigError where options contradict each other.
        """
        self.recompute.check(self.advantage)
        critic_state, rescale = self.critic.init()
        params = in_float32(self.network.init(key, self.critic.num_values))
        if rescale is not None:  # the value head begins on the critic's scale
            params = self.network.rescale_value(params, *rescale)
        obs_stats, reward_stats = normalization.initial(
            observation_space, self.normalize_obs, self.normalize_reward, self.normalization
        )
        extensions = Chain(self.extensions)
        learner = LearnerState(
            params=params,
            opt_state=(),  # below, as extensions may have parameters, too
            obs_stats=obs_stats,
            reward_stats=reward_stats,
            critic=critic_state,
            extensions=extensions.init(self, observation_space, key),  # each folds a number of its own into the key
        )
        trained = extensions.trained(learner)
        optimizer = clipped(self.optimizer, self.learning_rate, self.max_grad_norm, self.num_epochs)
        opt_state = optimizer.init(ravel_pytree(trained)[0] if self.optimizer.elementwise else trained)
        return learner._replace(opt_state=in_float32(opt_state))

    def act(
        self, learner: LearnerState, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key
    ) -> types.Decision:
        """Return a sampled action for every stream, with its log-probability, V and the next memory, [B, ...] each.

        A stream is one agent in one environment. `carry` is the memory so far, `first` marks the first steps of
        episodes, and `key` is one key, or one for each stream [B].
        """
        policy = self.policy(learner, carry, obs, first, action_mask)
        action = sample(policy, key)
        # Decision: action, log-probability, V and next carry. Extensions fold numbers of their own into the key
        return Chain(self.extensions).act(self, Choice(policy, action, obs, first, action_mask), key)

    def update(self, learner: LearnerState, rollout: Rollout, key: Key) -> types.Update:
        """Return the learner after learning from one rollout, and the metrics of this update.

        Targets are computed once, then `num_epochs` epochs of minibatches follow. `key` is one key, or a key for each
        epoch [num_epochs].
        """
        extensions = Chain(self.extensions)
        keys = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key

        # Rewards that are learned from, and targets (advantage, and advantage + V for the critic), all [T, B]. `steps`
        # keeps the environment's rewards, which are logged. With normalize_reward the running std of the discounted
        # return is updated, and rewards are divided by it
        learner, reward = normalization.normalize_rewards(learner, rollout, self.normalization)
        prepared = extensions.before(self, learner, rollout, reward)
        learner, steps, reward = prepared.learner, prepared.steps, prepared.reward
        num_steps = len(steps.valid)
        # V of the observation after each step, and of the final observation where a time limit ended the episode; where
        # the episode terminated, the estimator takes 0 instead. Both functions are for one stream: vmap over B
        next_value = jax.vmap(batches.next_values, in_axes=(1, 0), out_axes=1)(steps, rollout.last_value)
        with_reward = dataclasses.replace(steps, reward=reward)
        targets = jax.vmap(self.advantage, in_axes=(1, 1, None), out_axes=1)(with_reward, next_value, self.gamma)
        targets = extensions.targets(targets, steps)

        # Sequences [M, L] with M = B * T / L (L divides T), of which minibatches are drawn
        length = self.sequence_length(num_steps)
        batch = batches.cut(steps, targets, length)
        # what a recomputation of the targets takes; by default there is none, and the batch stays as it is
        batch, recompute_inputs = self.recompute.inputs(batch, steps, reward, next_value, length)
        masks = batches.row_masks(batch.steps)
        make_minibatch = partial(batches.make_minibatch, masks, self.normalize_advantage)

        # The critic follows the targets: PopArt updates their mean and std, and the value head so that V stays the same
        critic_state, rescale = self.critic.update(learner.critic, batch.targets.value, batch.steps.valid)
        learner = learner._replace(critic=critic_state)
        if rescale is not None:
            learner = extensions.rescale_value(learner, *rescale)  # their own value heads, as PPG's
            learner = learner._replace(params=self.network.rescale_value(learner.params, *rescale))

        recomputation = Recomputation(
            self, extensions, learner, batch.steps, recompute_inputs, make_minibatch, num_steps
        )
        # gradient accumulation: largest number of rows whose gradient is computed at once
        chunk_rows = self.program.rows(length, self.compute_dtype, batch.steps.obs, self.network)
        trained = extensions.trained(learner)  # parameters of the network, and of extensions that train some
        vector, to_params = ravel_pytree(trained)

        def minibatch_loss(agent: PPO, trained: Params, chunk: Chunk, valid: Array) -> LossOutput:
            """Return the loss of a chunk's sequences, a mean over their rows where `valid` [m, L], and its metrics.

            `trained` are the parameters that the gradient is taken with respect to.
            """
            sequences = dataclasses.replace(jax.tree.map(lambda x: x[chunk.index], batch.steps), valid=valid)
            current = learner._replace(params=trained)  # with parameters of extensions, which the network does not read
            outputs = forward_sequences(agent, current, sequences)  # of the network: distribution, value and others
            distribution = outputs.distribution
            flat = to_rows(Batch(sequences, chunk.targets, chunk.weights))  # [N]
            # eq. 7: ratio and clip, of each row; with metrics, such as clip_fraction
            policy_loss = agent.loss(distribution, flat)
            # of each row, on the critic's scale (PopArt's is that of the value head); its clipping is off by default
            value_loss = value_losses(agent.critic, learner.critic, outputs.value_outputs, flat)
            # `keys` and `index`: a term that draws random numbers draws the same for a sequence in each epoch
            further = extensions.terms(
                Rows(
                    agent=agent,
                    batch=flat,
                    policy=outputs,
                    learner=current,
                    sequences=sequences,
                    keys=keys,
                    index=chunk.index,
                )
            )
            # eq. 9: means over rows of policy loss + vf_coef * value loss - ent_coef * entropy + further terms
            return total_loss(
                policy_loss,
                value_loss,
                distribution,
                vf_coef=agent.vf_coef,
                ent_coef=agent.ent_coef,
                further=further.losses,
                metrics=further.metrics,
                batch=flat,
            )

        def gradient_step(state: DescentState, minibatch: batches.Minibatch) -> tuple[DescentState, History]:
            """Return state and metrics after one optimiser step by the gradient of the minibatch's loss."""
            state, minibatch = self.recompute.before_step(recomputation, state, minibatch)  # by default unchanged
            agent = extensions.adapt(self, state.extensions)  # this agent, with coefficients that extensions adapt

            def gradient_at(trained: Params) -> protocols.LossGradient:
                """Return the gradient [P] of the minibatch's loss at the parameters `trained`, with the loss's metrics.

                Loss and metrics are means over the valid rows. Up to rounding, the gradient does not depend on the size
                of the chunks over which it is accumulated.
                """
                chunk = Chunk(minibatch.index, minibatch.targets, minibatch.weights)
                return mean_gradient(partial(minibatch_loss, agent), trained, chunk, minibatch.valid, chunk_rows)

            # by default `gradient_at` is called once; other rules may call it at other parameters, too
            gradient, metrics = by_rule(self.gradient, gradient_at, state.trained)
            # Extensions see the metrics (approx_kl), and adapt the numbers of this step by their new states (`inner`),
            # or end the update before it: then they say so at each later step, which is computed and not applied.
            # `acts`: whether the minibatch has a row that the policy learns from; `learns`: whether it has a valid row
            observed = extensions.observe(self, state.extensions, metrics, minibatch.acts)
            adapted = extensions.adapt(self, observed.inner)
            optimizer = clipped(adapted.optimizer, adapted.learning_rate, adapted.max_grad_norm, adapted.num_epochs)
            proceed = minibatch.learns if observed.proceed is None else minibatch.learns & observed.proceed

            def step() -> tuple[Array, PyTree]:
                if self.optimizer.elementwise:
                    updates, opt_state = optimizer.update(gradient, state.opt_state, state.vector, epoch=state.epoch)
                    return state.vector + updates, opt_state
                updates, opt_state = optimizer.update(
                    to_params(gradient), state.opt_state, state.trained, epoch=state.epoch
                )
                return state.vector + ravel_pytree(updates)[0], opt_state

            vector, opt_state = only_if(proceed, step, (state.vector, state.opt_state))
            state = state._replace(trained=to_params(vector), vector=vector, opt_state=opt_state)

            norm = {"grad_norm": optax.tree.norm(gradient)}  # before clipping
            table = merged(metrics, minibatch.metrics, norm, observed.metrics)  # metrics with their reductions
            # packed: the scan stacks a few arrays, and not each metric
            return state._replace(extensions=observed.inner), History(pack(table), minibatch.learns, minibatch.acts)

        def epoch(state: DescentState, key: Key) -> tuple[DescentState, History]:
            """Return the state after one epoch, and the metrics of its gradient steps, [num_minibatches, ...] each.

            An epoch draws minibatches and takes a gradient step on each.
            """
            state = self.recompute.before_epoch(recomputation, state)  # by default unchanged
            # indices of sequences [num_minibatches, m] in a new random order; prioritised sampling draws them by their
            # advantages, and gives importance weights
            drawn = self.minibatch(Batch(batch.steps, state.targets), key)
            # all minibatches at once: fewer operations in the loop
            minibatches = jax.vmap(partial(make_minibatch, state.targets))(drawn)
            state, history = jax.lax.scan(gradient_step, state, minibatches)
            return state._replace(epoch=state.epoch + 1), history

        state = DescentState(
            trained=trained,
            vector=vector,
            opt_state=learner.opt_state,
            extensions=extensions.begin(learner),
            targets=batch.targets,
            epoch=jnp.int32(0),
        )
        state, history = jax.lax.scan(epoch, state, keys)
        learner = extensions.with_trained(learner._replace(opt_state=state.opt_state), state.trained)

        metrics = update_metrics(batch, masks.policy, history)  # explained variance and others
        # what extensions return are these metrics, those of `before`, and their own
        learned = Learned(batch, history, metrics)
        learner, metrics = extensions.after(self, learner, state.extensions, learned, prepared.metrics)
        # only now: gradient steps must use the statistics of observations that acting has used
        learner = normalization.with_obs_stats(learner, batch.steps, self.normalization)
        learning_rate = extensions.adapt(self, state.extensions).learning_rate
        of_critic = self.critic.metrics(learner.critic, batch.targets.value, batch.steps.valid)
        metrics = merged(metrics, reduced("last", {"learning_rate": jnp.float32(learning_rate)}), of_critic)
        return types.Update(learner, metrics, extensions=prepared.streams)  # states of extensions for each stream

    def initial_carry(self, num_streams: int) -> PyTree:
        """Return the network's memory at the start of an episode for each stream, [B, ...].

        A stream is one agent in one environment.
        """
        return remembered(self.start_carry(num_streams))

    def start_carry(self, num_streams: int) -> PyTree:
        """Return the carry, which the policy keeps from step to step, as it is at the start of collection, [B, ...].

        The carry is the network's memory or, where extensions change actions, an `Acting` with the memory and the
        extensions' states.
        """
        carry = batches.repeated(in_float32(self.network.initial_carry()), num_streams)
        states = Chain(self.extensions).init_acting(self, num_streams)
        return Acting(carry, states) if states else carry

    def policy(
        self, learner: LearnerState, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None
    ) -> types.ForwardPass:
        """Return the policy's distribution, V and next memory for the current observation of every stream, [B, ...].

        A stream is one agent in one environment. `carry` is the memory so far, and `first` marks the first steps of
        episodes.
        """
        inputs = jax.tree.map(lambda x: x[:, None], (obs, first, action_mask))
        return forward(self.network, self.critic, self.compute_dtype, learner, carry, *inputs)

    def evaluate_actions(self, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
        """Return V and the log-probability of the stored action, both [M, L], of stored sequences [M, L].

        The network runs over each sequence from the recurrent state that is stored for its first step.
        """
        policy = forward_sequences(self, learner, steps)
        return to_pairs((policy.value, policy.distribution.log_prob(to_rows(steps.action))), steps.valid.shape[1])

    def evaluate_rollout(self, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
        """Return V and the log-probability of the stored action, both [T, B], of the steps [T, B] of a rollout.

        The network runs over each sequence of L steps, cut from the rollout, from the recurrent state that is stored
        for the sequence's first step. L is `sequence_length` with a memory, else 1.
        """
        length = self.sequence_length(len(steps.valid)) if jax.tree.leaves(steps.carry) else 1
        rows = self.program.rows(length, self.compute_dtype, steps.obs, self.network)
        return evaluate_in_chunks(partial(self.evaluate_actions, learner), steps, length, rows)

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the initial states that extensions keep for each stream, [B, ...], by the extensions' names.

        A stream is one agent in one environment.
        """
        return Chain(self.extensions).init_streams(num_streams)

    def sequence_length(self, num_steps: int) -> int:
        """Return the number of steps of a sequence, L, for rollouts of `num_steps`.

        L is the option `seq_len`; by default `num_steps` with a memory or with recompute = minibatch, and otherwise 1.
        """
        whole = self.recompute.whole_streams or jax.tree.leaves(self.initial_carry(1))
        return self.seq_len or (num_steps if whole else 1)

    def minibatch_size(self, num_steps: int, num_streams: int) -> int:
        """Return the number of sequences in a minibatch, padding included, of a rollout of `num_steps` steps.

        A stream is one agent in one environment. Raises ConfigError where the minibatches do not divide the sequences;
        that sequences divide the rollout is checked before (`training.loop.check_sizes`).
        """
        length = self.sequence_length(num_steps)
        return self.minibatch.size(num_steps * num_streams // length, length)

    def annealed(self, progress: Array, env_steps: Array) -> PPO:
        """Return this agent with the numbers, such as the learning rate, that its schedule sets at this time.

        The time is `progress` of training, in [0, 1], and `env_steps`, the number of valid environment steps so far.
        """
        return anneal_parts(self.schedule(self, progress, env_steps), progress)

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Return pairs (agent that learns, number of its streams): here this agent alone, with all `num_streams`.

        A stream is one agent in one environment.
        """
        return ((self, num_streams),)

    def discount(self, num_streams: int) -> Scalar:
        """Return the discount factor of rewards, one number []: it is the same for all agents and environments."""
        return self.gamma

    def check(self) -> None:
        """Raise ConfigError where options of the agent's critic, schedule or extensions contradict each other.

        It is also raised where the schedule takes a number out of its limits. All numbers must be concrete: none may be
        a tracer.
        """
        Chain(self.extensions).check(self)
        jax.eval_shape(lambda: (self.critic.init(), self.annealed(*jnp.zeros(2))))
        check_values(self)
