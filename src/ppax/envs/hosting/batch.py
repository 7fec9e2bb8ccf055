"""Several environments stepped one after the other, with next-step autoreset.

Nothing else of ppax is imported, but for arrays.py: worker processes load this file too.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, spaces

from ppax.envs.hosting.arrays import Arrays, Layout, element_of, flat_mask, leaves_of, misfits, undeclared

RAISED = (Exception, SystemExit)  # sys.exit() in an environment is a fault of it, and not the end of this process
NUMBERS = frozenset((float, int, np.float64, np.float32))  # types of a reward and of a flag that need no further look
FLAGS = frozenset((bool, np.bool_))


class Failure(Exception):
    """An environment raised an exception; `report` says which, when and how."""

    def __init__(self, index: int, verb: str, action: Any, cause: str):
        self.report = {"index": index, "verb": verb, "action": repr(action), "cause": cause}
        super().__init__(describe(self.report))


def describe(report: dict[str, Any]) -> str:
    """A failure as a message."""
    when = "reset" if report["verb"] == "reset" else f"step, action {report['action']}"
    return f"environment {report['index']} failed in {when}\n{report['cause']}"


def close_all(closing: Sequence[Callable[[], None]]) -> None:
    """Call `close` of every environment; an exception of one is printed: it hides no error before it."""
    for close in closing:
        try:
            close()
        except RAISED:
            print("an environment raised an exception in close():", file=sys.stderr)
            traceback.print_exc()


class EnvBatch:
    """Environments with numbers from `first` on, stepped in turn; `arrays` are those of their streams."""

    def __init__(self, factories: Sequence[Callable[[], Env]], first: int, layout: Layout, arrays: Arrays, worker: int):
        self.arrays, self.first, self.worker, self.layout = arrays, first, worker, layout
        self.leaves, self.action_space = list(leaves_of(layout.observation_space)), layout.action_space
        self.discrete = isinstance(layout.action_space, spaces.Discrete)
        self.plain = len(self.leaves) == 1 and not self.leaves[0].path
        self.axis = () if layout.agents is None else (layout.agents,)
        self.dtypes = [{leaf.given} for leaf in self.leaves]  # those seen to go into each leaf
        self.over = [False] * len(factories)
        count = len(factories)
        # where each environment's rows are: one, or one for each of its agents
        self.places: list[Any] = [i if layout.agents is None else layout.streams(slice(i, i + 1)) for i in range(count)]
        self.envs: list[Any] = []
        for i, factory in enumerate(factories):
            try:
                self.envs.append(factory())
            except RAISED:
                raise Failure(first + i, "reset", None, traceback.format_exc()) from None
            for name in ("observation_space", "action_space"):
                own, want = getattr(self.envs[-1], name), getattr(layout, name)
                if own != want:
                    text = f"its {name} is {own}; that of the first environment, {want}, must be that of all"
                    raise Failure(first + i, "reset", None, text)

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Begin an episode everywhere."""
        for i, seed in enumerate(seeds):
            self._begin(i, seed)
        self.arrays.at[self.worker] = -1

    def step(self) -> None:
        """One step everywhere; where an episode is over, the next one begins instead."""
        # this loop is what small environments cost beside their own step: what can be is looked up, or written, once
        arrays, envs, alone, once = self.arrays, self.envs, self.layout.agents is None, self.layout.repeats == 1
        rewards, terminations, truncations = arrays.reward, arrays.terminated, arrays.truncated
        over, places, at, write = self.over, self.places, arrays.at, self._write
        simple = (
            arrays.obs[0] if self.plain and alone and arrays.mask is None and arrays.episode_stats is None else None
        )
        shape, dtypes = self.leaves[0].shape, self.dtypes[0]
        if alone:
            arrays.begun[:], arrays.valid[:], terminations[:], truncations[:] = False, True, False, False
        for i, action in enumerate(self._actions()):
            if over[i]:
                self._begin(i, None)
                continue
            at[self.worker], place = self.first + i, places[i]
            try:
                obs, reward, terminated, truncated, info = envs[i].step(action) if once else self._repeated(i, action)
                if simple is None:
                    if not self._fits(obs):
                        self._look(i, obs, "step", action)
                    write(i, obs, info, "step", action)
                else:  # the same, without the calls
                    if type(obs) is not np.ndarray or obs.shape != shape or obs.dtype not in dtypes:
                        self._look(i, obs, "step", action)
                    if "action_mask" in info or "episode_stats" in info:
                        self._declared(i, info, "step", action)
                    simple[place] = obs
                if alone and not (type(reward) in NUMBERS and type(terminated) in FLAGS and type(truncated) in FLAGS):
                    self._scalars(i, action, reward=reward, terminated=terminated, truncated=truncated)
                rewards[place] = reward
                if not alone:
                    terminations[place], truncations[place] = terminated, truncated
                    arrays.begun[place], arrays.valid[place], over[i] = info["begun"], info["valid"], info["over"]
                elif terminated or truncated:
                    terminations[place], truncations[place], over[i] = terminated, truncated, True
            except Failure:
                raise
            except RAISED:
                raise Failure(self.first + i, "step", action, traceback.format_exc()) from None
        arrays.at[self.worker] = -1

    def close(self) -> None:
        """Close every environment; one that fails to close holds up none of the others."""
        close_all([env.close for env in self.envs])

    def _repeated(self, i: int, action: Any) -> Any:
        """The action as often as it is to be taken, to the end of an episode at most."""
        out = self.envs[i].step(action)
        for _ in range(self.layout.repeats - 1):
            _, reward, terminated, truncated, info = out
            if np.any(terminated) or np.any(truncated) or np.any(info.get("begun", False)):
                break
            obs, more, terminated, truncated, later = self.envs[i].step(action)
            if "episode_stats" in info:
                later = later | {
                    "episode_stats": (info["episode_stats"][0] + later["episode_stats"][0], later["episode_stats"][1])
                }
            out = obs, reward + more, terminated, truncated, later
        return out

    def _begin(self, i: int, seed: int | None) -> None:
        arrays, place = self.arrays, self.places[i]
        arrays.at[self.worker] = self.first + i
        try:
            obs, info = self.envs[i].reset(seed=seed)
            self._look(i, obs, "reset", None)
            self._write(i, obs, info, "reset", None)
            arrays.reward[place], arrays.terminated[place], arrays.truncated[place] = 0.0, False, False
            arrays.begun[place], arrays.valid[place] = info.get("begun", True), False
        except Failure:
            raise
        except RAISED:
            raise Failure(self.first + i, "reset", None, traceback.format_exc()) from None
        self.over[i] = False

    def _look(self, i: int, obs: Any, verb: str, action: Any) -> None:
        """Failure where the observation does not go into its space: NumPy would broadcast it without a word."""
        for problem in misfits(self.layout.observation_space, obs, "its observation", self.axis):
            raise Failure(self.first + i, verb, action, problem)
        for leaf, dtypes in zip(self.leaves, self.dtypes, strict=True):
            dtypes.add(np.asarray(leaf.of(obs)).dtype)

    def _fits(self, obs: Any) -> bool:
        """Whether the observation certainly goes into its space; where this says no, `_look` decides."""
        for leaf, dtypes in zip(self.leaves, self.dtypes, strict=True):
            x = leaf.of(obs)
            if type(x) is int and leaf.given.kind in "iu" and not (leaf.shape or self.axis):
                continue
            if getattr(x, "shape", None) != (*self.axis, *leaf.shape) or x.dtype not in dtypes:
                return False
        return True

    def _scalars(self, i: int, action: Any, **given: Any) -> None:
        """Failure where reward or flags are not single real numbers."""
        for name, x in given.items():
            array = np.asarray(x)
            if array.shape != () or array.dtype.kind not in "fiub":
                text = f"its {name} is {array.dtype}{list(array.shape)}: {x!r}; it must be one number"
                raise Failure(self.first + i, "step", action, text)

    def _declared(self, i: int, info: dict[str, Any], verb: str, action: Any) -> None:
        """Failure where masks or tallies come in some infos only: the arrays have a place for them or not."""
        for problem in undeclared(info, self.arrays.mask is not None, self.arrays.episode_stats is not None):
            raise Failure(self.first + i, verb, action, problem)

    def _write(self, i: int, obs: Any, info: dict[str, Any], verb: str, action: Any) -> None:
        arrays, place = self.arrays, self.places[i]
        self._declared(i, info, verb, action)
        if self.plain:
            arrays.obs[0][place] = obs
        else:
            for leaf, array in zip(self.leaves, arrays.obs, strict=True):
                array[place] = leaf.of(obs)
        if arrays.mask is not None:
            mask, size = info["action_mask"], arrays.mask.shape[1]
            arrays.mask[place] = (
                flat_mask(mask, size) if not self.axis else np.stack([flat_mask(one, size) for one in mask])
            )
        if arrays.episode_stats is not None:
            arrays.episode_stats.reward[place], arrays.episode_stats.over[place] = info["episode_stats"]

    def _actions(self) -> Iterator[Any]:
        """What each environment is to do; a list, one for each agent, where there are several."""
        if self.discrete:
            each = iter(self.arrays.action[0].tolist())  # as one steps by hand; to check them is cheaper, too
        elif isinstance(self.action_space, spaces.Box):
            each = iter(self.arrays.action[0].copy())  # an environment may keep what it is given
        else:
            rows = zip(*(array.copy() for array in self.arrays.action), strict=True)
            each = (element_of(self.action_space, iter(row)) for row in rows)
        if self.layout.agents is None:
            return each
        return ([next(each) for _ in range(self.layout.agents)] for _ in self.envs)
