"""Networks of three stages: `encode` one observation, `remember` over a sequence, `decide` from one feature vector."""

from ppax.networks import adapters, encoders, layers, memories
from ppax.networks.composed import Composed, Tower, mlp, network
from ppax.networks.modules import equinox, linen, nnx

__all__ = [
    "Composed",
    "Tower",
    "adapters",
    "encoders",
    "equinox",
    "layers",
    "linen",
    "memories",
    "mlp",
    "network",
    "nnx",
]
