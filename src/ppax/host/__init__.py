"""Training on environments that run on the host: the loop that steps them, and the cheapest call of the policy."""

from ppax.host.episodes import HostActor, play_episodes
from ppax.host.rollouts import Gathered, Rollouts
from ppax.host.timing import Clock
from ppax.host.training import HostTraining, metric_names

__all__ = ["Clock", "Gathered", "HostActor", "HostTraining", "Rollouts", "metric_names", "play_episodes"]
