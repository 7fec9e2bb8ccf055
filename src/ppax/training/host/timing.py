"""Timer of training on host environments: how long the stages of its loop take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ppax.core.protocols import Agent
from ppax.core.types import Key, LearnerState
from ppax.envs import HostEnv
from ppax.envs.hosting.stepper import HostStep, Stepper
from ppax.training.host.policy import HostPolicy, PolicyInputs, PolicyOutputs
from ppax.training.host.training import HostTraining

STAGES = ("stepping", "policy", "transfer", "update")


class Clock:
    """Timer of the stages of `training` on `env`, in seconds since its creation or `restart`.

    "stepping" and "update" are the times that the loop waits for environments and for updates. So "stepping" excludes
    what worker processes do during policy inference, and with `overlap` "update" excludes what updates do during
    stepping. "policy" is policy inference, "transfer" the copying of rollouts to the device. Time in none of these
    stages counts as "recording".
    """

    def __init__(self, training: HostTraining, env: HostEnv):
        self.seconds = dict.fromkeys(STAGES, 0.0)
        put, program = training.put, training.program
        training.policy = _TimedPolicy(training.policy, self)
        training.put = self.around("transfer", lambda *given: jax.block_until_ready(jax.device_put(put(*given))))
        training.reached = self.around("update", training.reached)
        # with `overlap` an update runs during stepping, and `reached` waits for it
        wait: Callable[[Any], Any] = (lambda result: result) if training.overlap else jax.block_until_ready
        training.program = self.around("update", lambda *given: wait(program(*given)))
        env.host.wrap(lambda stepper: _TimedStepper(stepper, self))
        if env.host.exchange is not None:
            env.host.exchange = self.around("stepping", env.host.exchange)

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function like `function` that adds its run time to the stage `stage`."""

        def timed(*arguments: Any) -> Any:
            begin = time.perf_counter()
            result = function(*arguments)
            self.seconds[stage] += time.perf_counter() - begin
            return result

        return timed

    def restart(self) -> None:
        """Set the time of every stage to 0 seconds."""
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def shares(self, whole: float) -> dict[str, float]:
        """Return the fraction of `whole` seconds spent in each stage, by name; the fractions add up to 1."""
        recording = max(0.0, whole - sum(self.seconds.values()))
        total = recording + sum(self.seconds.values())
        return {name: seconds / total for name, seconds in (*self.seconds.items(), ("recording", recording))}


class _TimedPolicy:
    def __init__(self, inner: HostPolicy, clock: Clock):
        self.structure = inner.structure
        self._begin, self._act = clock.around("policy", inner.begin), clock.around("policy", inner.act)

    def begin(self, agent: Agent, learner: LearnerState, num_steps: int, key: Key) -> None:
        """Start a rollout with the wrapped policy, and add the time to the stage "policy"; see `HostPolicy`."""
        self._begin(agent, learner, num_steps, key)

    def act(self, t: int, rows: slice, inputs: PolicyInputs) -> PolicyOutputs:
        """Return the wrapped policy's actions, and add the time to the stage "policy"; see `HostPolicy`."""
        acted: PolicyOutputs = self._act(t, rows, inputs)
        return acted


class _TimedStepper:
    def __init__(self, inner: Stepper, clock: Clock):
        self.batches, self.has_final_obs, self.close = inner.batches, inner.has_final_obs, inner.close
        self._reset, self._send, self._receive = (
            clock.around("stepping", function) for function in (inner.reset, inner.send, inner.receive)
        )

    def reset(self, seeds: Sequence[int]) -> None:
        """Reset the wrapped environments, and add the time to the stage "stepping"; see `Stepper`."""
        self._reset(seeds)

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Start a step of the wrapped environments, and add the time to the stage "stepping"; see `Stepper`."""
        self._send(number, action)

    def receive(self, number: int) -> HostStep:
        """Return a step of the wrapped environments, and add the time to the stage "stepping"; see `Stepper`."""
        step: HostStep = self._receive(number)
        return step
