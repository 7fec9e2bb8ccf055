"""Breaks of environments and agents that are recorded by path, of their arguments, and of films from Python."""

from breaks.base import Mutation

ENVS = "tests/config/test_own_environments.py::"
PARTS = "tests/config/test_own_parts.py::"
OWN = "tests/envs/test_own.py::"
FILM = "tests/run/films/test_film.py::"
COMPILED = ENVS + "test_a_compiled_environment_is_recorded_and_built_again"
HOSTED = ENVS + "test_a_host_environment_is_recorded_and_built_again"
OBJECT = ENVS + "test_what_no_file_holds_of_a_host_environment_stays_an_object"
MUTATIONS = [
    Mutation(
        "a time limit in Python is not recorded",
        "        around, env = around | {LIMIT: plain_value(env.max_steps)}, env.env",
        "        env = env.env",
        (COMPILED + "[a time limit]",),
        "config/description.py",
    ),
    Mutation(
        "an own max_steps is taken for the time limit around it",
        "    if around.keys() & {*known, *fields} or any(",
        "    if any(",
        (ENVS + "test_what_no_file_holds_of_a_compiled_environment_stays_an_object[two limits]",),
        "config/description.py",
    ),
    Mutation(
        "fields without a default are recorded only where they differ",
        "if name in needed or plain_value(x) != usually.get(name, ABSENT)}",
        "if plain_value(x) != usually.get(name, ABSENT)}",
        (COMPILED + "[a number without a default]",),
        "config/description.py",
    ),
    Mutation(
        "arguments by position of a partial are lost",
        "values, keywords, source = source.args,",
        "values, keywords, source = (),",
        (HOSTED + "[by position]",),
        "config/description.py",
    ),
    Mutation(
        "arguments are recorded as TOML happens to write them",
        "if type(again) is type(data) and again == data and not",
        "if not",
        (OBJECT + "[None]", OBJECT + "[tuple]"),
        "config/description.py",
    ),
    Mutation(
        "an argument that looks like a range is recorded and drawn",
        " and not params.is_range(data) else ABSENT",
        " else ABSENT",
        (OBJECT + "[range]",),
        "config/description.py",
    ),
    Mutation(
        "set_params is forgotten by the run file",
        "given[0] if set_params is None and len",
        "given[0] if len",
        (OBJECT + "[set_params]",),
        "hosting/host_env.py",
    ),
    Mutation(
        "the first of several functions stands for all",
        "and len(set(map(id, given))) == 1 else None",
        "else None",
        (OBJECT + "[two]",),
        "hosting/host_env.py",
    ),
    Mutation(
        "arguments that an environment has already are set in it",
        "if name not in has or has[name] != x}",
        "}",
        (ENVS + "test_an_environment_that_is_passed_again_needs_neither_trust_nor_other_parameters",),
        "config/construction.py",
    ),
    Mutation(
        "an agent of another class loses the options of all agents",
        "    of_agents = [slot for slot in slots if AGENT_PREFIX.fullmatch(slot)]",
        "    of_agents = []",
        (PARTS + "test_an_agent_of_another_class_keeps_what_all_agents_have",),
        "config/user_parts.py",
    ),
    Mutation(
        "a group inherits options of an agent of another class",
        "    if chosen != name and isinstance(base, dict):",
        "    if False:",
        (PARTS + "test_an_agent_of_another_class_keeps_what_all_agents_have",),
        "config/group_tables.py",
    ),
    Mutation(
        "any class is taken for an agent",
        '    if kind == "agent" and not (isinstance(found, type) and issubclass(found, PPO)):',
        "    if False:",
        (PARTS + "test_an_agent_is_a_subclass_of_ppo_with_options_of_its_own",),
        "config/user_parts.py",
    ),
    Mutation(
        "an agent is recorded as PPO",
        '{"part": AGENT.name_of(part)} if',
        '{"part": "ppo"} if',
        (PARTS + "test_an_agent_made_in_python_is_recorded_by_its_path",),
        "config/description.py",
    ),
    Mutation(
        "an environment is built with the agent's options",
        "config.build_env(_without_agents(recorded(run_config)))",
        "config.build_env(run_config)",
        ("tests/run/test_python_objects.py::test_a_subclass_of_ppo_without_an_import_path_is_the_only_object",),
        "run/python_objects.py",
    ),
    Mutation(
        "an agent that JAX cannot trace begins to train",
        "    _require_tree(agent, name)\n",
        "",
        ("tests/agents/test_arguments.py::test_classes_without_the_decorator_part_are_refused",),
        "training/arguments.py",
    ),
    Mutation(
        "a range of an argument by import path is its low end",
        '**settings.of_host() | {"env_params": by_host})',
        "**settings.of_host())",
        (OWN + "test_arguments_of_a_gymnasium_class_are_drawn_as_by_host",),
        "envs/making.py",
    ),
    Mutation(
        "texts are drawn at a reset",
        "        require_numbers(ranges, _defaults_of(one))",
        "        pass",
        (OWN + "test_arguments_of_a_gymnasium_class_are_drawn_as_by_host",),
        "hosting/spec.py",
    ),
    Mutation(
        "arguments without a default are not passed",
        "    env = single(first)",
        "    env = single({})",
        (OWN + "test_arguments_without_a_default_are_given_or_named",),
        "envs/making.py",
    ),
    Mutation(
        "lists of a run file are no tuples",
        "{key: _tupled(x) if isinstance(defaults.get(key), tuple) else x for",
        "{key: x for",
        (OWN + "test_arguments_without_a_default_are_given_or_named", HOSTED + "[a tuple]"),
        "envs/imported.py",
    ),
    Mutation(
        "max_steps of an environment without a limit is unknown",
        "        if LIMIT in tables and LIMIT not in imported.parameters_of(found):",
        "        if False:",
        (OWN + "test_any_compiled_environment_takes_a_time_limit",),
        "envs/making.py",
    ),
    Mutation(
        "sizes are listed as parameters that can be drawn",
        "    return not parameter.is_static and parameter",
        "    return place",
        (OWN + "test_the_command_envs_lists_arguments_and_those_that_can_be_drawn",),
        "wrappers/params.py",
    ),
    Mutation(
        "a film of a run plays its last policy for the best",
        "        source = source.policy(best)",
        "        source = source.policy()",
        (FILM + "test_the_best_policy_and_another_environment_are_played",),
        "run/films.py",
    ),
    Mutation(
        "a film of a run plays in the run's environment alone",
        "        env = for_evaluation(source.env, source.eval_settings.env_params) if env is None else env",
        "        env = for_evaluation(source.env, source.eval_settings.env_params)",
        (FILM + "test_the_best_policy_and_another_environment_are_played",),
        "run/films.py",
    ),
    Mutation(
        "films of a run are played with the parameters of training",
        "env = for_evaluation(source.env, source.eval_settings.env_params) if",
        "env = source.env if",
        (FILM + "test_films_show_the_environment_of_evaluations",),
    ),
    Mutation(
        "films of a run directory are played with the parameters of training",
        "return agent, for_evaluation(env, run.eval.env_params), learner",
        "return agent, env, learner",
        (FILM + "test_films_show_the_environment_of_evaluations",),
    ),
    Mutation(
        "films during training are played with the parameters of training",
        "env if self._every is None else for_evaluation(env, run.eval.env_params)",
        "env",
        (FILM + "test_films_show_the_environment_of_evaluations",),
    ),
    Mutation(
        "parameters of the call have no priority in films",
        "env = for_evaluation(env, env_params or {})",
        "env = for_evaluation(env, {})",
        (FILM + "test_films_show_the_environment_of_evaluations",),
    ),
    Mutation(
        "ppax evaluate leaves parameters of the environment out",
        "options.env_params = unflatten(env_params).get",
        "options.env_params = {}.get",
        ("tests/cli/test_main.py::test_evaluate_is_deterministic_and_writes_nothing",),
    ),
    Mutation(
        "a policy is filmed in an environment of other spaces",
        "    require_arguments(source.agent, env)\n",
        "",
        (FILM + "test_a_policy_of_other_spaces_is_refused",),
        "run/films.py",
    ),
]
