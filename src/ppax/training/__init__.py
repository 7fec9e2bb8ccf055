"""Training: start states, rollouts, updates, sweeps and evaluation, in compiled environments and in those on the host.

A compiled environment is a JAX program; an environment on the host is stepped by Python.
"""
