"""Stages of an update: batches, forward pass, gradient, KL control, normalisation, diagnostics."""
