"""Encoders: from one entry of a single observation to a vector."""

from ppax.networks.encoders.choice import Auto, Encoder, Reader, named_encoders, readers
from ppax.networks.encoders.flat import Flat
from ppax.networks.encoders.impala_cnn import ImpalaCNN
from ppax.networks.encoders.nature_cnn import NatureCNN
from ppax.networks.encoders.small_cnn import SmallCNN

__all__ = [
    "Auto",
    "Encoder",
    "Flat",
    "ImpalaCNN",
    "NatureCNN",
    "Reader",
    "SmallCNN",
    "named_encoders",
    "readers",
]
