"""Breaks of simulators with tensors."""

from breaks.base import Mutation

FILE = "hosting/tensor_batch.py"
TESTS = "tests/envs/hosting/test_tensor_batch.py::"

MUTATIONS = [
    Mutation(
        "the observation before the last action is that after it",
        "self._obs = _mapped(lambda x: np.array(self._array(x)), obs)",
        "self._obs = _mapped(self._array, obs)",
        (TESTS + "test_previous_observation_stands_in_where_there_is_no_final_one",),
        FILE,
    ),
    Mutation(
        "first observations are taken for final ones",
        "            return self._host(given)",
        "            return self._host(obs)",
        (TESTS + "test_training_is_that_of_the_same_environments_in_numpy",),
        FILE,
    ),
    Mutation(
        "time limits are ends",
        "return ended & ~truncated, truncated",
        "return ended, np.zeros_like(ended)",
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
]
