"""Predictions as auxiliary losses, one a file: models of the next step, trained with the network."""

from ppax.prediction.next_observation import NextObservation
from ppax.prediction.self_prediction import SelfPrediction

__all__ = ["NextObservation", "SelfPrediction"]
