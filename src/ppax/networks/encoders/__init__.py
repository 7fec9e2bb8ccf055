"""Encoders: from one entry of a single observation to a vector."""

from ppax.networks.encoders.choice import Auto, ByName, Encoder, Reader, by_name, readers
from ppax.networks.encoders.flat import Flat
from ppax.networks.encoders.impala_cnn import ImpalaCNN
from ppax.networks.encoders.nature_cnn import NatureCNN
from ppax.networks.encoders.small_cnn import SmallCNN

__all__ = [
    "Auto",
    "ByName",
    "Encoder",
    "Flat",
    "ImpalaCNN",
    "NatureCNN",
    "Reader",
    "SmallCNN",
    "by_name",
    "readers",
]
