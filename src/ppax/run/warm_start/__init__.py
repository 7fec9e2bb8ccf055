"""Warm start: a new run whose learner begins with weights and statistics of another run."""

from ppax.run.warm_start.source import Source, settings_and_object
from ppax.run.warm_start.start import WarmStart, prepare

__all__ = ["Source", "WarmStart", "prepare", "settings_and_object"]
