"""Programs of a sweep on a cluster: the members of each, distributed over the places that there are."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ppax.sweeps import directory
from ppax.sweeps.directory import Recorded, member_dir
from ppax.sweeps.packing import Pack, Task
from ppax.sweeps.placing.places import Places
from ppax.sweeps.placing.settings import Cluster
from ppax.sweeps.placing.worker import process_context, size_of_programs
from ppax.sweeps.searching import unplaced
from ppax.sweeps.training import Stopped

LOOK_SECONDS = 0.5  # interval at which signals and progress are polled


@dataclasses.dataclass
class Placed:
    """Program of a sweep on the cluster: its members, its worker, and what is counted of it."""

    tasks: list[Task]
    largest: int  # members of the largest program of these sizes; 0 on the host
    lost: int = 0  # workers that were lost
    worker: Any = None
    begun: bool = False  # the worker has answered
    stopping: bool = False  # the worker is asked to stop
    env_steps: int = 0  # counted since the last snapshot
    reached: Mapping[int, int] = dataclasses.field(default_factory=dict)  # iteration of the members that still train

    @property
    def described(self) -> str:
        """Members in words."""
        numbers = [task.member.number for task in self.tasks]
        return f"member {numbers[0]}" if len(numbers) == 1 else f"members {numbers[0]} to {numbers[-1]}"


def planned(
    ray: Any,
    path: Path,
    recorded: Recorded,
    packs: Sequence[Pack],
    cluster: Cluster,
    places: Places,
    stop: threading.Event,
) -> Recorded:
    """Distribute members without a program over as many as have room; write and return the record.

    A machine of the cluster measures how many members fit into a program.
    """
    run_dirs = {one.number: member_dir(path, one) for one in recorded.members}
    new = [unplaced(pack, recorded.programs, run_dirs) for pack in packs if pack.compiled]
    left = [[task.member for task in tasks] for tasks in new if tasks]
    if not left:
        return recorded
    room = places.room()
    most = -(-sum(map(len, left)) // room.programs)
    # max_calls=1: the process ends with the call, so that workers get its memory, which on a GPU is all of it
    ask = ray.remote(max_calls=1, **cluster.resources)(size_of_programs)
    given = process_context(cluster.cpus)
    asked = [ask.remote(given, tuple(members), most, room.together) for members in left]
    programs = list(recorded.programs)
    for members, answer in zip(left, asked, strict=True):
        while not ray.wait([answer], timeout=LOOK_SECONDS)[0]:
            if stop.is_set():
                raise Stopped
        try:
            size = ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        programs += [tuple(m.number for m in members[at : at + size]) for at in range(0, len(members), size)]
    recorded = recorded._replace(programs=tuple(programs))
    directory.write_programs(path, recorded)
    return recorded


def placed_of(recorded: Recorded, packs: Sequence[Pack]) -> list[Placed]:
    """Return the programs of all packs."""
    placed = []
    for pack in packs:
        by_number = {task.member.number: task for task in pack.tasks}
        known = [numbers for numbers in recorded.programs if set(numbers) <= by_number.keys()]
        largest = max(map(len, known), default=0) if pack.compiled else 0
        groups = known if pack.compiled else [(number,) for number in by_number]
        placed += [Placed([by_number[number] for number in numbers], largest) for numbers in groups]
    return placed
