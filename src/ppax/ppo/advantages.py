"""Advantage estimators: parts that compute advantages and value targets, each written for one stream.

A stream is one agent in one environment; its arrays have one entry for each step of a rollout, [T].
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.core.types import Scalar, Targets, Transition, number, part

__all__ = ["GAE", "CanonicalVTrace", "MonteCarlo", "TDLambda", "VTrace", "spread_rewards"]


@part
class GAE:
    """Generalised advantage estimation (GAE). Schulman et al. 2016, https://arxiv.org/abs/1506.02438

    delta_t = r_t + gamma (1 - terminated_t) V'_t - V_t,
    A_t = delta_t + gamma lambda (1 - ended_t) A_{t+1}.

    Eq. 11 and 12, with termination and truncation. V'_t, the paper's `V(s_{t+1})`, is V of the true next observation:
    at the end of an episode, that of its final observation.
    """

    gae_lambda: Scalar = number(
        "GAE lambda: 0: one-step advantage, least variance; 1: full return, least bias", default=0.95, low=0.0, high=1.0
    )

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Return GAE advantages and value targets, [T] each, of one stream (one agent in one environment).

        `steps` are its steps [T], `next_value` [T] is V of the observation after each; `ratio` is not used.
        """
        bootstrap = jnp.where(steps.terminated, 0.0, next_value)
        delta = steps.reward + gamma * bootstrap - steps.value  # eq. 11
        advantage = discounted_sum(delta, gamma * self.gae_lambda, steps.ended)  # eq. 12
        return Targets(advantage, advantage + steps.value)


@part
class MonteCarlo:
    """Monte-Carlo advantage: discounted return to the episode's end, minus V; high variance, no bias within an episode.

    Eq. 3.8 and 3.9 of Sutton and Barto 2018, http://incompleteideas.net/book/the-book-2nd.html. If a time limit or the
    rollout's end cuts an episode, the return is bootstrapped from V.
    """

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Return Monte-Carlo advantages and value targets, [T] each, of one stream (one agent in one environment).

        `steps` are its steps [T], `next_value` [T] is V of the observation after each; `ratio` is not used.
        """
        last = steps.ended.at[-1].set(True)  # the rollout has no rewards after its last step
        bootstrap = last & ~steps.terminated
        value = discounted_sum(steps.reward + jnp.where(bootstrap, gamma * next_value, 0.0), gamma, steps.ended)
        return Targets(value - steps.value, value)


@part
class TDLambda:
    """TD(lambda): value targets are lambda-returns; advantages are lambda-returns minus V.

    The lambda-return is the mean of the n-step returns with weights (1 - lambda) lambda^(n-1). Sutton 1988,
    https://doi.org/10.1007/BF00115009

    Eq. 12.2 of Sutton and Barto 2018, in its backward form: G_t = r_t + gamma ((1 - lambda) V'_t + lambda G_{t+1}),
    where V'_t is V of the observation after step t. After the last step of an episode or rollout, G_t = r_t + gamma
    V'_t, with V'_t = 0 after a termination.

    If V'_t = V_{t+1} within episodes, as in PPO, this equals GAE with the same lambda, up to rounding. They differ if
    the next values are not the values of the next rows, for example with a target network.
    """

    td_lambda: Scalar = number("TD lambda: 0: one-step target; 1: full return", default=0.95, low=0.0, high=1.0)

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Return TD(lambda) advantages and value targets, [T] each, of one stream (one agent in one environment).

        `steps` are its steps [T], `next_value` [T] is V of the observation after each; `ratio` is not used.
        """
        last = steps.ended.at[-1].set(True)  # the longest n-step return ends here and has all remaining weight
        share = jnp.where(last, 1.0, 1.0 - self.td_lambda)
        bootstrap = jnp.where(steps.terminated, 0.0, share * next_value)
        value = discounted_sum(steps.reward + gamma * bootstrap, gamma * self.td_lambda, steps.ended)
        return Targets(value - steps.value, value)


@part
class VTrace:
    """V-trace as in PufferLib and JaxDEM: off-policy corrected GAE. Ratios: https://arxiv.org/abs/1802.01561

    delta_t = rho_t (r_t + gamma V'_t - V_t);  A_t = delta_t + gamma lambda c_t (1 - ended_t) A_{t+1}.

    V'_t is V of the observation after step t, 0 after a termination; rho_t and c_t are the clipped ratios of Espeholt
    et al. 2018. If all ratios are 1 and the clips at least 1, it equals GAE bit for bit. PufferLib:
    https://github.com/PufferAI/PufferLib; JaxDEM: https://github.com/cdelv/JaxDEM
    """

    gae_lambda: Scalar = number(
        "GAE lambda: 0: one-step advantage, least variance; 1: full return, least bias", default=0.95, low=0.0, high=1.0
    )
    rho_clip: Scalar = number(
        "rho clip: upper bound of the probability ratio that weights a step, rho = min(w, this)", default=1.0, above=0.0
    )
    c_clip: Scalar = number(
        "c clip: upper bound of the probability ratio that weights the trace, c = min(w, this)", default=1.0, above=0.0
    )

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Return V-trace advantages and value targets, [T] each, of one stream (one agent in one environment).

        `steps` are its steps [T], `next_value` [T] is V of the observation after each. `ratio` [T] is w, the
        probability of each action under the current policy over that under the policy that acted; None: 1.
        """
        w = jnp.ones_like(steps.reward) if ratio is None else ratio
        bootstrap = jnp.where(steps.terminated, 0.0, next_value)
        delta = jnp.minimum(w, self.rho_clip) * (steps.reward + gamma * bootstrap - steps.value)
        advantage = discounted_sum(delta, gamma * self.gae_lambda * jnp.minimum(w, self.c_clip), steps.ended)
        return Targets(advantage, advantage + steps.value)


@part
class CanonicalVTrace:
    """V-trace (IMPALA). Espeholt et al. 2018, https://arxiv.org/abs/1802.01561

    Value target v_t = V_t + sum_k gamma^k (c_t ... c_{t+k-1}) delta_{t+k}; advantage rho_t (r_t + gamma v_{t+1} - V_t),
    where delta_t = rho_t (r_t + gamma V'_t - V_t).

    rho_t and c_t are the clipped probability ratios, and V'_t is V of the observation after step t. Eq. 1 and section
    4.2, with lambda as in remark 2. Termination and truncation as in GAE: after the last step of an episode or of the
    rollout, V of the true next observation (0 after a termination) takes the place of v_{t+1}.
    """

    trace_lambda: Scalar = number(
        "V-trace lambda, a factor on c: 0: one-step targets; 1: as in the paper", default=1.0, low=0.0, high=1.0
    )
    rho_clip: Scalar = number(
        "rho clip: upper bound of the probability ratio that weights a step, rho = min(w, this)", default=1.0, above=0.0
    )
    c_clip: Scalar = number(
        "c clip: upper bound of the probability ratio that weights the trace, c = min(w, this)", default=1.0, above=0.0
    )

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Return IMPALA's V-trace advantages and value targets, [T] each, of one stream (one agent in one environment).

        `steps` are its steps [T], `next_value` [T] is V of the observation after each. `ratio` [T] is w, the
        probability of each action under the current policy over that under the policy that acted; None: 1.
        """
        w = jnp.ones_like(steps.reward) if ratio is None else ratio
        rho, c = jnp.minimum(w, self.rho_clip), self.trace_lambda * jnp.minimum(w, self.c_clip)
        bootstrap = jnp.where(steps.terminated, 0.0, next_value)
        delta = rho * (steps.reward + gamma * bootstrap - steps.value)
        value = steps.value + discounted_sum(delta, gamma * c, steps.ended)  # eq. 1, v
        # v of the next step within the same episode and rollout, else the bootstrap value
        next_target = jnp.where(steps.ended, bootstrap, jnp.concatenate([value[1:], bootstrap[-1:]]))
        return Targets(rho * (steps.reward + gamma * next_target - steps.value), value)


def spread_rewards(reward: Array, decay: Scalar, ended: Array) -> Array:
    """Return rewards [T] of one stream (one agent in one environment), each spread over the steps before it.

    r'_t = r_t + decay (1 - ended_t) r'_{t+1}. `ended` [T] marks the last steps of episodes; decay 0 changes nothing.
    JaxDEM calls it DRIP. It changes the objective: each reward counts up to 1 / (1 - decay) times. Rewards spread
    within one rollout only.
    """
    return discounted_sum(reward, decay, ended)
