"""Helpers of the tests: `from support.worlds import ...`."""
