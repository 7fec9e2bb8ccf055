"""Memories of networks: recurrent cells, attention and windows over one stream. All implement `memory.MemoryPart`."""

from ppax.networks.memories.attention import Attention
from ppax.networks.memories.gru import GRU
from ppax.networks.memories.lru import LRU
from ppax.networks.memories.lstm import LSTM
from ppax.networks.memories.memory import MemoryPart, NoMemory
from ppax.networks.memories.mingru import MinGRU
from ppax.networks.memories.stack import Stack, rematerialised
from ppax.networks.memories.window import Window

__all__ = [
    "GRU",
    "LRU",
    "LSTM",
    "Attention",
    "MemoryPart",
    "MinGRU",
    "NoMemory",
    "Stack",
    "Window",
    "rematerialised",
]
