"""Breaks of the rules by platform, and of the command that measures them."""

from breaks.base import Mutation

PLATFORMS = "tests/program/test_platforms.py::"
WHOLE = PLATFORMS + "test_accelerators_have_one_device_whole_minibatches_and_no_options_of_a_cpu"
FILE = "program/platforms.py"
MODES = "tests/test_collection_modes.py::"

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
    Mutation(
        "arrays that are exchanged as one come back in another order",
        "zip(places, jax.lax.all_gather",
        "zip(reversed(places), jax.lax.all_gather",
        ("tests/program/test_sharding.py::test_gather_keeps_the_places_of_leaves",),
    ),
    Mutation(
        "largest ratios are those of one device",
        "tops = sharding.largest(jnp.stack([steps.tops.max((0, 1), initial=-jnp.inf), steps.tops[0, 0]]))",
        "tops = jnp.stack([steps.tops.max((0, 1), initial=-jnp.inf), steps.tops[0, 0]])",
        ("tests/program/test_sharding.py::test_training_on_two_devices_equals_one",),
    ),
    Mutation(
        "V of few streams is that of the policy's own step, where past selves act",
        "few and agent.pool is None and not",
        "few and not",
        (MODES + "test_values_come_with_each_step_where_past_selves_act_or_a_memory_remembers",),
    ),
    Mutation(
        "V of few streams with a memory is computed without it",
        "few and agent.pool is None and not jax.tree.leaves(remembered(actor.carry))",
        "few and agent.pool is None",
        (MODES + "test_values_come_with_each_step_where_past_selves_act_or_a_memory_remembers",),
    ),
]
