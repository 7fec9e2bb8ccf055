"""Batch of environments that is one object of PyTorch: `step(tensor) -> tensors`, as GPU simulators have it.

Isaac Lab, ManiSkill, Genesis and their like step thousands of environments at once, restart those whose episode has
ended within the same step, and return tensors. `TensorBatch` makes such an object a `gymnasium.vector.VectorEnv` with
autoreset mode SAME_STEP. In training on a GPU, JAX and PyTorch read each other's memory by DLPack; tensors of the CPU
are read as NumPy arrays. Neither way copies data.
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from ppax.core.types import ConfigError
from ppax.envs.hosting.arrays import element_of, leaves_of
from ppax.envs.hosting.conventions import METHOD, has_mask_entry
from ppax.envs.hosting.faults import RAISED, EnvError
from ppax.envs.hosting.stepper import TensorStep
from ppax.envs.settings import checked_metrics

FINAL = ("final_obs", "final_observation")  # names of final observations in `info`: Gymnasium's, ManiSkill's
TIME_OUTS = "time_outs"  # flags of truncation in `info` where `step` returns one flag: rsl_rl's, Genesis'
FINAL_OBS = ("info", "previous")
EXCHANGES = ("auto", "dlpack", "numpy")
NO_FINAL_OBS = (
    f"an episode is truncated without {' or '.join(f'info[{x!r}]' for x in FINAL)}: the value of its final observation "
    'cannot be known. With TensorBatch(env, final_obs="previous") the observation before the last action stands in its '
    "place"
)


class TensorBatch(VectorEnv):
    """Batch `env` of PyTorch as a vector environment: `ppax.envs.host(ppax.envs.TensorBatch(env))`.

    `env` has `num_envs` (E), `reset() -> (obs, info)` or obs, and `step(action) -> (obs, reward, terminated, truncated,
    info)`, or (obs, reward, done, info) with truncations in `info["time_outs"]`; tensors are [E, ...], observations may
    be dicts of them. Spaces are those of one environment: `env.single_observation_space` and `env.single_action_space`
    where they are not given.

    A step returns the first observation of the next episode where one has ended. For the value of a truncated episode
    its final observation is needed, in `info["final_obs"]` or `info["final_observation"]`. Simulators that have none
    (Isaac Lab, Genesis) need `final_obs = "previous"`: the observation before the last action stands in its place. This
    is an approximation, the one of rsl_rl, and wrong by as much as the value changes in one step.

    `info_metrics` are entries of `info` [E] that are logged at episode ends; pass them to `host`, too.

    With `exchange = "dlpack"` training acts, records and updates on the device of the tensors (`env.device`), which JAX
    must use too; with "numpy" it steps through the host's memory, as evaluations always do. "auto" is "dlpack" on a GPU
    that JAX uses, and "numpy" elsewhere.
    """

    def __init__(
        self,
        env: Any,
        observation_space: spaces.Space | None = None,
        action_space: spaces.Space | None = None,
        final_obs: str = "info",
        info_metrics: Sequence[str] = (),
        exchange: str = "auto",
    ):
        for name, given, allowed in (("final_obs", final_obs, FINAL_OBS), ("exchange", exchange, EXCHANGES)):
            if given not in allowed:
                raise ConfigError(f"{name} = {given!r}: must be one of {', '.join(map(repr, allowed))}")
        self._torch, self._env, self._previous_stands_in = _torch(), env, final_obs == "previous"
        self.num_envs, self.metadata = int(env.num_envs), {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = _space(env, "observation_space", observation_space)
        self.single_action_space = _space(env, "action_space", action_space)
        self._read, self._obs = ("action_mask", *(checked_metrics(info_metrics) or ())), None
        self._device = getattr(env, "device", None)
        self._takes_seed = _takes(env.reset, "seed")
        self.on_device = self._shares_device(exchange)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return observations and info after a reset of all environments.

        `seed` is passed on where `env.reset` takes one.
        """
        out = self._env.reset(seed=seed) if self._takes_seed else self._env.reset()
        obs, info = out if isinstance(out, tuple) and len(out) == 2 else (out, {})
        self._keep(obs)
        return self._host(obs), self._info(self._with_mask(obs, info))

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return the result of one step of all E environments, through the host's memory; actions are [E, ...]."""
        out = self._stepped(_mapped(lambda x: self._torch.from_numpy(np.array(x)).to(self._device), actions))
        obs, reward, terminated, truncated, info = out
        reward, terminated, truncated = (self._array(x) for x in (reward, terminated, truncated))
        found = self._info(info)
        if np.any(terminated) or np.any(truncated):
            final = self._final(info)
            if final is None and np.any(truncated):
                raise EnvError(f"{self._env} failed in step: {NO_FINAL_OBS}")
            found["final_obs"] = self._host(obs if final is None else final)  # terminated: not used
        self._keep(obs)
        return self._host(obs), reward, terminated, truncated, found

    def exchange(self, action: Sequence[jax.Array], metrics: Sequence[str]) -> TensorStep:
        """Return the result of one step of all E environments on their device, as JAX arrays in the simulator's memory.

        `action` has one array [E, ...] for each array of the action space; `metrics` are entries of `info` to log. A
        call returns before the simulator has computed: on the device, PyTorch's queue of work waits for the actions,
        and JAX's queue for the result.

        The next call overwrites the arrays of this result as soon as its `action` is computed. A program that reads
        them must be finished by then: compute the next `action` from the results of all such programs. Training has
        one, which copies the arrays.
        """
        space = self.single_action_space
        # copied only for spaces of 64 bits: JAX's actions have 32
        dtypes = (self._torch.from_numpy(np.empty(0, leaf.space_dtype)).dtype for leaf in leaves_of(space))
        given = (self._torch.from_dlpack(x).to(dtype) for x, dtype in zip(action, dtypes, strict=True))
        try:
            obs, reward, terminated, truncated, info = self._stepped(element_of(space, given))
        except RAISED:
            raise EnvError(f"{self._env} failed in step\n{traceback.format_exc()}") from None
        of_end = info["final_info"] if isinstance(info.get("final_info"), Mapping) else info
        logged = [of_end[name] for name in metrics if name in of_end]
        if len(logged) < len(metrics) and bool(
            (self._tensor(terminated).bool() | self._tensor(truncated).bool()).any()
        ):
            missing = next(name for name in metrics if name not in of_end)
            raise EnvError(f'{self._env} failed in step: info["{missing}"] is missing at the end of an episode')
        known = logged if len(logged) == len(metrics) else []
        tensors = (obs, reward, terminated, truncated, info.get("action_mask"), self._final(info), tuple(known))
        borrowed: list[Any] = [None if x is None else _mapped(self._borrowed, x) for x in tensors]
        self._keep(obs)
        return TensorStep(*borrowed)

    def close_extras(self, **options: Any) -> None:
        """Close the simulator, if it has a method `close`."""
        getattr(self._env, "close", lambda: None)()

    def _stepped(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return observation, reward, terminated, truncated and info of a step of the simulator, in its tensors."""
        out = self._env.step(actions)
        if len(out) == 5:
            obs, reward, terminated, truncated, info = out
            return obs, reward, terminated, truncated, self._with_mask(obs, info)
        obs, reward, done, info = out
        return obs, reward, *self._flags(done, info), self._with_mask(obs, info)

    def _with_mask(self, obs: Any, info: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return `info` with the action mask, also where the simulator has it outside of `info`.

        That is in a method action_masks() or in an entry of `obs`. Without a mask `info` is returned unchanged.
        """
        if "action_mask" not in info and callable(method := getattr(self._env, METHOD, None)):
            return {**info, "action_mask": method()}
        if "action_mask" not in info and has_mask_entry(self.single_observation_space, self.single_action_space):
            return {**info, "action_mask": obs["action_mask"]}
        return info

    def _tensor(self, x: Any) -> Any:
        return self._torch.as_tensor(x, device=self._device).detach()

    def _host(self, obs: Any) -> Any:
        return _mapped(self._array, obs)

    def _array(self, x: Any) -> np.ndarray:
        """Return a tensor as a NumPy array, without a copy if it lies in the host's memory."""
        return np.asarray(x.detach().cpu() if isinstance(x, self._torch.Tensor) else x)

    def _borrowed(self, x: Any) -> jax.Array:
        """Return a tensor as an array of JAX in the same memory; copied if it is not contiguous or has 64 bits."""
        return jax.dlpack.from_dlpack(self._tensor(x).contiguous())

    def _keep(self, obs: Any) -> None:
        """Keep a copy of the observations `obs` if they are to stand in for the final observations of the next step.

        That step may overwrite `obs` itself. Nothing is kept where the simulator gives final observations.
        """
        if self._previous_stands_in:
            self._obs = _mapped(lambda x: self._tensor(x).clone(), obs)

    def _final(self, info: Mapping[str, Any]) -> Any:
        """Return final observations [E, ...] of E environments; None if the simulator gives none.

        They have meaning only where an episode has ended. With `final_obs = "previous"` they are the observations
        before the last action.
        """
        if self._previous_stands_in:
            return self._obs
        return next((info[name] for name in FINAL if name in info), None)

    def _flags(self, done: Any, info: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return terminated and truncated, [E] each for E environments, from one flag and `info["time_outs"]`.

        Raises EnvError where an episode ends and `info` has no such entry.
        """
        ended = self._tensor(done).bool()
        if TIME_OUTS not in info:
            if bool(ended.any()):
                raise EnvError(
                    f'{self._env} returns one flag, and no info["{TIME_OUTS}"]: whether an episode has ended or was '
                    "cut by a time limit cannot be known. Return terminated and truncated, or that entry, zeros "
                    "without time limit"
                )
            return ended, ended
        truncated = ended & self._tensor(info[TIME_OUTS]).bool()
        return ended & ~truncated, truncated

    def _shares_device(self, exchange: str) -> bool:
        """Return whether the simulator's tensors and JAX's arrays are exchanged by DLPack; False: through NumPy arrays.

        `exchange` is "dlpack", "numpy" or "auto". Raises ConfigError where "dlpack" is asked for and impossible.
        """
        tensor = self._torch.zeros(1, device=self._device)
        # JAX would read 2^32 + 7 as 7
        wide = any(leaf.wide for leaf in leaves_of(self.single_observation_space))
        if wide and exchange == "dlpack":
            raise ConfigError(
                f"exchange = 'dlpack': the bounds of {self.single_observation_space} exceed 32 bits, which JAX has; "
                "nearest valid value: 'numpy', or give the space bounds that hold"
            )
        if wide or exchange == "numpy" or (exchange == "auto" and tensor.device.type == "cpu"):
            return False
        here = jax.local_devices()[0]
        try:
            shared = jax.dlpack.from_dlpack(tensor).device == here
        except (RuntimeError, TypeError, BufferError):  # JAX has no plugin for this kind of device
            shared = False
        if exchange == "dlpack" and not shared:
            raise ConfigError(
                f"exchange = 'dlpack': the tensors are on {tensor.device} and JAX computes on {here}; install JAX for "
                "that device (CUDA_VISIBLE_DEVICES chooses among several), or use 'numpy'"
            )
        return shared

    def _info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return, from `info`, the action mask and the entries that are logged, as NumPy arrays.

        If `info` has "final_info", in which simulators keep the entries of an episode's last step, the result has it,
        too.
        """
        found: dict[str, Any] = {name: self._host(info[name]) for name in self._read if name in info}
        final = info.get("final_info")
        if isinstance(final, Mapping):
            found["final_info"] = {name: self._array(final[name]) for name in self._read if name in final}
        return found


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of dicts and tuples with `function` applied to its leaves."""
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
    """Return whether `function` has an argument called `name`, or takes any named argument (`**kwargs`)."""
    parameters = inspect.signature(function).parameters.values()
    return any(x.name == name or x.kind is x.VAR_KEYWORD for x in parameters)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ImportError("TensorBatch steps environments of PyTorch: pip install torch") from error
