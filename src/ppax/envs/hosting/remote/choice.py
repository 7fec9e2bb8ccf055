"""Choice of the stepper of host environments by `vectorization`."""

from __future__ import annotations

from collections.abc import Sequence

from ppax.devices import sharding
from ppax.envs.hosting.arrays import Layout
from ppax.envs.hosting.handle import HostSpec
from ppax.envs.hosting.remote.actors import Actors
from ppax.envs.hosting.stepper import Stepper
from ppax.envs.hosting.workers import Factory, InProcess, Workers
from ppax.envs.settings import EnvSettings


def stepper_of(
    factories: Sequence[Factory], spec: HostSpec, settings: EnvSettings, workers: int | None, num_envs: int
) -> Stepper:
    """Create `num_envs` environments, made by the factories in turn; at most `workers` processes or actors step them.

    By default there is a process for each core, and an actor for each CPU of the cluster.
    """
    chosen = [factories[i % len(factories)] for i in range(num_envs)]
    layout = Layout(num_envs, 1, settings.action_repeat, *spec)
    if settings.vectorization == "ray":
        return Actors(chosen, layout, settings.timeout, workers)
    if settings.vectorization == "async":
        processes = sharding.num_cores() if workers is None else workers
        return Workers(chosen, layout._replace(workers=min(processes, num_envs)), settings.timeout)
    return InProcess(chosen, layout)
