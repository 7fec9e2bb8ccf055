"""Breaks of the rules by platform, and of the command that measures them."""

from breaks.base import Mutation

PLATFORMS = "tests/program/test_platforms.py::"
WHOLE = PLATFORMS + "test_accelerators_have_one_device_whole_minibatches_and_no_options_of_a_cpu"
FILE = "program/platforms.py"

MUTATIONS = [
    Mutation(
        "an accelerator that is not listed has the rules of a CPU",
        "RULES.get(jax.default_backend(), ACCELERATOR)",
        "RULES.get(jax.default_backend(), CPU)",
        (WHOLE,),
        FILE,
    ),
    Mutation(
        "an accelerator splits programs like a CPU",
        "    min_rows=None,",
        "    min_rows=512,",
        (WHOLE,),
        FILE,
    ),
    Mutation(
        "chunks of a sharded program are those of one device",
        "chunks.rows_split if sharding.num_parts() > 1 else chunks.rows_alone",
        "chunks.rows_split",
        (PLATFORMS + "test_entries_of_the_table_decide",),
        "program/layout.py",
    ),
    Mutation(
        "scans are those of the other platform",
        "(parallel_scan if rules().parallel_scans else sequential_scan)",
        "(sequential_scan if rules().parallel_scans else parallel_scan)",
        (PLATFORMS + "test_a_linear_recurrence_is_parallel_or_sequential",),
        "memories/time.py",
    ),
]
