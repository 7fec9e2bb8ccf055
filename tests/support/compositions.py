"""Random combinations of parts, and environments with every kind of space, episode end and mask.

`draw(number, on_host)` returns combination `number`: the tables of a run file, drawn from all parts of the catalogue,
and its environment. If a table is refused, the next one is drawn.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ppax import config
from ppax.checks import require_sound
from ppax.config import Run, catalogue
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, EnvReset, EnvStep, number, part, static
from ppax.envs import Env, VectorEnv, grouped, host
from ppax.run.restore import state_shapes
from ppax.training.loop import check_sizes
from support.worlds import SPACES, dict_as_dict

FORBIDDEN = -1e4  # reward of a forbidden action: visible in the mean over a rollout

OBSERVATIONS = {
    "vector": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "matrix": spaces.Box(-10.0, 10.0, (2, 2), np.float32),
    "kind": spaces.Discrete(5, start=2),
    "image": spaces.Box(0, 255, (6, 6, 2), np.uint8),
    "dict": spaces.Dict(
        {
            "vector": spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "image": spaces.Box(0, 255, (5, 5, 1), np.uint8),
            "kinds": spaces.MultiDiscrete([2, 3]),
        }
    ),
    "tuple": spaces.Tuple((spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.MultiBinary(2))),
}


# ---------------------------------------------------------------- dynamics for both NumPy and JAX


def observed(space: spaces.Space, x: Any, xp: Any) -> Any:
    """Return an observation of `space` as a function of a number `x` [...]; leaves are [..., *shape]."""
    if isinstance(space, spaces.Dict):
        return {name: observed(inner, x + i, xp) for i, (name, inner) in enumerate(sorted(space.spaces.items()))}
    if isinstance(space, spaces.Tuple):
        return tuple(observed(inner, x + i, xp) for i, inner in enumerate(space.spaces))
    shape = space.shape or ()
    size = int(np.prod(shape))
    wave = xp.sin(x[..., None] * (1.0 + xp.arange(size, dtype=np.float32))).reshape((*x.shape, *shape))
    if isinstance(space, spaces.Discrete):
        return (space.start + xp.floor((wave + 1.0) * 0.499 * space.n)).astype(np.int32)
    if isinstance(space, spaces.MultiDiscrete):
        return xp.floor((wave + 1.0) * 0.499 * space.nvec.astype(np.float32)).astype(np.int32)
    if isinstance(space, spaces.MultiBinary):
        return (wave > 0.0).astype(np.int8)
    return (127.0 * (wave + 1.0)).astype(np.uint8) if space.dtype == np.uint8 else (0.9 * wave).astype(np.float32)


def allowed(space: spaces.Space, x: Any, empty: bool, xp: Any) -> Any:
    """Return an action mask of `space` as a function of `x` [...]; `empty`: sometimes it allows no action."""
    if isinstance(space, spaces.Dict):
        return {name: allowed(inner, x + i, empty, xp) for i, (name, inner) in enumerate(sorted(space.spaces.items()))}
    if isinstance(space, spaces.Tuple):
        return tuple(allowed(inner, x + i, empty, xp) for i, inner in enumerate(space.spaces))
    if isinstance(space, spaces.Box):
        return None
    parts = [
        xp.sin(x[..., None] * (3.0 + i + xp.arange(n, dtype=np.float32))) > -0.2
        for i, n in enumerate(components(space))
    ]
    if not empty:
        last = [np.arange(mask.shape[-1]) == mask.shape[-1] - 1 for mask in parts]
        parts = [mask | (one & ~mask.any(-1)[..., None]) for mask, one in zip(parts, last, strict=True)]
    return xp.concatenate(parts, axis=-1)


def components(space: spaces.Space) -> list[int]:
    """Return the number of choices of each component of a discrete space."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    return space.nvec.ravel().tolist() if isinstance(space, spaces.MultiDiscrete) else [2] * int(np.prod(space.shape))


def violations(space: spaces.Space, mask: Any, action: Any, xp: Any) -> Any:
    """Count forbidden components of an action [...]; an empty mask allows the first choice only."""
    if isinstance(space, spaces.Dict):
        every = [violations(s, None if mask is None else mask[k], action[k], xp) for k, s in space.spaces.items()]
        return sum(every[1:], every[0])
    if isinstance(space, spaces.Tuple):
        every = [violations(s, None if mask is None else mask[i], action[i], xp) for i, s in enumerate(space.spaces)]
        return sum(every[1:], every[0])
    batch = action.ndim - len(space.shape or ())
    if isinstance(space, spaces.Box):
        inside = (action >= space.low.astype(np.float32)) & (action <= space.high.astype(np.float32))
        return (~inside).reshape(*action.shape[:batch], -1).sum(-1)
    chosen = (action - getattr(space, "start", 0)).reshape(*action.shape[:batch], -1)
    counts, count = components(space), 0
    for i, (n, end) in enumerate(zip(counts, np.cumsum(counts), strict=True)):
        own = xp.ones((*chosen.shape[:-1], n), bool) if mask is None else mask[..., end - n : end]
        own = xp.where(own.any(-1)[..., None], own, xp.arange(n) == 0)
        count = count + (~(own & (xp.arange(n) == chosen[..., i, None])).any(-1))
    return count


def earned(action: Any, x: Any, xp: Any) -> Any:
    """Return the reward of an action [...] at `x`: bounded and learnable."""
    leaves = jax.tree.leaves(action)
    sums = [a.astype(np.float32).reshape(*x.shape, -1).sum(-1) for a in leaves]
    return xp.tanh(sum(sums[1:], sums[0]) * xp.sin(x)) + 0.3 * xp.cos(2.0 * x)


class Rules(NamedTuple):
    """Settings of an environment, native or on the host."""

    action: str = "two"  # a key of SPACES
    seen: str = "vector"  # a key of OBSERVATIONS
    masked: bool = False
    empty: bool = False  # masks may allow no action
    length: int = 5  # maximum length of an episode
    ending: str = "both"  # terminated, truncated, or either
    num_agents: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.num_agents is None else (self.num_agents,)

    def look(self, x: Any, xp: Any) -> tuple[Any, Any]:
        """Return observation and mask at `x` [...]."""
        mask = allowed(SPACES[self.action], x, self.empty, xp) if self.masked else None
        return observed(OBSERVATIONS[self.seen], x, xp), mask

    def after(self, x: Any, time: Any, draw: Any, action: Any, xp: Any) -> tuple[Any, Any, Any]:
        """Return reward and both flags [...] of an action at `x` in step `time`."""
        wrong = violations(SPACES[self.action], self.look(x, xp)[1], action, xp)
        reward = earned(action, x, xp) + FORBIDDEN * wrong
        # agents end one after another, earlier for a low draw
        last = 1 + xp.floor(draw * (self.length - 1)).astype(np.int32) + np.arange(max(self.shape, default=1))
        over = time >= (last if self.shape else last[0])
        dies = {"terminated": over, "truncated": over & False, "both": over & (xp.sin(7.0 * x) > 0.0)}[self.ending]
        return reward.astype(np.float32), dies, over & ~dies


class Where(NamedTuple):
    """State of a native environment."""

    time: jax.Array  # []
    draw: jax.Array  # [] in [0, 1], constant in an episode
    x: jax.Array  # [] or [A]


@part
class World:
    """Native environment with `rules`; its noise depends on the action, so that streams diverge."""

    rules: Rules = static(default=Rules())
    noise: float = number(default=0.1)

    @property
    def num_agents(self):
        return self.rules.num_agents

    @property
    def observation_space(self):
        return OBSERVATIONS[self.rules.seen]

    @property
    def action_space(self):
        return SPACES[self.rules.action]

    def reset(self, key):
        draw = jax.random.uniform(key)
        x = draw * 6.0 + jnp.arange(max(self.rules.shape, default=1))
        where = Where(jnp.int32(0), draw, x.reshape(self.rules.shape))
        return EnvReset(where, *self.rules.look(where.x, jnp))

    def step(self, where, action, key):
        results = self.rules.after(where.x, where.time + 1, where.draw, action, jnp)
        jump = 0.5 + self.noise * jax.random.normal(key, self.rules.shape) + 0.1 * results[0].clip(-1.0)
        where = Where(where.time + 1, where.draw, where.x + jump)
        obs, mask = self.rules.look(where.x, jnp)
        return EnvStep(where, obs, *results, mask)


class Outside(gymnasium.Env):
    """Gymnasium environment with `rules`."""

    def __init__(self, rules: Rules):
        self.rules = rules
        self.observation_space, self.action_space = OBSERVATIONS[rules.seen], SPACES[rules.action]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.draw = 0, np.float32(self.np_random.random())
        self.x = np.float32(self.draw * 6.0)
        return self._see()

    def step(self, action):
        action = jax.tree.map(np.asarray, dict_as_dict(action))
        self.time += 1
        reward, terminated, truncated = self.rules.after(self.x, self.time, self.draw, action, np)
        self.x += np.float32(0.5 + 0.1 * self.np_random.normal() + 0.1 * max(reward, -1.0))
        obs, info = self._see()
        return obs, float(reward), bool(terminated), bool(truncated), info

    def _see(self):
        obs, mask = self.rules.look(self.x, np)
        obs = jax.tree.map(lambda leaf: leaf[()], obs)
        return obs, as_info(mask)


def as_info(mask: Any) -> dict[str, Any]:
    """Convert a mask to the form of Python environments."""
    return {} if mask is None else {"action_mask": jax.tree.map(lambda m: m.astype(np.int8), mask)}


class Crew:
    """PettingZoo parallel environment with `rules`; agents that ended are absent."""

    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, rules: Rules):
        self.rules, self.agents, self.rng = rules, [], np.random.default_rng()
        self.possible_agents = [f"agent_{i}" for i in range(rules.num_agents or 0)]

    def observation_space(self, agent):
        return OBSERVATIONS[self.rules.seen]

    def action_space(self, agent):
        return SPACES[self.rules.action]

    def reset(self, seed=None, options=None):
        self.rng = self.rng if seed is None else np.random.default_rng(seed)
        self.agents, self.time, self.draw = list(self.possible_agents), 0, np.float32(self.rng.random())
        self.x = np.float32(self.draw * 6.0) + np.arange(len(self.agents), dtype=np.float32)
        return self._see(self.agents)

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.time += 1
        acting, out = list(self.agents), ({}, {}, {})
        for agent in acting:
            i = self.possible_agents.index(agent)
            own = self.rules._replace(num_agents=None)
            action = jax.tree.map(np.asarray, dict_as_dict(actions[agent]))
            # later agents stay longer
            results = own.after(self.x[i], self.time - i, self.draw, action, np)
            for kept, result in zip(out, results, strict=True):
                kept[agent] = result.item()
            self.x[i] += 0.5 + 0.1 * self.rng.normal() + 0.1 * max(results[0], -1.0)
        obs, info = self._see(acting)
        self.agents = [agent for agent in acting if not (out[1][agent] or out[2][agent])]
        return obs, *out, info

    def close(self):
        self.agents = []

    def _see(self, agents):
        seen = {a: self.rules.look(self.x[self.possible_agents.index(a)], np) for a in agents}
        obs = {a: jax.tree.map(lambda leaf: leaf[()], one) for a, (one, _) in seen.items()}
        return obs, {a: as_info(mask) for a, (_, mask) in seen.items()}


# ---------------------------------------------------------------- combinations


class Composition(NamedTuple):
    """Random run: its tables, its environment, and the built objects."""

    number: int
    tables: dict[str, Any]
    rules: Rules
    refused: tuple[str, ...]  # error messages of refused tables
    agent: Agent
    env: Env
    run: Run


IN_REFERENCE = ("reward_spreading", "kl_control")  # extensions that the reference learner has
FEW = ("two", "ragged", "hybrid", "box")  # spaces that cover most of the code
HOST_SPACES = tuple(name for name in SPACES if name != "grid")


def draw(number: int, on_host: bool = False) -> Composition:
    """Return the composition `number`: the first of its random tables that is not refused."""
    rng, refused = random.Random(f"{number} {on_host}"), []
    while True:
        rules, tables = draw_rules(rng, on_host), {}
        try:
            tables = draw_tables(rng, rules, on_host)
            env = make_env(rng, rules, tables, on_host)
            agent, env, run = config.build(tables, env)
            config.describe_run(agent, env, run)
            agent.check()
            require_sound(env)
            check_sizes(agent, env, run.num_steps)
            jax.eval_shape(agent.annealed, jnp.float32(0.0), jnp.float32(0.0))
            state_shapes(agent, env, run)
        except ConfigError as error:
            refused.append(str(error))
            continue
        return Composition(number, tables, rules, tuple(refused), agent, env, run)


def draw_rules(rng: random.Random, on_host: bool) -> Rules:
    """Draw the settings of an environment."""
    masked = rng.random() < 0.5
    return Rules(
        action=rng.choice(rng.choice([("two", "box"), FEW, HOST_SPACES if on_host else tuple(SPACES)])),
        seen=rng.choice(["vector", "vector", "matrix", *OBSERVATIONS]),
        masked=masked,
        empty=masked and not on_host and rng.random() < 0.5,
        length=rng.choice([1, 3, 5, 9]),
        ending=rng.choice(["terminated", "truncated", "both", "both"]),
        num_agents=rng.choice([None, None, None, 1, 2, 3]),
    )


def make_env(rng: random.Random, rules: Rules, tables: dict[str, Any], on_host: bool) -> Env:
    """Return the vectorised environment with the number of environments of the tables."""
    if on_host:
        source = rng.choice(["group", "group", *AutoresetMode.__members__]) if rules.num_agents is None else "crew"
        tables["source"] = source
        if source in AutoresetMode.__members__:
            makers = [lambda: Outside(rules)] * tables["num_envs"]
            tables.pop("source")
            return host(SyncVectorEnv(makers, autoreset_mode=AutoresetMode[source]))
        tables.pop("source")
        ids = {"agent_ids": tables["agent_ids"]} if source == "crew" else {}
        return host((lambda: Crew(rules)) if source == "crew" else (lambda: Outside(rules)), tables["num_envs"], **ids)
    env = VectorEnv(World(rules), tables["num_envs"])
    if tables.get("groups"):
        return grouped(env, {name: table["players"] for name, table in tables["groups"].items()})
    return env


def draw_tables(rng: random.Random, rules: Rules, on_host: bool) -> dict[str, Any]:
    """Draw a run's tables; ppax may refuse them."""
    tables: dict[str, Any] = {
        "env": "own",
        "num_envs": rng.choice([1, 2, 4, 4, 6]),
        "num_steps": rng.choice([4, 6, 8, 12]),
        "seed": rng.randrange(2**40),
        "iterations_per_env_reset": rng.choice([None, None, 1, 2]),
        "agents": rng.choice(["shared", "shared", "independent"]) if (rules.num_agents or 1) > 1 else "shared",
        "agent_ids": False,
        "agent": draw_agent(rng, rules),
        "log": {"every": 1, "checkpoint_seconds": 0.0, "console": False},
    }
    if not on_host and (rules.num_agents or 1) > 1 and rng.random() < 0.4:
        places = list(range(rules.num_agents))
        rng.shuffle(places)
        middle = rng.randint(1, len(places) - 1)
        tables["groups"] = {
            name: {"players": own, "agents": rng.choice(["shared", "independent"]), "agent": draw_agent(rng, rules)}
            for name, own in (("miners", places[:middle]), ("rivals", places[middle:]))
        }
        if rng.random() < 0.6:
            tables["self_play"] = {
                "every": rng.choice([1, 2]),
                "size": 3,
                "opponents": rng.choice([1, 2]),
                "sampling": rng.choice(["uniform", "recent", "hard"]),
            }
    tables["total_steps"] = 4 * tables["num_envs"] * tables["num_steps"] * (rules.num_agents or 1)
    return tables


def draw_agent(rng: random.Random, rules: Rules) -> dict[str, Any]:
    """Draw an agent's table: a part of the catalogue for every slot, and numbers near their defaults."""
    table = draw_parts(rng, rules)
    return table | in_reference(rng, table) if rng.random() < 0.4 else table


def in_reference(rng: random.Random, table: dict[str, Any]) -> dict[str, Any]:
    """Return changes of an agent's table that restrict it to features of the reference learner."""
    network = {"hidden": table["network"]["hidden"], "shared": table["network"]["shared"]}
    parts = {"advantage": ["gae", "vtrace"], "minibatch": ["shuffle"], "optimizer": ["adam"]}
    same = {kind: table[kind] for kind, names in parts.items() if table[kind]["part"] in names}
    other = {kind: {"part": rng.choice(names)} for kind, names in parts.items() if kind not in same}
    known = {name: table["extensions"][name] for name in IN_REFERENCE if name in table["extensions"]}
    return other | {"extensions": known, "network": network, "compute_dtype": "float32"}


def draw_parts(rng: random.Random, rules: Rules) -> dict[str, Any]:
    loss = draw_part(rng, "loss")
    coefficients = {"ent_coef": rng.choice([0.0, 0.01]), "vf_coef": rng.choice([0.5, 1.0])}
    if loss["part"] == "clipped":
        loss |= {"dual_clip": rng.choice([None, 1.5])}
    # a generator of its own, so that all else is drawn as without these options
    extensions = draw_extensions(random.Random(str(rng.getstate()[1][:8])), coefficients["ent_coef"])
    table = coefficients | {
        "network": draw_network(rng, rules),
        "advantage": draw_part(rng, "advantage"),
        "loss": loss,
        "critic": draw_critic(rng),
        "minibatch": draw_minibatch(rng),
        "optimizer": draw_optimizer(rng),
        "schedule": draw_schedule(rng),
        "kl": {
            "target_kl": rng.choice([None, None, None, 1e-4, 0.02]),
            "rate_target": rng.choice([None, None, None, 0.01]),
            "coef_target": rng.choice([None, 0.01]) if loss["part"] == "kl_penalty" else None,
        },
        "program": {"chunk_rows": rng.choice([None, None, 1, 5, 12]), "unroll": rng.choice([1, 1, 2])},
        "learning_rate": rng.choice([3e-4, 1e-3, 3e-3]),
        "gamma": rng.choice([0.0, 0.9, 0.99, 1.0]),
        "max_grad_norm": rng.choice([None, 0.5, 5.0]),
        "reward_spread_decay": rng.choice([None, None, 0.6]),
        "num_epochs": rng.choice([1, 2, 3]),
        "seq_len": rng.choice([None, None, 1, 2, 4]),
        "recompute": {"part": rng.choice(["never", "never", "epoch", "minibatch"])},
        "normalize_obs": rng.random() < 0.4,
        "normalize_reward": rng.random() < 0.4,
        "normalize_advantage": rng.choice(["minibatch", "rollout", "off"]),
        "compute_dtype": rng.choice(["float32", "float32", "float32", "bfloat16"]),
    }
    decay, control = table.pop("reward_spread_decay"), table.pop("kl")
    spreading = {} if decay is None else {"reward_spreading": {"decay": decay}}
    controls = {} if set(control.values()) == {None} else {"kl_control": control}
    noise = {"held_noise": {"steps": 3}} if table["network"].get("gsde") else {}
    return table | {"extensions": spreading | extensions | controls | noise}


def draw_extensions(rng: random.Random, ent_coef: float) -> dict[str, Any]:
    """Draw an intrinsic reward, a term of the loss, a phase and an entropy target, each with its name."""
    small = {"embedding": 3, "hidden": [4], "predictor_hidden": [4], "num_minibatches": 2}
    target = rng.choice([None, 0.5]) if ent_coef > 0.0 else None
    drawn: dict[str, Any] = {}
    if rng.random() < 0.3:
        drawn["rnd"] = {"episodic": rng.random() < 0.5, **small}
    drawn |= {"feature_norm": {}} if rng.random() < 0.3 else draw_prediction(rng)
    if rng.random() < 0.3:
        drawn["ppg"] = {"every": 2, "rollouts": rng.choice([1, 2]), "num_epochs": 1}
    return drawn if target is None else drawn | {"entropy_target": {"target": target}}


def draw_prediction(rng: random.Random) -> dict[str, Any]:
    """Draw a loss that predicts the next step, or none."""
    name = rng.choice(["none", "none", "self_prediction", "next_observation"])
    return {} if name == "none" else {name: {"hidden": [4]}}


def draw_part(rng: random.Random, kind: str) -> dict[str, Any]:
    """Draw a part of a kind, with its defaults."""
    return {"part": rng.choice(list(catalogue.PARTS[kind]))}


def draw_network(rng: random.Random, rules: Rules) -> dict[str, Any]:
    single = [name for name in catalogue.PARTS["memory"] if name != "stack"]
    memory: dict[str, Any] = {"part": rng.choice(single)} if rng.random() < 0.5 else {"part": "none"}
    if memory["part"] in ("gru", "lstm", "mingru", "lru"):
        memory["width"] = 4
    if memory["part"] == "attention":
        memory |= {"width": 4, "heads": 2, "steps": 3}
    if memory["part"] == "window":
        memory |= {"steps": 3, "hidden": [4]}
    encoder = rng.choice(["auto", "auto", "auto", *catalogue.PARTS["encoder"]])
    network: dict[str, Any] = {
        "hidden": rng.choice([[8], [6, 5], []]),
        "head_hidden": rng.choice([[], [], [5]]),
        "activation": rng.choice(["tanh", "tanh", "relu", "silu"]),
        "shared": rng.random() < 0.4,
        "memory": memory,
        "encoder": {"part": encoder} if encoder == "auto" or "image" in rules.seen else {"part": "auto"},
    }
    if rules.action in ("box", "half", "wide", "hybrid", "nested"):
        network["distribution"] = rng.choice(["normal", "normal", "squashed", "beta", "ball"])
        network["state_std"] = rng.random() < 0.3
        network |= rng.choice([{}, {}, {"std_min": 0.2, "std_max": 1.5}])
        network |= rng.choice([{}, {}, {"gsde": True}])
    # a generator of its own, so that all else is drawn as without these options
    return network | draw_towers(random.Random(str(rng.getstate()[1][:8])), network)


def draw_towers(rng: random.Random, network: dict[str, Any]) -> dict[str, Any]:
    """Draw options of the layers, a stack of the network's memory, and options of actor or critic alone."""
    memory, chosen = network["memory"], {"layer_norm": rng.random() < 0.2, "hidden_gain": rng.choice([1.0, 1.5])}
    if memory["part"] != "none":
        chosen["remat"] = rng.random() < 0.3
        if rng.random() < 0.4:
            options = {"num_layers": rng.choice([2, 3]), "residual": rng.random() < 0.5, "norm": rng.random() < 0.5}
            chosen["memory"] = {"part": "stack", "cell": memory} | options
    if not network["shared"] and rng.random() < 0.4:
        own = {"hidden": rng.choice([[4], [5, 3]]), "activation": rng.choice(["mish", "relu"])}
        memory = rng.choice([{"part": "none"}, {"part": "gru", "width": 3}, {"part": "lru", "width": 6}])
        chosen[rng.choice(["actor", "critic"])] = own | rng.choice([{}, {"memory": memory}])
    return chosen


def draw_critic(rng: random.Random) -> dict[str, Any]:
    table = draw_part(rng, "critic")
    if table["part"] == "two_hot":
        return table | rng.choice([{}, {"low": -5.0, "high": 6.0, "num_bins": 12, "spacing": "linear"}])
    if table["part"] == "quantile":
        return table | {"num_quantiles": rng.choice([1, 7]), "kappa": rng.choice([0.5, 2.0])}
    return table | {"value_clip": rng.choice([None, 0.2]), "huber_delta": rng.choice([None, 1.0])}


def draw_minibatch(rng: random.Random) -> dict[str, Any]:
    table = draw_part(rng, "minibatch") | {"num_minibatches": rng.choice([1, 2, 3, 4])}
    if table["part"] == "shuffle":
        return table | {"remainder": rng.choice(["error", "pad"])}
    replacement = rng.random() < 0.5
    return table | {
        "minibatch_size": rng.choice([None, 2, 4]),
        "replacement": replacement,
        "weights": "simple" if replacement else rng.choice(["simple", "inclusion"]),
    }


def draw_optimizer(rng: random.Random) -> dict[str, Any]:
    table = {"part": rng.choice(["adam", *catalogue.PARTS["optimizer"]])}
    if table["part"] == "actor_critic":
        single = [name for name in catalogue.PARTS["optimizer"] if name != "actor_critic"]
        table |= {side: {"part": rng.choice(single)} for side in ("actor", "critic")}
    return table


def draw_schedule(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(["constant", *catalogue.PARTS["schedule"]])
    if name in ("steps", "interpolated"):
        return {"part": name, "at": [0.0, 0.4], "values": [1e-3, 5e-4]}
    if name == "both":
        second = {"part": "cosine", "leaves": ["gamma"], "end": 0.5}
        return {"part": name, "first": {"part": "linear"}, "second": second}
    return {"part": name}


def splits_over_two(one: Composition) -> bool:
    """Return whether environments and every minibatch are divisible by two devices."""
    if "self_play" in one.tables or one.env.num_envs % 2:
        return False
    sizes = [
        learner.minibatch_size(one.run.num_steps, streams)
        for learner, streams in one.agent.learners(one.env.num_streams)
    ]
    return all(size % 2 == 0 for size in sizes)
