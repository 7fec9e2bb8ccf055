"""Changes of the update: a term of the loss (an extension), another gradient, another advantage (parts).

In this directory they work on the command line and in run files, too:

    ppax train CartPole-v1 --trust own_update --agent.gradient own_update:SharpnessAware --agent.gradient.rho 0.02
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from ppax.advantages import GAE
from ppax.protocols import Advantage, LossGradient
from ppax.types import Scalar, Targets, number, part

import ppax
from ppax.extensions import Extension, Terms

ITERATIONS = 40


@part
class SmallLogits(Extension):
    """Term of the loss: mean square of a discrete policy's logits, which keeps it from becoming too sure too early."""

    coef: Scalar = number("weight of the logits' mean square", default=1e-3, low=0.0)

    def terms(self, rows):
        """Terms of rows [N]."""
        logits = rows.policy.distribution.logits
        return Terms({"logits_loss": self.coef * jnp.square(logits).mean(axis=-1)})


@part
class SharpnessAware:
    """Sharpness-aware minimisation (SAM): the gradient where the loss is larger, a step of length rho uphill.

    Foret et al. 2021, https://arxiv.org/abs/2010.01412
    """

    rho: Scalar = number("length of the step uphill", default=0.01, low=0.0)

    def __call__(self, gradient, gradient_at, params):
        """Gradient at params + rho g / |g| (eq. 2 and 3), and the rise of the loss as a metric."""
        vector, to_params = ravel_pytree(params)
        climb = self.rho * gradient.vector / (jnp.linalg.norm(gradient.vector) + 1e-12)
        uphill = gradient_at(to_params(vector + climb))
        return LossGradient(uphill.vector, {"sharpness": uphill.metrics["loss"] - gradient.metrics["loss"]})


@part
class Symlog:
    """Advantage on a logarithmic scale, sign(A) log(1 + |A|), so that rare large rewards do not outweigh all others."""

    inner: Advantage = ppax.slot("advantage", "estimator whose advantages are scaled", default=GAE())

    def __call__(self, steps, next_value, gamma, ratio=None):
        """Targets [T] of one stream."""
        targets = self.inner(steps, next_value, gamma, ratio)
        return Targets(jnp.sign(targets.advantage) * jnp.log1p(jnp.abs(targets.advantage)), targets.value)


def main():
    """Train CartPole with plain PPO and with each change; return the mean returns."""
    env = ppax.make("CartPole-v1", num_envs=16)
    plain = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3)
    changes = {
        "plain": {},
        "loss term": {"extensions": (SmallLogits(coef=1e-2),)},
        "gradient": {"gradient": SharpnessAware(rho=0.02)},
        "advantage": {"advantage": Symlog(GAE(gae_lambda=0.9))},
    }
    scores = {}
    for name, change in changes.items():
        agent = dataclasses.replace(plain, **change)
        state = ppax.start(agent, env, 128, jax.random.key(0))
        state, metrics = jax.jit(ppax.train)(agent, env, state, ITERATIONS)
        scores[name] = ppax.evaluate(agent, env, state.learner, jax.random.key(1), episodes=32).mean_return
        own = {key: f"{float(metrics[key]):.4f}" for key in ("logits_loss", "sharpness") if key in metrics}
        print(f"{name}: return {scores[name]:.1f}", own or "")
    return scores


if __name__ == "__main__":
    main()
