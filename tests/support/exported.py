"""Policies to export, of every network and action space, their observations, and their own actions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import ppax
from ppax import config
from ppax.core.types import part, static
from ppax.policy import Policy, PolicySpec
from ppax.policy.bundle.interface import Interface

STEPS, BATCH = 20, 50  # 1,000 observations
VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)
BOX = spaces.Box(np.array([-1.0, 0.0, -2.0], np.float32), np.array([1.0, 3.0, 5.0], np.float32))
BALL = spaces.Box(-2.0, 2.0, (3,), np.float32)
NAMED = spaces.Dict(
    place=VECTOR,
    kind=spaces.Discrete(3, start=-1),
    pixels=spaces.Box(0, 255, (2, 2), np.uint8),
    flags=spaces.MultiBinary(2),
)
HYBRID = spaces.Dict(z=spaces.Discrete(2, start=3), a=spaces.Tuple([BOX, spaces.MultiBinary(2)]))
STACK = {"part": "stack", "num_layers": 2, "residual": True, "norm": True}
# observation space and options of the network
NETWORKS: dict[str, tuple[spaces.Space, dict[str, Any]]] = {
    "separate": (VECTOR, {}),
    "shared": (VECTOR, {"shared": True, "activation": "relu"}),
    "cnn": (spaces.Box(0, 255, (16, 16, 2), np.uint8), {"encoder": {"part": "small_cnn"}}),
    "named": (NAMED, {"activation": "silu"}),
    "gru": (VECTOR, {"memory": {"part": "gru", "width": 8}}),
    "lstm": (VECTOR, {"memory": {"part": "lstm", "width": 8}}),
    "mingru": (VECTOR, {"memory": {"part": "mingru", "width": 12}}),
    "lru": (VECTOR, {"memory": {"part": "lru", "width": 8}}),
    "attention": (VECTOR, {"memory": {"part": "attention", "width": 8, "steps": 5, "heads": 2}}),
    "window": (VECTOR, {"memory": {"part": "window", "steps": 3, "hidden": [8]}, "shared": True}),
    "stack": (VECTOR, {"memory": STACK | {"cell": {"part": "lstm", "width": 8}}, "remat": True}),
    "stack of attention": (VECTOR, {"memory": STACK | {"cell": {"part": "attention", "width": 8, "steps": 5}}}),
    "apart": (
        VECTOR,
        {"actor": {"memory": STACK | {"cell": {"part": "mingru", "width": 8}}}, "critic": {"activation": "relu"}},
    ),
    "normed": (NAMED, {"layer_norm": True, "activation": "mish", "encoders": {"place": {"part": "flat"}}}),
}
# action space, whether it is masked, and options of the network
SPACES: dict[str, tuple[spaces.Space, bool, dict[str, Any]]] = {
    "discrete": (spaces.Discrete(4, start=5), False, {}),
    "masked": (spaces.Discrete(5, start=-2), True, {}),
    "several": (spaces.MultiDiscrete([2, 4, 3], start=[1, 0, -2]), False, {}),
    "several masked": (spaces.MultiDiscrete([[3, 2], [2, 4]]), True, {}),
    "normal": (BOX, False, {"std_max": 0.9}),
    "squashed": (BOX, False, {"distribution": "squashed", "state_std": True}),
    "beta": (BOX, False, {"distribution": "beta"}),
    "ball": (BALL, False, {"distribution": "ball"}),
    "hybrid": (HYBRID, False, {"distribution": "squashed"}),
    "hybrid masked": (HYBRID, True, {}),
}


@part
class Sorted:
    """A network of the user's: an MLP on sorted observations, with an operation that NumPy programs do not have."""

    inner: ppax.networks.Composed = static()

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def encode(self, params, obs):
        return self.inner.encode(params, jnp.sort(obs))


def policy(network: str, space: str, normalize: bool) -> Policy:
    """Return a policy with random numbers for weights and statistics, of the size that they have in training."""
    (obs, options), (action, masked, more) = NETWORKS[network], SPACES[space]
    agent = {"normalize_obs": normalize, "network": {"hidden": [16, 8]} | options | more}
    return random_policy(PolicySpec(obs, action, masked, config={"env": "a test's own", "agent": agent}))


def random_policy(spec: PolicySpec) -> Policy:
    """Return a policy with random weights, and the statistics of random observations."""
    agent = config.build_agent(spec.config, spec)
    shapes = jax.eval_shape(lambda key: agent.init(spec.observation_space, key), jax.random.key(0))
    interface = Interface(Policy(agent, jax.tree.map(_zeros, shapes), spec), return_value=True)
    seen, rng = interface.examples(100, 3), np.random.default_rng(1)

    def fill(path, x):
        before, found, after = jax.tree_util.keystr(path, simple=True, separator=".").partition("obs_stats")
        if x.dtype != np.float32:
            return np.ones(x.shape, x.dtype)
        if found:
            *entry, which, part = after.split(".")
            own = seen[".".join(name for name in ("obs", *before.split("."), *entry) if name)]
            own = own.astype(np.float32).reshape(-1, *x.shape)
            number = own.mean(axis=0) if which == "mean" else own.var(axis=0) + 1e-3
            return np.asarray(number if part == "high" else 1e-8 * number, np.float32)
        drawn = rng.normal(0.0, 1.0, x.shape).astype(np.float32)
        return drawn / np.float32(max(1, x.shape[-2]) ** 0.5 if x.ndim > 1 else 2.0)

    return Policy(agent, jax.tree_util.tree_map_with_path(fill, shapes), spec)


def _zeros(x):
    return np.zeros(x.shape, x.dtype)


def observed(
    policy: Policy, steps: int = STEPS, batch: int = BATCH, return_value: bool = False
) -> dict[str, np.ndarray]:
    """Return observations, masks and beginnings of episodes by name, [steps, batch, ...] each."""
    interface, rng = Interface(policy, return_value=return_value), np.random.default_rng(2)
    rows = [interface.examples(batch, seed=t) for t in range(steps)]
    out = {name: np.stack([row[name] for row in rows]) for name in rows[0] if not name.startswith("carry")}
    out["first"] = rng.random(out["first"].shape) < 0.2
    out["first"][0] = True
    return out


def own_actions(policy: Policy, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return `action...`, `log_prob` and `value` [steps, batch, ...] from the agent itself, without names of agents."""
    agent, learner, spec = policy.agent, policy.learner, policy.spec
    steps, batch = inputs["first"].shape

    def one(learner, carry, row):
        obs = _tree(spec.observation_space, "obs", row)
        mask = _tree(spec.action_space, "mask", row) if spec.masked else None
        out = agent.policy(learner, carry, obs, row["first"], mask)
        mode = out.distribution.mode()
        return out.carry, (out.distribution.env_action(mode), out.distribution.log_prob(mode), out.value)

    carry, rows = agent.initial_carry(batch), []
    learner = jax.tree.map(jax.numpy.asarray, learner)
    jitted = jax.jit(one)
    for t in range(steps):
        carry, row = jitted(learner, carry, {name: x[t] for name, x in inputs.items()})
        rows.append(jax.device_get(row))
    action, log_prob, value = jax.tree.map(lambda *x: np.stack(x), *rows)
    leaves, _ = jax.tree_util.tree_flatten_with_path({"action": action, "log_prob": log_prob, "value": value})
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}


def _tree(space, name, row):
    """Return the arrays of `row` whose names begin with `name` in the structure of `space`."""
    if isinstance(space, spaces.Dict):
        return {key: _tree(inner, f"{name}.{key}", row) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(inner, f"{name}.{i}", row) for i, inner in enumerate(space.spaces))
    return row[name]
