"""Advantage estimators: one a file, written for one stream."""

from ppax.advantages.gae import GAE

__all__ = ["GAE"]
