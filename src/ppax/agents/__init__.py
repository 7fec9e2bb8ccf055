"""Agents made of PPO agents: independent players, unlike groups, self-play against past opponents."""
