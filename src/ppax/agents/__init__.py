"""Multi-agent learners built from PPO: independent players, heterogeneous groups, self-play against past selves."""
