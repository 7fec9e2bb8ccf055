"""Breaks of exported policies: their formats, and what a hostile bundle may do."""

from breaks.base import Mutation

FORMATS = "tests/policy/bundle/test_formats.py::"
WRITING = "tests/policy/bundle/test_writing.py::"
HOSTILE = "tests/policy/bundle/test_hostile.py::test_a_hostile_bundle_is_refused_and_nothing_is_executed_or_written"
OPERATIONS = "tests/training/host/test_operations.py::test_numpy_gives_the_numbers_of_xla"

ACTOR = "tests/policy/test_actor.py::"
VALUES = "tests/policy/test_values.py::"
MLFLOW = "tests/policy/test_mlflow_model.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "V: what only the critic reads counts as unread",
        "return out.carry, (out.distribution, out.value if return_value else None)",
        "return out.carry, (out.distribution, None)",
        (VALUES + "test_v_of_a_critic_that_sees_more_has_a_memory_of_its_own[none]",),
        "policy/actor.py",
    ),
    Mutation(
        "V of a policy is exported without being asked for",
        "mask, None, return_value=return_value)",
        "mask, None, return_value=True)",
        (VALUES + "test_without_being_asked_no_format_has_v_nor_needs_what_it_reads",),
        "bundle/interface.py",
    ),
    Mutation(
        "V of many agents in exported formats is split as an action",
        'if sizes and path[0].key not in ("log_prob", "value"):',
        'if sizes and path[0].key != "log_prob":',
        (VALUES + "test_formats_of_many_agents_give_v_of_each[groups]",),
        "bundle/interface.py",
    ),
    Mutation(
        "a bundle with V cannot be loaded",
        'return_value=description.get("value") is True)',
        "return_value=False)",
        (VALUES + "test_every_format_takes_what_the_critic_reads_and_gives_v",),
        "bundle/reading.py",
    ),
    Mutation(
        "NumPy and ONNX get the policy in bfloat16",
        "        in_float32 = Interface(policy.in_float32(), return_value=return_value)",
        "        in_float32 = Interface(policy, return_value=return_value)",
        (VALUES + "test_a_policy_in_bfloat16_has_every_format",),
        "bundle/writing.py",
    ),
    Mutation(
        "StableHLO does not multiply in bfloat16",
        "(in_float32 if name in OF_FLOAT32 else own, policy.learner)",
        "(in_float32, policy.learner)",
        (VALUES + "test_a_policy_in_bfloat16_has_every_format",),
        "bundle/writing.py",
    ),
    Mutation(
        "an MLflow model takes the memory away from its policy",
        "        if not self._memory and given:",
        "        if given:",
        (MLFLOW + "test_a_loaded_model_gives_actions_and_v_of_the_policy",),
        "bundle/mlflow_loader.py",
    ),
    Mutation(
        "an MLflow model needs ppax",
        "return text.replace(READER_IMPORT, reader_text().partition(FUTURE)[2])",
        "return text",
        (MLFLOW + "test_a_loaded_model_gives_actions_and_v_of_the_policy",),
        "bundle/numpy_format.py",
    ),
    Mutation(
        "an MLflow model is written into a directory that exists",
        '        raise ConfigError(f"{path}: exists; must be a new directory',
        '        ConfigError(f"{path}: exists; must be a new directory',
        (MLFLOW + "test_a_model_is_not_written_over_anything",),
        "policy/mlflow_model.py",
    ),
    Mutation(
        "acting: a memory that actions depend on only later is not read",
        "        of_memory = [a or b for a, b in zip(of_memory, read[:size], strict=True)]",
        "        return list(read)",
        (ACTOR + "test_what_an_action_depends_on_steps_later_is_read",),
    ),
    Mutation(
        "acting: entries that are not read are demanded all the same",
        "            if key not in absent",
        "            if True",
        (ACTOR + "test_actions_are_those_from_whole_observations[none]",),
    ),
    Mutation(
        "acting: the memory of the critic is kept",
        "return jax.tree.unflatten(self.structure, [x if read else None for x, read in leaves])",
        "return jax.tree.unflatten(self.structure, [x for x, read in leaves])",
        (ACTOR + "test_the_specification_says_what_acting_needs",),
    ),
    Mutation(
        "acting: the groups of an environment have the rows of one",
        "units = first.shape[0] // self.unit",
        "units = first.shape[0]",
        (ACTOR + "test_groups_need_no_joint_observation",),
    ),
    Mutation(
        "the NumPy reader ignores inputs that it does not know",
        "        if inputs.keys() != self._names:\n",
        "        if not inputs.keys() >= self._names:\n",
        (WRITING + "test_the_reader_refuses_unknown_and_missing_inputs",),
        "bundle/numpy_policy.py",
    ),
    Mutation(
        "the NumPy reader takes the batch size from `first` alone",
        "batch = max(sizes, key=sizes.count, default=1)",
        'batch = len(np.atleast_1d(arrays["first"]))',
        (WRITING + "test_the_reader_names_the_input_that_is_wrong_beside_a_memory",),
        "bundle/numpy_policy.py",
    ),
    Mutation(
        "the NumPy reader goes on with a memory of NaN",
        'wrong, allowed = np.isnan(x), "a number"',
        'wrong, allowed = np.isnan(x) & False, "a number"',
        (WRITING + "test_the_reader_names_the_input_that_is_wrong_beside_a_memory",),
        "bundle/numpy_policy.py",
    ),
    Mutation(
        "compressed files of a bundle are unpacked",
        "if entry.compress_type != zipfile.ZIP_STORED or",
        "if",
        (HOSTILE + "[a zip bomb]",),
        "bundle/archive.py",
    ),
    Mutation(
        "checksums of a bundle's files are not compared",
        'if listed[name] != {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}:',
        "if False:",
        (HOSTILE + "[changed weights]",),
        "bundle/archive.py",
    ),
    Mutation(
        "operations of a bundle's program are not looked up",
        'raise ValueError(f"unknown operation {name!r}") from error',
        "continue",
        (HOSTILE + "[an unknown operation]",),
        "bundle/numpy_format.py",
    ),
    Mutation(
        "a format with other numbers is written",
        "if not worst <= TOLERANCE:",
        "if False:",
        (WRITING + "test_a_format_that_gives_something_else_is_not_written[max-min]",),
        "bundle/writing.py",
    ),
    Mutation(
        "a format with other actions is written",
        "if ties.mean() > TIES:",
        "if False:",
        (WRITING + "test_ties_by_rounding_are_no_fault_and_wrong_actions_are",),
        "bundle/writing.py",
    ),
    Mutation(
        "the sign of an imaginary product in converted formats",
        "return Pair(a * c - b * d, a * d + b * c)",
        "return Pair(a * c + b * d, a * d + b * c)",
        (WRITING + "test_the_replayed_step_has_no_loops_and_no_complex_numbers",),
        "bundle/onnx_format.py",
    ),
    Mutation(
        "streams of several agents in the order of agents",
        "return x.reshape(batch, size, *x.shape[1:])",
        "return x.reshape(size, batch, *x.shape[1:]).swapaxes(0, 1)",
        (WRITING + "test_many_agents_have_an_axis_of_agents[independent]",),
        "bundle/interface.py",
    ),
    Mutation(
        "a gathered window begins one place later",
        "begin = np.clip(starts[..., start_axes.index(axis)], 0, x.shape[axis] - size)",
        "begin = np.clip(starts[..., start_axes.index(axis)] + 1, 0, x.shape[axis] - size)",
        (OPERATIONS + "[a table]",),
        "training/host/operations.py",
    ),
    Mutation(
        "a bundle's own reader is not compared",
        "or version == installed_version():\n        raise",
        "and False:\n        raise",
        (HOSTILE + "[other code in place of the reader]",),
        "bundle/reading.py",
    ),
    Mutation(
        "the reader unpacks compressed files",
        "if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:",
        "if False:",
        ("tests/policy/bundle/test_hostile.py::test_the_numpy_reader_has_one_error_for_all_of_them",),
        "bundle/numpy_policy.py",
    ),
    Mutation(
        "the reader copies every array",
        "memoryview(data)[8 + length :], {}",
        "data[8 + length :], {}",
        ("tests/policy/bundle/test_hostile.py::test_overlapping_arrays_take_no_memory",),
        "bundle/numpy_policy.py",
    ),
    Mutation(
        "the directory of an archive may claim any size",
        "or claimed > limit:",
        "or False:",
        ("tests/system/test_hostile_files.py::test_bundles_of_a_stranger_exit_with_5_and_do_nothing",),
        "storage/zip_directory.py",
    ),
    Mutation(
        "many spaces of many numbers",
        "if len(sizes) > MOST or sum(sizes) > LARGEST:",
        "if False:",
        ("tests/policy/test_space_data.py::test_all_spaces_together_are_small",),
        "policy/spec.py",
    ),
]
