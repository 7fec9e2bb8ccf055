"""Searches, one a file: decisions over the members of a sweep while they train."""

from ppax.sweeps.search.asha import ASHA
from ppax.sweeps.search.grid import Grid
from ppax.sweeps.search.halving import Halving
from ppax.sweeps.search.optuna import Optuna
from ppax.sweeps.search.pbt import PBT

__all__ = ["ASHA", "PBT", "Grid", "Halving", "Optuna"]
