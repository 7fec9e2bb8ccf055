"""Networks of three stages: `encode` one observation, `remember` over a sequence, `decide` from one feature vector."""

from ppax.networks import encoders, memories
from ppax.networks.composed import Composed, Tower, mlp, network

__all__ = ["Composed", "Tower", "encoders", "memories", "mlp", "network"]
