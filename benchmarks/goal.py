"""When CartPole-v1 counts as solved, and for how long PureJaxRL may train (startup.py)."""

SOLVED = 475.0  # mean return of training episodes
WINDOW = 100  # of that many, the last that ended
WHOLE = 500_000  # PureJaxRL's own TOTAL_TIMESTEPS
GRID = tuple(range(100_000, WHOLE + 1, 25_000))  # shorter ones
