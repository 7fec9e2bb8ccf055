"""Stepping loop of host environments, which collects the rollouts of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ppax.core.types import ActorState, Played, PyTree
from ppax.envs import EnvError, HostEnv
from ppax.envs.hosting.arrays import EpisodeStats, each_group, element_of, group_rows
from ppax.envs.hosting.faults import NotFiniteValue
from ppax.ppo.forward import remembered
from ppax.training.host.policy import HostPolicy, PolicyInputs
from ppax.training.host.streams import (
    hold_carry,
    no_carry,
    row_of_stream,
    rows_in_order,
    rows_like,
    settle,
    stream_name,
    streams_like,
    streams_of,
)


class HostRollout(NamedTuple):
    """Rollout in NumPy, before values and log-probabilities are computed: T steps of B streams, in sequences of L.

    A stream is one agent in one environment, and a carry is a memory's recurrent state. With groups of agents,
    observations, masks, actions and carries are dicts by group, as in `Transition`. `env_state` is the number of steps
    and resets of the environments until after the rollout, by which `reset_if_needed` sees whether they have been
    stepped or reset since.

    In environments whose agents act in turns, the arrays have a row for each decision of a stream instead of each step,
    and `played` records every step in time order; otherwise `played` is None.
    """

    obs: PyTree  # [T + 1, B, ...]
    first: np.ndarray  # [T + 1, B]
    mask: PyTree | None  # [T + 1, B, n]
    action: PyTree  # [T, B, ...]
    reward: np.ndarray  # [T, B]
    terminated: np.ndarray  # [T, B]
    truncated: np.ndarray  # [T, B]
    valid: np.ndarray  # [T, B]
    final_value: np.ndarray | None  # [T, B]
    episode_stats: EpisodeStats | None  # [T, B]
    carry: PyTree  # [T / L, B, ...] carry at the start of each sequence
    last_carry: PyTree  # [B, ...] carry after the last step
    metrics: dict[str, np.ndarray]  # [T, B] entries of info that are logged; defined where an episode has ended
    env_state: np.ndarray  # [B] position of the environments after the rollout, compared by `reset_if_needed`
    played: Played | None = None  # steps of agents that act in turns, in their order; the rows are decisions
    logged: np.ndarray | None = None  # [T, B] False: an episode that ends with this step is not logged; None: all are


def collect_on_host(
    policy: HostPolicy, value_of: Any, env: HostEnv, actor: ActorState, num_steps: int, length: int, parameters: Any
) -> HostRollout:
    """Return a rollout of `num_steps` steps of all streams, from `actor` on, in which `policy` acts.

    A stream is one agent in one environment. `parameters` is (agent, learner); `value_of(agent, learner, PolicyInputs)`
    returns V [e] of a batch of streams; `length` is L, the length of a sequence. Raises EnvError where an environment
    fails or returns values that are not finite. After any exception, also KeyboardInterrupt, all environments are
    closed, as they may be in the middle of a step.
    """
    try:
        recorder = _Recorder(policy, value_of, env, actor, num_steps, length, parameters)
        return recorder.play()
    except BaseException:
        env.close()
        raise


def not_finite_in(*arrays: Any) -> float:
    """Return the first number in the arrays that is not finite."""
    x = np.concatenate([np.ravel(one) for one in arrays])
    return float(x[np.argmax(~np.isfinite(x))])


class _Recorder:
    """Recorder of one rollout, which steps host environments and writes what they return to allocated arrays."""

    def __init__(
        self,
        policy: HostPolicy,
        value_of: Any,
        env: HostEnv,
        actor: ActorState,
        num_steps: int,
        length: int,
        parameters: Any,
    ):
        self.policy, self.value_of, self.env, self.parameters = policy, value_of, env, parameters
        self.num_steps, self.length, self.batches = num_steps, length, env.host.batches
        self.obs = [self._store(x, num_steps + 1) for x in map(np.asarray, jax.tree.leaves(actor.obs))]
        self.first = self._store(np.asarray(actor.first), num_steps + 1)
        self.mask = each_group(lambda x: self._store(np.asarray(x), num_steps + 1), actor.action_mask)
        # rows of each batch in the arrays of observations, and in masks
        self.places = [jax.tree.leaves(rows_like(env, actor.obs, rows)) for rows in self.batches]
        self.mask_places: list[Any] = [group_rows(env.sizes, rows) if env.sizes else rows for rows in self.batches]
        self.seen_by = streams_like(env, actor.obs)
        shape = num_steps, env.num_streams
        self.reward, self.final_value = np.empty(shape, np.float32), np.zeros(shape, np.float32)
        self.terminated, self.truncated, self.valid = (np.empty(shape, bool) for _ in range(3))
        self.known = np.zeros(shape, bool)  # steps whose results have been received
        has_stats = env.host.spec.has_episode_stats
        self.episode_stats = EpisodeStats(np.zeros(shape, np.float32), np.zeros(shape, bool)) if has_stats else None
        self.metrics = {name: np.zeros(shape, np.float32) for name in env.host.spec.metrics}
        self.logged = np.ones(shape, bool) if env.host.spec.stagger else None
        self.actions: list[np.ndarray] = []
        self.turns = env.host.spec.turns
        self.carry = [streams_of(env, actor.carry, rows) for rows in self.batches]
        self.carry_before = list(self.carry)  # before the step that runs
        self.carries: list[list[PyTree]] = [[] for _ in self.batches]
        self.remembers = bool(jax.tree.leaves(remembered(actor.carry)))

    def play(self) -> HostRollout:
        """Return the recorder's rollout, collected and checked.

        One batch of environments steps while the policy acts for another, in a fixed order.
        """
        try:
            self._step()
        except EnvError:
            self._check()  # invalid values received earlier are the likelier cause: report those
            raise
        self._check()
        return self._rollout()

    def _step(self) -> None:
        batches, host = list(enumerate(self.batches)), self.env.host
        for t in range(self.num_steps):
            for number, rows in batches:
                if t:
                    self._receive(t - 1, number, rows)
                if self.remembers and (self.turns or t % self.length == 0):
                    self.carries[number].append(jax.tree.map(np.asarray, remembered(self.carry[number])))
                mask = None if self.mask is None else self._mask(t, number)
                seen = zip(self.obs, self.places[number], strict=True)
                obs = element_of(self.env.observation_space, (x[t, own] for x, own in seen))
                inputs = PolicyInputs(self.carry[number], obs, self.first[t, rows], mask)
                acted = self.policy.act(t, rows, inputs)
                self.carry_before[number], self.carry[number] = self.carry[number], acted.carry
                self._record_action(t, rows, acted.action)  # a copy: environments may write into this array
                host.send(number, acted.env_action)
        for number, rows in batches:
            self._receive(self.num_steps - 1, number, rows)

    def _receive(self, t: int, number: int, rows: slice) -> None:
        """Wait for step `t` of the batch `number` of environments, and record it, with V of final observations.

        V is computed where an episode was truncated. The batch has the streams `rows`, one agent in one environment
        each.
        """
        step = self.env.host.receive(number)
        for store, own, x in zip(self.obs, self.places[number], step.obs, strict=True):
            store[t + 1, own] = x
        self.first[t + 1, rows], self.reward[t, rows] = step.first, step.reward
        self.terminated[t, rows], self.truncated[t, rows] = step.terminated, step.truncated
        self.valid[t, rows], self.known[t, rows] = step.valid, True
        if self.turns:  # those that wait remember nothing
            self.carry[number] = hold_carry(self.env, step.valid, self.carry_before[number], self.carry[number])
        if self.mask is not None:

            def put(store: np.ndarray, mask: np.ndarray, own: slice) -> None:
                store[t + 1, own] = mask

            each_group(put, self.mask, step.mask, self.mask_places[number])
        if self.episode_stats is not None and step.episode_stats is not None:
            self.episode_stats.reward[t, rows], self.episode_stats.over[t, rows] = step.episode_stats
        if self.logged is not None:
            self.logged[t, rows] = step.logged
        for column, store in enumerate(self.metrics.values()):
            store[t, rows] = 0.0 if step.metrics is None else step.metrics[:, column]
        if step.final_obs is not None and (cut := step.truncated & ~step.terminated).any():
            for leaf in step.final_obs:
                if leaf.dtype.kind == "f" and not np.isfinite(leaf[cut]).all():
                    finite = np.isfinite(leaf).reshape(len(cut), -1).all(axis=-1)
                    row = int(np.argmax(cut & ~finite))
                    stream = stream_name(self.env, rows.start + row)
                    raise NotFiniteValue(f"{stream}, step {t}: its last observation is {not_finite_in(leaf[row])}")
            obs = element_of(self.env.observation_space, iter(step.final_obs))
            first = np.zeros(len(cut), bool)  # no reset gate: the carry belongs to the truncated episode
            mask = each_group(lambda x: np.ones_like(x[t, rows]), self.mask)  # without groups
            value = self.value_of(*self.parameters, PolicyInputs(self.carry[number], obs, first, mask))
            self.final_value[t, rows] = np.where(cut, value, 0.0)

    def _mask(self, t: int, number: int) -> PyTree:
        """Return the action masks of the batch `number` of environments at step `t`."""
        return each_group(lambda x, own: x[t, own], self.mask, self.mask_places[number])

    def _record_action(self, t: int, rows: slice, action: list[np.ndarray]) -> None:
        if not self.actions:
            tree = jax.tree.unflatten(self.policy.structure, action)
            whole = jax.tree.leaves(rows_like(self.env, tree, slice(0, self.env.num_streams)))
            self.actions = [
                np.empty((self.num_steps, own.stop, *leaf.shape[1:]), leaf.dtype)
                for own, leaf in zip(whole, action, strict=True)
            ]
            self.action_places = {one.start: jax.tree.leaves(rows_like(self.env, tree, one)) for one in self.batches}
            self.acted_by = streams_like(self.env, tree)
        for store, own, x in zip(self.actions, self.action_places[rows.start], action, strict=True):
            store[t, own] = x

    def _check(self) -> None:
        """Raise EnvError for recorded rewards or observations that are not finite, and masks that allow no action."""
        valid = self.valid & self.known
        wrong = {"reward": ~np.isfinite(self.reward) & (self.known if self.turns else valid)}
        given: dict[str, list[tuple[Any, Any]]] = {"reward": [(self.reward, slice(None))]}
        if self.episode_stats is not None:
            wrong["episode_stats"] = ~np.isfinite(self.episode_stats.reward) & self.known
            given["episode_stats"] = [(self.episode_stats.reward, slice(None))]
        for leaf, streams in zip(self.obs, self.seen_by, strict=True):
            if leaf.dtype.kind == "f":
                finite = np.isfinite(leaf[1:]).reshape(self.num_steps, leaf.shape[1], -1).all(axis=-1)
                places = wrong.setdefault("observation", np.zeros_like(self.known))
                places[:, streams] |= ~finite & self.known[:, streams]
                given.setdefault("observation", []).append((leaf[1:], streams))
        for name, places in wrong.items():
            if places.any():
                t, i = np.argwhere(places)[0]
                taken = zip(self.actions, (row_of_stream(streams, i) for streams in self.acted_by), strict=True)
                action = [x[t, row].tolist() for x, row in taken if row is not None]
                rows = [(x, row_of_stream(streams, i)) for x, streams in given[name]]
                value = not_finite_in(*(x[t, row] for x, row in rows if row is not None))
                raise NotFiniteValue(f"{stream_name(self.env, i)}, step {t}: its {name} is {value}, action {action}")
        for mask, streams in zip(jax.tree.leaves(self.mask), streams_like(self.env, self.mask), strict=True):
            # A mask may be empty in steps that ignore the action, such as autoreset steps
            empty = np.zeros_like(valid)
            empty[:, streams] = ~mask[:-1].any(axis=-1) & valid[:, streams]
            if empty.any():
                t, i = np.argwhere(empty)[0]
                raise EnvError(f"{stream_name(self.env, i)}: its action mask allows no action at step {t} of a rollout")

    def _rollout(self) -> HostRollout:
        def joined(parts: Sequence[PyTree]) -> PyTree:
            return jax.tree.map(lambda *x: np.concatenate(x), *parts)

        starts = list(zip(*self.carries, strict=True))
        carry = jax.tree.map(lambda *x: np.stack(x), *map(joined, starts)) if starts else no_carry(self.env)
        host = self.env.host
        rollout = HostRollout(
            obs=element_of(self.env.observation_space, iter(self.obs)),
            first=self.first,
            mask=self.mask,
            action=jax.tree.unflatten(self.policy.structure, self.actions),
            reward=self.reward,
            terminated=self.terminated,
            truncated=self.truncated,
            valid=self.valid,
            final_value=self.final_value if host.has_final_obs else None,
            episode_stats=self.episode_stats,
            carry=carry,
            last_carry=joined([jax.tree.map(np.asarray, carry) for carry in self.carry]),
            metrics=self.metrics,
            env_state=np.full(self.env.num_streams, host.position, np.uint32),
            logged=self.logged,
        )
        return self._decisions(rollout) if self.turns else rollout

    def _decisions(self, rollout: HostRollout) -> HostRollout:
        """Return a turn-based rollout with a row for each decision of a stream, instead of one for each step.

        A stream is one agent in one environment, and decides only in some of the T steps. Its decisions, each with the
        rewards until the stream's next one, are the first rows of the arrays [T, B]; the rows after them have `valid`
        False. Between them there is an invalid row after a truncated episode, with the episode's last observation.
        """
        rows = settle(rollout.reward, rollout.terminated, rollout.truncated, rollout.valid)
        played: Any = {name: getattr(rollout, name) for name in ("reward", "terminated", "truncated", "valid")}
        carry = rollout.carry
        if self.remembers:  # of every step and, as the last one, after them
            every = jax.tree.map(lambda x, last: np.concatenate([x, last[None]]), carry, rollout.last_carry)
            carry = rows_in_order(self.env, every, rows.order[:: self.length])

        def seen(tree: PyTree, decisions: PyTree) -> PyTree:
            """Return `decisions` with one more row, the last of `tree`: the observation after the last step."""
            return jax.tree.map(lambda x, row: np.concatenate([row, x[-1:]]), tree, decisions)

        first = rollout.first[rows.order, np.arange(rows.order.shape[1])]
        return rollout._replace(
            obs=seen(rollout.obs, rows_in_order(self.env, rollout.obs, rows.order)),
            first=seen(rollout.first, first),
            mask=seen(rollout.mask, rows_in_order(self.env, rollout.mask, rows.order)),
            action=rows_in_order(self.env, rollout.action, rows.order),
            reward=rows.reward,
            terminated=rows.terminated,
            truncated=rows.truncated,
            valid=rows.valid,
            carry=carry,
            played=Played(**played, first=rollout.first[:-1], until=rows.until),  # type: ignore[arg-type]
        )

    def _store(self, start: np.ndarray, num_steps: int) -> np.ndarray:
        """Return a new array [num_steps, B, ...] whose first row is `start`; its other rows are yet to be written."""
        store = np.empty((num_steps, *start.shape), start.dtype)
        store[0] = start
        return store
