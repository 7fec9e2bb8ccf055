"""Networks in three stages: `encode` one observation, `remember` over a sequence, `decide` from one feature vector."""

from ppax.networks import encoders, memories
from ppax.networks.composed import Composed, mlp, network

__all__ = ["Composed", "encoders", "memories", "mlp", "network"]
