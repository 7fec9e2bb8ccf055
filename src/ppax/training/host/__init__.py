"""Training and evaluation on host environments, which Python steps: the stepping loop and fast policy inference."""

from ppax.training.host.episodes import HostActor, HostEpisodes
from ppax.training.host.policy import make_policy
from ppax.training.host.rollouts import Rollouts
from ppax.training.host.timing import Clock
from ppax.training.host.training import HostTraining, for_overlap, host_metric_names

__all__ = [
    "Clock",
    "HostActor",
    "HostEpisodes",
    "HostTraining",
    "Rollouts",
    "for_overlap",
    "host_metric_names",
    "make_policy",
]
