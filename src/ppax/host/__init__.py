"""Training and evaluation on host environments: the stepping loop and fast policy inference."""

from ppax.host.episodes import HostActor, play_episodes
from ppax.host.rollouts import Gathered, Rollouts
from ppax.host.timing import Clock
from ppax.host.training import HostTraining, metric_names

__all__ = ["Clock", "Gathered", "HostActor", "HostTraining", "Rollouts", "metric_names", "play_episodes"]
