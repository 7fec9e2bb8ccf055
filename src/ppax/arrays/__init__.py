"""Small functions on arrays that know our axes: sequences, masks, exact counters, metrics."""
