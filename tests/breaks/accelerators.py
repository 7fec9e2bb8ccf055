"""Breaks of the rules by platform, and of the command that measures them."""

from breaks.base import Mutation

PLATFORMS = "tests/program/test_platforms.py::"
WHOLE = PLATFORMS + "test_accelerators_have_one_device_whole_minibatches_and_no_options_of_a_cpu"
FILE = "program/platforms.py"
PRECISION = "tests/agents/test_precision.py::"
HOISTING = "tests/program/test_hoisting.py::"
PRODUCTS = "tests/networks/test_products.py::"
MODES = "tests/test_collection_modes.py::"

MUTATIONS = [
    Mutation(
        "work before a loop takes what reads the state",
        "elif not equation.effects and variables <= constants | made:",
        "elif not equation.effects and variables & made:",
        (HOISTING + "test_results_are_those_of_the_loop_as_it_was",),
        "program/hoisting.py",
    ),
    Mutation(
        "nothing is done before a loop",
        "variables <= constants | made:",
        "variables <= made and False:",
        (HOISTING + "test_draws_that_read_only_the_input_are_made_before_the_loop",),
        "program/hoisting.py",
    ),
    Mutation(
        "a loop reads any number of results made before it",
        "len(inputs) * sum(x.aval.size for x in needed) > most",
        "sum(x.aval.size for x in needed) > most",
        (HOISTING + "test_a_loop_that_would_read_too_much_stays_as_it_is",),
        "program/hoisting.py",
    ),
    Mutation(
        "callbacks run before a loop",
        "elif not equation.effects and variables",
        "elif variables",
        (HOISTING + "test_operations_with_effects_stay_in_the_loop",),
        "program/hoisting.py",
    ),
    Mutation(
        "gradients of rounded weights are rounded",
        "yield in_float32(params)",
        "yield cast(params, dtype)",
        ("tests/system/test_precision.py::test_only_operands_with_sides_of_at_least_16_are_rounded",),
        "learning/forward.py",
    ),
    Mutation(
        "layers do not see the rounding context",
        "if rounding.value or kernel.dtype == jnp.bfloat16:",
        "if kernel.dtype == jnp.bfloat16:",
        (PRODUCTS + "test_float32_weights_in_a_rounding_context_have_float32_gradients",),
        "networks/products.py",
    ),
    Mutation(
        "the backward loop of a GRU does not round",
        "stop_gradient((computed, factor(kernel)))",
        "stop_gradient((computed, kernel))",
        (PRODUCTS + "test_gated_memories_round_in_both_directions",),
        "memories/gru.py",
    ),
    Mutation(
        "the backward loop of a narrow GRU rounds",
        "if rounding.value and _is_large(kernel) else kernel",
        "if rounding.value else kernel",
        (PRODUCTS + "test_gated_memories_below_min_side_are_not_rounded",),
        "networks/products.py",
    ),
    Mutation(
        "rows of a product with a batch axis in the middle are taken for those of another axis",
        "out.shape[1]), axis",
        "out.shape[1]), 0",
        (PRODUCTS + "test_a_batch_axis_stays_where_it_is",),
        "networks/products.py",
    ),
    Mutation(
        "time-major outputs are taken for those of other rows",
        "features, outputs = to_rows(swap_axes(to_pairs((features, outputs), sequences)))",
        "features, outputs = to_rows(to_pairs((features, outputs), sequences))",
        ("tests/learning/test_forward.py::test_rows_of_sequences_are_those_of_single_steps",),
        "learning/forward.py",
    ),
    Mutation(
        "small permutations from two rounds",
        "ROUNDS = 8 ",
        "ROUNDS = 2 ",
        ("tests/minibatches/test_shuffle.py::test_small_bijections_reach_every_place_and_pair_equally_often",),
        "minibatches/shuffle.py",
    ),
    Mutation(
        "logits are shifted by the first, not the largest",
        "largest = jax.lax.stop_gradient(functools.reduce(jnp.maximum, logits))",
        "largest = jax.lax.stop_gradient(logits[0])",
        ("tests/distributions/test_categorical.py::test_large_logits_stay_finite",),
        "distributions/categorical.py",
    ),
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
        "all(isinstance(cell, AT_ONCE) for cell in memories)",
        "any(isinstance(cell, AT_ONCE) for cell in memories)",
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
        "return all(torso.hidden or _longest(torso) < MIN_SIDE",
        "return all(True",
        (PRECISION + "test_the_dtype_of_products_in_training",),
        "agents/precision.py",
    ),
    Mutation(
        "the steps of a window are forgotten",
        "cell.steps if isinstance(cell, Window) else 1",
        "1",
        (PRECISION + "test_the_dtype_of_products_in_training",),
        "agents/precision.py",
    ),
    Mutation(
        "the first layer rounds observations",
        "self.activation, exact=True)",
        "self.activation)",
        (PRECISION + "test_no_product_of_a_network_that_may_round_reads_rounded_observations",),
        "networks/tower.py",
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
