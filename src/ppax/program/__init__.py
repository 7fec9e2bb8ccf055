"""Compiled programs on the machine's devices: layout, sharding, ahead-of-time compilation, sweeps, memory."""
