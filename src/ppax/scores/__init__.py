"""Scores of presets by one protocol: suite, training, statistics, result files, tables and learning curves."""

from ppax.scores.results import Score
from ppax.scores.scoring import SCORE_SEEDS, TUNING_SEEDS, score
from ppax.scores.tables import PresetScore, presets

__all__ = ["SCORE_SEEDS", "TUNING_SEEDS", "PresetScore", "Score", "presets", "score"]
