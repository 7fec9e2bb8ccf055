"""Batch of environments that is one object of PyTorch: `step(tensor) -> tensors`, as GPU simulators have it.

Isaac Lab, ManiSkill, Genesis and their like step thousands of environments at once, restart those whose episode has
ended within the same step, and return tensors. `TensorBatch` makes such an object a `gymnasium.vector.VectorEnv` with
autoreset mode SAME_STEP. Tensors in the host's memory are not copied; those of a GPU cross to the host once a step.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from ppax.envs.hosting.faults import EnvError
from ppax.types import ConfigError

FINAL = ("final_obs", "final_observation")  # names of final observations in `info`: Gymnasium's, ManiSkill's
TIME_OUTS = "time_outs"  # flags of truncation in `info` where `step` returns one flag: rsl_rl's, Genesis'
FINAL_OBS = ("info", "previous")


class TensorBatch(VectorEnv):
    """Batch `env` of PyTorch as a vector environment: `ppax.envs.host(ppax.envs.TensorBatch(env))`.

    `env` has `num_envs`, `reset() -> (obs, info)` or obs, and `step(action) -> (obs, reward, terminated, truncated,
    info)`, or (obs, reward, done, info) with truncations in `info["time_outs"]`; tensors are [E, ...], observations may
    be dicts of them. Spaces are those of one environment: `env.single_observation_space` and
    `env.single_action_space` where they are not given.

    A step returns the first observation of the next episode where one has ended. For the value of a truncated episode
    its final observation is needed, in `info["final_obs"]` or `info["final_observation"]`. Simulators that have none
    (Isaac Lab, Genesis) need `final_obs = "previous"`: the observation before the last action stands in its place. This
    is an approximation, the one of rsl_rl, and wrong by as much as the value changes in one step.

    `info_metrics` are entries of `info` [E] that are logged at episode ends; pass them to `host`, too.
    """

    def __init__(
        self,
        env: Any,
        observation_space: spaces.Space | None = None,
        action_space: spaces.Space | None = None,
        final_obs: str = "info",
        info_metrics: Sequence[str] = (),
    ):
        if final_obs not in FINAL_OBS:
            raise ConfigError(f"final_obs = {final_obs!r}: must be one of {', '.join(map(repr, FINAL_OBS))}")
        self._torch, self._env, self._previous_stands_in = _torch(), env, final_obs == "previous"
        self.num_envs, self.metadata = int(env.num_envs), {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = _space(env, "observation_space", observation_space)
        self.single_action_space = _space(env, "action_space", action_space)
        self._read, self._obs = ("action_mask", *info_metrics), None
        self._device = getattr(env, "device", None)
        self._takes_seed = _takes(env.reset, "seed")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments; `seed` is passed on where `env.reset` takes one."""
        out = self._env.reset(seed=seed) if self._takes_seed else self._env.reset()
        obs, info = out if isinstance(out, tuple) and len(out) == 2 else (out, {})
        self._keep(obs)
        return self._host(obs), self._info(info)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments with actions [E, ...]."""
        out = self._env.step(_mapped(self._tensor, actions))
        if len(out) == 5:
            obs, reward, terminated, truncated, info = out
        else:
            obs, reward, done, info = out
            terminated, truncated = self._flags(done, info)
        reward, terminated, truncated = (self._array(x) for x in (reward, terminated, truncated))
        found = self._info(info)
        if np.any(terminated) or np.any(truncated):
            found["final_obs"] = self._final(info, obs, truncated)
        self._keep(obs)
        return self._host(obs), reward, terminated, truncated, found

    def close_extras(self, **options: Any) -> None:
        """Close the batch, if it can be closed."""
        getattr(self._env, "close", lambda: None)()

    def _tensor(self, x: np.ndarray) -> Any:
        return self._torch.from_numpy(np.array(x)).to(self._device)

    def _host(self, obs: Any) -> Any:
        return _mapped(self._array, obs)

    def _array(self, x: Any) -> np.ndarray:
        """Return a tensor as an array, without a copy if it lies in the host's memory."""
        return np.asarray(x.detach().cpu() if isinstance(x, self._torch.Tensor) else x)

    def _keep(self, obs: Any) -> None:
        """Keep a copy of the observation: the next step may overwrite its memory."""
        if self._previous_stands_in:
            self._obs = _mapped(lambda x: np.array(self._array(x)), obs)

    def _final(self, info: Mapping[str, Any], obs: Any, truncated: np.ndarray) -> Any:
        """Return final observations [E, ...], defined where an episode has ended."""
        if self._previous_stands_in:
            return self._obs
        given = next((info[name] for name in FINAL if name in info), None)
        if given is not None:
            return self._host(given)
        if np.any(truncated):
            raise EnvError(
                f"{self._env} truncates an episode and gives no {' or '.join(f'info[{x!r}]' for x in FINAL)}: the "
                "value of its final observation cannot be known. With TensorBatch(env, "
                'final_obs="previous") the observation before the last action stands in its place'
            )
        return self._host(obs)  # terminated: not used

    def _flags(self, done: Any, info: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return terminated and truncated from one flag and `info["time_outs"]`."""
        ended = self._array(done).astype(bool)
        if TIME_OUTS not in info:
            if ended.any():
                raise EnvError(
                    f'{self._env} returns one flag, and no info["{TIME_OUTS}"]: whether an episode has ended or was '
                    "cut by a time limit cannot be known. Return terminated and truncated, or that entry, zeros "
                    "without time limit"
                )
            return ended, np.zeros_like(ended)
        truncated = ended & self._array(info[TIME_OUTS]).astype(bool)
        return ended & ~truncated, truncated

    def _info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of `info` that are read, as arrays; those of the final step where it has its own."""
        found: dict[str, Any] = {name: self._array(info[name]) for name in self._read if name in info}
        final = info.get("final_info")
        if isinstance(final, Mapping):
            found["final_info"] = {name: self._array(final[name]) for name in self._read if name in final}
        return found


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to the leaves of dicts and tuples."""
    if isinstance(tree, Mapping):
        return {name: _mapped(function, x) for name, x in tree.items()}
    return tuple(_mapped(function, x) for x in tree) if isinstance(tree, tuple) else function(tree)


def _space(env: Any, name: str, given: spaces.Space | None) -> spaces.Space:
    space = getattr(env, f"single_{name}", None) if given is None else given
    if not isinstance(space, spaces.Space):
        raise ConfigError(
            f"{name}: {type(env).__name__} has no single_{name}; pass {name}=..., the space of one environment"
        )
    return space


def _takes(function: Any, name: str) -> bool:
    """Return whether a function takes an argument of this name."""
    parameters = inspect.signature(function).parameters.values()
    return any(x.name == name or x.kind is x.VAR_KEYWORD for x in parameters)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ImportError("TensorBatch steps environments of PyTorch: pip install torch") from error
