"""Breaks of simulators with tensors."""

from breaks.base import Mutation

FILE, ON_DEVICE = "hosting/tensor_batch.py", "training/host/tensor_collection.py"
TESTS, DEVICE_TESTS = "tests/envs/hosting/test_tensor_batch.py::", "tests/training/host/test_tensors.py::"
SAME = DEVICE_TESTS + "test_training_is_that_through_numpy_arrays"

MUTATIONS = [
    Mutation(
        "the observation before the last action is that after it",
        "lambda x: self._tensor(x).clone(), obs)",
        "lambda x: self._tensor(x), obs)",
        (TESTS + "test_previous_observation_stands_in_where_there_is_no_final_one", SAME + "[previous]"),
        FILE,
    ),
    Mutation(
        "first observations are taken for final ones",
        "self._host(obs if final is None else final)",
        "self._host(obs)",
        (TESTS + "test_training_is_that_of_the_same_environments_in_numpy",),
        FILE,
    ),
    Mutation(
        "time limits are ends",
        "return ended & ~truncated, truncated",
        "return ended, truncated & ~ended",
        (TESTS + "test_one_flag_with_time_outs_is_terminated_and_truncated",),
        FILE,
    ),
    Mutation(
        "entries of info are those of the first observation",
        'if isinstance(final, Mapping):\n            found["final_info"]',
        'if False:\n            found["final_info"]',
        (TESTS + "test_simulator_of_tensors_alone_is_learned",),
        FILE,
    ),
    Mutation(
        "on the device: arrays with gaps are read as if they had none",
        "self._tensor(x).contiguous()",
        "self._tensor(x)",
        (SAME + "[normalised_views]",),
        FILE,
    ),
    Mutation(
        "on the device: ends of episodes are bootstrapped like time limits",
        '"final_value": jnp.where(cut, value, 0.0)',
        '"final_value": value',
        (DEVICE_TESTS + "test_final_values_are_those_of_final_observations",),
        ON_DEVICE,
    ),
    Mutation(
        "on the device: final observations are valued with the carry before the last step",
        "self._value(parameters, acted.carry, step.final_obs)",
        "self._value(parameters, carry, step.final_obs)",
        (SAME + "[memory_and_masks]",),
        ON_DEVICE,
    ),
    Mutation(
        "on the device: the stored carry is that of a sequence's last step",
        "jnp.where(t % length == 0, x, store[t // length])",
        "x",
        (SAME + "[memory_and_masks]",),
        ON_DEVICE,
    ),
    Mutation(
        "on the device: a number crosses from the host at each step",
        "self._start = jax.device_put((agent, learner, key)), jax.device_put(np.int32(0))",
        "self._start = jax.device_put((agent, learner, key)), np.int32(0)",
        (DEVICE_TESTS + "test_rollout_passes_nothing_through_the_host",),
        ON_DEVICE,
    ),
    Mutation(
        "on the device: faults are not read",
        "np.argwhere(fault < len(FAULTS))[:1]",
        "np.argwhere(fault < 0)[:1]",
        (DEVICE_TESTS + "test_fault_ends_the_rollout_with_its_place[reward]",),
        ON_DEVICE,
    ),
    Mutation(
        "on the device: actions are recorded from memory that the simulator may overwrite",
        "self._record(recording, carry, acted.action, step, final)",
        "self._record(recording, carry, acted.env_action, step, final)",
        (DEVICE_TESTS + "test_simulator_that_overwrites_its_tensors_and_actions_trains_as_one_that_does_not",),
        ON_DEVICE,
    ),
]
