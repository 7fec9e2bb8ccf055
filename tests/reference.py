"""Reference PPO learner in float64 NumPy: the oracle with which `PPO.update` must agree.

Written from the papers' equations, with plain loops and with every gradient derived by hand. Slow by design; it does
not use JAX.

    PPO   Schulman et al. 2017, https://arxiv.org/abs/1707.06347
    GAE   Schulman et al. 2016, https://arxiv.org/abs/1506.02438
    Adam  Kingma and Ba 2015, https://arxiv.org/abs/1412.6980
    dual clip  Ye et al. 2020, https://arxiv.org/abs/1912.09729
    DPO   Lu et al. 2022, https://arxiv.org/abs/2210.05639
    SPO   Xie et al. 2025, https://arxiv.org/abs/2401.16025; rollback: Wang et al. 2019, https://arxiv.org/abs/1903.07940
    PopArt  van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714
    two-hot  Schrittwieser et al. 2020, appendix F, https://arxiv.org/abs/1911.08265
    adaptive learning rate  rsl_rl, https://github.com/leggedrobotics/rsl_rl
    activation regularisation  Merity et al. 2017, https://arxiv.org/abs/1708.01009
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
    objective: str = "clipped"  # or "kl", "dpo", "spo", "rollback"
    slope: float = 0.3  # of the rollback
    dual_clip: float = np.inf
    kl_coef: float = 1.0
    alpha: float = 2.0
    beta: float = 0.6
    value_clip: float = np.inf
    huber_delta: float = np.inf
    critic: str = "regression"  # or "popart", "two_hot", "quantile"
    kappa: float = 1.0  # of the quantile Huber loss
    rate: float = 0.1  # step size of PopArt's statistics
    mean: float = 0.0  # PopArt's current mean
    std: float = 1.0
    bins: tuple[float, ...] = ()  # V of each bin
    rho_clip: float | None = None  # with c_clip: V-trace as in PufferLib
    c_clip: float | None = None
    reward_spread_decay: float = 0.0
    recompute: str = "never"  # or "epoch", "minibatch"
    target_kl: float = np.inf
    rate_target: float | None = None
    rate_min: float = 1e-5
    rate_max: float = 1e-2
    coef_target: float | None = None
    feature_coef: float = 0.0


class Stats(NamedTuple):
    """Moments of all data so far; initially mean 0 and variance 1 with weight 0."""

    count: float
    mean: np.ndarray
    var: np.ndarray


class Adam(NamedTuple):
    step: int
    mean: Arrays
    square: Arrays


class Moving(NamedTuple):
    """Exponentially weighted sums of 1, R and R^2, one term an update."""

    weight: float
    first: float
    second: float


class OptState(NamedTuple):
    """State kept between updates, without the parameters."""

    adam: Adam
    obs: Stats
    reward: Stats
    targets: Moving = Moving(0.0, 0.0, 0.0)
    rate: float = 1.0  # factors adapted by the KL controls
    coef: float = 1.0


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
    losses: list[dict[str, float]]  # one dict per gradient step


def init(params: Arrays, obs_shape: tuple[int, ...]) -> OptState:
    zeros = {name: np.zeros_like(p) for name, p in params.items()}
    prior = [Stats(0.0, np.zeros(shape), np.ones(shape)) for shape in (obs_shape, ())]
    return OptState(Adam(0, zeros, zeros), *prior)


def update(
    params: Arrays,
    opt_state: OptState,
    rollout: Rollout,
    hyper: Hyper,
    indices: np.ndarray,
    weights: np.ndarray | None = None,
) -> Updated:
    """Compute one update; `indices` [epochs, minibatches, sequences] are the sequences of each gradient step.

    Sequence m has steps p L .. p L + L - 1 of stream b, where m = p B + b; `weights` are importance weights of them.
    """
    adam, obs_stats, reward_stats, moving, rate, coef = opt_state
    steps, streams = rollout.valid.shape

    reward = rollout.reward
    if hyper.normalize_reward:  # update the statistics with this rollout before scaling it
        reward_stats = merge(reward_stats, rollout.reward_trace[rollout.valid])
        reward = np.clip(reward / np.sqrt(reward_stats.var + 1e-8), -10.0, 10.0)
    reward = spread(rollout._replace(reward=reward), hyper.reward_spread_decay)
    obs = rollout.obs
    if hyper.normalize_obs:  # frozen statistics, as in acting
        obs = np.clip((obs - obs_stats.mean) / np.sqrt(obs_stats.var + 1e-8), -10.0, 10.0)
    scaled = rollout._replace(reward=reward, obs=obs)
    next_value = np.concatenate([rollout.value[1:], rollout.last_value[None]])
    whole = [np.arange(steps) for _ in range(streams)]

    def estimate(value: np.ndarray, ratio: np.ndarray, t: np.ndarray, b: int) -> None:
        """Estimate targets of steps `t` of stream `b`; the next value of the last one is the rollout's V."""
        after = np.append(value[t[1:], b], next_value[t[-1], b])
        advantage[t, b] = advantages(scaled, value[t, b], after, ratio[t, b], t, b, hyper)
        target[t, b] = advantage[t, b] + value[t, b]

    advantage, target = np.zeros((2, steps, streams))
    for b, t in enumerate(whole):
        estimate(rollout.value, np.ones((steps, streams)), t, b)
    # in rows without an allowed action the critic learns and the policy does not
    learns = rollout.valid
    acts = learns if rollout.action_mask is None else learns & rollout.action_mask.any(axis=-1)
    if hyper.critic == "popart":
        hyper = hyper._replace(**scale_of(moving))
        moving = move(moving, target[learns], hyper.rate)
        params, hyper = keep_values(params, hyper, scale_of(moving))

    losses, stopped = [], False
    for e, epoch in enumerate(indices):
        if hyper.recompute == "epoch":
            for b, t in enumerate(whole):
                estimate(*look_again(params, scaled, hyper), t, b)
        for k, minibatch in enumerate(epoch):
            pieces = [divmod(int(m), steps // hyper.seq_len) for m in minibatch]
            pieces = [(b, np.arange(p * hyper.seq_len, (p + 1) * hyper.seq_len)) for b, p in pieces]
            if hyper.recompute == "minibatch":
                for b, t in pieces:
                    estimate(*look_again(params, scaled, hyper), t, b)
            where = [(step, b) for b, t in pieces for step in t]
            counts = np.array([learns[w] for w in where])
            rows = tuple(np.array([w for w in where if learns[w]], int).reshape(-1, 2).T)
            a = advantage[rows]
            if hyper.normalize_advantage == "rollout":
                a = standardize(advantage, acts)[rows]
            weight = np.ones(len(a))
            if weights is not None:
                weight = np.repeat(weights[e, k], hyper.seq_len)[counts]
            if hyper.normalize_advantage == "minibatch":
                a = standardize(a, acts[rows], weight)
            # divisor of the policy's mean: rows with an allowed action, or their mean number in a uniform draw
            choices = acts[rows].sum() if weights is None else len(a) * acts.sum() / max(learns.sum(), 1)
            mask = None if rollout.action_mask is None else rollout.action_mask[rows]
            batch = Rows(
                obs[rows],
                rollout.action[rows],
                rollout.log_prob[rows],
                mask,
                a,
                target[rows],
                rollout.value[rows],
                acts[rows],
                weight,
                choices,
            )
            info, gradient = loss_and_gradient(params, batch, hyper._replace(kl_coef=hyper.kl_coef * coef))
            info |= {"rows": float(len(a)), "choices": float(acts[rows].sum())}
            info["grad_norm"] = np.sqrt(sum((g**2).sum() for g in gradient.values()))
            kl = info["approx_kl"]
            if hyper.rate_target is not None and not stopped:
                now = hyper.learning_rate * rate
                if kl > 2.0 * hyper.rate_target:
                    now = max(hyper.rate_min, now / 1.5)
                elif 1e-10 < kl < 0.5 * hyper.rate_target:
                    now = min(hyper.rate_max, now * 1.5)
                rate = now / hyper.learning_rate
            stopped = stopped or kl > hyper.target_kl
            losses.append(info if np.isinf(hyper.target_kl) else info | {"updates_skipped": float(stopped)})
            if stopped or not len(a):  # without valid rows there is no optimiser step
                continue
            shrink = min(1.0, hyper.max_grad_norm / max(info["grad_norm"], 1e-300))
            gradient = {name: g * shrink for name, g in gradient.items()}
            params, adam = adam_step(params, adam, gradient, hyper._replace(learning_rate=hyper.learning_rate * rate))

    if hyper.coef_target is not None:
        kls = [step["approx_kl"] for step in losses[-len(indices[-1]) :] if step["choices"]]
        kl = np.mean(kls) if kls else hyper.coef_target
        if kl > 1.5 * hyper.coef_target:
            coef *= 2.0
        elif kl < hyper.coef_target / 1.5:
            coef /= 2.0
    if hyper.normalize_obs:  # after the update
        obs_stats = merge(obs_stats, rollout.obs[learns])
    return Updated(params, OptState(adam, obs_stats, reward_stats, moving, rate, coef), losses)


# ---------------------------------------------------------------- targets and statistics


def advantages(
    rollout: Rollout,
    value: np.ndarray,
    next_value: np.ndarray,
    ratio: np.ndarray,
    steps: np.ndarray,
    stream: int,
    hyper: Hyper,
) -> np.ndarray:
    """Return GAE of consecutive steps of one stream, or V-trace if clips are given."""
    later, result = 0.0, np.zeros(len(steps))  # later: A_{t+1}
    for i in reversed(range(len(steps))):
        t = steps[i], stream
        rho = 1.0 if hyper.rho_clip is None else min(ratio[i], hyper.rho_clip)
        c = 1.0 if hyper.c_clip is None else min(ratio[i], hyper.c_clip)
        delta = rollout.reward[t] - value[i]
        if not rollout.terminated[t]:
            delta += hyper.gamma * next_value[i]
        delta *= rho
        if not (rollout.terminated[t] or rollout.truncated[t]):
            delta += hyper.gamma * hyper.gae_lambda * c * later
        result[i] = later = delta
    return result


def look_again(params: Arrays, rollout: Rollout, hyper: Hyper) -> tuple[np.ndarray, np.ndarray]:
    """Recompute V and the probability ratio of every observation that is not NaN."""
    value, ratio = np.full((2, *rollout.valid.shape), np.nan)
    for t, b in np.ndindex(rollout.valid.shape):
        if np.isfinite(rollout.obs[t, b]).all():
            mask = None if rollout.action_mask is None else rollout.action_mask[t, b][None]
            head, numbers = act(params, rollout.obs[t, b][None], rollout.action[t, b][None], mask)
            value[t, b], ratio[t, b] = values(numbers, hyper)[0], np.exp(head.log_prob[0] - rollout.log_prob[t, b])
    return value, ratio


def spread(rollout: Rollout, decay: float) -> np.ndarray:
    """Spread rewards: add `decay` times each reward to the step before, back to the episode's start."""
    reward = rollout.reward.copy()
    for b in range(reward.shape[1]):
        for t in range(len(reward) - 2, -1, -1):
            if not (rollout.terminated[t, b] or rollout.truncated[t, b]):
                reward[t, b] += decay * reward[t + 1, b] if decay else 0.0
    return reward


def standardize(x: np.ndarray, valid: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Standardise with the weighted mean and std of valid entries."""
    if valid.sum() < 2:
        return x
    weight = None if weight is None else weight[valid]
    mean = np.average(x[valid], weights=weight)
    return (x - mean) / (np.sqrt(np.average((x[valid] - mean) ** 2, weights=weight)) + 1e-8)


def merge(stats: Stats, x: np.ndarray) -> Stats:
    """Return the moments of the union of two data sets."""
    if len(x) == 0:
        return stats
    count = stats.count + len(x)
    gap = x.mean(axis=0) - stats.mean
    squares = stats.count * stats.var + len(x) * x.var(axis=0) + gap**2 * stats.count * len(x) / count
    return Stats(count, stats.mean + gap * len(x) / count, squares / count)


def move(moving: Moving, targets: np.ndarray, rate: float) -> Moving:
    if len(targets) == 0:
        return moving
    now = 1.0, targets.mean(), (targets**2).mean()
    return Moving(*((1.0 - rate) * old + rate * new for old, new in zip(moving, now, strict=True)))


def scale_of(moving: Moving) -> dict[str, float]:
    """Return PopArt's mean and std."""
    if moving.weight == 0.0:
        return {"mean": 0.0, "std": 1.0}
    mean, square = moving.first / moving.weight, moving.second / moving.weight
    return {"mean": mean, "std": max(np.sqrt(square - mean**2), 1e-4)}


def keep_values(params: Arrays, hyper: Hyper, new: dict[str, float]) -> tuple[Arrays, Hyper]:
    """Rescale the value head by proposition 1: W' = sigma W / sigma', b' = (sigma b + mu - mu') / sigma'."""
    kernel = hyper.std * params["value/kernel"] / new["std"]
    bias = (hyper.std * params["value/bias"] + hyper.mean - new["mean"]) / new["std"]
    return params | {"value/kernel": kernel, "value/bias": bias}, hyper._replace(**new)


# ---------------------------------------------------------------- network, loss, gradient


class Rows(NamedTuple):
    obs: np.ndarray  # [n, ...]
    action: np.ndarray
    log_prob: np.ndarray
    mask: np.ndarray | None
    advantage: np.ndarray
    target: np.ndarray
    value: np.ndarray  # V of the rollout
    acts: Any = True  # [n] the mask allows an action
    weight: Any = 1.0  # [n] importance weight
    choices: float | None = None  # divisor of the policy's mean; None: n


def flat(obs: np.ndarray) -> np.ndarray:
    return obs.reshape(len(obs), int(np.prod(obs.shape[1:])))


def depth(params: Arrays, torso: str) -> int:
    return sum(name.startswith(f"{torso}/") and name.endswith("/kernel") for name in params)


def torso_forward(params: Arrays, torso: str, x: np.ndarray) -> list[np.ndarray]:
    """Return the input and the output of every hidden layer."""
    layers = [x]
    for i in range(depth(params, torso)):
        layers.append(np.tanh(layers[-1] @ params[f"{torso}/{i}/kernel"] + params[f"{torso}/{i}/bias"]))
    return layers


def torso_backward(params: Arrays, torso: str, layers: list[np.ndarray], grad: np.ndarray) -> Arrays:
    """Return d loss / d weights from `grad`, d loss / d output."""
    gradient = {}
    for i in reversed(range(depth(params, torso))):
        before = grad * (1.0 - layers[i + 1] ** 2)  # tanh' = 1 - tanh^2
        gradient[f"{torso}/{i}/kernel"] = layers[i].T @ before
        gradient[f"{torso}/{i}/bias"] = before.sum(axis=0)
        grad = before @ params[f"{torso}/{i}/kernel"].T
    return gradient


class Head(NamedTuple):
    """Log-probability and entropy [n], and their derivatives by network output and log_std [n, d]."""

    log_prob: np.ndarray
    entropy: np.ndarray
    log_prob_by_output: np.ndarray
    entropy_by_output: np.ndarray
    log_prob_by_log_std: Any = None
    entropy_by_log_std: Any = None


def categorical(logits: np.ndarray, action: np.ndarray, mask: np.ndarray | None) -> Head:
    if mask is not None:
        first = np.arange(mask.shape[1]) == 0  # an empty mask allows the first action
        allowed = np.where(mask.any(axis=1, keepdims=True), mask, first)
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
    """Return the policy head of `action` and the value outputs [n, k], for normalised rows [n, d]."""
    x = flat(obs)
    actor = torso_forward(params, "actor", x)[-1]
    critic = torso_forward(params, "critic", x)[-1] if depth(params, "critic") else actor
    output = actor @ params["policy/kernel"] + params["policy/bias"]
    numbers = critic @ params["value/kernel"] + params["value/bias"]
    if "log_std" in params:
        return normal(output, params["log_std"], action), numbers
    return categorical(output, action, mask), numbers


def loss_and_gradient(params: Arrays, rows: Rows, hyper: Hyper) -> tuple[dict[str, float], Arrays]:
    """Return metrics and gradient of policy + vf_coef * value - ent_coef * H.

    Policy and entropy are means over rows with an allowed action, the value term over all rows.
    """
    x = flat(rows.obs)
    shared = not depth(params, "critic")
    actor = torso_forward(params, "actor", x)
    critic = actor if shared else torso_forward(params, "critic", x)
    head, numbers = act(params, rows.obs, rows.action, rows.mask)
    n = max(len(x), 1)
    acts = np.broadcast_to(rows.acts, len(x))
    weight, k = np.broadcast_to(rows.weight, len(x)), max(rows.choices if rows.choices is not None else n, 1e-300)
    share = np.where(acts, weight / k, 0.0)  # weight of a row in the policy's mean
    drawn = np.where(acts, 1.0 / max(acts.sum(), 1), 0.0)  # in metrics of the policy

    log_ratio = np.clip(head.log_prob - rows.log_prob, -20.0, 20.0)
    ratio, low, high = np.exp(log_ratio), 1.0 - hyper.clip_eps, 1.0 + hyper.clip_eps
    policy, by_log_ratio = policy_term(log_ratio, rows.advantage, hyper)
    critic_error, by_numbers = critic_term(numbers, rows, hyper)
    info = {
        "policy_loss": (share * policy).sum(),
        "value_loss": (weight * critic_error).sum() / n,
        "entropy": (share * head.entropy).sum(),
        "approx_kl": (drawn * (ratio - 1.0 - log_ratio)).sum(),
        "ratio_max": ratio[acts].max() if acts.any() else 1.0,
        "ratio_min": ratio[acts].min() if acts.any() else 1.0,
    }
    if hyper.objective == "clipped":
        info["clip_fraction"] = (drawn * ((ratio < low) | (ratio > high))).sum()
    info["loss"] = info["policy_loss"] + hyper.vf_coef * info["value_loss"] - hyper.ent_coef * info["entropy"]

    torsos = [actor] if shared else [actor, critic]
    by_features = [2.0 * hyper.feature_coef * weight[:, None] * x[-1] / (n * x[-1].shape[1]) for x in torsos]
    if hyper.feature_coef:  # coef times the mean square of each torso's features
        squares = [(weight * np.square(x[-1]).mean(axis=1)).sum() / n for x in torsos]
        info["feature_norm_loss"] = hyper.feature_coef * sum(squares)
        info["loss"] += info["feature_norm_loss"]

    by_log_prob = (share * np.where(np.abs(log_ratio) >= 20.0, 0.0, by_log_ratio))[:, None]
    by_entropy = -hyper.ent_coef * share[:, None]
    by_output = by_log_prob * head.log_prob_by_output + by_entropy * head.entropy_by_output
    by_value = hyper.vf_coef * weight[:, None] * by_numbers / n

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
        gradient |= torso_backward(params, "actor", actor, to_actor + to_critic + by_features[0])
    else:
        gradient |= torso_backward(params, "actor", actor, to_actor + by_features[0])
        gradient |= torso_backward(params, "critic", critic, to_critic + by_features[1])
    return info, gradient


def policy_term(log_ratio: np.ndarray, a: np.ndarray, hyper: Hyper) -> tuple[np.ndarray, np.ndarray]:
    """Return the policy loss of each row and its derivative by log w; d w / d log w = w."""
    w = np.exp(log_ratio)
    if hyper.objective == "kl":
        return -w * a + hyper.kl_coef * (w - 1.0 - log_ratio), -w * a + hyper.kl_coef * (w - 1.0)
    if hyper.objective == "spo":  # d (w - 1)^2 / d log w = 2 (w - 1) w
        penalty = np.abs(a) * (w - 1.0) ** 2 / (2.0 * hyper.clip_eps)
        return penalty - w * a, np.abs(a) * (w - 1.0) * w / hyper.clip_eps - w * a
    if hyper.objective == "rollback":
        losses, slopes = -w * a, -w * a
        for i, (w_i, a_i) in enumerate(zip(w, a, strict=True)):
            if a_i > 0 and w_i > 1.0 + hyper.clip_eps:
                end = 1.0 + hyper.clip_eps
            elif a_i < 0 and w_i < 1.0 - hyper.clip_eps:
                end = 1.0 - hyper.clip_eps
            else:
                continue
            losses[i] = -a_i * ((1.0 + hyper.slope) * end - hyper.slope * w_i)
            slopes[i] = a_i * hyper.slope * w_i
        return losses, slopes
    if hyper.objective == "dpo":
        x = np.where(a >= 0, (w - 1.0) * a, log_ratio * a)
        scale = np.where(a >= 0, hyper.alpha, hyper.beta)
        drift = x - scale * np.tanh(x / scale)
        # d drift / d x = 1 - (1 - tanh^2) = tanh^2;  d x / d log w = w A, or A
        slope = np.tanh(x / scale) ** 2 * np.where(a >= 0, w * a, a)
        return -w * a + np.maximum(drift, 0.0), -w * a + np.where(drift > 0, slope, 0.0)
    low, high = 1.0 - hyper.clip_eps, 1.0 + hyper.clip_eps
    surrogate = np.minimum(w * a, np.clip(w, low, high) * a)
    # The minimum is the clipped branch, with gradient 0, only if the ratio is already outside in the direction of A.
    stopped = ((a > 0) & (w > high)) | ((a < 0) & (w < low))
    far = (a < 0) & (w > hyper.dual_clip)  # surrogate < c A
    surrogate = np.array([hyper.dual_clip * a_i if f else s for s, a_i, f in zip(surrogate, a, far, strict=True)])
    return -surrogate, np.where(stopped | far, 0.0, -w * a)


def values(numbers: np.ndarray, hyper: Hyper) -> np.ndarray:
    """Return V [n] from value outputs [n, k]."""
    if hyper.critic == "quantile":
        return numbers.mean(axis=1)
    if hyper.critic == "two_hot":
        return np.array([(softmax(z) * hyper.bins).sum() for z in numbers])
    return hyper.mean + hyper.std * numbers[:, 0]


def softmax(z: np.ndarray) -> np.ndarray:
    return np.exp(z - z.max()) / np.exp(z - z.max()).sum()


def critic_term(numbers: np.ndarray, rows: Rows, hyper: Hyper) -> tuple[np.ndarray, np.ndarray]:
    """Return the value loss of each row [n] and its derivative by value outputs [n, k]."""
    if hyper.critic == "quantile":
        return quantile_term(numbers, rows.target, hyper)
    if hyper.critic != "two_hot":
        target, old = ((x - hyper.mean) / hyper.std for x in (rows.target, rows.value))
        losses, slopes = value_term(numbers[:, 0], target, old, hyper)
        return losses, slopes[:, None]
    losses, slopes = np.zeros(len(numbers)), np.zeros(numbers.shape)
    for i, (z, r) in enumerate(zip(numbers, rows.target, strict=True)):
        r = min(max(r, hyper.bins[0]), hyper.bins[-1])
        upper = next(k for k in range(1, len(hyper.bins)) if r <= hyper.bins[k])
        share = (r - hyper.bins[upper - 1]) / (hyper.bins[upper] - hyper.bins[upper - 1])
        p = softmax(z)
        losses[i] = -(1.0 - share) * np.log(p[upper - 1]) - share * np.log(p[upper])
        slopes[i] = p  # d -log p_j / d z = p - [j]
        slopes[i, upper - 1] -= 1.0 - share
        slopes[i, upper] -= share
    return losses, slopes


def quantile_term(numbers: np.ndarray, targets: np.ndarray, hyper: Hyper) -> tuple[np.ndarray, np.ndarray]:
    """Return the quantile Huber loss of each row and its derivative by the quantiles [n, k]."""
    losses, slopes, count = np.zeros(len(numbers)), np.zeros(numbers.shape), numbers.shape[1]
    for i, (quantiles, r) in enumerate(zip(numbers, targets, strict=True)):
        for k, q in enumerate(quantiles):
            tau, u = (2 * k + 1) / (2 * count), r - q
            weight = (tau if u >= 0 else 1.0 - tau) / count
            small = abs(u) <= hyper.kappa
            losses[i] += weight * (u**2 / (2.0 * hyper.kappa) if small else abs(u) - hyper.kappa / 2.0)
            slopes[i, k] = -weight * (u / hyper.kappa if small else np.sign(u))
    return losses, slopes


def value_term(
    value: np.ndarray, target: np.ndarray, old_value: np.ndarray, hyper: Hyper
) -> tuple[np.ndarray, np.ndarray]:
    """Return the value loss of each row and its derivative by V."""
    delta, losses, slopes = hyper.huber_delta, np.zeros(len(value)), np.zeros(len(value))
    for i, (v, old, r) in enumerate(zip(value, old_value, target, strict=True)):
        moved = min(max(v - old, -hyper.value_clip), hyper.value_clip)
        both = []
        for error, slope in ((v - r, 1.0), (old + moved - r, float(abs(v - old) < hyper.value_clip))):
            if abs(error) <= delta:
                both.append((0.5 * error**2, slope * error))
            else:
                both.append((delta * abs(error) - 0.5 * delta**2, slope * delta * np.sign(error)))
        losses[i], slopes[i] = both[0] if both[0][0] >= both[1][0] or moved == v - old else both[1]
    return losses, slopes


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
