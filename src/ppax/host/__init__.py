"""Training and evaluation on host environments: the stepping loop and fast policy inference."""

from ppax.host.episodes import HostActor, play_episodes
from ppax.host.rollouts import Rollouts
from ppax.host.timing import Clock
from ppax.host.training import HostTraining, metric_names

__all__ = ["Clock", "HostActor", "HostTraining", "Rollouts", "metric_names", "play_episodes"]
