"""Studies of Optuna, which propose the settings of a sweep: their space, their trials, and rounds of training."""
