"""Gradient of the minibatch's loss, unchanged."""

from __future__ import annotations

from collections.abc import Callable

from ppax.core.protocols import LossGradient
from ppax.core.types import Params, part


@part
class Plain:
    """Gradient of the minibatch's loss at the current parameters."""

    def __call__(
        self, gradient: LossGradient, gradient_at: Callable[[Params], LossGradient], params: Params
    ) -> LossGradient:
        """Return `gradient`, so that the program is the same as without this part."""
        return gradient
