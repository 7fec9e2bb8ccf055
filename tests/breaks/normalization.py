"""Breaks of what normalisation leaves out, when its statistics stop, and given statistics."""

from breaks.base import Mutation

ENTRIES = "tests/arrays/test_entries.py::"
TESTS = "tests/ppo/test_normalization_options.py::"
FREEZE, LEFT = (
    TESTS + "test_statistics_stop_after_so_many_steps",
    TESTS + "test_entries_that_are_left_out_stay_as_they_are",
)
NAMES, REWARDS = (
    TESTS + "test_entries_of_a_dict_are_left_out_by_name",
    TESTS + "test_statistics_of_rewards_stop_or_are_given",
)
BESIDE = "tests/config/test_defaults.py::"
MUTATIONS = [
    Mutation(
        "numbers beside images are not normalised by default",
        "beside = images if numbers and not env.sizes else ()",
        "beside = ()",
        (BESIDE + "test_numbers_beside_images_are_normalised_and_images_are_not",),
        "config/defaults.py",
    ),
    Mutation(
        "categories beside images count as numbers to normalise",
        "if not entry.image and not entry.categories)",
        "if not entry.image)",
        (BESIDE + "test_images_alone_or_beside_categories_are_not_normalised",),
        "config/defaults.py",
    ),
    Mutation(
        "given options of normalisation are overridden beside images",
        " and not any(path.startswith(NORMALIZATION) for path in flat):",
        ":",
        (BESIDE + "test_given_options_of_normalisation_have_priority_beside_images",),
        "config/defaults.py",
    ),
    Mutation(
        "statistics never stop",
        "return valid if freeze is None else valid & (counter.to_float(stats.count) < float(freeze))",
        "return valid",
        (FREEZE, REWARDS),
        "ppo/normalization.py",
    ),
    Mutation(
        "statistics stop one sample late",
        "(counter.to_float(stats.count) < float(freeze))",
        "(counter.to_float(stats.count) <= float(freeze))",
        (FREEZE,),
        "ppo/normalization.py",
    ),
    Mutation(
        "entries that are left out are normalised",
        "return jnp.where(kept, one(s.stats, x), x / 255 if bytes_left else x)",
        "return one(s.stats, x)",
        (LEFT, NAMES),
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
        "return dict.fromkeys(inside, slice(None))",
        "return dict.fromkeys(inside, slice(0, 0))",
        (NAMES, ENTRIES + "test_a_text_names_arrays_or_a_range_of_one[state-found1]"),
        "arrays/entries.py",
    ),
    Mutation(
        "a range of entries has one more",
        "return {name: slice(begin, end)}",
        "return {name: slice(begin, end + 1)}",
        (ENTRIES + "test_a_text_names_arrays_or_a_range_of_one[state.joints.1:4-found4]",),
        "arrays/entries.py",
    ),
    Mutation(
        "an empty range of entries is taken",
        "if not begin < end <= size:",
        "if not begin <= size:",
        (ENTRIES + "test_other_texts_are_refused_with_the_nearest_valid_one",),
        "arrays/entries.py",
    ),
    Mutation(
        "a bundle does not know what is left out",
        'READ = ("network", "critic", "normalize_obs", "normalization", "compute_dtype")  # fields of PPO',
        'READ = ("network", "critic", "normalize_obs", "compute_dtype")  # fields of PPO',
        (TESTS + "test_acting_export_resume_and_warm_start_know_them",),
        "bundle/rebuilding.py",
    ),
]
