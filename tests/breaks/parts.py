"""Breaks of what users meet when they write parts of their own."""

from breaks.base import Mutation

MUTATIONS = [
    Mutation(
        "a logger fails without a traceback",
        '"".join(traceback.format_tb(error.__traceback__)).rstrip()',
        '""',
        (
            "tests/run/test_callbacks.py::"
            "test_a_logger_that_fails_is_removed_once_with_class_and_traceback_of_its_exception",
        ),
        "run/rows.py",
    ),
]
