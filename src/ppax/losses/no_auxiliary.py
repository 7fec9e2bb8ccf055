"""No auxiliary loss."""

from __future__ import annotations

from ppax.protocols import AuxiliaryTerms
from ppax.types import Batch, Params, PyTree, part


@part
class NoAuxiliary:
    """No auxiliary loss: policy, value and entropy terms only."""

    def __call__(self, params: Params, features: PyTree, batch: Batch) -> AuxiliaryTerms:
        """Return no terms, so that the program is the same as without this part."""
        return AuxiliaryTerms({})
