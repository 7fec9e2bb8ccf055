"""Training on environments that run on the host: the loop that steps them, and the cheapest call of the policy."""

from ppax.host.episodes import play_episodes
from ppax.host.training import HostTraining, metric_names

__all__ = ["HostTraining", "metric_names", "play_episodes"]
