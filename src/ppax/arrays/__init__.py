"""Small functions on the arrays of rollouts: sequences, masks, exact counters, metrics."""
