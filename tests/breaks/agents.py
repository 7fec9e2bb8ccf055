"""Breaks of many agents, layouts over devices, metrics of groups, command lines of groups and records of objects."""

from breaks.base import Mutation

PARALLEL = "tests/devices/test_sharding.py::"

DEVICES = [
    Mutation(
        "NPROC does not limit the devices",
        "return min(num_cores(), int(limit)) if",
        "return num_cores() if",
        (PARALLEL + "test_a_users_device_count_takes_precedence",),
        "ppax/devices/sharding.py",
    ),
    Mutation(
        "one thread is advised where NPROC is set",
        " or sharding.THREADS in os.environ",
        "",
        ("tests/training/test_bench.py::test_one_thread_is_advised_for_small_minibatches_on_one_device",),
        "training/bench.py",
    ),
    Mutation(
        "devices that do not divide a minibatch drop sequences",
        "            if size % devices:",
        "            if False:",
        (PARALLEL + "test_devices_that_do_not_divide_are_refused",),
        "ppax/devices/layout.py",
    ),
    Mutation(
        "devices are not checked with the other sizes",
        "ppo.program.num_devices(env.num_envs, minibatch, length)\n        except",
        "pass\n        except",
        (PARALLEL + "test_device_sizes_are_checked_before_anything_is_built",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "an axis of the user's couples seeds",
        'AXIS = "ppax.parallel"',
        'AXIS = "devices"',
        (PARALLEL + "test_no_communication_over_a_users_mapped_axis",),
        "ppax/devices/sharding.py",
    ),
    Mutation(
        "a split inside the user's split",
        "if jax.config.jax_disable_jit or jax.sharding.get_abstract_mesh().manual_axes:",
        "if jax.config.jax_disable_jit:",
        (PARALLEL + "test_one_device_inside_a_users_pmap_or_shard_map",),
        "ppax/devices/sharding.py",
    ),
]

METRICS = "tests/arrays/test_metrics.py::"
REDUCTIONS = [
    Mutation(
        "metrics of groups are reduced by a part of their names",
        'kind = kinds.get(name, "mean")',
        'kind = "max" if "_max" in name else "min" if "_min" in name else kinds.get(name, "mean")',
        (METRICS + "test_group_episode_metrics_are_means_for_any_group_name",),
        "ppax/arrays/metrics.py",
    ),
    Mutation(
        "a group's extremes become means",
        'out[full], reductions[full] = x, kinds[group].get(name, "mean")',
        'out[full], reductions[full] = x, "mean"',
        (METRICS + "test_group_metrics_are_reduced_as_declared",),
        "ppax/agents/metrics.py",
    ),
    Mutation(
        "a player's extremes become means",
        "Table(whole | own, (*kinds.items(), *reductions))",
        "Table(whole | own, (*kinds.items(),))",
        (METRICS + "test_player_metrics_keep_their_reductions",),
        "ppax/agents/metrics.py",
    ),
    Mutation(
        "the last iteration's metric is summed",
        'forgetting = jnp.where(each(kinds, "last"), 0.0, totals.means)',
        "forgetting = totals.means",
        (METRICS + "test_reductions_over_iterations_by_hand",),
        "ppax/arrays/metrics.py",
    ),
]

SELF_PLAY = "tests/agents/test_self_play.py::"
PAST_SELVES = [
    Mutation(
        "empty places of the pool have a rating",
        "past = jnp.where(filled, learner.past_elo[name], MISSING)",
        "past = learner.past_elo[name]",
        ("tests/agents/test_self_play.py::test_places_of_the_pool_that_are_empty_have_no_rating",),
        "agents/self_play.py",
    ),
    Mutation(
        "an episode that a forced reset cut is a game",
        "over = ended & counts",
        "over = (ended | first) & counts",
        (SELF_PLAY + "test_episodes_truncated_by_a_forced_reset_are_not_rated",),
        "ppax/agents/self_play.py",
    ),
    Mutation(
        "returns of past selves are those of the group",
        "current[block.envs, block.members] = False",
        "current[block.envs, block.members] = True",
        (SELF_PLAY + "test_episodes_of_a_group_are_those_that_it_plays_as_it_is_now",),
        "ppax/agents/self_play.py",
    ),
    Mutation(
        "training counts the episodes of past selves",
        "episodes = zero_rows(update.current, episodes)",
        "episodes = episodes",
        (SELF_PLAY + "test_an_iteration_leaves_out_what_past_selves_earned_and_remember",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "a past self inherits the memory of the one before it",
        "other = drawn & ((seats != before.opponents[name]) | (seats == place))",
        "other = drawn & (seats != seats)",
        (SELF_PLAY + "test_a_new_opponent_in_a_running_episode_starts_with_an_initial_carry",),
        "ppax/agents/self_play.py",
    ),
    Mutation(
        "a learner that joins the pool inherits the memory of the oldest",
        "(seats != before.opponents[name]) | (seats == place))",
        "(seats != before.opponents[name]))",
        (SELF_PLAY + "test_a_new_opponent_in_a_running_episode_starts_with_an_initial_carry",),
        "ppax/agents/self_play.py",
    ),
    Mutation(
        "self-play for another number of environments",
        "if num_envs not in (None, env.num_envs):",
        "if False:",
        (SELF_PLAY + "test_what_cannot_be_is_refused_by_name",),
        "ppax/training/arguments.py",
    ),
]

SWEEP = "tests/training/test_sweeps.py::"
SWEEPS = [
    Mutation(
        "numbers of players are taken for those of members",
        "            if players == members:\n",
        "            if players == members:\n                return jnp.asarray(x)\n",
        (SWEEP + "test_ambiguous_values_per_player_or_member_are_refused",),
        "ppax/training/sweeps.py",
    ),
    Mutation(
        "numbers of players are refused in a sweep",
        "if players > 1 and np.shape(x) == (players,):",
        "if False:",
        (SWEEP + "test_values_per_player_and_values_per_member",),
        "ppax/training/sweeps.py",
    ),
]

GROUPS = "tests/agents/test_groups.py::"
RECORD = "tests/run/test_python_objects.py::"
OVERRIDES = GROUPS + "test_a_command_line_overrides_groups_of_a_file"
MERGED = GROUPS + "test_a_group_takes_numbers_of_the_same_part_alone"
FILES = [
    Mutation(
        "a group's part takes numbers of a default part that nobody named",
        'x.get("part", default) if isinstance(x, Mapping) else default for x',
        'x.get("part", table.get("part")) if isinstance(x, Mapping) else default for x',
        (MERGED,),
        "ppax/config/group_tables.py",
    ),
    Mutation(
        "underscores in a group's name become dashes",
        'elif before in by_key or words == ["groups"]:',
        "elif before in by_key:",
        (OVERRIDES, GROUPS + "test_a_command_line_names_groups_with_underscores"),
        "ppax/cli/arguments.py",
    ),
    Mutation(
        "the part of a group is not looked for on the command line",
        'sections = ("--agent.", "--groups.", "--schedule.", *',
        'sections = ("--agent.", "--schedule.", *',
        (OVERRIDES,),
        "ppax/cli/arguments.py",
    ),
    Mutation(
        "a group has the options of default parts",
        "config.options(group_tables.with_inherited(base))",
        "config.options(base)",
        (OVERRIDES,),
        "ppax/cli/options.py",
    ),
    Mutation(
        "two columns of the logs have one name",
        "            if name in groups:",
        "            if False:",
        (GROUPS + "test_groups_whose_names_in_the_logs_are_the_same_are_refused",),
        "ppax/agents/metrics.py",
    ),
]
RECORDS = [
    Mutation(
        "objects that no file builds are not marked",
        'return list(_differences(agent, rebuilt, "agent"))',
        "return []",
        (RECORD + "test_agents_that_the_run_file_cannot_rebuild_are_listed",),
        "ppax/run/python_objects.py",
    ),
    Mutation(
        "a wrapped environment is recorded by its name",
        'return list(_differences(given, rebuilt, "env"))',
        "return []",
        (RECORD + "test_environments_that_the_run_file_cannot_rebuild_are_listed",),
        "ppax/run/python_objects.py",
    ),
    Mutation(
        "numbers of objects are not compared",
        "yield from () if same else (path,)",
        "yield from ()",
        (RECORD + "test_environments_that_the_run_file_cannot_rebuild_are_listed",),
        "ppax/run/python_objects.py",
    ),
    Mutation(
        "a run goes on without the objects that it was made from",
        "if not lacking:",
        "if True:",
        (RECORD + "test_only_objects_that_are_not_passed_are_required",),
        "ppax/run/python_objects.py",
    ),
    Mutation(
        "the file of a run with own objects trains another",
        'if not place.startswith("callbacks")]\n    if places:',
        'if not place.startswith("callbacks")]\n    if False:',
        (RECORD + "test_train_refuses_a_run_file_with_objects",),
        "ppax/config/construction.py",
    ),
    Mutation(
        "nothing is said of independent players where there is one",
        "if env.num_agents == 1 and agent.sharing == group_tables.INDEPENDENT:",
        "if False:",
        ("tests/agents/test_multi_agent.py::test_independent_with_one_agent_is_said_to_change_nothing",),
        "ppax/run/fit.py",
    ),
    Mutation(
        "equal returns of teams are a win by rounding",
        "ROUNDING * jnp.abs(weighted).sum(axis=1)",
        "0.0 * weighted.sum(axis=1)",
        ("tests/agents/test_games.py::test_equal_returns_are_a_draw[(5, 5)]",),
        "ppax/agents/self_play.py",
    ),
    Mutation(
        "independent players may contradict the entropy target",
        "        Chain(self.extensions).check(self)\n",
        "",
        ("tests/agents/test_multi_agent.py::test_contradictory_numbers_are_refused_with_one_policy_and_with_several",),
        "ppax/ppo/ppo.py",
    ),
    Mutation(
        "a group without a number of devices takes the greatest common divisor",
        '{"devices": given.pop()} if given else {}',
        "{}",
        ("tests/agents/test_groups.py::test_the_devices_of_one_group_are_those_of_all",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "extensions act for past selves, too",
        "jax.vmap(without_extensions(self.agent.agents[name]).act)",
        "jax.vmap(self.agent.agents[name].act)",
        ("tests/agents/test_self_play.py::test_extensions_act_for_current_learners_and_not_for_past_selves",),
        "agents/self_play.py",
    ),
]

MUTATIONS: list[Mutation] = [*FILES, *RECORDS, *SWEEPS, *DEVICES, *REDUCTIONS, *PAST_SELVES]
