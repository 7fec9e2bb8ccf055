"""Checks of an update: targets (computed once more in NumPy), minibatches, gradients, invalid rows, devices.

A row is one step of a stream, that is of one agent in one environment.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.arrays.sequences import to_sequences
from ppax.checks.context import CheckContext, differing_leaves, fast_compiled, gradient, labelled_leaves
from ppax.checks.report import CheckResult, none_of, skip, within_limit
from ppax.core.types import Batch, Key, LearnerState, PyTree, Rollout, Targets, Transition
from ppax.devices import sharding
from ppax.devices.layout import product_dtype
from ppax.devices.sharding import SAME, SPLIT
from ppax.ppo.advantages import GAE, CanonicalVTrace, MonteCarlo, TDLambda, VTrace
from ppax.ppo.forward import cast, in_float32
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.ppo import PPO
from ppax.training.collection import collect

STREAMS, STEPS = 16, 128  # size of the part of the rollout on which advantages are compared
END_SHARE = 0.1  # share of steps that end an episode there
EQUAL = 1e-3  # relative tolerance of a gradient
DRIFT = 0.02  # tolerance between one device and two, as a share of the update: sums differ in rounding


def check_targets(context: CheckContext, key: Key) -> CheckResult:
    """Check that advantages and value targets agree with a float64 computation in NumPy.

    Only the estimators that come with ppax are checked.
    """
    weights = weights_of(context.agent.advantage)
    if weights is None:
        return skip(
            f"{type(context.agent.advantage).__name__} is no estimator of ppax: there is no float64 computation of it"
        )
    steps, next_value = _with_ends(context, key)
    got = _estimate(context.agent)(steps, next_value)
    expected = targets(weights, steps, next_value, float(context.agent.gamma))
    off = max(
        float(np.nan_to_num(np.abs(np.asarray(a) - b) / (1.0 + np.abs(b).max()), nan=np.inf).max())
        for a, b in zip(got, expected, strict=True)
    )
    return within_limit(
        off,
        1e-4,
        "advantages and targets are those of a float64 computation; largest relative difference",
        "The estimator is wrong, or values and rewards are too large for float32: set normalize_reward.",
    )


def check_ends(context: CheckContext, key: Key) -> CheckResult:
    """Check that targets bootstrap from the next value after a truncation, and not after a termination."""
    steps, next_value = _with_ends(context, key)
    estimate = _estimate(context.agent)
    plain = estimate(steps, next_value)
    terminated, truncated = steps.terminated, steps.truncated & ~steps.terminated
    without = estimate(steps, jnp.where(terminated, jnp.nan, next_value))
    added = 1.0 + jnp.abs(plain.value).max()  # 1 alone would be lost in the rounding of large values
    more = estimate(steps, jnp.where(truncated, next_value + added, next_value))
    problems = [f"{name} depends on the value after a termination" for name in differing_leaves(plain, without)]
    gain = np.asarray(more.value - plain.value)[np.asarray(truncated)]
    if float(context.agent.gamma) > 0.0 and not (gain > 0.0).all():
        problems.append(f"the target ignores the value after {(~(gain > 0.0)).sum()} of {len(gain)} truncations")
    counts = int(terminated.sum()), int(truncated.sum())
    return none_of(
        problems,
        f"targets bootstrap after {counts[1]} truncations, and not after {counts[0]} terminations",
        "Only terminated may cut the value (jnp.where(terminated, 0, next_value), not a product: NaN times 0 is NaN); "
        "ended cuts the trace.",
    )


def check_coverage(context: CheckContext, env: Any, num_steps: int, key: Key) -> CheckResult:
    """Check the minibatches of two epochs: indices are valid, and the epochs have different orders.

    With a shuffle, each sequence of the rollout must also be in exactly one minibatch of an epoch.
    """
    agent = context.agent
    length = agent.sequence_length(num_steps)
    count = num_steps * env.num_streams // length
    rollout = context.rollout.steps
    few = to_sequences(dataclasses.replace(rollout, obs=None, action=None, carry=(), action_mask=None), length)
    steps = jax.tree.map(lambda x: jnp.asarray(np.resize(np.asarray(x), (count, *x.shape[1:]))), few)
    advantage = jax.random.normal(jax.random.fold_in(key, 0), (count, length)) * steps.valid
    draw = fast_compiled(
        lambda steps, advantage, key: agent.minibatch(Batch(steps, Targets(advantage, advantage)), key)
    )
    drawn = [draw(steps, advantage, jax.random.fold_in(key, i)) for i in (1, 2)]
    order = [np.asarray(one.index).reshape(-1) for one in drawn]
    problems = ["an index is out of range"] if (order[0] < 0).any() or (order[0] > count).any() else []
    visits = np.bincount(np.clip(order[0], 0, count), minlength=count + 1)[:count]
    if drawn[0].weight is not None:
        seen = f"{(visits > 0).sum():,} of {count:,} sequences in {order[0].size:,} drawn"
        if not problems:
            return skip(f"sequences are drawn by priority, with weights: an epoch has {seen}")
    never, often = int((visits == 0).sum()), int((visits > 1).sum())
    uneven = [f"{never:,} of {count:,} sequences are in no minibatch"] if never else []
    uneven += [f"{often:,} of {count:,} sequences come more than once"] if often else []
    # only a shuffle promises that an epoch has every sequence; another part may choose among them
    promised = isinstance(agent.minibatch, Shuffle)
    problems += uneven if promised else []
    if count > 1 and len(drawn[0].index) > 1 and np.array_equal(order[0], order[1]):
        problems.append("two epochs have the same minibatches")
    if uneven and not problems:
        return skip(f"{type(agent.minibatch).__name__} need not cover a rollout: {'; '.join(uneven)}")
    return none_of(
        problems,
        f"an epoch has each of {count:,} sequences exactly once, another epoch in another order",
        "Draw indices from the key, from 0 to the number of sequences, which is padding; a shuffle is a new "
        "permutation of all sequences in each epoch.",
    )


def check_gradients(context: CheckContext, key: Key) -> CheckResult:
    """Check that every parameter gets a gradient that is finite and not all 0."""
    gradients = gradient(context, context.rollout, key)
    broken = [path for path, x in gradients.items() if not np.isfinite(x).all()]
    dead = [path for path, x in gradients.items() if not x.any()]
    problems = [f"the gradient of {', '.join(broken)} is not finite"] if broken else []
    problems += [f"no gradient reaches {', '.join(dead)}"] if dead else []
    return none_of(
        problems,
        f"all {len(gradients)} leaves of the parameters get a finite gradient",
        "Weights without a gradient never learn: a stop_gradient, an output that is not used, vf_coef = 0, an "
        "observation that is always 0, or dead units. NaN often comes from a jnp.where whose other branch is infinite.",
    )


def check_empty_rows(context: CheckContext, key: Key) -> CheckResult:
    """Check that invalid rows (autoreset steps) have no influence on an update, whatever their values are."""
    steps, invalid = context.rollout.steps, ~context.rollout.steps.valid
    if not invalid.any():
        return skip("every row of the rollout is valid: no episode ended in it")
    # the invalid row after a truncation holds the final observation, whose value is bootstrapped; extensions may read
    # that after a termination, too (`ppo.batches.following`)
    read = steps.ended if context.agent.extensions else steps.truncated
    final = jnp.concatenate([jnp.zeros_like(invalid[:1]), read[:-1]])
    unused = invalid & ~final
    poisoned = dataclasses.replace(
        steps,
        obs=_poison(steps.obs, unused),
        action=_poison(steps.action, invalid),
        log_prob=_poison(steps.log_prob, invalid),
        reward=_poison(steps.reward, invalid),
        value=_poison(steps.value, unused),
    )
    clean = context.update(context.learner, context.rollout, jax.random.clone(key)).learner
    dirty = context.update(context.learner, context.rollout._replace(steps=poisoned), jax.random.clone(key)).learner
    problems = [f"{path} changes" for path in differing_leaves(clean, dirty)]
    alone, beside = (
        gradient(context, x, jax.random.clone(key)) for x in (context.rollout, _with_empty(context.rollout))
    )
    difference = _norm({path: alone[path] - beside[path] for path in alone})
    if not difference <= EQUAL * _norm(alone):
        problems.append(f"doubling the rows with invalid ones changes the gradient by {difference / _norm(alone):.2g}")
    return none_of(
        problems,
        f"NaN and 1e30 in {int(invalid.sum()):,} invalid rows change no bit, and additional ones change no mean",
        "A loss, estimator or minibatch uses rows where steps.valid is False: take masked means "
        "(ppax.arrays.sequences.masked_mean), by jnp.where and not by multiplication.",
    )


def check_repeats(context: CheckContext, key: Key) -> CheckResult:
    """Check that an update made twice gives the same parameters bit for bit, and that they are finite."""
    one, other = (context.update(context.learner, context.rollout, jax.random.clone(key)).learner for _ in range(2))
    broken = [path for path, x in labelled_leaves(other) if not np.isfinite(x).all()]
    return none_of(
        [f"{path} differs" for path in differing_leaves(one, other)] + [f"{path} is not finite" for path in broken],
        "the same rollout and key give the same weights, bit for bit",
        "Runs are not reproducible: callbacks into Python, or sums in changing order (on a GPU, "
        "XLA_FLAGS=--xla_gpu_deterministic_ops=true). Where weights are not finite, see `gradients`.",
    )


def check_devices(context: CheckContext, num_steps: int, key: Key) -> CheckResult:
    """Check that an iteration divided over two devices gives nearly the same parameters as on one device."""
    agent, env, learner = context.agent, context.env, context.learner
    minibatch = agent.minibatch_size(num_steps, env.num_streams)
    if len(jax.local_devices()) < 2:
        return skip("there is one device")
    if env.num_envs % 2 or minibatch % 2:
        return skip(f"{env.num_envs} environments and minibatches of {minibatch} sequences cannot both be halved")
    half = dataclasses.replace(env, num_envs=env.num_envs // 2)

    def share(learner: Any, actor: Any, key: Key, update_key: Key) -> PyTree:
        rollout = collect(agent, half, learner, actor, num_steps, key).rollout
        return agent.update(learner, rollout, update_key).learner.params

    both = fast_compiled(sharding.split(share, 2, (SAME, SPLIT, SAME, SAME), SAME))
    one = context.update(learner, context.rollout, jax.random.clone(key)).learner.params
    two = both(learner, context.actor, jax.random.clone(context.key), jax.random.clone(key))
    start, one, two = (
        np.concatenate([x.astype(np.float64).reshape(-1) for _, x in labelled_leaves(params)])
        for params in (learner.params, one, two)
    )
    return within_limit(
        float(np.linalg.norm(one - two)) / max(float(np.linalg.norm(one - start)), 1e-30),
        DRIFT,
        "an iteration on two devices gives the update of one device; relative difference",
        "Something is summed or counted on each device alone: a loss must be a mean over valid rows, and an "
        "environment must not depend on the number of environments. [agent.program] devices = 1 avoids it.",
    )


def _with_empty(rollout: Rollout) -> Rollout:
    """Return the rollout with twice as many streams: the further ones are copies in which every row is invalid.

    A stream is one agent in one environment, a row one of its steps. Invalid rows must not change a gradient.
    """
    empty = dataclasses.replace(rollout.steps, valid=jnp.zeros_like(rollout.steps.valid))
    steps = jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=1), rollout.steps, empty)
    trace = jnp.concatenate([rollout.reward_trace] * 2, axis=1)
    of_streams = rollout.last_value, rollout.last_obs, rollout.extensions
    last_value, *others = jax.tree.map(lambda x: jnp.concatenate([x, x]), of_streams)
    return Rollout(steps, last_value, trace, *others)


def _norm(tree: dict[str, np.ndarray]) -> float:
    return float(np.sqrt(sum((x**2).sum() for x in tree.values())))


def _estimate(agent: PPO) -> Any:
    def estimate(steps: Transition, next_value: Array) -> Targets:
        return Targets(*jax.vmap(agent.advantage, (1, 1, None), 1)(steps, next_value, agent.gamma))

    return fast_compiled(estimate)


def _with_ends(context: CheckContext, key: Key) -> tuple[Transition, Array]:
    """Return steps of the rollout with random terminations and truncations, and the value [T, B] after each step."""
    rollout: Rollout = context.rollout
    steps = jax.tree.map(lambda x: x[:STEPS, :STREAMS], dataclasses.replace(rollout.steps, carry=()))
    after = jnp.concatenate([rollout.steps.value[1:], rollout.last_value[None]])[:STEPS, :STREAMS]
    terminated, truncated = jax.random.bernoulli(key, END_SHARE, (2, *after.shape))
    return dataclasses.replace(steps, terminated=terminated, truncated=truncated), after


def _poison(tree: PyTree, where: Array) -> PyTree:
    """Return `tree` with useless numbers in the rows `where` [T, B]: NaN in every other one, 1e30 in the rest.

    Integers become the largest of their dtype, and booleans stay as they are.
    """
    half = jnp.cumsum(where, axis=0) % 2 == 0

    def one(x: Array) -> Array:
        rows, other = (y.reshape(y.shape + (1,) * (x.ndim - y.ndim)) for y in (where, half))
        if x.dtype == bool:
            return x
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.where(rows, np.iinfo(x.dtype).max, x)
        return jnp.where(rows, jnp.where(other, jnp.nan, 1e30).astype(x.dtype), x)

    return jax.tree.map(one, tree)


class Weights(NamedTuple):
    """Coefficients of an advantage estimator, from which `targets` computes its results, for probability ratios of 1.

    With delta_t = rho (r_t + gamma V'_t - V_t), where V'_t is V of the observation after step t (0 after a
    termination), the value target is G_t = V_t + sum_k (gamma c)^k delta_{t+k}, over the steps t + k of the same
    episode. The advantage is G_t - V_t. With `canonical` it is that of the V-trace paper, rho (r_t + gamma G_{t+1} -
    V_t), where V'_t takes the place of G_{t+1} after the last step of an episode or of the rollout.
    """

    trace: float  # c
    step: float = 1.0  # rho
    canonical: bool = False  # the advantage is one-step, with the next target as next value


def weights_of(part: Any) -> Weights | None:
    """Return what the one-step TD errors are weighted by in an advantage estimator of ppax; None for a user's own.

    The check of an update computes the advantages from these weights by itself, and compares.
    """
    if type(part) is GAE:
        return Weights(float(part.gae_lambda))
    if type(part) is TDLambda:
        return Weights(float(part.td_lambda))
    if type(part) is MonteCarlo:
        return Weights(1.0)
    if type(part) is VTrace:
        return Weights(float(part.gae_lambda) * min(1.0, float(part.c_clip)), min(1.0, float(part.rho_clip)))
    if type(part) is CanonicalVTrace:
        trace = float(part.trace_lambda) * min(1.0, float(part.c_clip))
        return Weights(trace, min(1.0, float(part.rho_clip)), canonical=True)
    return None


def targets(weights: Weights, steps: Any, next_value: Any, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return advantages and value targets [T, B], computed in float64 as explicit sums over later steps.

    For every estimator, the value target minus V_t is a sum of one-step errors delta_u = rho (r_u + gamma V'_u - V_u)
    with weights (gamma c)^(u - t) over the steps u from t to the end of the episode; rho and c are `step` and `trace`
    of `weights`, V' is `next_value`. These are lambda-returns (Schulman et al. 2016, https://arxiv.org/abs/1506.02438,
    eq. 11 and 12). The advantage is the same sum, unless `weights.canonical` is True (see `Weights`).
    """
    reward, value, next_v = (np.asarray(x, np.float64) for x in (steps.reward, steps.value, next_value))
    terminated, truncated = np.asarray(steps.terminated), np.asarray(steps.truncated)
    ended = terminated | truncated
    next_v = np.where(terminated, 0.0, next_v)
    delta = weights.step * (reward + gamma * next_v - value)
    total = np.zeros_like(delta)
    for t in range(len(delta)):
        weight, in_episode = 1.0, np.ones(delta.shape[1], bool)
        for u in range(t, len(delta)):
            total[t] += np.where(in_episode, weight * delta[u], 0.0)
            weight, in_episode = weight * gamma * weights.trace, in_episode & ~ended[u]
    target = value + total
    if not weights.canonical:
        return total, target
    following = np.where(ended, next_v, np.concatenate([target[1:], next_v[-1:]]))
    return weights.step * (reward + gamma * following - value), target


NOISE = 0.2  # standard deviation of the noise added to weights, so that the distribution is not uniform
DRAWS, TURNS = 64, 64  # samples per batch, and number of batches
DIRECTIONS, SPREAD = 64, 3.0  # random directions, and the deviation of their leaves' log magnitudes
SIGMAS = 6.0  # allowed deviation of a mean score, in standard errors


def scores(agent: PPO, learner: LearnerState, rows: PyTree, key: Key) -> tuple[Array, Array]:
    """Return sums over sampled actions of directional derivatives of log p, and of their squares: [DIRECTIONS, N] each.

    The directions are DIRECTIONS random changes of the parameters and of the features that `decide` of the network
    reads. If log_prob is the log density of the samples, the derivatives have mean 0. That need not be so for
    derivatives by single fields of the distribution, because fields may depend on each other, as log-probabilities do,
    whose exponentials sum to 1. `rows` are the arguments of `agent.policy` after `learner`, for N steps.
    """
    action_mask, count = rows[-1], rows[-2].shape[0]
    features = agent.policy(learner, *rows).features

    def fields(inputs: tuple[PyTree, PyTree]) -> list[Array]:
        """Return the floating-point fields of the distribution, [rows, ...] each, for (parameters, features)."""
        return list(filter(_smooth, jax.tree.leaves(_decided(agent, inputs[0], inputs[1], action_mask))))

    params = cast(learner.params, jnp.dtype(product_dtype(agent.compute_dtype)))
    inputs = (params, features)
    distribution = _decided(agent, params, features, action_mask)
    leaves, structure = jax.tree.flatten(distribution)
    directions_key, samples_key = jax.random.split(key)
    tangents = jax.lax.map(
        lambda key: _unit(jax.jvp(fields, (inputs,), (_direction(inputs, key),))[1]),
        jax.random.split(directions_key, DIRECTIONS),
    )

    def log_prob(own: list[Array], action: PyTree) -> Array:
        parameters = iter(own)
        merged = [next(parameters) if _smooth(x) else x for x in leaves]
        total: Array = jax.tree.unflatten(structure, merged).log_prob(action).sum()
        return total

    def turn(sums: tuple[Array, Array], key: Key) -> tuple[tuple[Array, Array], None]:
        actions = jax.vmap(distribution.sample)(jax.random.split(key, DRAWS))
        gradients = jax.vmap(jax.grad(log_prob), (None, 0))(list(filter(_smooth, leaves)), actions)
        pairs = zip(tangents, gradients, strict=True)
        scores = sum((jnp.einsum("knf,snf->skn", _flat(t, 2), _flat(g, 2)) for t, g in pairs), jnp.float32(0.0))
        return (sums[0] + scores.sum(0), sums[1] + (scores**2).sum(0)), None

    zeros = jnp.zeros((DIRECTIONS, count))
    sums: tuple[Array, Array] = jax.lax.scan(turn, (zeros, zeros), jax.random.split(samples_key, TURNS))[0]
    return sums


def _decided(agent: PPO, params: PyTree, features: PyTree, action_mask: PyTree | None) -> PyTree:
    return in_float32(jax.vmap(agent.network.decide, (None, 0, 0))(params, features, action_mask).distribution)


def _direction(tree: PyTree, key: Key) -> PyTree:
    """Return a random tree of the same structure as `tree`: normal noise, with a different magnitude for each leaf.

    Magnitudes differ by powers of ten, so that each leaf dominates some of many such directions.
    """
    leaves, structure = jax.tree.flatten(tree)
    size_key, noise_key = jax.random.split(key)
    sizes = jnp.exp(SPREAD * jax.random.normal(size_key, (len(leaves),)))
    keys = jax.random.split(noise_key, len(leaves))
    noise = [size * jax.random.normal(k, x.shape) for size, k, x in zip(sizes, keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, [x.astype(like.dtype) for x, like in zip(noise, leaves, strict=True)])


def _unit(tangents: list[Array]) -> list[Array]:
    """Return `tangents`, arrays [rows, ...], scaled so that in each row the largest absolute element of all is 1."""
    largest = jnp.stack([jnp.abs(_flat(x, 1)).max(axis=1) for x in tangents]).max(axis=0)
    scale = 1.0 / jnp.where(largest > 0.0, largest, 1.0)
    return [x * scale.reshape(scale.shape + (1,) * (x.ndim - 1)) for x in tangents]


def _flat(x: Array, axes: int) -> Array:
    """Return `x` with all axes after the first `axes` merged into one."""
    return x.reshape(*x.shape[:axes], math.prod(x.shape[axes:]))


def _smooth(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def perturbed(params: PyTree, key: Key) -> PyTree:
    """Return the parameters with normal noise of standard deviation NOISE added."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    noise = [NOISE * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, [x + y for x, y in zip(leaves, noise, strict=True)])


def excess(total: np.ndarray, squares: np.ndarray) -> float:
    """Return the largest |mean score| divided by what chance allows; above 1 the mean cannot be 0.

    `total` and `squares` are sums over n samples of the scores (derivatives of log p) and of their squares. Chance
    allows SIGMAS standard errors, and 20 / n in addition, because the samples may contain none of a rare action.
    """
    n = DRAWS * TURNS
    mean, second = total / n, squares / n
    error = np.sqrt(np.maximum(second - mean**2, 0.0) / n)
    excess = np.nan_to_num(np.abs(mean) / (SIGMAS * error + 20.0 / n), nan=np.inf)
    return float(np.max(excess, initial=0.0))
