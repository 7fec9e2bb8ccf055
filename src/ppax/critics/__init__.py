"""Critics: one a file; what the numbers that a network's critic ends in stand for, and how they are learned."""

from ppax.critics.popart import PopArt
from ppax.critics.regression import Regression
from ppax.critics.two_hot import TwoHot

__all__ = ["PopArt", "Regression", "TwoHot"]
