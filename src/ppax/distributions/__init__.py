"""Distributions over actions: one a file. Each knows its space, and what the environment receives."""

from ppax.distributions.categorical import Categorical
from ppax.distributions.normal import Normal

__all__ = ["Categorical", "Normal"]
