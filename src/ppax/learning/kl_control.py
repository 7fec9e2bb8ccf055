"""What is done about how far the policy has moved: stop the update, change the step size, change the loss's penalty.

The distance is KL(old || new) of a minibatch, estimated before its gradient step by the loss's metric `approx_kl`:
https://joschu.net/blog/kl-approx.html. Penalty coefficient: Schulman et al. 2017, section 4,
https://arxiv.org/abs/1707.06347. Step size: as rsl_rl does, https://github.com/leggedrobotics/rsl_rl.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import masked_mean
from ppax.types import ConfigError, Metrics, PyTree, Scalar, number, part

RATE_STEP = 1.5  # by which the step size changes at once
NOT_MOVED = 1e-10  # what rounding alone may give before the first step: no reason to go faster
COEF_RANGE = 2.0**20  # the penalty's coefficient stays within this factor of the loss's own


class KLState(NamedTuple):
    """Where the controls stand: arrays, None where one is off."""

    rate: Any = None  # [] factor on the learning rate
    coef: Any = None  # [] factor on the loss's kl_coef
    stopped: Any = None  # [] bool; only inside an update


@part
class KLControl:
    """Up to three controls at once, each off while its target is none."""

    target_kl: Scalar | None = number(
        "KL beyond which neither this gradient step nor a later one of the update is taken", default=None, above=0.0
    )
    rate_target: Scalar | None = number(
        "KL wanted: beyond 2 of it the learning rate falls by 1.5, below 1/2 it grows", default=None, above=0.0
    )
    rate_min: Scalar = number("the learning rate does not fall further", default=1e-5, above=0.0)
    rate_max: Scalar = number("the learning rate does not grow further", default=1e-2, above=0.0)
    coef_target: Scalar | None = number(
        "KL wanted of an update: beyond 1.5 of it the loss's kl_coef doubles, below 1/1.5 it halves",
        default=None,
        above=0.0,
    )

    def init(self, loss: Any) -> PyTree:
        """What a learner keeps between updates, () where nothing; ConfigError where `loss` has no coefficient."""
        names = [field.name for field in dataclasses.fields(loss)] if dataclasses.is_dataclass(loss) else []
        if self.coef_target is not None and "kl_coef" not in names:
            raise ConfigError(
                f"kl.coef_target: {type(loss).__name__} has no kl_coef to adapt; use loss KLPenalty (kl_penalty)"
            )
        rate, coef = (None if target is None else jnp.float32(1.0) for target in (self.rate_target, self.coef_target))
        return () if rate is None and coef is None else KLState(rate, coef)

    def check(self, gradient_steps: int) -> None:
        """Raise ConfigError where an update of so many gradient steps gives the controls nothing to act on."""
        names = ("target_kl", "rate_target", "coef_target")
        wanted = [name for name in names if getattr(self, name) is not None]
        if gradient_steps == 1 and wanted:
            raise ConfigError(
                f"kl.{wanted[0]}: with one gradient step an update the KL before it is always 0; "
                "set num_epochs or minibatch.num_minibatches to at least 2, or switch it off with none"
            )

    def begin(self, kept: PyTree) -> KLState:
        """The state inside an update."""
        return KLState(*kept)._replace(stopped=None if self.target_kl is None else jnp.bool_(False))

    def judge(
        self, state: KLState, learning_rate: Scalar, metrics: Mapping[str, Array], acts: Array | bool = True
    ) -> KLState:
        """Before a gradient step, from the metrics of its loss; the same state without rows with a choice, `acts`."""
        rate, coef, stopped = state
        if self.rate_target is not None:
            bounds = self.rate_min, self.rate_max
            change = rate_change(rate * learning_rate, _kl(metrics), self.rate_target, *bounds)
            rate = rate * (change if stopped is None else jnp.where(stopped, 1.0, change))
        if self.target_kl is not None:
            stopped = stopped | ~(_kl(metrics) <= self.target_kl)  # NaN stops too
        return jax.tree.map(partial(jnp.where, acts), KLState(rate, coef, stopped), state)

    def goes_on(self, state: KLState, learns: Array) -> Array:
        """Whether to take a gradient step [] of a minibatch that has valid rows, `learns` []."""
        return learns if state.stopped is None else learns & ~state.stopped

    def end(self, state: KLState, history: Mapping[str, Array], acts: Array) -> PyTree:
        """What the learner keeps; `history` [num_epochs, num_minibatches] are the metrics of all steps.

        `acts` [num_epochs, num_minibatches]: whether a step's minibatch had a row that the policy could learn from.
        """
        rate, coef, _ = state
        if self.coef_target is not None:
            d = masked_mean(_kl(history)[-1], acts[-1])  # of the last epoch
            change = jnp.where(d > 1.5 * self.coef_target, 2.0, jnp.where(d < self.coef_target / 1.5, 0.5, 1.0))
            change = jnp.where(acts[-1].any(), change, 1.0)
            coef = jnp.clip(coef * change, 1.0 / COEF_RANGE, COEF_RANGE)
        return () if rate is None and coef is None else KLState(rate, coef)

    def learning_rate(self, state: PyTree, learning_rate: Scalar) -> Scalar:
        """The learning rate now."""
        rate = KLState(*state).rate
        return learning_rate if rate is None else learning_rate * rate

    def loss(self, state: PyTree, loss: Any) -> Any:
        """The loss with its coefficient of now."""
        coef = KLState(*state).coef
        return loss if coef is None else dataclasses.replace(loss, kl_coef=loss.kl_coef * coef)

    def step_metrics(self, state: KLState) -> Metrics:
        """What a human wants to see of one gradient step."""
        return {} if state.stopped is None else {"updates_skipped": state.stopped.astype(jnp.float32)}

    def metrics(self, state: PyTree, loss: Any) -> Metrics:
        """What a human wants to see of one update."""
        return {} if KLState(*state).coef is None else {"kl_coef": self.loss(state, loss).kl_coef}


def rate_change(now: Array, kl: Array, target: Scalar, lowest: Scalar, highest: Scalar) -> Array:
    """By what to multiply the learning rate `now`."""
    now = jnp.maximum(now, 1e-30)  # a learning rate of 0 stays 0
    # a bound stops a change, it never makes one
    slower = jnp.clip(lowest / now, 1.0 / RATE_STEP, 1.0)
    faster = jnp.clip(highest / now, 1.0, RATE_STEP)
    near = (kl < 0.5 * target) & (kl > NOT_MOVED)
    return jnp.where(kl > 2.0 * target, slower, jnp.where(near, faster, 1.0))


def _kl(metrics: Mapping[str, Array]) -> Array:
    if "approx_kl" not in metrics:
        raise ConfigError("kl: the loss must give the metric approx_kl; without it, set every target of kl to none")
    return metrics["approx_kl"]
