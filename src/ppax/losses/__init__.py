"""Objectives: one a file; they see distributions, values and a batch, never the network."""

from ppax.losses.clipped import ClippedSurrogate

__all__ = ["ClippedSurrogate"]
