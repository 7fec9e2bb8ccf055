"""Tools for runs: speed measurement, playing a policy, video files, presets."""
