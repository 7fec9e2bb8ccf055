"""Bundles: a policy as one file of plain data, in formats that load without ppax."""

from ppax.policy.bundle.archive import DamagedBundle, is_bundle
from ppax.policy.bundle.numpy_policy import NumpyPolicy
from ppax.policy.bundle.program import reader_text
from ppax.policy.bundle.reading import read_bundle
from ppax.policy.bundle.writing import FORMATS, Exported, write_bundle

__all__ = [
    "FORMATS",
    "DamagedBundle",
    "Exported",
    "NumpyPolicy",
    "is_bundle",
    "read_bundle",
    "reader_text",
    "write_bundle",
]
