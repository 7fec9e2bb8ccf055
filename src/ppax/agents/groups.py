"""Groups of unlike agents: each has an agent of its own, with other spaces, networks and numbers.

An environment with groups has a dict for `num_agents`; observations, actions and masks are dicts by the same names, and
so are spaces. Rewards and ends stay arrays, the groups one after the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.agents.independent import Independent, joined
from ppax.arrays.metrics import Table, reductions_of
from ppax.learning.diagnostics import Update
from ppax.learning.forward import Policy
from ppax.ppo import PPO
from ppax.program.layout import Program
from ppax.types import Decision, Key, PyTree, Rollout, Scalar, Transition, part, static

OWN_TREES = ("obs", "action", "carry", "action_mask")  # fields of a Transition that are dicts by group
FLAT = tuple(field.name for field in dataclasses.fields(Transition) if field.name not in OWN_TREES)


@part
class ByGroup:
    """Distributions of every group's actions, [E * A_g] each."""

    parts: dict[str, Any]

    def sample(self, key: Key) -> PyTree:
        """Draw an action of everyone."""
        keys = jax.random.split(key, len(self.parts))
        return {name: one.sample(key) for (name, one), key in zip(self.parts.items(), keys, strict=True)}

    def mode(self) -> PyTree:
        """The most likely action of everyone."""
        return {name: one.mode() for name, one in self.parts.items()}

    def env_action(self, action: PyTree) -> PyTree:
        """What the environment receives."""
        return {name: one.env_action(action[name]) for name, one in self.parts.items()}


@part
class Groups:
    """Agents by the name of their group: a PPO, which its members share, or Independent, one for each of them.

    `sizes` is `env.sizes`. A learner is a dict of the groups' learners. Streams [B] are environment by environment, in
    each the groups in the order of `sizes`.
    """

    agents: dict[str, PPO | Independent]
    sizes: tuple[tuple[str, int], ...] = static("name of each group, and how many are in it")

    def init(self, observation_space: spaces.Dict, key: Key) -> Any:
        """Fresh learners, a dict of LearnerState, for a dict of the groups' observations."""
        keys = jax.random.split(key, len(self.sizes))
        return {
            name: self.agents[name].init(observation_space[name], key)
            for (name, _), key in zip(self.sizes, keys, strict=True)
        }

    def act(
        self,
        learner: Any,
        carry: PyTree,
        obs: PyTree,
        first: Array,
        action_mask: PyTree | None,
        key: Key,
    ) -> Decision:
        """Sample an action of everyone; `first` and `key` are [B] (or one key), the rest dicts of [E * A_g, ...]."""
        key = jax.random.split(key, first.shape[0]) if key.ndim == 0 else key
        firsts, keys = self.apart(first), self.apart(key)
        out = {
            name: agent.act(learner[name], carry[name], obs[name], firsts[name], _of(action_mask, name), keys[name])
            for name, agent in self._members()
        }

        def each(field: str) -> dict[str, Any]:
            return {name: getattr(one, field) for name, one in out.items()}

        numbers = self._join(each("log_prob")), self._join(each("value"))
        return Decision(each("carry"), each("action"), each("env_action"), *numbers)

    def policy(
        self,
        learner: Any,
        carry: PyTree,
        obs: PyTree,
        first: Array,
        action_mask: PyTree | None,
    ) -> Policy:
        """Distributions, next carries, and values [B] for the current observations."""
        firsts = self.apart(first)
        out = {
            name: agent.policy(learner[name], carry[name], obs[name], firsts[name], _of(action_mask, name))
            for name, agent in self._members()
        }
        parts = ByGroup({name: one.distribution for name, one in out.items()})
        value_outputs: Any = {name: one.value_outputs for name, one in out.items()}
        value = self._join({name: one.value for name, one in out.items()})
        return Policy({name: one.carry for name, one in out.items()}, parts, value_outputs, value)

    def update(self, learner: Any, rollout: Rollout, key: Key) -> Update:
        """Every group learns from its own streams; `key` is one, or one for each epoch."""
        key = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        return self.learn(learner, {name: self.rollout(name, rollout) for name, _ in self.sizes}, key)

    def learn(self, learner: Any, rollouts: Mapping[str, Rollout], key: Key) -> Update:
        """Every group learns from its rollout; keys [num_epochs]."""
        learners: Any = {}
        metrics = {}
        for place, (name, agent) in enumerate(self._members()):
            keys = jax.vmap(jax.random.fold_in, (0, None))(key, place)[: agent.num_epochs]
            learners[name], metrics[name] = agent.update(learner[name], rollouts[name], keys)
        return Update(learners, of_groups(metrics))

    def initial_carry(self, num_streams: int) -> PyTree:
        """Memories at the start of an episode."""
        envs = num_streams // self.num_agents
        return {name: self.agents[name].initial_carry(envs * size) for name, size in self.sizes}

    def sequence_length(self, num_steps: int) -> int:
        """Steps between memories that a rollout keeps: every group finds those at the starts of its sequences."""
        remember = [agent for _, agent in self._members() if jax.tree.leaves(agent.initial_carry(1))]
        return math.gcd(*(agent.sequence_length(num_steps) for agent in remember)) or num_steps

    def annealed(self, progress: Array, env_steps: Array) -> Groups:
        """Every group's agent at this progress of training."""
        agents = {name: agent.annealed(progress, env_steps) for name, agent in self._members()}
        return dataclasses.replace(self, agents=agents)

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Who learns, and from how many of the streams."""
        envs = num_streams // self.num_agents
        return tuple(one for name, size in self.sizes for one in self.agents[name].learners(envs * size))

    def discount(self, num_streams: int) -> Scalar:
        """Discount of each stream's rewards, [B]."""
        envs = num_streams // self.num_agents
        return self._join(
            {name: jnp.broadcast_to(self.agents[name].discount(envs * n), (envs * n,)) for name, n in self.sizes}
        )

    def check(self) -> None:
        """Raise ConfigError for numbers that exclude each other."""
        for agent in self.agents.values():
            agent.check()

    @property
    def num_agents(self) -> int:
        """Agents in an environment."""
        return sum(size for _, size in self.sizes)

    @property
    def num_epochs(self) -> int:
        """The most passes over a rollout that a group makes."""
        return max(agent.num_epochs for agent in self.agents.values())

    @property
    def program(self) -> Program:
        """How the compiled program is laid out, as the first group says."""
        return self._members()[0][1].program

    def _members(self) -> list[tuple[str, PPO | Independent]]:
        return [(name, self.agents[name]) for name, _ in self.sizes]

    def apart(self, x: Array, axis: int = 0) -> dict[str, Array]:
        """[..., B, ...] as [..., E * A_g, ...] of each group."""
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        x, begin, parts = x.reshape(*before, -1, self.num_agents, *after), 0, {}
        for name, size in self.sizes:
            own = jax.lax.slice_in_dim(x, begin, begin + size, axis=axis + 1)
            parts[name], begin = own.reshape(*before, -1, *after), begin + size
        return parts

    def _join(self, parts: Mapping[str, Array]) -> Array:
        """[E * A_g] of each group as [B]."""
        return jnp.concatenate([parts[name].reshape(-1, size) for name, size in self.sizes], axis=1).reshape(-1)

    def rollout(self, name: str, rollout: Rollout) -> Rollout:
        """What the group has seen."""
        agent, steps = self.agents[name], rollout.steps
        flat = {field: getattr(steps, field) for field in FLAT}
        own: dict[str, Any] = {k: None if x is None else self.apart(x, 1)[name] for k, x in flat.items()}
        num_steps = steps.valid.shape[0]
        stride = max(1, agent.sequence_length(num_steps) // self.sequence_length(num_steps))
        carry = jax.tree.map(lambda x: x[::stride], steps.carry[name])
        trees = {"obs": steps.obs[name], "action": steps.action[name], "carry": carry}
        taken = Transition(**own, **trees, action_mask=_of(steps.action_mask, name))
        return Rollout(taken, self.apart(rollout.last_value)[name], self.apart(rollout.reward_trace, 1)[name])


def _of(tree: PyTree | None, name: str) -> PyTree | None:
    return None if tree is None else tree[name]


def of_groups(metrics: Mapping[str, Mapping[str, Array]]) -> Table:
    """Metrics that all groups have, over all, and each group's as `name/group`, those of its players `name/group_0`."""
    kinds = {group: dict(reductions_of(own)) for group, own in metrics.items()}
    # reduced in the same way, else there is no metric of all
    every = [
        {(name, kinds[group].get(name, "mean")) for name in own if "/" not in name} for group, own in metrics.items()
    ]
    common = sorted(set.intersection(*every))
    out = {name: joined(kind, jnp.stack([own[name] for own in metrics.values()])) for name, kind in common}
    reductions = dict(common)
    for group, own in metrics.items():
        for name, x in own.items():
            plain, slash, player = name.partition("/")
            full = f"{plain}/{group}{player.removeprefix('agent') if slash else ''}"
            out[full], reductions[full] = x, kinds[group].get(name, "mean")
    return Table(out, tuple((name, kind) for name, kind in reductions.items() if kind != "mean"))
