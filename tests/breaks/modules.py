"""Breaks of networks that are modules of Flax and Equinox: their names, arguments, outputs and refusals."""

from breaks.base import Mutation

MODULES = "tests/networks/test_modules.py::"
REFUSED = MODULES + "test_what_cannot_work_is_refused_before_anything_is_trained"

MUTATIONS: list[Mutation] = [
    Mutation(
        "code of a module needs no trust",
        'ENDS = (".part", ".distribution", ".module")',
        'ENDS = (".part", ".distribution")',
        (MODULES + "test_code_of_a_package_that_is_not_trusted_is_not_imported",),
        "config/user_parts.py",
    ),
    Mutation(
        "arguments of a module are not asked for as names of files",
        "        if is_free(place, tables):\n            found |=",
        "        if is_free(place):\n            found |=",
        (MODULES + "test_arguments_that_may_name_a_file_are_asked_for",),
        "config/construction.py",
    ),
    Mutation(
        "an instance forgets its import path",
        "        _objects[path] = found\n",
        "        pass\n",
        (
            MODULES + "test_a_name_is_the_object_and_a_run_file_gives_it_back[linen-linen_instance-arguments6]",
            MODULES + "test_a_name_is_the_object_and_a_run_file_gives_it_back[nnx-nnx_instance-arguments2]",
        ),
        "core/imports.py",
    ),
    Mutation(
        "tables that differ in a type are equal",
        "return all(repr(x) == repr(other[name]) for name, x in self.items())",
        "return True",
        (MODULES + "test_tables_that_differ_in_a_type_alone_are_different",),
        "core/parts.py",
    ),
    Mutation(
        "an argument that is called like a part names one",
        "    of_part &= not free_fields() & set(outer)",
        "    of_part &= True",
        (MODULES + "test_arguments_on_the_command_line_may_be_called_like_parts_or_be_one_table",),
        "cli/arguments.py",
    ),
    Mutation(
        "state of an nnx module is not refused",
        "        _refuse(self.module, sorted({type(leaf).__name__ for _, leaf in rest.flat_state()}))\n",
        "",
        (REFUSED + "[nnx noise]", REFUSED + "[nnx norm]"),
        "networks/adapters.py",
    ),
    Mutation(
        "state of a linen module is not refused",
        '        _refuse(self.module, sorted(set(variables) - {"params"}))\n',
        "",
        (REFUSED + "[norm]",),
        "networks/adapters.py",
    ),
    Mutation(
        "dropout of an Equinox module is not refused with its reason",
        "            _refuse(self.module, sorted({type(one).__name__ for one in used}))\n",
        "",
        (REFUSED + "[equinox noise]",),
        "networks/adapters.py",
    ),
    Mutation(
        "errors of a module do not name it",
        "    except Exception as error:  # any exception of the module or its library",
        "    except ZeroDivisionError as error:",
        (REFUSED + "[inside]", MODULES + "test_an_observation_that_the_module_cannot_read_is_in_the_error"),
        "networks/adapters.py",
    ),
    Mutation(
        "a module of another library is taken",
        "    if not isinstance(made, kind):",
        "    if False:",
        (REFUSED + "[library]",),
        "networks/adapters.py",
    ),
    Mutation(
        "an encoder is not tried when a network is made",
        "        reader.size()  # a user's",
        "        # a user's",
        (MODULES + "test_an_encoder_that_cannot_read_is_refused_also_before_dense_layers",),
        "networks/encoders.py",
    ),
    Mutation(
        "the output of a module is not tried when a network is made",
        "        made.output_shapes(jax.eval_shape(made.init_module, jax.random.key(0)))  # raises",
        "        # raises",
        (REFUSED + "[policy]", REFUSED + "[noise]"),
        "networks/modules.py",
    ),
    Mutation(
        "a whole module's own standard deviations are not used",
        'log_std = features.get("log_std", params.get("log_std"))',
        "log_std = jnp.zeros(self.head.log_std_size)",
        (
            MODULES + "test_a_whole_module_has_standard_deviations_of_its_own",
            MODULES + "test_without_deviations_of_its_own_ppax_has_them_as_parameters",
        ),
        "networks/modules.py",
    ),
    Mutation(
        "a value of a size that the critic cannot use is taken",
        "        elif output.value is not None and output.value.size != num_values:",
        "        elif False:",
        (MODULES + "test_critics_that_need_more_of_a_whole_module_are_refused",),
        "networks/modules.py",
    ),
    Mutation(
        "a module shows the actor what is for the critic",
        '        if getattr(env, "actor_obs", ()):\n            raise ConfigError(\n                "network: this',
        '        if False:\n            raise ConfigError(\n                "network: this',
        (MODULES + "test_observations_for_the_critic_alone_are_not_shown_to_the_actor",),
        "networks/modules.py",
    ),
    Mutation(
        "a module fits every environment",
        "    if not isinstance(network, Composed | ModuleNetwork):",
        "    if not isinstance(network, Composed):",
        (MODULES + "test_a_network_for_other_spaces_is_refused",),
        "networks/composed.py",
    ),
    Mutation(
        "modules do not get the default options of actions",
        "            kept = OF_BOX if slot",
        "            kept = () if slot",
        (MODULES + "test_options_of_actions_depend_on_the_kind_of_environment_as_for_networks_of_ppax",),
        "config/defaults.py",
    ),
    Mutation(
        "a module without an import path is taken for one that has one",
        'path.endswith((".part", ".module"))',
        'path.endswith(".part")',
        (MODULES + "test_a_sweep_of_a_module_that_no_file_can_name_says_what_to_do",),
        "run/python_objects.py",
    ),
]
