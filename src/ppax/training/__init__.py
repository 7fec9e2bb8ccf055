"""Training loop: start, train, collect and evaluate, in compiled environments and in those of Python."""
