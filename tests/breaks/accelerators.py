"""Breaks of the rules by platform, and of the command that measures them."""

from breaks.base import Mutation

PLATFORMS = "tests/program/test_platforms.py::"
WHOLE = PLATFORMS + "test_accelerators_have_one_device_whole_minibatches_and_no_options_of_a_cpu"
FILE = "program/platforms.py"
PRECISION = "tests/agents/test_precision.py::"
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
        "chunks.rows_alone if alone else chunks.rows_split",
        "chunks.rows_split",
        (PLATFORMS + "test_entries_of_the_table_decide",),
        "program/layout.py",
    ),
    Mutation(
        "a memory with products in each step has chunks of one without",
        "all(isinstance(cell, kinds) for cell in self.cells)",
        "any(isinstance(cell, kinds) for cell in self.cells)",
        (PLATFORMS + "test_chunks_are_smaller_with_memories_whose_products_are_computed_for_all_steps_at_once",),
        "networks/composed.py",
    ),
    Mutation(
        "chunks of memories do not depend on the number of devices",
        "chunks.at_once_alone if alone else chunks.at_once_split",
        "chunks.at_once_alone",
        (PLATFORMS + "test_chunks_are_smaller_with_memories_whose_products_are_computed_for_all_steps_at_once",),
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
    Mutation(
        "auto rounds raw observations",
        "flat and (standardised or all(",
        "flat and (True or all(",
        (PRECISION + "test_the_dtype_of_products_in_training",),
        "agents/precision.py",
    ),
    Mutation(
        "auto rounds a memory of one's own in a stack",
        "one.cell if isinstance(one, Stack) else one for one in memories",
        "NONE if isinstance(one, Stack) else one for one in memories",
        (PRECISION + "test_a_memory_of_ones_own_is_not_rounded",),
        "networks/composed.py",
    ),
    Mutation(
        "auto does not read JAX's own precision",
        "jax.process_count() == 1 and unset",
        "jax.process_count() == 1",
        (PRECISION + "test_jax_own_setting_means_float32",),
        "agents/precision.py",
    ),
    Mutation(
        "auto changes a dtype that is given",
        "not isinstance(node, PPO) or node.compute_dtype != AUTO",
        "not isinstance(node, PPO)",
        (PRECISION + "test_every_learner_of_many_is_decided_and_a_given_dtype_stays",),
        "agents/precision.py",
    ),
    Mutation(
        "training does not decide auto",
        "iteration_inputs(in_training(agent), state",
        "iteration_inputs(agent, state",
        (PRECISION + "test_training_rounds_and_acting_does_not",),
        "ppax/training.py",
    ),
    Mutation(
        "a run resumes in this machine's precision",
        'if saved.products not in ("", products_of(agent, env.num_streams)):',
        "if False:",
        (PRECISION + "test_a_run_goes_on_in_its_own_precision_on_another_machine",),
        "run/origin.py",
    ),
    Mutation(
        "runs on host environments record bfloat16",
        'if backend_of(env).repeatable else "float32"',
        "",
        (PRECISION + "test_policies_and_hosts_compute_in_float32",),
        "run/origin.py",
    ),
]
