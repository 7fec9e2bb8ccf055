"""Breaks of adaptive ranges, of the self-test of several policies, and of teachers that a run directory names."""

from breaks.base import Mutation

RANGES, AT_ENDS = "tests/envs/test_ranges.py::", "tests/envs/wrappers/test_ends.py::"
SELFTEST = "tests/checks/test_selftest.py::"
SIMULATION = RANGES + "test_ends_move_as_a_simulation_in_numpy_moves_them"
MUTATIONS = [
    Mutation(
        "lists pass for a number without an annotation",
        "annotation is inspect.Parameter.empty and is_number(arguments[name].default)",
        "False",
        ("tests/envs/hosting/test_drawn.py::test_wrong_parameters_are_refused",),
        "wrappers/params.py",
    ),
    Mutation(
        "lists are refused whatever the annotation says",
        "annotation is inspect.Parameter.empty and is_number(arguments[name].default)",
        "is_number(arguments[name].default)",
        ("tests/envs/hosting/test_drawn.py::test_lists_are_refused_only_where_an_argument_is_a_number_alone",),
        "wrappers/params.py",
    ),
    Mutation(
        "an end moves by a share of what is left, not of the whole way",
        "(limits - ranges.start)",
        "(limits - ranges.ends)",
        (SIMULATION,),
        "envs/adaptive_ranges.py",
    ),
    Mutation(
        "a buffer keeps its episodes after a decision",
        "jnp.where(full, 0.0, ranges.count),",
        "ranges.count,",
        (SIMULATION, RANGES + "test_an_end_stops_at_its_limit_and_goes_back_no_further_than_it_began"),
        "envs/adaptive_ranges.py",
    ),
    Mutation(
        "an end moves before its buffer is full",
        "full = ranges.count >= self.episodes",
        "full = ranges.count > 0",
        (RANGES + "test_an_end_stops_at_its_limit_and_goes_back_no_further_than_it_began",),
        "envs/adaptive_ranges.py",
    ),
    Mutation(
        "ends never move back",
        "jnp.where(mean <= narrow_at, -1.0, 0.0)",
        "0.0",
        (SIMULATION,),
        "envs/adaptive_ranges.py",
    ),
    Mutation(
        "episodes count for an end that has moved since",
        "(state.end == end) & (state.inner.numbers[name] == value)",
        "(state.end == end)",
        (AT_ENDS + "test_an_episode_from_before_the_move_of_its_end_counts_nowhere",),
        "wrappers/boundary_sampling.py",
    ),
    Mutation(
        "every episode is drawn at an end",
        "jax.random.uniform(end_key, (), jnp.float32) / self.share * none",
        "jax.random.uniform(end_key, (), jnp.float32) * none",
        (AT_ENDS + "test_a_share_of_episodes_is_drawn_at_each_end_and_the_others_between",),
        "wrappers/boundary_sampling.py",
    ),
    Mutation(
        "each device moves the ends by its own episodes",
        "sharding.total(sums)",
        "sums",
        (RANGES + "test_two_devices_move_the_ends_as_one",),
        "envs/adaptive_ranges.py",
    ),
    Mutation(
        "evaluation draws at ends",
        "    return dataclasses.replace(env, env=_inside(env.env), schedule=None)\n",
        "    return dataclasses.replace(env, schedule=None)\n",
        (RANGES + "test_evaluation_draws_from_the_widest_ranges",),
        "envs/adaptive_ranges.py",
    ),
    Mutation(
        "a player of independent learning is checked with the first one's weights",
        "(jax.tree.map(lambda x: x[place], x) for x in (one.learner, rollouts))",
        "(jax.tree.map(lambda x, i=i: x[i], x) for x, i in ((one.learner, 0), (rollouts, place)))",
        (SELFTEST + "test_every_policy_of_groups_is_checked_on_its_own_streams",),
        "agents/policies.py",
    ),
]
