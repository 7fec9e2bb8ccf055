"""Multi-agent learners built from PPO: independent players, groups that differ, self-play against past selves."""
