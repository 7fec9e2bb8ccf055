"""Table `[ray]` of a sweep's run file: the cluster on which its programs train, CPUs and GPUs of each program.

[ray]
address = "auto"
cpus = 4
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ppax import config
from ppax.core import imports
from ppax.core.options import Config, Option, check_value, nearest
from ppax.core.parts import ADDRESS
from ppax.core.protocols import Search
from ppax.core.types import ConfigError
from ppax.devices.clusters import AUTO

RAY = "ray"  # key of the table
OPTIONS = {
    "address": Option(
        "ray.address",
        str,
        default=AUTO,
        doc=f"cluster of Ray, HOST:PORT; {AUTO}: $RAY_ADDRESS, else one on this machine, else a new one here",
        limits={"outside": ADDRESS},
    ),
    "cpus": Option("ray.cpus", int, default=1, doc="CPUs of each program", limits={"low": 1}),
    "gpus": Option("ray.gpus", int, default=0, doc="GPUs of each program", limits={"low": 0}),
    "retries": Option(
        "ray.retries",
        int,
        default=3,
        doc="number of times that a program goes on from its last checkpoint after its worker was lost",
        limits={"low": 0},
    ),
}


class Cluster(NamedTuple):
    """Settings of a sweep on a Ray cluster: the cluster's address, and the CPUs and GPUs of each program.

    A program trains one or more members (runs) of the sweep, in a process of its own. `retries` is how many times it
    goes on from its last checkpoint after that process was lost; one more loss ends the sweep. OPTIONS has the defaults
    of the fields.
    """

    address: str
    cpus: int
    gpus: int
    retries: int

    @property
    def resources(self) -> dict[str, Any]:
        """Resources of a program, as the options that Ray takes for a task or actor."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "scheduling_strategy": "SPREAD"}


def split_cluster(run_config: Config) -> tuple[Config, Any]:
    """Return a run file without its table `[ray]`, and that table, or None where there is none."""
    return {name: value for name, value in run_config.items() if name != RAY}, run_config.get(RAY)


def read(given: str | Mapping[str, Any] | None) -> Cluster | None:
    """Return the cluster that a table `[ray]` or an address stands for; None if `given` is None.

    Raises ConfigError if the table or the address is invalid.
    """
    if given is None:
        return None
    table = checked_cluster(given)
    for name in table:
        if name not in OPTIONS:
            raise ConfigError(f"unknown option {f'{RAY}.{name}'!r}; did you mean {RAY}.{nearest(name, OPTIONS)}?")
    return Cluster(*(check_value(option, table.get(name, option.default)) for name, option in OPTIONS.items()))


def of_file(given: Mapping[str, Any] | None) -> Cluster | None:
    """Return the cluster of the table `[ray]` in a file; None if there is no table.

    Raises Untrusted for an address that the user does not trust: a cluster gets the code of this process and its
    credentials, and what it sends back is unpickled.
    """
    cluster = read(given)
    table = {OPTIONS[name].path: value for name, value in checked_cluster(given).items()}
    imports.require_asked(config.outside_values(table, OPTIONS.values()))
    return cluster


def checked_cluster(given: Any) -> Mapping[str, Any]:
    """Return `given` in the form of a table `[ray]`: {} for None, {"address": ...} for an address, a table unchanged.

    Raises ConfigError for another type.
    """
    table = {"address": given} if isinstance(given, str) else {} if given is None else given
    if not isinstance(table, Mapping):
        raise ConfigError(f"{RAY} = {given!r}: must be an address, as {AUTO!r}, or a table, [{RAY}]")
    return table


def check(cluster: Cluster | None, search: Search) -> None:
    """Raise ConfigError for a search that decides inside programs, as population-based training, if there is a cluster.

    On a cluster each program of a sweep trains in a process of its own.
    """
    if cluster is not None and search.perturbs:
        name = type(search).__name__.lower()
        raise ConfigError(
            f"search.part = {name!r}: it decides over the members of each program as they come, and on a cluster "
            f"programs train apart from each other; take halving, leave out the search, or leave out --{RAY}"
        )
