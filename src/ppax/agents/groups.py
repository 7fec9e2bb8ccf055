"""Agent for groups of players: each group is trained by a PPO or an Independent of its own.

Players are the agents of an environment; those of different groups may have different spaces.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ppax.agents.independent import Independent
from ppax.agents.metrics import of_groups
from ppax.core.types import (
    Decision,
    ForwardPass,
    Key,
    PyTree,
    Requirements,
    Rollout,
    Scalar,
    Transition,
    Update,
    part,
    static,
)
from ppax.devices.layout import Program
from ppax.ppo.forward import remembered
from ppax.ppo.ppo import PPO

# OWN_TREES: fields of Transition that are dicts by group or exist only in an update; FLAT: the others, [T, B]
OWN_TREES = ("obs", "action", "carry", "action_mask", "extras")
FLAT = tuple(field.name for field in dataclasses.fields(Transition) if field.name not in OWN_TREES)


@part
class Groups:
    """Agent with one agent for each group of players: a PPO that the group shares, or an Independent with a PPO each.

    A player is an agent of the environment. `sizes`, equal to `env.sizes`, are the name and the number of players of
    each group: (("red", 2), ("blue", 3)). The learner is a dict of the groups' learners. A stream is one player in one
    environment; the streams [B] are ordered by environment, then by group in the order of `sizes`, then by player.
    """

    agents: dict[str, PPO | Independent]
    sizes: tuple[tuple[str, int], ...] = static("(name, number of agents) of each group")
    pool: ClassVar[None] = None

    def init(self, observation_space: Any, key: Key) -> Any:
        """Return new learners of all groups, a dict by group.

        `observation_space` is a Dict space of the groups' observations.
        """
        keys = jax.random.split(key, len(self.sizes))
        return {
            name: self.agents[name].init(observation_space[name], key)
            for (name, _), key in zip(self.sizes, keys, strict=True)
        }

    def act(
        self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key
    ) -> Decision:
        """Return sampled actions and next carries of all groups, dicts by group, with log-probabilities and V [B].

        B is the number of streams (one agent in one environment), of all groups. `first` is [B], `key` is [B] or one
        key. `carry` (the memories), `obs` and `action_mask` are dicts by group of [E * A_g, ...], for E environments
        and A_g agents of group g.
        """
        key = jax.random.split(key, first.shape[0]) if key.ndim == 0 else key
        firsts, keys = self.apart(first), self.apart(key)
        out = {
            name: agent.act(learner[name], carry[name], obs[name], firsts[name], _of(action_mask, name), keys[name])
            for name, agent in self._members()
        }

        def each(field: str) -> dict[str, Any]:
            return {name: getattr(one, field) for name, one in out.items()}

        log_prob, value = join_groups(each("log_prob"), self.sizes), join_groups(each("value"), self.sizes)
        return Decision(each("carry"), each("action"), each("env_action"), log_prob, value)

    def policy(self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None) -> ForwardPass:
        """Return action distributions and next carries of all groups, dicts by group, and V [B].

        B is the number of streams (one agent in one environment), of all groups. `carry` (the memories), `obs` and
        `action_mask` are dicts by group of [E * A_g, ...], for E environments and A_g agents of group g; `first` [B]
        marks first steps of episodes.
        """
        firsts = self.apart(first)
        out = {
            name: agent.policy(learner[name], carry[name], obs[name], firsts[name], _of(action_mask, name))
            for name, agent in self._members()
        }
        parts = ByGroup({name: one.distribution for name, one in out.items()}, self.sizes)
        value_outputs: Any = {name: one.value_outputs for name, one in out.items()}
        value = join_groups({name: one.value for name, one in out.items()}, self.sizes)
        return ForwardPass({name: one.carry for name, one in out.items()}, parts, value_outputs, value)

    def update(self, learner: Any, rollout: Rollout, key: Key) -> Update:
        """Return the groups' learners after each has learned from its own streams of the rollout, and the metrics.

        A stream is one agent in one environment. `key` is one key, or a key for each epoch [num_epochs].
        """
        key = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        return self.learn(learner, {name: self.rollout(name, rollout) for name, _ in self.sizes}, key)

    def learn(self, learner: Any, rollouts: Mapping[str, Rollout], key: Key) -> Update:
        """Return the groups' learners after each has learned from its rollout in `rollouts`, and the metrics.

        Learners and rollouts are dicts by group; `key` has a key for each epoch [num_epochs].
        """
        updates: dict[str, Update] = {}
        for place, (name, agent) in enumerate(self._members()):
            keys = jax.vmap(jax.random.fold_in, (0, None))(key, place)[: agent.num_epochs]
            updates[name] = agent.update(learner[name], rollouts[name], keys)
        learners = {name: update.learner for name, update in updates.items()}
        metrics = of_groups({name: update.metrics for name, update in updates.items()})
        return Update(learners, metrics, extensions={name: update.extensions for name, update in updates.items()})

    def evaluate_rollout(self, learner: Any, steps: Transition) -> tuple[Array, Array]:
        """Return V and the log-probability of the stored action, both [T, B], of the steps [T, B] of a rollout.

        B is the number of streams (one agent in one environment). `learner` has a learner for each group, which is used
        for the group's streams.
        """
        pairs = {
            name: agent.evaluate_rollout(learner[name], self.steps(name, steps)) for name, agent in self._members()
        }
        each = ({name: pair[i] for name, pair in pairs.items()} for i in (0, 1))
        value, log_prob = (jax.vmap(lambda values: join_groups(values, self.sizes))(values) for values in each)
        return value, log_prob

    def initial_carry(self, num_streams: int) -> PyTree:
        """Return the networks' memories at the start of an episode, a dict by group of [E * A_g, ...].

        E is the number of environments, and A_g that of group g's agents; `num_streams` is the sum over groups of E *
        A_g.
        """
        return remembered(self.start_carry(num_streams))

    def start_carry(self, num_streams: int) -> PyTree:
        """Return the carry, which the groups' policies keep from step to step, at the start of collection.

        It is a dict by group of [E * A_g, ...], for E environments and A_g agents of group g: the networks' memories
        and, where extensions change actions, states of the extensions.
        """
        envs = num_streams // self.num_agents
        return {name: self.agents[name].start_carry(envs * size) for name, size in self.sizes}

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the initial states that extensions keep for each stream, by group and then by the extension's name.

        A stream is one agent in one environment.
        """
        envs = num_streams // self.num_agents
        return {name: self.agents[name].init_streams(envs * size) for name, size in self.sizes}

    def sequence_length(self, num_steps: int) -> int:
        """Return the number of steps between two memory states that a rollout of `num_steps` stores.

        This is the greatest common divisor of the sequence lengths of groups with memory; `num_steps` if no group has
        one.
        """
        recurrent = [agent for _, agent in self._members() if jax.tree.leaves(agent.initial_carry(1))]
        return math.gcd(*(agent.sequence_length(num_steps) for agent in recurrent)) or num_steps

    def annealed(self, progress: Array, env_steps: Array) -> Groups:
        """Return this agent with the numbers, such as the learning rate, that each group's schedule sets at this time.

        The time is `progress` of training, in [0, 1], and `env_steps`, the number of valid environment steps so far.
        """
        agents = {name: agent.annealed(progress, env_steps) for name, agent in self._members()}
        return dataclasses.replace(self, agents=agents)

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Return every PPO that is trained, in the order of the groups, with the number of its streams.

        A stream is one player (agent of an environment) in one environment; `num_streams` is the number of all of them.
        """
        envs = num_streams // self.num_agents
        return tuple(one for name, size in self.sizes for one in self.agents[name].learners(envs * size))

    def discount(self, num_streams: int) -> Scalar:
        """Return the discount factor of each stream's rewards, [B], which is that of the stream's group.

        A stream is one agent in one environment.
        """
        envs = num_streams // self.num_agents
        return join_groups(
            {name: jnp.broadcast_to(self.agents[name].discount(envs * n), (envs * n,)) for name, n in self.sizes},
            self.sizes,
        )

    def check(self) -> None:
        """Raise ConfigError where options of a group's agent contradict each other."""
        for agent in self.agents.values():
            agent.check()

    @property
    def requires(self) -> Requirements:
        """Requirements of grouped agents on the environment: its groups and their numbers of agents."""
        return Requirements(self.num_agents, self.sizes)

    @property
    def sharing(self) -> str:
        """Parameter sharing: "independent" if all agents have parameters of their own, otherwise "shared"."""
        return "independent" if all(one.sharing == "independent" for one in self.agents.values()) else "shared"

    @property
    def num_agents(self) -> int:
        """Number of agents of an environment, in all groups together."""
        return sum(size for _, size in self.sizes)

    @property
    def num_epochs(self) -> int:
        """Number of epochs of one update: the largest of all groups."""
        return max(agent.num_epochs for agent in self.agents.values())

    @property
    def program(self) -> Program:
        """Layout of the compiled training program (`ppax.devices.layout.Program`): that of the first group."""
        return self._members()[0][1].program

    def _members(self) -> list[tuple[str, PPO | Independent]]:
        return [(name, self.agents[name]) for name, _ in self.sizes]

    def apart(self, x: Array, axis: int = 0) -> dict[str, Array]:
        """Return `x` [..., B, ...] of all streams split into the groups' [..., E * A_g, ...], a dict by group.

        A stream is one agent in one environment. The axis `axis` is that of the B streams; E is the number of
        environments, and A_g that of group g's agents.
        """
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        x, begin, parts = x.reshape(*before, -1, self.num_agents, *after), 0, {}
        for name, size in self.sizes:
            own = jax.lax.slice_in_dim(x, begin, begin + size, axis=axis + 1)
            parts[name], begin = own.reshape(*before, -1, *after), begin + size
        return parts

    def rollout(self, name: str, rollout: Rollout) -> Rollout:
        """Return the rollout of the group `name`, [T, E * A_g], from a rollout [T, B] of all groups.

        E is the number of environments, and A_g that of the group's agents; B is the number of all agents in all
        environments.
        """
        last_value, reward_trace = self.apart(rollout.last_value)[name], self.apart(rollout.reward_trace, 1)[name]
        return Rollout(
            steps=self.steps(name, rollout.steps),
            last_value=last_value,
            reward_trace=reward_trace,
            last_obs=_of(rollout.last_obs, name),
            extensions=rollout.extensions[name] if rollout.extensions else (),
            played=jax.tree.map(lambda x: self.apart(x, 1)[name], rollout.played),
        )

    def steps(self, name: str, steps: Transition) -> Transition:
        """Return the steps [T, E * A_g] of the group `name` from the steps [T, B] of all groups.

        E is the number of environments, and A_g that of the group's agents; B is the number of all agents in all
        environments.
        """
        flat = {field: getattr(steps, field) for field in FLAT}
        own: dict[str, Any] = {k: None if x is None else self.apart(x, 1)[name] for k, x in flat.items()}
        num_steps = steps.valid.shape[0]
        stride = max(1, self.agents[name].sequence_length(num_steps) // self.sequence_length(num_steps))
        carry = jax.tree.map(lambda x: x[::stride], steps.carry[name])
        trees = {"obs": steps.obs[name], "action": steps.action[name], "carry": carry}
        return Transition(**own, **trees, action_mask=_of(steps.action_mask, name))


def _of(tree: PyTree | None, name: str) -> PyTree | None:
    return None if tree is None else tree[name]


@part
class ByGroup:
    """Action distributions of all groups, used as one distribution: a dict by group, of E * A_g distributions each.

    E is the number of environments, and A_g that of group g's agents.
    """

    parts: dict[str, Any]
    sizes: tuple[tuple[str, int], ...] = static("(name, number of agents) of each group")

    def sample(self, key: Key) -> PyTree:
        """Return sampled actions of all groups of agents, a dict by group; `key` is one key."""
        keys = jax.random.split(key, len(self.parts))
        return {name: one.sample(key) for (name, one), key in zip(self.parts.items(), keys, strict=True)}

    def mode(self) -> PyTree:
        """Return the most likely actions of all groups of agents, a dict by group."""
        return {name: one.mode() for name, one in self.parts.items()}

    def env_action(self, action: PyTree) -> PyTree:
        """Return the groups' actions as the environment gets them: squashed or clipped into bounds, a dict by group.

        `action` is as `sample` returns it.
        """
        return {name: one.env_action(action[name]) for name, one in self.parts.items()}

    def log_prob(self, action: PyTree) -> Array:
        """Return the log-probability of each stream's action, [B], of all groups of agents.

        A stream is one agent in one environment. `action`, a dict by group, is as `sample` returns it.
        """
        return join_groups({name: one.log_prob(action[name]) for name, one in self.parts.items()}, self.sizes)


def join_groups(values: Mapping[str, Array], sizes: tuple[tuple[str, int], ...]) -> Array:
    """Return the groups' values [E * A_g] as one array [B], ordered by environment, then by group as in `sizes`.

    `sizes` has name and number A_g of agents of each group; E is the number of environments.
    """
    return jnp.concatenate([values[name].reshape(-1, size) for name, size in sizes], axis=1).reshape(-1)
