"""Entropy target: the entropy coefficient is learned, so that the policy's entropy stays near a target.

Haarnoja et al. 2018, section 5, https://arxiv.org/abs/1812.05905: gradient descent of log alpha on
alpha (H - target), whose slope by log alpha is taken without its factor alpha, as implementations do. Here one step an
update, on the mean entropy of its gradient steps, and alpha is the weight of PPO's entropy bonus.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.metrics import Table, reduced
from ppax.types import ConfigError, LearnerState, PyTree, Scalar, number, part

LARGEST = 14.0  # bound on the change of log ent_coef since the start: a factor of a million


@part
class EntropyTarget:
    """Entropy target: ent_coef rises while the entropy is below it and falls while it is above; off while it is none.

    Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905
    """

    target: Scalar | None = number("entropy in nats that ent_coef is adapted to; none: ent_coef stays", default=None)
    rate: Scalar = number(
        "change of log ent_coef in one update, for each nat between entropy and target", default=0.1, above=0.0
    )

    def init(self, ent_coef: Scalar) -> PyTree:
        """Initial change of log ent_coef, () if off; ConfigError for an ent_coef of 0, which would stay 0."""
        if self.target is None:
            return ()
        if isinstance(ent_coef, int | float) and ent_coef == 0.0:
            raise ConfigError("ent_coef = 0: entropy.target multiplies it; give the value to begin with, such as 0.01")
        return jnp.float32(0.0)

    def coef(self, state: PyTree, ent_coef: Scalar) -> Scalar:
        """Learned entropy coefficient."""
        return ent_coef if self.target is None else ent_coef * jnp.exp(state)

    def update(self, state: PyTree, metrics: Table, acts: Array) -> PyTree:
        """State after an update with these metrics; unchanged if no minibatch `acts`."""
        if self.target is None:
            return ()
        moved = jnp.clip(state + self.rate * (self.target - metrics["entropy"]), -LARGEST, LARGEST)
        return jnp.where(acts.any(), moved, state)

    def adapt(self, learner: LearnerState, metrics: Table, acts: Array, ent_coef: Scalar) -> tuple[LearnerState, Table]:
        """Return learner and metrics of an update with the learned coefficient."""
        state = self.update(learner.entropy, metrics, acts)
        return learner._replace(entropy=state), metrics | self.metrics(state, ent_coef)

    def metrics(self, state: PyTree, ent_coef: Scalar) -> Table:
        """Metric of one update: the learned coefficient, for the next one."""
        return (
            Table({}) if self.target is None else reduced("last", {"ent_coef": jnp.asarray(self.coef(state, ent_coef))})
        )
