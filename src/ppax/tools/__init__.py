"""Tools around a run: bench, play, video."""
