"""Stepper of host environments in actors of a Ray cluster, which gives the same results as worker processes do.

Like these, the actors step two batches alternately.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from gymnasium import Env

from ppax.devices import clusters
from ppax.envs.hosting import ray_actor
from ppax.envs.hosting.arrays import Arrays, Layout
from ppax.envs.hosting.faults import EnvError, failure_text
from ppax.envs.hosting.stepper import HostStep, host_step
from ppax.envs.hosting.workers import START_SECONDS, halves, pickled, shares

CLOSE_SECONDS = 1.0  # time limit for closing environments before their actor is killed


class Actors:
    """Stepper that runs environments in `workers` actors of a Ray cluster, in two batches.

    While one batch is stepped, the policy acts for the other. If `workers` is None, there is an actor for each CPU of
    the cluster. Actors request no CPU from Ray, so that evaluation can have its own actors while those of training
    wait.
    """

    has_final_obs = False

    def __init__(
        self, factories: Sequence[Callable[[], Env]], layout: Layout, timeout: float, workers: int | None = None
    ):
        self.timeout = timeout
        stack = ExitStack()
        self._ray = stack.enter_context(clusters.connected())
        most = int(self._ray.cluster_resources().get("CPU", 1)) if workers is None else workers
        self._layout = layout._replace(workers=max(1, min(most, layout.num_envs)))
        self._actors: list[Any] = []
        self._finalizer = weakref.finalize(self, _end, self._ray, self._actors, stack)
        batches = halves(layout.num_envs)
        self.batches = tuple(layout.streams(envs) for envs in batches)
        self.arrays: Arrays = self._layout.make()
        self._views = [layout.rows(self.arrays, rows) for rows in self.batches]
        self._shares = [shares(batches, worker, self._layout.workers) for worker in range(self._layout.workers)]
        self._own = [[layout.rows(self.arrays, layout.streams(envs)) for envs in own] for own in self._shares]
        self._pending: list[list[Any]] = [[] for _ in batches]  # answers to come, by batch and actor
        self._places = [""] * self._layout.workers  # process and machine of each actor
        self._open(factories)

    def _open(self, factories: Sequence[Callable[[], Env]]) -> None:
        """Start the actors and create their environments; EnvError where one fails."""
        self._ray.cloudpickle.register_pickle_by_value(ray_actor)
        kind = self._ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD")(ray_actor.EnvActor)
        opened = []
        for worker, own in enumerate(self._shares):
            owned = [(envs, list(factories[envs])) for envs in own]
            task = pickled(self._layout, worker, owned, "ray")
            self._actors.append(kind.remote())
            opened.append(self._actors[-1].open.remote(sys.path, task))
        for worker, answer in enumerate(opened):
            process, machine = self._answer(worker, answer, max(self.timeout, START_SECONDS))
            self._places[worker] = f" (pid {process} on {machine})"

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a reset of all environments in the actors; `receive` waits for it."""
        for number in range(len(self.batches)):
            self._pending[number] = [
                actor.reset.remote(number, list(seeds[own[number]]))
                for actor, own in zip(self._actors, self._shares, strict=True)
            ]

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Start one step of batch `number` in the actors; `receive` waits for it.

        `action` has one array [e, ...] for each array of the action space; e is the number of the batch's streams.
        """
        self._views[number].act(action)
        self._pending[number] = [
            actor.step.remote(number, own[number].action) for actor, own in zip(self._actors, self._own, strict=True)
        ]

    def receive(self, number: int) -> HostStep:
        """Return the result of the step or reset of batch `number`, for which it waits."""
        for worker, answer in enumerate(self._pending[number]):
            given = self._answer(worker, answer, self.timeout)
            for own, x in zip(self._own[worker][number].results(), given, strict=True):
                own[...] = x
        return host_step(self._views[number])

    def close(self) -> None:
        """Close all environments in the actors and end the actors."""
        self._finalizer()

    def _answer(self, worker: int, answer: Any, seconds: float) -> Any:
        """Return the answer of an actor; if it failed, ended or hangs, end all actors and raise EnvError.

        `worker` is the actor's number and `answer` Ray's reference to the answer. An actor hangs if it does not answer
        within `seconds`.
        """
        try:
            given = self._ray.get(answer, timeout=seconds)
        except self._ray.exceptions.GetTimeoutError:
            remedy = "--timeout 300, timeout = 300 in the run file or timeout=300 in Python allows more"
            raise self._error(worker, f"has not answered for {seconds:g} s ({remedy})") from None
        except self._ray.exceptions.RayError as error:
            cause = str(error).strip().splitlines() or [type(error).__name__]
            raise self._error(worker, f"has ended: {cause[0]}") from None
        if isinstance(given, dict):
            self.close()
            at = f"environment actor {worker}{self._places[worker]}"
            raise EnvError(failure_text(given) if given["index"] >= 0 else f"{at}\n{given['cause']}")
        return given

    def _error(self, worker: int, reason: str) -> EnvError:
        """Close all environments and return the error for an actor that does not answer.

        `worker` is the actor's number, and `reason` says what happened.
        """
        numbers = ", ".join(str(i) for envs in self._shares[worker] for i in range(envs.start, envs.stop))
        self.close()
        return EnvError(
            f"environment actor {worker}{self._places[worker]}, of environments {numbers}, {reason}; all environments "
            "were closed"
        )


def _end(ray: Any, actors: list[Any], stack: ExitStack) -> None:
    """Close the environments of all actors, then end the actors and, by `stack`, the connection to the cluster."""
    with stack:
        if actors and ray.is_initialized():
            with contextlib.suppress(ray.exceptions.RayError):
                ray.wait([actor.close.remote() for actor in actors], num_returns=len(actors), timeout=CLOSE_SECONDS)
        for actor in actors if ray.is_initialized() else ():
            ray.kill(actor)
