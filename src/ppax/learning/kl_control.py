"""KL control: early stop, adaptive learning rate, adaptive KL penalty.

KL(old || new) of a minibatch is estimated before its gradient step by the metric `approx_kl`:
https://joschu.net/blog/kl-approx.html. Adaptive penalty: Schulman et al. 2017, section 4,
https://arxiv.org/abs/1707.06347. Adaptive learning rate: as in rsl_rl, https://github.com/leggedrobotics/rsl_rl.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.metrics import Table, reduced
from ppax.arrays.sequences import masked_mean
from ppax.types import ConfigError, Metrics, PyTree, Scalar, number, part

RATE_STEP = 1.5  # factor of one change of the learning rate
NOT_MOVED = 1e-10  # largest KL that is mere rounding, as before the first step: the learning rate is not raised
COEF_RANGE = 2.0**20  # largest factor between the adapted and the configured kl_coef


class KLState(NamedTuple):
    """State of the KL controls; None where a control is off."""

    rate: Any = None  # [] factor on the learning rate
    coef: Any = None  # [] factor on the loss's kl_coef
    stopped: Any = None  # [] bool; only inside an update


@part
class KLControl:
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

    def init(self, loss: Any) -> PyTree:
        """Initial state kept between updates, () if none; ConfigError if `loss` lacks the kl_coef to adapt."""
        names = [field.name for field in dataclasses.fields(loss)] if dataclasses.is_dataclass(loss) else []
        if self.coef_target is not None and "kl_coef" not in names:
            raise ConfigError(
                f"kl.coef_target: {type(loss).__name__} has no kl_coef to adapt; use loss KLPenalty (kl_penalty)"
            )
        rate, coef = (None if target is None else jnp.float32(1.0) for target in (self.rate_target, self.coef_target))
        return () if rate is None and coef is None else KLState(rate, coef)

    @property
    def targets(self) -> list[str]:
        """Names of the controls that are on."""
        names = ("target_kl", "rate_target", "coef_target")
        return [name for name in names if getattr(self, name) is not None]

    def check(self, gradient_steps: int) -> None:
        """Raise ConfigError if a control is on and an update has one gradient step only: its KL is always 0."""
        if gradient_steps == 1 and self.targets:
            raise ConfigError(
                f"kl.{self.targets[0]}: with one gradient step per update the KL before it is always 0; "
                "set num_epochs or minibatch.num_minibatches to at least 2, or switch it off with none"
            )

    def begin(self, kept: PyTree) -> KLState:
        """State at the start of an update, from the state kept between updates."""
        return KLState(*kept)._replace(stopped=None if self.target_kl is None else jnp.bool_(False))

    def adapt(
        self, state: KLState, learning_rate: Scalar, metrics: Mapping[str, Array], acts: Array | bool = True
    ) -> KLState:
        """Adapt the state before a gradient step, from its loss's metrics; unchanged unless `acts`.

        `acts` []: whether the minibatch has a row that the policy learns from.
        """
        rate, coef, stopped = state
        if self.rate_target is not None:
            bounds = self.rate_min, self.rate_max
            change = rate_change(rate * learning_rate, metrics["approx_kl"], self.rate_target, *bounds)
            rate = rate * (change if stopped is None else jnp.where(stopped, 1.0, change))
        if self.target_kl is not None:
            stopped = stopped | ~(metrics["approx_kl"] <= self.target_kl)  # NaN stops too
        return jax.tree.map(partial(jnp.where, acts), KLState(rate, coef, stopped), state)

    def goes_on(self, state: KLState, learns: Array) -> Array:
        """Whether to apply a gradient step, []: `learns` (the minibatch has a valid row) and no early stop."""
        return learns if state.stopped is None else learns & ~state.stopped

    def end(self, state: KLState, history: Mapping[str, Array], acts: Array) -> PyTree:
        """State kept after an update; `history` [num_epochs, num_minibatches] are the metrics of its gradient steps.

        `acts` [num_epochs, num_minibatches]: whether a minibatch has a row that the policy learns from.
        """
        rate, coef, _ = state
        if self.coef_target is not None:
            d = masked_mean(history["approx_kl"][-1], acts[-1])  # of the last epoch
            change = jnp.where(d > 1.5 * self.coef_target, 2.0, jnp.where(d < self.coef_target / 1.5, 0.5, 1.0))
            change = jnp.where(acts[-1].any(), change, 1.0)
            coef = jnp.clip(coef * change, 1.0 / COEF_RANGE, COEF_RANGE)
        return () if rate is None and coef is None else KLState(rate, coef)

    def learning_rate(self, state: PyTree, learning_rate: Scalar) -> Scalar:
        """Adapted learning rate."""
        rate = KLState(*state).rate
        return learning_rate if rate is None else learning_rate * rate

    def loss(self, state: PyTree, loss: Any) -> Any:
        """Loss with its adapted kl_coef."""
        coef = KLState(*state).coef
        return loss if coef is None else dataclasses.replace(loss, kl_coef=loss.kl_coef * coef)

    def step_metrics(self, state: KLState) -> Metrics:
        """Metrics of one gradient step."""
        return {} if state.stopped is None else {"updates_skipped": state.stopped.astype(jnp.float32)}

    def metrics(self, state: PyTree, loss: Any, learning_rate: Scalar) -> Table:
        """Metrics of one update: adapted kl_coef and learning rate."""
        coef = {} if KLState(*state).coef is None else {"kl_coef": self.loss(state, loss).kl_coef}
        return coef | reduced("last", {"learning_rate": jnp.float32(self.learning_rate(state, learning_rate))})


def rate_change(rate: Array, kl: Array, target: Scalar, lowest: Scalar, highest: Scalar) -> Array:
    """Factor on the learning rate `rate`, [], from the measured `kl`; bounded by `lowest` and `highest`."""
    rate = jnp.maximum(rate, 1e-30)  # a learning rate of 0 stays 0
    # a bound limits a change; it never causes one
    slower = jnp.clip(lowest / rate, 1.0 / RATE_STEP, 1.0)
    faster = jnp.clip(highest / rate, 1.0, RATE_STEP)
    near = (kl < 0.5 * target) & (kl > NOT_MOVED)
    return jnp.where(kl > 2.0 * target, slower, jnp.where(near, faster, 1.0))
