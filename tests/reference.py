"""A plain PPO learner in float64 NumPy: the oracle that the shipped `PPO.update` must agree with.

Written from the papers' equations, with a loop wherever a loop is the plainest statement, and with every gradient
derived by hand. Slow by design; it knows nothing of JAX.

    PPO   Schulman et al. 2017, https://arxiv.org/abs/1707.06347
    GAE   Schulman et al. 2016, https://arxiv.org/abs/1506.02438
    Adam  Kingma and Ba 2015, https://arxiv.org/abs/1412.6980
    running moments: Chan et al. 1979

Parameters are a flat dict {path: array}: "actor/0/kernel", "actor/0/bias", ..., "critic/..." (absent: one torso for
both), "policy/kernel", "policy/bias", "value/...", and "log_std" (present: normal, absent: categorical).
T steps, B streams, n rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


class Hyper(NamedTuple):
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_eps: float = 0.2
    vf_coef: float = 0.5
    ent_coef: float = 0.0
    learning_rate: float = 3e-4
    max_grad_norm: float = 0.5
    b1: float = 0.9
    b2: float = 0.999
    adam_eps: float = 1e-5
    seq_len: int = 1
    normalize_obs: bool = False
    normalize_reward: bool = False
    normalize_advantage: str = "minibatch"  # or "rollout", "off"


class Stats(NamedTuple):
    """Moments of everything seen; mean 0 and variance 1 before, which weigh nothing."""

    count: float
    mean: np.ndarray
    var: np.ndarray


class Adam(NamedTuple):
    step: int
    mean: Arrays
    square: Arrays


class OptState(NamedTuple):
    """What one update leaves for the next, beside the parameters."""

    adam: Adam
    obs: Stats
    reward: Stats


class Rollout(NamedTuple):
    obs: np.ndarray  # [T, B, ...]
    action: np.ndarray  # [T, B] or [T, B, d]
    log_prob: np.ndarray  # [T, B]
    value: np.ndarray  # [T, B]
    reward: np.ndarray  # [T, B]
    terminated: np.ndarray  # [T, B]
    truncated: np.ndarray  # [T, B]
    valid: np.ndarray  # [T, B]
    action_mask: np.ndarray | None  # [T, B, n]
    last_value: np.ndarray  # [B]
    reward_trace: np.ndarray  # [T, B]


class Updated(NamedTuple):
    params: Arrays
    opt_state: OptState
    losses: list[dict[str, float]]  # one dict a gradient step


def init(params: Arrays, obs_shape: tuple[int, ...]) -> OptState:
    zeros = {name: np.zeros_like(p) for name, p in params.items()}
    prior = [Stats(0.0, np.zeros(shape), np.ones(shape)) for shape in (obs_shape, ())]
    return OptState(Adam(0, zeros, zeros), *prior)


def update(params: Arrays, opt_state: OptState, rollout: Rollout, hyper: Hyper, indices: np.ndarray) -> Updated:
    """One learning phase; `indices` [epochs, minibatches, sequences] says which sequences make each step.

    Sequence m holds steps p L .. p L + L - 1 of stream b, where m = p B + b.
    """
    adam, obs_stats, reward_stats = opt_state

    reward = rollout.reward
    if hyper.normalize_reward:  # the statistics first meet this rollout, then scale it
        reward_stats = merge(reward_stats, rollout.reward_trace[rollout.valid])
        reward = np.clip(reward / np.sqrt(reward_stats.var + 1e-8), -10.0, 10.0)
    advantage = gae(rollout._replace(reward=reward), hyper.gamma, hyper.gae_lambda)
    target = advantage + rollout.value
    if hyper.normalize_advantage == "rollout":
        advantage = standardize(advantage, rollout.valid)

    losses = []
    for epoch in indices:
        for minibatch in epoch:
            where = [
                (p * hyper.seq_len + step, b)
                for b, p in (divmod(int(m), len(rollout.valid) // hyper.seq_len) for m in minibatch)
                for step in range(hyper.seq_len)
            ]
            rows = tuple(np.array([w for w in where if rollout.valid[w]], int).reshape(-1, 2).T)
            mask = None if rollout.action_mask is None else rollout.action_mask[rows]
            obs = rollout.obs[rows]
            if hyper.normalize_obs:  # frozen: as when these rows were acted on
                obs = np.clip((obs - obs_stats.mean) / np.sqrt(obs_stats.var + 1e-8), -10.0, 10.0)
            a = advantage[rows]
            if hyper.normalize_advantage == "minibatch":
                a = standardize(a, np.ones(len(a), bool))
            batch = Rows(obs, rollout.action[rows], rollout.log_prob[rows], mask, a, target[rows])
            info, gradient = loss_and_gradient(params, batch, hyper)
            info["grad_norm"] = np.sqrt(sum((g**2).sum() for g in gradient.values()))
            losses.append(info)
            shrink = min(1.0, hyper.max_grad_norm / max(info["grad_norm"], 1e-300))
            gradient = {name: g * shrink for name, g in gradient.items()}
            params, adam = adam_step(params, adam, gradient, hyper)

    if hyper.normalize_obs:  # only now
        obs_stats = merge(obs_stats, rollout.obs[rollout.valid])
    return Updated(params, OptState(adam, obs_stats, reward_stats), losses)


# ---------------------------------------------------------------- targets and statistics


def gae(rollout: Rollout, gamma: float, gae_lambda: float) -> np.ndarray:
    steps, streams = rollout.reward.shape
    advantage = np.zeros((steps, streams))
    for b in range(streams):
        later = 0.0  # A_{t+1}
        for t in reversed(range(steps)):
            v_next = rollout.last_value[b] if t == steps - 1 else rollout.value[t + 1, b]
            delta = rollout.reward[t, b] - rollout.value[t, b]
            if not rollout.terminated[t, b]:
                delta += gamma * v_next
            if not (rollout.terminated[t, b] or rollout.truncated[t, b]):
                delta += gamma * gae_lambda * later
            advantage[t, b] = later = delta
    return advantage


def standardize(x: np.ndarray, valid: np.ndarray) -> np.ndarray:
    if valid.sum() < 2:
        return x
    return (x - x[valid].mean()) / (x[valid].std() + 1e-8)


def merge(stats: Stats, x: np.ndarray) -> Stats:
    """Moments of two sets together, from the moments of each."""
    if len(x) == 0:
        return stats
    count = stats.count + len(x)
    gap = x.mean(axis=0) - stats.mean
    squares = stats.count * stats.var + len(x) * x.var(axis=0) + gap**2 * stats.count * len(x) / count
    return Stats(count, stats.mean + gap * len(x) / count, squares / count)


# ---------------------------------------------------------------- network, loss, gradient


class Rows(NamedTuple):
    obs: np.ndarray  # [n, ...]
    action: np.ndarray
    log_prob: np.ndarray
    mask: np.ndarray | None
    advantage: np.ndarray
    target: np.ndarray


def flat(obs: np.ndarray) -> np.ndarray:
    return obs.reshape(len(obs), int(np.prod(obs.shape[1:])))


def depth(params: Arrays, torso: str) -> int:
    return sum(name.startswith(f"{torso}/") and name.endswith("/kernel") for name in params)


def torso_forward(params: Arrays, torso: str, x: np.ndarray) -> list[np.ndarray]:
    """Input and every hidden layer's output."""
    layers = [x]
    for i in range(depth(params, torso)):
        layers.append(np.tanh(layers[-1] @ params[f"{torso}/{i}/kernel"] + params[f"{torso}/{i}/bias"]))
    return layers


def torso_backward(params: Arrays, torso: str, layers: list[np.ndarray], grad: np.ndarray) -> Arrays:
    """d loss / d weights, from `grad`, d loss / d output."""
    gradient = {}
    for i in reversed(range(depth(params, torso))):
        before = grad * (1.0 - layers[i + 1] ** 2)  # tanh' = 1 - tanh^2
        gradient[f"{torso}/{i}/kernel"] = layers[i].T @ before
        gradient[f"{torso}/{i}/bias"] = before.sum(axis=0)
        grad = before @ params[f"{torso}/{i}/kernel"].T
    return gradient


class Head(NamedTuple):
    """Log-probability and entropy [n], and how each changes with the network's output and with log_std [n, d]."""

    log_prob: np.ndarray
    entropy: np.ndarray
    log_prob_by_output: np.ndarray
    entropy_by_output: np.ndarray
    log_prob_by_log_std: Any = None
    entropy_by_log_std: Any = None


def categorical(logits: np.ndarray, action: np.ndarray, mask: np.ndarray | None) -> Head:
    if mask is not None:
        allowed = np.where(mask.any(axis=1, keepdims=True), mask, True)  # nothing allowed: no mask
        logits = np.where(allowed, logits, -np.inf)
    top = logits.max(axis=1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    p = np.exp(log_p)
    p_log_p = np.where(p > 0, p * np.where(p > 0, log_p, 0.0), 0.0)
    entropy = -p_log_p.sum(axis=1)
    chosen = np.eye(logits.shape[1])[action]
    # d log p_a / d z_j = [a = j] - p_j;  d H / d z_j = -p_j (log p_j + H)
    return Head(log_p[np.arange(len(action)), action], entropy, chosen - p, -p_log_p - p * entropy[:, None])


def normal(mean: np.ndarray, log_std: np.ndarray, action: np.ndarray) -> Head:
    z = (action - mean) / np.exp(log_std)
    log_prob = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    entropy = np.full(len(action), (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum())
    # d log p / d mu = z / sigma;  d log p / d log sigma = z^2 - 1;  d H / d log sigma = 1
    return Head(log_prob, entropy, z / np.exp(log_std), np.zeros_like(z), z**2 - 1.0, np.ones_like(z))


def act(params: Arrays, obs: np.ndarray, action: np.ndarray, mask: np.ndarray | None) -> tuple[Head, np.ndarray]:
    """The policy's opinion of `action` and the value, for rows [n, d] (normalised already)."""
    x = flat(obs)
    actor = torso_forward(params, "actor", x)[-1]
    critic = torso_forward(params, "critic", x)[-1] if depth(params, "critic") else actor
    output = actor @ params["policy/kernel"] + params["policy/bias"]
    value = (critic @ params["value/kernel"] + params["value/bias"])[:, 0]
    if "log_std" in params:
        return normal(output, params["log_std"], action), value
    return categorical(output, action, mask), value


def loss_and_gradient(params: Arrays, rows: Rows, hyper: Hyper) -> tuple[dict[str, float], Arrays]:
    """-mean min(w A, clip(w) A) + vf_coef 0.5 mean (V - R)^2 - ent_coef mean H, over the rows given."""
    x = flat(rows.obs)
    shared = not depth(params, "critic")
    actor = torso_forward(params, "actor", x)
    critic = actor if shared else torso_forward(params, "critic", x)
    head, value = act(params, rows.obs, rows.action, rows.mask)
    n = max(len(x), 1)

    log_ratio = np.clip(head.log_prob - rows.log_prob, -20.0, 20.0)
    ratio, low, high = np.exp(log_ratio), 1.0 - hyper.clip_eps, 1.0 + hyper.clip_eps
    surrogate = np.minimum(ratio * rows.advantage, np.clip(ratio, low, high) * rows.advantage)
    error = value - rows.target
    info = {
        "policy_loss": -surrogate.sum() / n,
        "value_loss": 0.5 * (error**2).sum() / n,
        "entropy": head.entropy.sum() / n,
        "approx_kl": (ratio - 1.0 - log_ratio).sum() / n,
        "clip_fraction": (np.abs(ratio - 1.0) > hyper.clip_eps).sum() / n,
        "ratio_max": ratio.max() if len(x) else 1.0,
        "ratio_min": ratio.min() if len(x) else 1.0,
    }
    info["loss"] = info["policy_loss"] + hyper.vf_coef * info["value_loss"] - hyper.ent_coef * info["entropy"]

    # The minimum is the clipped branch, which is flat, only where the ratio has already gone too far the wanted way.
    stopped = ((rows.advantage > 0) & (ratio > high)) | ((rows.advantage < 0) & (ratio < low))
    stopped |= np.abs(log_ratio) >= 20.0
    by_log_prob = np.where(stopped, 0.0, -rows.advantage * ratio)[:, None] / n
    by_entropy = -hyper.ent_coef / n
    by_output = by_log_prob * head.log_prob_by_output + by_entropy * head.entropy_by_output
    by_value = (hyper.vf_coef * error / n)[:, None]

    gradient = {
        "policy/kernel": actor[-1].T @ by_output,
        "policy/bias": by_output.sum(axis=0),
        "value/kernel": critic[-1].T @ by_value,
        "value/bias": by_value.sum(axis=0),
    }
    if "log_std" in params:
        by_log_std = by_log_prob * head.log_prob_by_log_std + by_entropy * head.entropy_by_log_std
        gradient["log_std"] = by_log_std.sum(axis=0)
    to_actor, to_critic = by_output @ params["policy/kernel"].T, by_value @ params["value/kernel"].T
    if shared:
        gradient |= torso_backward(params, "actor", actor, to_actor + to_critic)
    else:
        gradient |= torso_backward(params, "actor", actor, to_actor)
        gradient |= torso_backward(params, "critic", critic, to_critic)
    return info, gradient


def adam_step(params: Arrays, adam: Adam, gradient: Arrays, hyper: Hyper) -> tuple[Arrays, Adam]:
    step = adam.step + 1
    mean = {k: hyper.b1 * adam.mean[k] + (1 - hyper.b1) * g for k, g in gradient.items()}
    square = {k: hyper.b2 * adam.square[k] + (1 - hyper.b2) * g**2 for k, g in gradient.items()}
    moved = {}
    for k, p in params.items():
        mean_hat = mean[k] / (1 - hyper.b1**step)
        square_hat = square[k] / (1 - hyper.b2**step)
        moved[k] = p - hyper.learning_rate * mean_hat / (np.sqrt(square_hat) + hyper.adam_eps)
    return moved, Adam(step, mean, square)
