"""Breaks of what a stranger's file may choose outside of itself."""

from breaks.base import Mutation

STRANGERS = "tests/system/test_strangers.py::test_a_strangers_file_chooses_nothing_outside"
NAMES = "tests/config/test_outside_names.py::"
OUTSIDE = "tests/core/imports/test_outside.py::"
STUDY = "tests/sweeps/studies/test_study.py::"
SERVICES = "tests/loggers/test_services.py::"
MUTATIONS = [
    Mutation(
        "a run file chooses what is read and which servers are asked",
        "    config = resolve(config)\n    require_asked_options(config)\n",
        "    config = resolve(config)\n",
        (f"{STRANGERS}[run file, init_from]", f"{STRANGERS}[run file, database of MLflow]"),
        "config/construction.py",
    ),
    Mutation(
        "a run directory chooses the teacher",
        '    require_asked_options(config, "agent", "groups")\n',
        "",
        (f"{STRANGERS}[run directory, teacher]", f"{STRANGERS}[run directory, demonstrations]"),
        "config/construction.py",
    ),
    Mutation(
        "a run directory chooses a file for the environment",
        "    config = resolve(config)\n    require_asked_of_env(config)\n",
        "    config = resolve(config)\n",
        (f"{STRANGERS}[run directory, evaluated with an argument]",),
        "config/construction.py",
    ),
    Mutation(
        "a run directory chooses the servers of its loggers",
        '            config.require_asked_options(run_config, "log")\n',
        "            pass\n",
        (f"{STRANGERS}[run directory, database of MLflow]",),
        "run/restore.py",
    ),
    Mutation(
        "a run directory chooses the run that it starts from",
        '            config.require_asked_options(run_config, "init_from")\n',
        "            pass\n",
        (f"{STRANGERS}[run directory, init_from]",),
        "run/restore.py",
    ),
    Mutation(
        "a sweep's file chooses its database",
        "    imports.require_asked(outside_of(table))\n",
        "",
        (f"{STRANGERS}[sweep file, database in a file]", f"{STRANGERS}[sweep directory, database beside a lock]"),
        "sweeps/search.py",
    ),
    Mutation(
        "a sweep's file chooses the cluster",
        "    imports.require_asked(config.outside_values(table, OPTIONS.values()))\n",
        "",
        (f"{STRANGERS}[sweep file, cluster of Ray]",),
        "placing/settings.py",
    ),
    Mutation(
        "a pickle in a study is read",
        "optuna.samplers.TPESampler(seed=seed, constant_liar=True)",
        "optuna.samplers.CmaEsSampler(seed=seed)",
        (STUDY + "test_a_pickle_in_a_study_is_not_read",),
        "studies/space.py",
    ),
    Mutation(
        "the lock of a study is NAME.lock",
        'LOCK = ".ppax-lock"',
        'LOCK = ".lock"',
        (STUDY + "test_a_lock_beside_a_database_stays_as_it_is",),
        "studies/storage.py",
    ),
    Mutation(
        "SQLite removes the file that a journal names",
        "_end_of(Path(path), len(JOURNAL)) == JOURNAL",
        "False",
        (f"{STRANGERS}[sweep directory, journal that removes a file]",),
        "studies/storage.py",
    ),
    Mutation(
        "a file of a study may be one of the user's by another name",
        "found.st_nlink > 1",
        "False",
        (f"{STRANGERS}[sweep directory, database that is a file of the user]",),
        "studies/storage.py",
    ),
    Mutation(
        "files of a home directory are of one hand",
        "if not lies_in(home, folder)}",
        "if folder}",
        (OUTSIDE + "test_a_file_beside_the_one_that_names_it_needs_no_trust",),
        "core/imports.py",
    ),
    Mutation(
        "a directory covers others whose names begin so",
        'path.startswith(os.path.join(folder, ""))',
        "path.startswith(folder)",
        (OUTSIDE + "test_other_names_trust_nothing",),
        "core/imports.py",
    ),
    Mutation(
        "a checksum stands for trust in a server",
        "return bool(values.get(checksum)) and not remote",
        "return bool(values.get(checksum))",
        (NAMES + "test_a_checksum_stands_for_trust_in_a_local_file_alone",),
        "config/construction.py",
    ),
    Mutation(
        "links out of a trusted directory are followed",
        "            real = os.path.realpath(self.value)",
        "            real = os.path.abspath(self.value)",
        (OUTSIDE + "test_a_link_out_of_a_trusted_directory_is_not_trusted",),
        "core/imports.py",
    ),
    Mutation(
        "an address covers those that begin like it",
        "        if self.name in map(_without_password, places()):",
        "        if self.name.startswith(tuple(map(_without_password, places()))):",
        (OUTSIDE + "test_other_names_trust_nothing",),
        "core/imports.py",
    ),
    Mutation(
        "a command to be copied has characters that cannot be printed",
        "    if not all(name.isprintable() for name in names):",
        "    if False:",
        (f"{STRANGERS}[run file, text that is not printable]",),
        "core/imports.py",
    ),
    Mutation(
        "texts in lists of an environment are not looked at",
        "    elif isinstance(value, Mapping | list | tuple):",
        "    elif isinstance(value, Mapping):",
        (f"{STRANGERS}[run file, argument of the environment in a list]",),
        "config/construction.py",
    ),
    Mutation(
        "directories of the command line are searched for packages",
        "        if str(one) in _arguments or any(",
        "        if any(",
        (OUTSIDE + "test_directories_that_may_be_a_strangers",),
        "core/imports.py",
    ),
    Mutation(
        "typed options need trust",
        "    imports.typed(one.name for one in config.outside_values(given | free, known.values()).values())\n",
        "",
        (NAMES + "test_typed_options_need_no_trust",),
        "cli/options.py",
    ),
    Mutation(
        "MLflow takes the database of a directory of others",
        "if folder is not None and self.tracking_uri is None",
        "if False and self.tracking_uri is None",
        (SERVICES + "test_a_working_directory_that_may_be_a_strangers_chooses_no_server",),
        "loggers/mlflow.py",
    ),
    Mutation(
        "a damaged study is a traceback",
        "        except DAMAGE as error:",
        "        except FAULTS as error:",
        (STUDY + "test_a_damaged_study_is_refused_in_one_sentence",),
        "studies/storage.py",
    ),
]
