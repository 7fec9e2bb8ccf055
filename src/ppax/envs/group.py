"""Several environments stepped one after the other, with next-step autoreset.

Nothing else of ppax is imported, but for arrays.py: worker processes load this file too.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, spaces

from ppax.envs.arrays import Arrays, Layout, element_of, flat_mask, leaves_of, misfits

LOOKS = 2  # how often an environment is compared with its spaces: at its first reset and its first step


class Failure(Exception):
    """An environment raised an exception; `report` says which, when and how."""

    def __init__(self, index: int, verb: str, action: Any, cause: str):
        self.report = {"index": index, "verb": verb, "action": repr(action), "cause": cause}
        super().__init__(describe(self.report))


def describe(report: dict[str, Any]) -> str:
    """A failure as a message."""
    when = "reset" if report["verb"] == "reset" else f"step, action {report['action']}"
    return f"environment {report['index']} failed in {when}\n{report['cause']}"


class Group:
    """Environments with numbers from `first` on, stepped in turn; `arrays` are those of their streams."""

    def __init__(self, factories: Sequence[Callable[[], Env]], first: int, layout: Layout, arrays: Arrays, worker: int):
        self.arrays, self.first, self.worker, self.layout = arrays, first, worker, layout
        self.leaves, self.action_space = list(leaves_of(layout.observation_space)), layout.action_space
        self.discrete = isinstance(layout.action_space, spaces.Discrete)
        self.plain = len(self.leaves) == 1 and not self.leaves[0].path
        self.over, self.looks = [False] * len(factories), [LOOKS] * len(factories)
        count = len(factories)
        # where each environment's rows are: one, or one for each of its agents
        self.places: list[Any] = [i if layout.agents is None else layout.streams(slice(i, i + 1)) for i in range(count)]
        self.envs: list[Any] = []
        for i, factory in enumerate(factories):
            try:
                self.envs.append(factory())
            except Exception:
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
        over, looks, places, at, write = self.over, self.looks, self.places, arrays.at, self._write
        simple = arrays.obs[0] if self.plain and arrays.mask is None and arrays.tally is None else None
        if alone:
            arrays.begun[:], arrays.valid[:], terminations[:], truncations[:] = False, True, False, False
        for i, action in enumerate(self._actions()):
            if over[i]:
                self._begin(i, None)
                continue
            at[self.worker], place = self.first + i, places[i]
            try:
                obs, reward, terminated, truncated, info = envs[i].step(action) if once else self._repeated(i, action)
                if looks[i]:
                    self._look(i, obs, "step", action)
                if simple is None:
                    write(place, obs, info)
                else:
                    simple[place] = obs
                rewards[place] = reward
                if not alone:
                    terminations[place], truncations[place] = terminated, truncated
                    arrays.begun[place], arrays.valid[place], over[i] = info["begun"], info["valid"], info["over"]
                elif terminated or truncated:
                    terminations[place], truncations[place], over[i] = terminated, truncated, True
            except Failure:
                raise
            except Exception:
                raise Failure(self.first + i, "step", action, traceback.format_exc()) from None
        arrays.at[self.worker] = -1

    def close(self) -> None:
        """Close every environment; one that fails to close holds up none of the others."""
        for env in self.envs:
            try:
                env.close()
            except Exception:
                traceback.print_exc()

    def _repeated(self, i: int, action: Any) -> Any:
        """The action as often as it is to be taken, to the end of an episode at most."""
        out = self.envs[i].step(action)
        for _ in range(self.layout.repeats - 1):
            _, reward, terminated, truncated, info = out
            if np.any(terminated) or np.any(truncated) or np.any(info.get("begun", False)):
                break
            obs, more, terminated, truncated, later = self.envs[i].step(action)
            if "tally" in info:
                later = later | {"tally": (info["tally"][0] + later["tally"][0], later["tally"][1])}
            out = obs, reward + more, terminated, truncated, later
        return out

    def _begin(self, i: int, seed: int | None) -> None:
        arrays, place = self.arrays, self.places[i]
        arrays.at[self.worker] = self.first + i
        try:
            obs, info = self.envs[i].reset(seed=seed)
            if self.looks[i]:
                self._look(i, obs, "reset", None)
            self._write(place, obs, info)
            arrays.reward[place], arrays.terminated[place], arrays.truncated[place] = 0.0, False, False
            arrays.begun[place], arrays.valid[place] = info.get("begun", True), False
        except Failure:
            raise
        except Exception:
            raise Failure(self.first + i, "reset", None, traceback.format_exc()) from None
        self.over[i] = False

    def _look(self, i: int, obs: Any, verb: str, action: Any) -> None:
        """Whether the observation is one: afterwards this is not asked again."""
        axis = () if self.layout.agents is None else (self.layout.agents,)
        for problem in misfits(self.layout.observation_space, obs, "its observation", axis):
            raise Failure(self.first + i, verb, action, problem)
        self.looks[i] -= 1

    def _write(self, place: Any, obs: Any, info: dict[str, Any]) -> None:
        arrays = self.arrays
        if self.plain:
            arrays.obs[0][place] = obs
        else:
            for leaf, array in zip(self.leaves, arrays.obs, strict=True):
                array[place] = leaf.of(obs)
        if arrays.mask is not None:
            mask = info["action_mask"]
            arrays.mask[place] = flat_mask(mask) if self.layout.agents is None else mask
        if arrays.tally is not None:
            arrays.tally.reward[place], arrays.tally.over[place] = info["tally"]

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
