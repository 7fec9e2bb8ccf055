"""Breaks of the conventions of other libraries on the host: masks, actions, recorded episodes, single environments."""

from breaks.base import Mutation

CONVENTIONS = "tests/envs/hosting/test_conventions.py::"
MASKS = "tests/envs/hosting/test_mask_values.py::"
METRICS = "tests/system/test_episode_metrics.py::"
INSTANCES = "tests/envs/hosting/test_instances.py::"
ACTIONS = "tests/envs/hosting/test_actions.py::"
READ = CONVENTIONS + "test_masks_are_read_where_other_libraries_put_them"
RECORDED = CONVENTIONS + "test_returns_of_recorded_episodes_are_reported"
SENT = ACTIONS + "test_what_cannot_be_pickled_is_named"

MUTATIONS: list[Mutation] = [
    Mutation(
        "masks of a method are not read",
        "    if env.has_wrapper_attr(METHOD) and _without_arguments(env.get_wrapper_attr(METHOD)):\n",
        "    if False:\n",
        (READ + "[method-sync]",),
    ),
    Mutation(
        "masks of a method of the environments in a vector are not read",
        "    elif _each_has(vector, METHOD) and all(\n",
        "    elif False and all(\n",
        (READ + "[method-NEXT_STEP]",),
    ),
    Mutation(
        "masks in observations are not read",
        "    elif has_mask_entry(env.observation_space, env.action_space):\n",
        "    elif False:\n",
        (READ + "[observation-sync]",),
    ),
    Mutation(
        "masks in observations of agents are read beside an entry 'observation' only",
        'mask = obs[name]["action_mask"] if self._gives_mask[i] else',
        'mask = obs[name]["action_mask"] if masked else',
        (CONVENTIONS + "test_masks_of_agents_stand_in_any_dict_and_form",),
    ),
    Mutation(
        "places where masks are not read are not named",
        "        if places:\n",
        "        if False:\n",
        (CONVENTIONS + "test_masks_in_other_places_are_named_in_a_warning",),
        "hosting/conventions.py",
    ),
    Mutation(
        "padding of a mask is read",
        "return given.reshape(self._own.shape)[self._own]",
        "return given.reshape(-1)[: self.size]",
        (MASKS + "test_every_form_of_a_mask_is_flattened[padded]",),
    ),
    Mutation(
        "a mask with components in columns is read as one with components in rows",
        "        if given.size == self.size == max(given.shape, default=1):",
        "        if given.size == self.size:",
        (MASKS + "test_other_forms_are_refused_before_an_action_is_drawn[the other way round]",),
    ),
    Mutation(
        "compiled environments take masks of components in any order",
        "    if given == tuple((num_streams, n) for n in choices):\n",
        "    if sum(shape[-1] for shape in given) == sum(choices):\n",
        (MASKS + "test_other_forms_are_refused_before_an_action_is_drawn[parts in another order]",),
    ),
    Mutation(
        "checks draw actions from masks of another form",
        "np.split(form(mask), np.cumsum(form.choices)[:-1])",
        "np.split(np.asarray(mask, bool).reshape(-1), np.cumsum(form.choices)[:-1])",
        (MASKS + "test_other_forms_are_refused_before_an_action_is_drawn[padded and flat]",),
    ),
    Mutation(
        "the metrics of an environment are read after an action that its mask forbids",
        "[sample_allowed(_seeded(space), mask, rng) for",
        "[sample_allowed(_seeded(space), None, rng) for",
        (METRICS + "test_what_is_logged_by_default_is_not_left_to_chance",),
    ),
    Mutation(
        "the metrics of an environment are read after a random action",
        "    own.seed(0)\n",
        "",
        (METRICS + "test_what_is_logged_by_default_is_not_left_to_chance[Rarely-None]",),
    ),
    Mutation(
        "an environment that is returned twice is taken",
        "    refuse_shared([env])\n",
        "",
        (INSTANCES + "test_check_env_reports_it",),
    ),
    Mutation(
        "environments may share one inside of them",
        "        for one in wrappers_of(env):\n            known = made",
        "        for one in [env]:\n            known = made",
        (INSTANCES + "test_one_environment_for_all_streams_is_refused_before_anything_compiles",),
    ),
    Mutation(
        "one generator of several environments is not noticed",
        "[*_shared_generators(trace)]",
        "[]",
        (INSTANCES + "test_check_env_names_a_generator_of_several_environments",),
    ),
    Mutation(
        "Discrete actions are Python's integers",
        "    if isinstance(space, spaces.Discrete | spaces.Box):\n",
        "    if isinstance(space, spaces.Discrete):\n        return iter(arrays[0].tolist())\n"
        "    if isinstance(space, spaces.Box):\n",
        (ACTIONS + "test_actions_have_the_types_of_samples_everywhere[discrete]",),
    ),
    Mutation(
        "repeated actions are one array",
        "= self.envs[i].step(copy.deepcopy(action))\n            if",
        "= self.envs[i].step(action)\n            if",
        (ACTIONS + "test_each_repetition_gets_the_same_action",),
    ),
    Mutation(
        "the first of repeated actions is not copied",
        "out = self.envs[i].step(copy.deepcopy(action))",
        "out = self.envs[i].step(action)",
        (ACTIONS + "test_each_repetition_gets_the_same_action",),
    ),
    Mutation(
        "vectors get the policy's own arrays",
        "given = (np.array(x, dtype) for",
        "given = (np.asarray(x, dtype) for",
        (ACTIONS + "test_each_repetition_gets_the_same_action",),
    ),
    Mutation(
        "checks repeat actions that an environment has changed",
        "out = self.env.step(copy.deepcopy(action))",
        "out = self.env.step(action)",
        (ACTIONS + "test_check_env_gives_the_same_actions_again",),
    ),
    Mutation(
        "checks compare arrays that an environment has overwritten",
        "return EnvEvent(copy.deepcopy(out[0]), _read(out[4]),",
        "return EnvEvent(out[0], _read(out[4]),",
        (INSTANCES + "test_check_env_does_not_compare_an_array_with_itself",),
    ),
    Mutation(
        "lives are recorded episodes",
        "info = info | {STATS: (total - self._known, recorded is not None)}",
        "info = info | {STATS: (total - self._known, terminated or truncated)}",
        (RECORDED + "[sync lives]",),
    ),
    Mutation(
        "a recorded episode that is cut outside of its recorder never ends",
        "begun and self._open and seed is None)",
        "False)",
        (CONVENTIONS + "test_an_episode_that_is_cut_outside_of_the_recorder_counts",),
    ),
    Mutation(
        "episodes that a vector records are read from `info` alone",
        'for ended in (info, info.get("final_info", {})):',
        "for ended in (info,):",
        (RECORDED + "[SAME_STEP scaled]",),
    ),
    Mutation(
        "NormalizeObservation causes no warning",
        'if "normalises observations" in kinds or',
        "if",
        (CONVENTIONS + "test_wrappers_that_normalise_cause_a_warning_with_the_remedy",),
    ),
    Mutation(
        "a second training makes another environment for the checks",
        "    if env.host.running:\n",
        "    if False:\n",
        (INSTANCES + "test_one_robot_is_checked_and_trained_twice",),
    ),
    Mutation(
        "check_env makes three environments of one",
        "subjects_of(env, min(FEW, env.num_envs))",
        "subjects_of(env, FEW)",
        (INSTANCES + "test_one_robot_is_checked_and_trained_twice",),
    ),
    Mutation(
        "a pool that was read for its spaces stays open",
        "        close_all([first.close])\n",
        "        pass\n",
        (INSTANCES + "test_a_pool_that_is_read_for_its_spaces_is_closed",),
        "hosting/host_env.py",
    ),
    Mutation(
        "what cannot be pickled is a traceback",
        "    except Exception as error:  # any exception of the user's objects\n",
        "    except ZeroDivisionError as error:\n",
        (SENT,),
    ),
    Mutation(
        "what cannot be pickled has no name",
        'return _culprit(held, f"{inner}, of type {type(held).__name__},", (x, *outside))',
        "return name",
        (SENT,),
    ),
    Mutation(
        "ids that workers do not know are a traceback",
        "            except UnregisteredEnv as unknown:\n",
        "            except ZeroDivisionError as unknown:\n",
        (ACTIONS + "test_ids_that_a_script_registers_are_explained_in_workers",),
    ),
]
