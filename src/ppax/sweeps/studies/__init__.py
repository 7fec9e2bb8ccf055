"""Sweeps whose settings a study of Optuna proposes: its space, its trials, rounds of asking, training and telling."""
