"""Adapters of environment libraries ("suites"), one file each; only an adapter imports its library."""
