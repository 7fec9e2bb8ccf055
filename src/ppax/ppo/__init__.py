"""Proximal Policy Optimization. Start in ppo.py, where `PPO.init`, `act` and `update` are the algorithm."""

from ppax.ppo.ppo import PPO

__all__ = ["PPO"]
