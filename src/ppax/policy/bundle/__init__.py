"""Bundles: a policy as one file of plain data, in formats that load without ppax."""

from ppax.policy.bundle.archive import DamagedBundle, is_bundle
from ppax.policy.bundle.reading import read_bundle
from ppax.policy.bundle.writing import FORMATS, Exported, write_bundle

__all__ = ["FORMATS", "DamagedBundle", "Exported", "is_bundle", "read_bundle", "write_bundle"]
