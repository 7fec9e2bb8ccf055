"""Studies of Optuna, which propose the settings of a sweep: search space, trials, and rounds of training."""
