"""Breaks of turn-based environments, of tables as arguments, and of packages that register environments."""

from breaks.base import Mutation

TURNS = "tests/training/host/test_turns.py::"
OFFICIAL = TURNS + "test_rows_are_the_decisions_of_the_official_loop"
TABLES = "tests/envs/test_tables.py::"
OWN = "tests/envs/test_own.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "rewards of the turns of others lost",
        "rows.reward[running[goes_on], goes_on] += reward[t, goes_on]",
        "rows.reward[running[acts], acts] += reward[t, acts]",
        (TURNS + "test_settle_against_the_definition",),
        "training/host/streams.py",
    ),
    Mutation(
        "an unanswered decision is learned from",
        "rows.valid[running[open_], open_], rows.reward[running[open_], open_] = False, 0.0",
        "rows.valid[running[open_], open_] = True",
        (TURNS + "test_settle_against_the_definition",),
        "training/host/streams.py",
    ),
    Mutation(
        "the last observation of a truncated agent is lost",
        "order[count[cut], cut] = t + 1  # its last observation",
        "order[count[cut], cut] = t",
        (TURNS + "test_settle_against_the_definition", OFFICIAL),
        "training/host/streams.py",
    ),
    Mutation(
        "agents that wait remember what they see",
        "return np.where(own.reshape(-1, *[1] * (np.ndim(new) - 1)), new, old)",
        "return np.asarray(new)",
        (TURNS + "test_the_memory_has_the_agents_own_decisions_only",),
        "training/host/streams.py",
    ),
    Mutation(
        "everybody acts in turn-based environments",
        "turn = np.array([name == self.env.acting for name in self.names]) if self.turns else True",
        "turn = True",
        (OFFICIAL,),
        "hosting/team.py",
    ),
    Mutation(
        "evaluations without rewards of the turns of others",
        "np.where(step.valid | turns, step.reward, 0.0)",
        "np.where(step.valid, step.reward, 0.0)",
        (TURNS + "test_rewards_of_the_turns_of_others_count_in_evaluations",),
        "training/host/episodes.py",
    ),
    Mutation(
        "ratings without rewards of the turns of others",
        "reward = steps.reward if rollout.played else jnp.where(steps.valid, steps.reward, 0.0)",
        "reward = jnp.where(steps.valid, steps.reward, 0.0)",
        (TURNS + "test_self_play_rates_games_by_all_rewards",),
        "agents/self_play.py",
    ),
    Mutation(
        "every table of env_params is a range",
        'return isinstance(value, Mapping) and bool(value) and {*value} <= {"low", "high"}',
        "return isinstance(value, Mapping)",
        (TABLES + "test_python",),
        "wrappers/params.py",
    ),
    Mutation(
        "a table of env_params replaced as a whole",
        "both[name] = merged(both[name], value) if all(tables) else value",
        "both[name] = value",
        (TABLES + "test_other_parameters_change_single_entries",),
        "wrappers/params.py",
    ),
    Mutation(
        "JSON on the command line stays text",
        'return untrusted.from_json(text) if text.lstrip().startswith(("{", "[")) else text',
        "return text",
        (TABLES + "test_run_files_and_the_command_line",),
        "cli/arguments.py",
    ),
    Mutation(
        "modules of ids imported without trust",
        """    require_trusted({place: path})
    _imported(_module_of(path, place)""",
        "    _imported(_module_of(path, place)",
        (OWN + "test_a_module_of_an_id_is_imported_if_it_is_trusted",),
        "core/imports.py",
    ),
    Mutation(
        "trusted packages that register ids not imported",
        """        imports.load_trusted(f"env = 'gymnasium/{env_id}'")""",
        "        pass",
        (OWN + "test_a_run_of_a_registered_id_goes_on_by_command",),
        "suites/gymnasium.py",
    ),
    Mutation(
        "minibatches of groups divide the rollout as a whole",
        "sequences = math.gcd(*(",
        "sequences = sum((",
        ("tests/config/test_defaults.py::test_minibatches_divide_the_rollout_of_every_group",),
        "config/defaults.py",
    ),
    Mutation(
        "sizes that do not divide without their group",
        'group = f"groups.{env.sizes[place][0]}.agent: " if env.sizes else ""',
        'group = ""',
        ("tests/config/test_defaults.py::test_a_group_whose_minibatches_do_not_divide_is_named",),
        "ppax/training/loop.py",
    ),
    Mutation(
        "an evaluation without episodes in nan",
        '"evaluation: no agent appeared" if count == 0 else _means(evaluation, count, deterministic)',
        "_means(evaluation, count, deterministic)",
        ("tests/cli/test_output.py::test_an_evaluation_without_a_finished_episode_has_no_nan",),
        "cli/output.py",
    ),
    Mutation(
        "lines of third parties in the list of environments",
        "            with without_output():\n                listed[suite] = registry.ids(suite)",
        "            listed[suite] = registry.ids(suite)",
        ("tests/cli/test_output.py::test_the_list_of_environments_has_no_lines_of_third_parties",),
        "cli/envs.py",
    ),
]
