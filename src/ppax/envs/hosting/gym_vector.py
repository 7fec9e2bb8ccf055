"""Stepper of a `gymnasium.vector.VectorEnv` in any of Gymnasium's three autoreset modes.

https://farama.org/Vector-Autoreset-Mode. The mode is read from the environment, never assumed: vector entry points
choose their own mode, whatever the caller requested.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ppax.core.types import ConfigError
from ppax.envs.hosting.arrays import (
    EpisodeStats,
    Leaf,
    MaskForm,
    element_of,
    leaves_of,
    metrics_of,
    number_mismatches,
    space_mismatches,
    undeclared,
)
from ppax.envs.hosting.faults import RAISED, EnvError, close_all
from ppax.envs.hosting.stepper import HostStep


class GymVectorStepper:
    """Stepper of all environments of a Gymnasium `vector`, as one batch: it runs them and returns their results.

    `mask_size` is the number of entries of an action mask, None without masks. `has_episode_stats` says whether `info`
    has separate rewards for logs. `metrics` are entries of `info` that are logged.
    """

    def __init__(
        self, vector: VectorEnv, mask_size: int | None, has_episode_stats: bool = False, metrics: tuple[str, ...] = ()
    ):
        self.vector, self.mask_size, self.metrics = vector, mask_size, metrics
        self.has_episode_stats = has_episode_stats
        self.batches = (slice(0, vector.num_envs),)
        self._mode = autoreset_mode_of(vector)
        self.has_final_obs = self._mode is not AutoresetMode.NEXT_STEP
        self._leaves = list(leaves_of(vector.single_observation_space))
        self._action_dtypes = [leaf.space_dtype for leaf in leaves_of(vector.single_action_space)]
        self._form = None if mask_size is None else MaskForm(vector.single_action_space)
        self._over, self._steps = np.zeros(vector.num_envs, bool), 0
        self._latest = np.zeros((vector.num_envs, len(metrics)), np.float32)  # metrics of each environment's last end
        self._result: HostStep | None = None

    def reset(self, seeds: Sequence[int]) -> None:
        """Reset all environments of the vector with one seed, the first of `seeds`; `receive` returns the result."""
        self._steps = 0
        obs, info = self._call("reset", seed=int(seeds[0]))  # not every vector environment accepts a list
        none = np.zeros(self.vector.num_envs, bool)
        self._over = none
        self._check_info(info, "reset")
        self._result = HostStep(
            obs=self._leaves_of(obs),
            reward=none.astype(np.float32),
            terminated=none,
            truncated=none,
            first=~none,
            valid=none,
            mask=self._mask(info),
            episode_stats=self._stats_of(info, none),
        )

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Step all E environments of the vector; `receive` returns the result.

        Environments whose episode has ended are reset as the vector's autoreset mode says. `number` is that of the only
        batch, 0. `action` has one array [E, ...] for each array of the action space.
        """
        self._steps += 1
        # a copy: the environments may write into it
        given = (np.array(x, dtype) for x, dtype in zip(action, self._action_dtypes, strict=True))
        tree = element_of(self.vector.single_action_space, given)
        obs, reward, terminated, truncated, info = self._call("step", tree)
        self._check_info(info, "step")
        for name, x in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
            if np.shape(x) != self._over.shape or np.asarray(x).dtype.kind not in "fiub":
                raise EnvError(
                    f"{self.vector} failed in {self._when}: its {name} is {x!r}; it must be {self._over.size} numbers"
                )
        resetting = self._over  # environments that this step resets; only in NEXT_STEP
        terminated, truncated = (np.asarray(x, bool) & ~resetting for x in (terminated, truncated))
        ended = terminated | truncated
        first, final, leaves, mask = resetting, None, self._leaves_of(obs), self._mask(info)
        episode_stats = self._stats_of(info, ended)
        metrics = self._metrics_of(info, ended, ended if episode_stats is None else episode_stats.over)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._over = ended
        else:
            first = ended
            if ended.any():
                if self._mode is AutoresetMode.DISABLED:
                    final = [leaf.copy() for leaf in leaves]  # a reset may overwrite them
                    obs, info = self._call("reset", options={"reset_mask": ended})
                    self._check_info(info | {"episode_stats": ()} if self.has_episode_stats else info, "reset")
                    leaves, mask = self._leaves_of(obs), self._mask(info, mask)
                    if episode_stats is not None and isinstance(info.get("episode_stats"), tuple):
                        _, begun = info["episode_stats"]  # of recorders that see the end of an episode here
                        episode_stats = EpisodeStats(episode_stats.reward, episode_stats.over | begun)
                else:
                    final = self._final(info, leaves, ended)
        self._result = HostStep(
            obs=leaves,
            reward=np.where(resetting, 0.0, np.asarray(reward, np.float32)),
            terminated=terminated,
            truncated=truncated,
            first=first,
            valid=~resetting,
            mask=mask,
            final_obs=final,
            episode_stats=episode_stats,
            metrics=metrics,
        )

    def receive(self, number: int) -> HostStep:
        """Return the result of the vector's last step or reset; `number` is that of the only batch, 0."""
        assert self._result is not None
        return self._result

    def close(self) -> None:
        """Close the environments of the vector, also during a step."""
        known = hasattr(self.vector.unwrapped, "processes")  # only vectors with processes accept `terminate`
        close_all([partial(self.vector.close, terminate=True) if known else self.vector.close])

    @property
    def _when(self) -> str:
        """Name of the last call for errors: "reset", or, for example, "step 3" for the third step after the reset."""
        return f"step {self._steps}" if self._steps else "reset"

    def _call(self, verb: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(self.vector, verb)(*arguments, **named)
        except RAISED:
            when = f"{self._when}, actions {arguments[0]!r}" if arguments else verb
            raise EnvError(f"{self.vector} failed in {when}\n{traceback.format_exc()}") from None

    def _check_info(self, info: dict[str, Any], verb: str) -> None:
        for problem in undeclared(info, self.mask_size is not None, self.has_episode_stats):
            raise EnvError(f"{self.vector} failed in {self._when if verb == 'step' else verb}: {problem}")

    def _leaves_of(self, obs: Any) -> list[np.ndarray]:
        space, axis = self.vector.single_observation_space, (self.vector.num_envs,)
        for problem in space_mismatches(space, obs, "its observation", axis):
            raise EnvError(f"{self.vector} failed in {self._when}: {problem}")
        arrays = [np.asarray(leaf.of(obs)) for leaf in self._leaves]
        return [self._stored(leaf, x) for leaf, x in zip(self._leaves, arrays, strict=True)]

    def _stored(self, leaf: Leaf, x: np.ndarray) -> np.ndarray:
        """Return `x` [E, ...], an array of the observations of E environments, in the dtype that training has for it.

        `leaf` describes the array: its bounds and this dtype, which has 32 bits where the environment's has 64. Raises
        EnvError for numbers outside of the bounds of the space.
        """
        for problem in number_mismatches(leaf, x, "its observation"):
            raise EnvError(f"{self.vector} failed in {self._when}: {problem}")
        return x.astype(leaf.dtype, copy=False)

    def _final(self, info: dict[str, Any], leaves: list[np.ndarray], ended: np.ndarray) -> list[np.ndarray]:
        """Return arrays `leaves` [E, ...] with final observations for those of E environments that have `ended` [E].

        In autoreset mode SAME_STEP final observations are in `info`: one element for each environment, or one batch.
        Raises EnvError if `info` has none.
        """
        final = info.get("final_obs")
        if final is None:
            raise EnvError(f'{self.vector} has autoreset mode SAME_STEP and gives no info["final_obs"]')
        batched = isinstance(final, dict | tuple)
        filled = [np.array(leaf) for leaf in leaves]
        for leaf, array in zip(self._leaves, filled, strict=True):
            for i in np.flatnonzero(ended):
                array[i] = self._stored(leaf, np.asarray(leaf.of(final)[i] if batched else leaf.of(final[i])))
        return filled

    def _mask(self, info: dict[str, Any], before: np.ndarray | None = None) -> np.ndarray | None:
        if self.mask_size is None or self._form is None:
            return None
        masks = np.ones((self.vector.num_envs, self.mask_size), bool) if before is None else before
        given, present = info["action_mask"], info.get("_action_mask", np.ones(len(masks), bool))
        if before is None and not np.all(present):
            raise EnvError(f'environment {int(np.argmin(present))} of {self.vector} gives no info["action_mask"]')
        for i in np.flatnonzero(present):
            try:
                masks[i] = self._form(given[i])
            except ValueError as error:
                raise EnvError(f"environment {i} of {self.vector} failed in {self._when}: {error}") from None
        return masks

    def _stats_of(self, info: dict[str, Any], ended: np.ndarray) -> EpisodeStats | None:
        """Return rewards and episode ends for logs, [E] each for E environments; None if logs use the same as learning.

        `info["episode_stats"]` has them as two arrays or, in Gymnasium's vectors, as one pair for each environment.
        """
        if not self.has_episode_stats:
            return None
        given = info["episode_stats"]
        if isinstance(given, tuple):
            return EpisodeStats(*given)
        # SAME_STEP: belongs to the step, not to the reset after it
        final = info.get("final_info", {}).get("episode_stats")
        pairs = [final[i] if ended[i] and final is not None else given[i] for i in range(len(ended))]
        return EpisodeStats(
            np.array([pair[0] for pair in pairs], np.float32), np.array([pair[1] for pair in pairs], bool)
        )

    def _metrics_of(self, info: dict[str, Any], ended: np.ndarray, over: np.ndarray) -> np.ndarray:
        """Return the k entries of `info` that are logged at episode ends, [E, k] for E environments.

        They are those of each environment's last end of an episode. Where an episode has `ended` [E], but is not `over`
        [E] for the recorder inside of the environment, they are NaN if `info` lacks them: either the end was the loss
        of a life, or the recorder reports it at the next reset.
        """
        found = self._latest
        given = info.get("final_info", info)  # SAME_STEP: belongs to the step, not to the reset after it
        for i in np.flatnonzero(ended) if self.metrics else ():
            known = {x: given[x][i] for x in self.metrics if x in given and given.get(f"_{x}", ended)[i]}
            try:
                found[i] = metrics_of(known, self.metrics)
            except ValueError as error:
                if over[i]:
                    raise EnvError(f"environment {i} of {self.vector} failed in {self._when}: {error}") from None
                found[i] = np.nan
        return found.copy()


def autoreset_mode_of(vector: VectorEnv) -> AutoresetMode:
    """Return the autoreset mode of `vector`; ConfigError if it declares none."""
    # Gymnasium's own vectors have an attribute. Their metadata are shared with the environment's class, where a later
    # vector of the same class overwrites the mode
    mode = getattr(vector.unwrapped, "autoreset_mode", None)
    if isinstance(mode, AutoresetMode):
        return mode
    metadata = vector.metadata or {}
    mode = metadata.get("autoreset_mode")
    if isinstance(mode, AutoresetMode):
        return mode
    raise ConfigError(
        f"{vector}: its metadata, {metadata}, do not say how it begins the next episode: set "
        'env.metadata["autoreset_mode"] to the gymnasium.vector.AutoresetMode that it has'
    )
