"""Training and evaluation on host environments: the stepping loop and fast policy inference."""

from ppax.host.episodes import HostActor, HostEpisodes
from ppax.host.policy import make_policy
from ppax.host.rollouts import Rollouts
from ppax.host.timing import Clock
from ppax.host.training import HostTraining, for_overlap, metric_names

__all__ = [
    "Clock",
    "HostActor",
    "HostEpisodes",
    "HostTraining",
    "Rollouts",
    "for_overlap",
    "make_policy",
    "metric_names",
]
