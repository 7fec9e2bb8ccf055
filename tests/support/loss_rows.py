"""Helpers of loss tests: a distribution with given results, a batch of rows, a loss with its gradients."""

from typing import NamedTuple

import jax
import numpy as np

from ppax.core.types import Batch, Targets, Transition
from ppax.ppo.critics import Regression, value_losses
from ppax.ppo.losses import total_loss

PLAIN = Regression()


class Fixed(NamedTuple):
    """Distribution with given log-probabilities and entropies."""

    answer: jax.Array
    entropies: jax.Array

    def log_prob(self, action):
        return self.answer

    def entropy(self):
        return self.entropies

    def metrics(self):
        return {}


class Result(NamedTuple):
    loss: np.ndarray
    metrics: dict
    by_log_prob: np.ndarray  # d loss / d each, [N]
    by_value: np.ndarray  # with a regression critic, whose value output is V
    by_entropy: np.ndarray


def batch_of(advantage, *, old_log_prob=0.0, target=0.0, old_value=0.0, valid=True, action=None):
    rows = np.shape(advantage)
    numbers = (advantage, old_log_prob, target, old_value)
    advantage, old_log_prob, target, old_value = (np.broadcast_to(np.asarray(x, np.float32), rows) for x in numbers)
    valid = np.broadcast_to(valid, rows)
    steps = Transition(None, action, old_log_prob, old_value, None, None, None, None, valid, ())
    return Batch(steps, Targets(advantage, target))


@jax.jit
def compiled(loss, log_prob, value, entropy, batch, critic=PLAIN, vf_coef=0.5, ent_coef=0.0):
    def f(log_prob, value, entropy):
        error = value_losses(critic, (), value[:, None], batch)
        policy = Fixed(log_prob, entropy)
        terms = loss(policy, batch)
        return tuple(
            total_loss(terms, error, policy, vf_coef=vf_coef, ent_coef=ent_coef, further={}, metrics={}, batch=batch)
        )

    (loss_value, metrics), gradient = jax.value_and_grad(f, argnums=(0, 1, 2), has_aux=True)(log_prob, value, entropy)
    return Result(loss_value, metrics, *gradient)


def run(loss, log_prob, batch, value=0.0, entropy=0.0, critic=PLAIN, vf_coef=0.5, ent_coef=0.0):
    """The loss with value and entropy terms, and its gradients, where the new policy gives these numbers [N]."""
    rows = np.shape(log_prob)
    log_prob, value, entropy = (np.broadcast_to(np.asarray(x, np.float32), rows) for x in (log_prob, value, entropy))
    return jax.tree.map(np.asarray, compiled(loss, log_prob, value, entropy, batch, critic, vf_coef, ent_coef))
