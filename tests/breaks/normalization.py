"""Breaks of what normalisation leaves out, when its statistics stop, and given statistics."""

from breaks.base import Mutation

TESTS = "tests/ppo/test_normalization_options.py::"
FREEZE, LEFT = (
    TESTS + "test_statistics_stop_after_so_many_steps",
    TESTS + "test_entries_that_are_left_out_stay_as_they_are",
)
NAMES, REWARDS = (
    TESTS + "test_entries_of_a_dict_are_left_out_by_name",
    TESTS + "test_statistics_of_rewards_stop_or_are_given",
)
MUTATIONS = [
    Mutation(
        "statistics never stop",
        "return valid if freeze is None else valid & (counter.to_float(stats.count) < freeze)",
        "return valid",
        (FREEZE, REWARDS),
        "ppo/normalization.py",
    ),
    Mutation(
        "statistics stop one sample late",
        "(counter.to_float(stats.count) < freeze)",
        "(counter.to_float(stats.count) <= freeze)",
        (FREEZE,),
        "ppo/normalization.py",
    ),
    Mutation(
        "entries that are left out are normalised",
        "return jnp.where(kept, one(s.stats, x), x)",
        "return one(s.stats, x)",
        (LEFT, NAMES),
        "ppo/normalization.py",
    ),
    Mutation(
        "a range leaves one entry less out",
        "return name, slice(begin, end)",
        "return name, slice(begin, max(begin + 1, end - 1))",
        (LEFT,),
        "ppo/normalization.py",
    ),
    Mutation(
        "given statistics of observations move",
        "if learner.obs_stats is None or chosen.mean is not None:",
        "if learner.obs_stats is None:",
        (TESTS + "test_given_statistics_are_constant",),
        "ppo/normalization.py",
    ),
    Mutation(
        "given means lose their digits beyond float32",
        "return FloatPair(jnp.asarray(high), jnp.asarray((exact - high).astype(np.float32)))",
        "return FloatPair(jnp.asarray(high), jnp.asarray(np.zeros_like(high)))",
        (TESTS + "test_given_statistics_are_constant",),
        "ppo/normalization.py",
    ),
    Mutation(
        "given statistics of rewards move",
        "    if chosen.reward_std is None:\n",
        "    if True:\n",
        (REWARDS,),
        "ppo/normalization.py",
    ),
    Mutation(
        "a whole entry of a Dict is not left out",
        "            left[name].append(slice(None))\n",
        "            pass\n",
        (NAMES,),
        "ppo/normalization.py",
    ),
    Mutation(
        "a bundle does not know what is left out",
        'READ = ("network", "critic", "normalize_obs", "normalization", "compute_dtype")  # fields of PPO',
        'READ = ("network", "critic", "normalize_obs", "compute_dtype")  # fields of PPO',
        (TESTS + "test_acting_export_resume_and_warm_start_know_them",),
        "bundle/rebuilding.py",
    ),
]
