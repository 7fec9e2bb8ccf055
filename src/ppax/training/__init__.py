"""Training loop: start, train, collect, evaluate; in compiled environments and in Python's."""
