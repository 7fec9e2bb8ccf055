"""Adapters of environment libraries, one file a suite; only an adapter imports its library."""
