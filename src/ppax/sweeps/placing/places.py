"""Places of a Ray cluster: how many programs its machines have room for."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from ppax.core.types import ConfigError
from ppax.sweeps.placing.settings import RAY, Cluster

PATIENCE = 120.0  # seconds in which a cluster that has lost all its machines must get another


class Room(NamedTuple):
    """Programs that have room at the same time: on the whole cluster, and on its largest machine."""

    programs: int
    together: int


class Places:
    """Places of a cluster for programs that need the resources of `cluster`; machines may come and go."""

    def __init__(self, ray: Any, cluster: Cluster):
        """Raise ConfigError where no machine has the resources of a program."""
        self._ray, self._cluster = ray, cluster
        self._seen = time.monotonic()  # when there was room last
        if not self.room().programs:
            self._refuse()

    def room(self) -> Room:
        """Return the room, of programs that run and of others."""
        each = [self._on(node["Resources"]) for node in self._nodes()]
        return Room(sum(each), max(each, default=0))

    def require(self) -> int:
        """Return how many programs have room; ConfigError where for PATIENCE seconds there is room for none."""
        room = self.room()
        if room.programs:
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > PATIENCE:
            self._refuse()
        return room.programs

    def _nodes(self) -> list[Any]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _on(self, has: dict[str, float]) -> int:
        """Return how many programs have room on a machine."""
        places = int(has.get("CPU", 0)) // self._cluster.cpus
        return min(places, int(has.get("GPU", 0)) // self._cluster.gpus) if self._cluster.gpus else places

    def _refuse(self) -> None:
        wanted = {"CPU": self._cluster.cpus, "GPU": self._cluster.gpus}
        largest = {kind: max((int(n["Resources"].get(kind, 0)) for n in self._nodes()), default=0) for kind in wanted}
        nearest = ", ".join(f"{RAY}.{kind.lower()}s = {min(x, largest[kind])}" for kind, x in wanted.items())
        raise ConfigError(
            f"{RAY}.cpus = {self._cluster.cpus}, {RAY}.gpus = {self._cluster.gpus}: no machine there has both; "
            f"nearest valid values: {nearest}"
        )
