"""Bundles: a policy as one file of plain data, in one or more formats that load without ppax."""

from ppax.policy.bundle.archive import DamagedBundle, is_bundle
from ppax.policy.bundle.numpy_policy import NumpyPolicy

__all__ = ["DamagedBundle", "NumpyPolicy", "is_bundle"]
