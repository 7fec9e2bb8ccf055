"""Breaks of import paths, of trust in packages, and of optimisers of optax."""

from breaks.base import Mutation

TRUST = "tests/core/imports/test_trust.py::"
OWN = "tests/system/test_own_packages.py::"
OPTAX = "tests/ppo/optimizers/test_from_optax.py::"
MUTATIONS = [
    Mutation(
        "optax: partials such as nadam are no factories",
        "made = (types.FunctionType, functools.partial)",
        "made = types.FunctionType",
        ("tests/ppo/optimizers/test_from_optax.py::test_a_partial_of_optax_is_a_part_as_its_functions_are",),
        "ppo/optimizers.py",
    ),
    Mutation(
        "optax: a partial is pickled as one of its own",
        "functools.partial(_restored, public_name(factory) or factory,",
        "functools.partial(_restored, factory,",
        ("tests/ppo/optimizers/test_from_optax.py::test_a_partial_of_optax_is_a_part_as_its_functions_are",),
        "ppo/optimizers.py",
    ),
    Mutation(
        "a class is named by a path that leads to another package",
        'return f"{module}:{name}" if _is_importable(module) else None',
        'return f"{module}:{name}" if _spec(module.partition(".")[0]) else None',
        ("tests/core/imports/test_trust.py::test_a_class_is_not_named_by_a_path_that_leads_to_another_package",),
        "core/imports.py",
    ),
    Mutation(
        "the line that resumes a run lacks its trust",
        'return f"ppax resume {quoted(path)}{trust_flags([run_config], SOURCE)}"',
        'return f"ppax resume {quoted(path)}{imports.flags()}"',
        (
            "tests/run/test_python_objects.py::test_the_line_that_resumes_a_run_trusts_what_its_file_names_and_nothing_else",
        ),
        "run/python_objects.py",
    ),
    Mutation(
        "the line that resumes a run trusts the run that it began from",
        "used = {name: x for name, x in recorded(run_config).items() if name not in without}",
        "used = recorded(run_config)",
        (
            "tests/run/test_python_objects.py::test_the_line_that_resumes_a_run_trusts_what_its_file_names_and_nothing_else",
        ),
        "run/python_objects.py",
    ),
    Mutation(
        "the line that resumes a sweep lacks the trust of its members",
        "[recorded.run_config, *(one.config for one in recorded.members)], python_objects.SOURCE",
        "[recorded.run_config], python_objects.SOURCE",
        ("tests/sweeps/test_directory.py::test_a_stopped_sweep_names_the_trust_that_its_parts_and_its_search_need",),
        "sweeps/directory.py",
    ),
    Mutation(
        "every package is trusted",
        "    return package in _trusted or package in _of_settings()",
        "    return True",
        (TRUST + "test_a_name_in_a_configuration_imports_nothing", TRUST + "test_a_short_name_is_no_permission"),
        "core/imports.py",
    ),
    Mutation(
        "trust in a package is trust in all whose names begin so",
        "    return package in _trusted or package in _of_settings()",
        "    return package.startswith(tuple(_trusted)) or package in _of_settings()",
        (TRUST + "test_trust_in_one_package_is_no_trust_in_another",),
        "core/imports.py",
    ),
    Mutation(
        "functions that a trusted module has imported are taken",
        "        if owner in NEVER or not _is_trusted(owner):",
        "        if False:",
        (TRUST + "test_functions_of_other_modules_in_a_trusted_package_are_refused",),
        "core/imports.py",
    ),
    Mutation(
        "the current directory is searched for packages of the settings file",
        "    return package in _beside",
        "    return _is_trusted(package)",
        (TRUST + "test_the_current_directory_is_searched_for_packages_of_the_command_line_alone",),
        "core/imports.py",
    ),
    Mutation(
        "the current directory goes before installed packages",
        "beside = _may_be_beside(package) and _spec(package) is None\n    not_searched",
        "beside = _may_be_beside(package)\n    sys.path[:0] = [str(Path.cwd())] * beside\n    not_searched",
        (TRUST + "test_an_installed_package_goes_before_the_current_directory",),
        "core/imports.py",
    ),
    Mutation(
        "a run directory is searched for packages",
        "(one / name).exists()",
        "(one / 'nothing').exists()",
        (
            TRUST + "test_the_current_directory_is_searched_for_packages_of_the_command_line_alone",
            "tests/core/imports/test_outside.py::test_directories_that_may_be_a_strangers",
        ),
        "core/imports.py",
    ),
    Mutation(
        "a relative directory of settings is the current directory's",
        "    if os.path.isabs(base):",
        "    if base:",
        (TRUST + "test_place_of_the_settings_file",),
        "core/imports.py",
    ),
    Mutation(
        "the doctor looks up the parts that a stranger's run names",
        "config.resolve(config.plain(python_objects.recorded(read_run_config(path))))",
        "config.resolve(python_objects.recorded(read_run_config(path)))",
        (OWN + "test_the_doctor_imports_nothing_even_where_the_package_is_trusted",),
        "reports/doctor.py",
    ),
    Mutation(
        "load of a run needs the parts that only learn",
        "python_objects.without_learning(python_objects.recorded(run_config))",
        "python_objects.recorded(run_config)",
        (OWN + "test_load_of_a_strangers_run_executes_nothing",),
        "run/loading.py",
    ),
    Mutation(
        "a run made in Python is recorded without import paths",
        "optimizers.public_name(made_of) or imports.import_path(made_of) or unimportable(made_of)",
        "optimizers.public_name(made_of) or unimportable(made_of)",
        (OWN + "test_a_run_made_in_python_is_recorded_by_import_path",),
        "config/user_parts.py",
    ),
    Mutation(
        "an optimiser with a mask is elementwise",
        "ELEMENTWISE} and not functions",
        "ELEMENTWISE}",
        (OPTAX + "test_options_decide_whether_an_optimiser_is_elementwise",),
        "ppo/optimizers.py",
    ),
]
