"""The loop that steps host environments: rollouts to learn from, and whole episodes to judge a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ppax.agents.multi_agent import HostAgent
from ppax.envs import EnvError, HostEnv
from ppax.envs.hosting.arrays import EpisodeStats, element_of
from ppax.envs.hosting.host_env import begin_seeds
from ppax.envs.hosting.stepper import Seen
from ppax.host.policy import HostPolicy, Observed
from ppax.types import ActorState, Key, PyTree


class Played(NamedTuple):
    """A rollout as the host saw it, in NumPy: T steps of B streams, in sequences of L."""

    obs: PyTree  # [T + 1, B, ...]
    first: np.ndarray  # [T + 1, B]
    mask: np.ndarray | None  # [T + 1, B, n]
    action: PyTree  # [T, B, ...]
    reward: np.ndarray  # [T, B]
    terminated: np.ndarray  # [T, B]
    truncated: np.ndarray  # [T, B]
    valid: np.ndarray  # [T, B]
    final_value: np.ndarray | None  # [T, B]
    episode_stats: EpisodeStats | None  # [T, B]
    carry: PyTree  # [T / L, B, ...] memory before each sequence
    last_carry: PyTree  # [B, ...]
    env_state: np.ndarray  # [B] where the environments stand now


def take_up(agent: HostAgent, env: HostEnv, actor: ActorState, key: Key) -> ActorState:
    """`actor` if the environments stand where it does; else all begin new episodes, with seeds from `key`."""
    host = env.host
    if host.position and (np.asarray(actor.env_state) == host.position).all():
        now = _joined(host.last)
        if all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in _pairs(now.obs, actor.obs)):
            return actor
    try:
        now = _joined(host.reset(begin_seeds(key, env.num_envs)))
        _check_beginning(env, now)
    except BaseException:
        env.close()
        raise
    zeros = np.zeros(env.num_streams, np.float32)
    fresh: dict[str, Any] = {
        "obs": element_of(env.observation_space, iter(now.obs)),
        "first": now.first,
        "action_mask": now.mask,
        "carry": jax.tree.map(np.asarray, agent.initial_carry(env.num_streams)),
        "episode_return": zeros,
        "episode_length": zeros.astype(np.int32),
        "reward_trace": zeros,
    }
    return actor._replace(**fresh)


def play(
    policy: HostPolicy, value_of: Any, env: HostEnv, actor: ActorState, num_steps: int, length: int, begun: Any
) -> Played:
    """`num_steps` steps of all streams from where `actor` stands.

    `begun` (agent, learner) acts; `value_of(agent, learner, Observed)` is V. Whatever goes wrong, Ctrl-C among it, all
    environments are closed: they may be amidst a step.
    """
    try:
        record = _Record(policy, value_of, env, actor, num_steps, length, begun)
        return record.play()
    except BaseException:
        env.close()
        raise


class _Record:
    """A rollout as it grows."""

    def __init__(
        self,
        policy: HostPolicy,
        value_of: Any,
        env: HostEnv,
        actor: ActorState,
        num_steps: int,
        length: int,
        begun: Any,
    ):
        self.policy, self.value_of, self.env, self.begun = policy, value_of, env, begun
        self.num_steps, self.length, self.groups = num_steps, length, env.host.groups
        self.obs = [self._store(x, num_steps + 1) for x in map(np.asarray, jax.tree.leaves(actor.obs))]
        self.first = self._store(np.asarray(actor.first), num_steps + 1)
        self.mask = None if actor.action_mask is None else self._store(np.asarray(actor.action_mask), num_steps + 1)
        shape = num_steps, env.num_streams
        self.reward, self.final_value = np.empty(shape, np.float32), np.zeros(shape, np.float32)
        self.terminated, self.truncated, self.valid = (np.empty(shape, bool) for _ in range(3))
        self.known = np.zeros(shape, bool)  # steps that have come back
        tallies = env.host.example.tallies
        self.episode_stats = EpisodeStats(np.zeros(shape, np.float32), np.zeros(shape, bool)) if tallies else None
        self.actions: list[np.ndarray] = []
        self.carry = [jax.tree.map(lambda x, rows=rows: x[rows], actor.carry) for rows in self.groups]
        self.carries: list[list[PyTree]] = [[] for _ in self.groups]
        self.remembers = bool(jax.tree.leaves(actor.carry))

    def play(self) -> Played:
        """All steps. A group is stepped while the policy acts for the other; always in the same order."""
        try:
            self._step()
        except EnvError:
            self._check()  # what it got may not have been finite
            raise
        self._check()
        return self._played()

    def _step(self) -> None:
        groups, host = list(enumerate(self.groups)), self.env.host
        for t in range(self.num_steps):
            for number, rows in groups:
                if t:
                    self._take(t - 1, number, rows)
                if self.remembers and t % self.length == 0:
                    self.carries[number].append(jax.tree.map(np.asarray, self.carry[number]))
                mask = None if self.mask is None else self.mask[t, rows]
                seen = Observed(self.carry[number], self._tree(self.obs, t, rows), self.first[t, rows], mask)
                acted = self.policy.act(t, rows, seen)
                self.carry[number] = acted.carry
                self._keep(t, rows, acted.action)
                host.send(number, acted.env_action)
        for number, rows in groups:
            self._take(self.num_steps - 1, number, rows)

    def _take(self, t: int, number: int, rows: slice) -> None:
        """What came of step `t` of a group."""
        seen = self.env.host.receive(number)
        for store, x in zip(self.obs, seen.obs, strict=True):
            store[t + 1, rows] = x
        self.first[t + 1, rows], self.reward[t, rows] = seen.first, seen.reward
        self.terminated[t, rows], self.truncated[t, rows] = seen.terminated, seen.truncated
        self.valid[t, rows], self.known[t, rows] = seen.valid, True
        if self.mask is not None:
            self.mask[t + 1, rows] = seen.mask
        if self.episode_stats is not None and seen.episode_stats is not None:
            self.episode_stats.reward[t, rows], self.episode_stats.over[t, rows] = seen.episode_stats
        if seen.final_obs is not None and (cut := seen.truncated & ~seen.terminated).any():
            for leaf in seen.final_obs:
                if leaf.dtype.kind == "f" and not np.isfinite(leaf[cut]).all():
                    finite = np.isfinite(leaf).reshape(len(cut), -1).all(axis=-1)
                    stream = rows.start + int(np.argmax(cut & ~finite))
                    raise EnvError(
                        f"{_who(self.env, stream)}: its last observation is not finite at step {t} of a rollout"
                    )
            obs = element_of(self.env.observation_space, iter(seen.final_obs))
            going_on = np.zeros(len(cut), bool)  # the memory is that of the episode, which was cut
            mask = None if self.mask is None else np.ones_like(self.mask[t, rows])
            value = self.value_of(*self.begun, Observed(self.carry[number], obs, going_on, mask))
            self.final_value[t, rows] = np.where(cut, value, 0.0)

    def _keep(self, t: int, rows: slice, action: list[np.ndarray]) -> None:
        if not self.actions:
            self.actions = [
                np.empty((self.num_steps, self.env.num_streams, *leaf.shape[1:]), leaf.dtype) for leaf in action
            ]
        for store, x in zip(self.actions, action, strict=True):
            store[t, rows] = x

    def _check(self) -> None:
        """Refuse numbers that are not finite, and masks that allow nothing: nothing can be learned from them."""
        valid = self.valid & self.known
        wrong = {"reward": ~np.isfinite(self.reward) & valid}
        if self.episode_stats is not None:
            wrong["episode_stats"] = ~np.isfinite(self.episode_stats.reward) & self.known
        for leaf in self.obs:
            if leaf.dtype.kind == "f":
                finite = np.isfinite(leaf[1:]).reshape(*self.known.shape, -1).all(axis=-1)
                wrong["observation"] = wrong.get("observation", False) | (~finite & self.known)
        for name, places in wrong.items():
            if places.any():
                t, i = np.argwhere(places)[0]
                action = [x[t, i].tolist() for x in self.actions]
                raise EnvError(
                    f"{_who(self.env, i)}: its {name} is not finite at step {t} of a rollout, action {action}"
                )
        if self.mask is not None:
            # a mask may be empty where no action is taken, as after an episode's end
            idle = ~self.mask[:-1].any(axis=-1) & valid
            if idle.any():
                t, i = np.argwhere(idle)[0]
                raise EnvError(f"{_who(self.env, i)}: its action mask allows nothing at step {t} of a rollout")

    def _played(self) -> Played:
        def joined(parts: Sequence[PyTree]) -> PyTree:
            return jax.tree.map(lambda *x: np.concatenate(x), *parts)

        starts = list(zip(*self.carries, strict=True))
        carry = jax.tree.map(lambda *x: np.stack(x), *map(joined, starts)) if starts else ()
        host = self.env.host
        return Played(
            self._tree(self.obs),
            self.first,
            self.mask,
            jax.tree.unflatten(self.policy.structure, self.actions),
            self.reward,
            self.terminated,
            self.truncated,
            self.valid,
            self.final_value if host.cuts else None,
            self.episode_stats,
            carry,
            joined([jax.tree.map(np.asarray, carry) for carry in self.carry]),
            np.full(self.env.num_streams, host.position, np.uint32),
        )

    def _tree(self, leaves: Sequence[np.ndarray], *index: Any) -> PyTree:
        return element_of(self.env.observation_space, (x[index] for x in leaves))

    def _store(self, start: np.ndarray, num_steps: int) -> np.ndarray:
        """[T + 1, B, ...] that begins with `start`."""
        store = np.empty((num_steps, *start.shape), start.dtype)
        store[0] = start
        return store


def _check_beginning(env: HostEnv, now: Seen) -> None:
    """Refuse first observations that are not finite, before the policy acts on them."""
    for leaf in now.obs:
        if leaf.dtype.kind == "f" and not (finite := np.isfinite(leaf).reshape(len(leaf), -1).all(axis=-1)).all():
            raise EnvError(f"{_who(env, int(np.argmin(finite)))}: its observation is not finite after its reset")


def _who(env: HostEnv, stream: int) -> str:
    name = f"environment {stream // env.num_agents}"
    return name if env.num_agents == 1 else f"{name}, agent {stream % env.num_agents}"


def _joined(parts: Sequence[Seen]) -> Seen:
    """All groups as one; copies."""
    obs = [np.concatenate(x) for x in zip(*(part.obs for part in parts), strict=True)]
    reward, terminated, truncated, first, valid = (np.concatenate([part[i] for part in parts]) for i in range(1, 6))
    mask = None if parts[0].mask is None else np.concatenate([part.mask for part in parts if part.mask is not None])
    return Seen(obs, reward, terminated, truncated, first, valid, mask)


def _pairs(leaves: Sequence[np.ndarray], tree: PyTree) -> Any:
    return zip(leaves, map(np.asarray, jax.tree.leaves(tree)), strict=True)
