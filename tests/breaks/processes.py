"""Breaks of runs of several processes."""

from breaks.base import Mutation

TESTS = "tests/devices/test_processes.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "every process trains on its own devices",
        "return jax.devices() if jax.process_count() > 1 else jax.local_devices()",
        "return jax.local_devices()",
        (TESTS + "test_two_processes_train_as_one",),
        "devices/sharding.py",
    ),
    Mutation(
        "processes may lack arguments",
        "if 0 < len(missing) < len(given):",
        "if False:",
        (TESTS + "test_incomplete_arguments_are_refused",),
        "devices/processes.py",
    ),
    Mutation(
        "environments on the host are stepped by several processes",
        "if count() > 1 and not compiled:",
        "if False:",
        (TESTS + "test_host_environments_are_refused_in_several_processes",),
        "devices/processes.py",
    ),
]
