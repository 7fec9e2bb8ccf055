"""Networks: encode one observation, remember over a sequence, decide from one feature vector."""

from ppax.networks.mlp import MLP, mlp

__all__ = ["MLP", "mlp"]
