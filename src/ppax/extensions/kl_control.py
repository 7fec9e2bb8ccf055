"""KL control: an extension with early stop, adaptive learning rate and adaptive KL penalty.

KL(old || new) of a minibatch is estimated before its gradient step by the metric `approx_kl`:
https://joschu.net/blog/kl-approx.html. Adaptive penalty: Schulman et al. 2017, section 4,
https://arxiv.org/abs/1707.06347. Adaptive learning rate: as in rsl_rl, https://github.com/leggedrobotics/rsl_rl.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import masked_mean
from ppax.core.protocols import Optimizer
from ppax.core.types import ConfigError, ExtensionState, Key, LearnerState, Scalar, number, part, static
from ppax.ppo.extension import After, Extension, Learned, Observed
from ppax.ppo.optimizers import ActorCritic, frozen_where

RATE_STEP = 1.5  # factor of one change of the learning rate
NOT_MOVED = 1e-10  # largest KL that is mere rounding, as before the first step: the learning rate is not raised
CONTROLS = ("target_kl", "rate_target", "coef_target")
COEF_RANGE = 2.0**20  # largest factor between the adapted and the configured kl_coef


class KLState(NamedTuple):
    """State of KLControl: the factors on learning rate and kl_coef, and whether the early stop has ended the update.

    A field is None if its control is off; `stopped` is also None between updates.
    """

    rate: Any = None  # [] factor on the learning rate
    coef: Any = None  # [] factor on the loss's kl_coef
    stopped: Any = None  # [] bool; only inside an update


@part
class Stopped:
    """Optimiser that changes neither parameters nor its own state where `stopped` [] is True."""

    optimizer: Optimizer
    stopped: Array

    elementwise: ClassVar[bool] = False

    def __call__(self, learning_rate: Scalar) -> optax.GradientTransformation:
        """Return the optax transformation of `optimizer`, changed to do nothing where `stopped` is True."""
        return frozen_where(self.optimizer(learning_rate), lambda epoch: self.stopped)


@part
class KLControl(Extension):
    """KL control: early stop, adaptive learning rate, adaptive KL penalty; each is off while its target is none.

    Schulman et al. 2017, section 4, https://arxiv.org/abs/1707.06347; https://github.com/leggedrobotics/rsl_rl
    """

    target_kl: Scalar | None = number(
        "early stop: end the update before a gradient step whose KL exceeds this; none: off", default=None, above=0.0
    )
    rate_target: Scalar | None = number(
        "adaptive learning rate: target KL; above twice this divide the rate by 1.5, below half multiply; none: off",
        default=None,
        above=0.0,
    )
    rate_min: Scalar = number("lower bound of the adaptive learning rate", default=1e-5, above=0.0)
    rate_max: Scalar = number("upper bound of the adaptive learning rate", default=1e-2, above=0.0)
    coef_target: Scalar | None = number(
        "adaptive penalty: target KL; above 1.5 times this kl_coef doubles, below 1/1.5 it halves; none: off",
        default=None,
        above=0.0,
    )
    stops: str = static(
        "gradient steps that the early stop ends: all, or those of the actor alone, while the critic goes on learning; "
        "actor needs the optimizer actor_critic",
        default="all",
        choices=("all", "actor"),
    )

    @property
    def needs_latest_policy(self) -> str:
        """Name of the first option of KLControl that is on, such as "target_kl", for errors; "" if none is on.

        The options compare the current policy with the policy that acted, which must be that of the last update. A run
        with `overlap` is therefore refused if an option is on: there the policy that acts is one update older.
        """
        return next((name for name in CONTROLS if getattr(self, name) is not None), "")

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return KLControl's first state: factors of 1 on learning rate and kl_coef; None for a control that is off.

        Raises ConfigError in four cases: the penalty is adapted, but the loss has no kl_coef; a control is on, but an
        update has only one gradient step, before which the KL is always 0; `stops` is "actor", but `target_kl` is none;
        `stops` is "actor", but the optimiser takes the steps of actor and critic together.
        """
        if self.stops == "actor" and self.target_kl is None:
            raise ConfigError("kl_control.stops = 'actor': nothing stops without a target; set kl_control.target_kl")
        if self.stops == "actor" and not isinstance(agent.optimizer, ActorCritic):
            raise ConfigError(
                f"kl_control.stops = 'actor': {type(agent.optimizer).__name__} takes the steps of actor and critic "
                'together; give each its own, [agent.optimizer] part = "actor_critic" (ppax.optimizers.ActorCritic), '
                "or leave it out; nearest: all"
            )
        loss = agent.loss
        names = [field.name for field in dataclasses.fields(loss)] if dataclasses.is_dataclass(loss) else []
        if self.coef_target is not None and "kl_coef" not in names:
            raise ConfigError(
                f"kl_control.coef_target: {type(loss).__name__} has no kl_coef to adapt; use KLPenalty (kl_penalty)"
            )
        if agent.num_epochs == agent.minibatch.num_minibatches == 1:
            self._refuse_one_step()
        one = jnp.float32(1.0)
        rate, coef = (None if target is None else one for target in (self.rate_target, self.coef_target))
        return ExtensionState(KLState(rate, coef))

    def _refuse_one_step(self) -> None:
        """Raise ConfigError if a control is on, for an update of one gradient step, before which the KL is always 0."""
        if self.needs_latest_policy:
            raise ConfigError(
                f"kl_control.{self.needs_latest_policy}: with one gradient step per update the KL before it is always "
                "0; set num_epochs or minibatch.num_minibatches to at least 2, with minibatches of a given size fewer "
                "rows, or leave it out"
            )

    def begin(self, state: KLState) -> KLState:
        """Return KLControl's state at the start of an update: the early stop, if on, has not stopped it yet."""
        return state._replace(stopped=None if self.target_kl is None else jnp.bool_(False))

    def adapt(self, agent: Any, inner: KLState) -> Any:
        """Return the agent with learning rate and kl_coef of its loss multiplied by the factors that `inner` holds.

        If the early stop is for the actor alone, the actor's optimiser changes nothing after the stop.
        """
        if inner.rate is not None:
            agent = dataclasses.replace(agent, learning_rate=agent.learning_rate * inner.rate)
        if inner.coef is not None:
            adapted = dataclasses.replace(agent.loss, kl_coef=agent.loss.kl_coef * inner.coef)
            agent = dataclasses.replace(agent, loss=adapted)
        if inner.stopped is not None and self.stops == "actor":
            optimizer = dataclasses.replace(agent.optimizer, actor=Stopped(agent.optimizer.actor, inner.stopped))
            agent = dataclasses.replace(agent, optimizer=optimizer)
        return agent

    def observe(self, agent: Any, inner: KLState, metrics: Mapping[str, Array], acts: Array) -> Observed:
        """Return KLControl's state after a minibatch's KL is known, and whether its gradient step is to be taken.

        The learning rate is adapted, and the update stopped, before the step. Where `acts` [] is False (the minibatch
        has no row that the policy learns from), nothing changes.
        """
        rate, coef, stopped = inner
        if self.rate_target is not None:
            change = rate_change(
                rate * agent.learning_rate, metrics["approx_kl"], self.rate_target, self.rate_min, self.rate_max
            )
            rate = rate * (change if stopped is None else jnp.where(stopped, 1.0, change))
        if self.target_kl is not None:
            stopped = stopped | ~(metrics["approx_kl"] <= self.target_kl)  # NaN stops too
        state = jax.tree.map(partial(jnp.where, acts), KLState(rate, coef, stopped), inner)
        if state.stopped is None:
            return Observed(state)
        skipped = {"updates_skipped": state.stopped.astype(jnp.float32)}
        if self.stops == "actor":  # by `adapt`; the step itself is taken, as the critic learns from it
            return Observed(state, None, skipped)
        return Observed(state, ~state.stopped, skipped)

    def after(self, agent: Any, learner: LearnerState, state: KLState, inner: KLState, learned: Learned) -> After:
        """Return KLControl's state with kl_coef adapted by the mean KL of the update's last epoch.

        Without a target of the penalty (`coef_target`), kl_coef stays. The learner is returned as it is. Raises
        ConfigError where the update has had only one gradient step.
        """
        if learned.history.acts.size == 1:  # known only now where the size of minibatches is given, not their number
            self._refuse_one_step()
        rate, coef, _ = inner
        if self.coef_target is None:
            return After(learner, KLState(rate, coef))
        history, acts = learned.history.metrics, learned.history.acts
        d = masked_mean(history["approx_kl"][-1], acts[-1])
        change = jnp.where(d > 1.5 * self.coef_target, 2.0, jnp.where(d < self.coef_target / 1.5, 0.5, 1.0))
        change = jnp.where(acts[-1].any() & (d > NOT_MOVED), change, 1.0)  # as while `critic_warmup` freezes the actor
        coef = jnp.clip(coef * change, 1.0 / COEF_RANGE, COEF_RANGE)
        return After(learner, KLState(rate, coef), {"kl_coef": agent.loss.kl_coef * coef})


def rate_change(rate: Array, kl: Array, target: Scalar, lowest: Scalar, highest: Scalar) -> Array:
    """Return the factor by which the learning rate `rate`, [], changes after the KL `kl` of a minibatch.

    It is below 1 if `kl` is above twice the `target`, above 1 if `kl` is below half the target, and else 1. The new
    rate stays between `lowest` and `highest`.
    """
    rate = jnp.maximum(rate, 1e-30)  # a learning rate of 0 stays 0
    # a bound limits a change; it never causes one
    slower = jnp.clip(lowest / rate, 1.0 / RATE_STEP, 1.0)
    faster = jnp.clip(highest / rate, 1.0, RATE_STEP)
    near = (kl < 0.5 * target) & (kl > NOT_MOVED)
    return jnp.where(kl > 2.0 * target, slower, jnp.where(near, faster, 1.0))
