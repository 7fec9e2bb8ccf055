"""Breaks of what a broken installation or an unusual machine is told."""

from breaks.base import Mutation

TEST = "tests/core/test_installation.py::"
CACHE = "tests/storage/test_cache.py::"
TRUST = "tests/core/imports/test_trust.py::"
MUTATIONS = [
    Mutation(
        "a jax that is too old is used",
        "    if numbers < OLDEST:",
        "    if numbers < OLDEST[:1]:",
        (TEST + "test_an_old_jax_is_refused",),
        "core/installation.py",
    ),
    Mutation(
        "a jax that is newer than those tried says nothing",
        "    if numbers >= BEYOND:",
        "    if numbers > (9, *BEYOND):",
        (TEST + "test_a_jax_newer_than_those_tried_is_a_warning",),
        "core/installation.py",
    ),
    Mutation(
        "a file that hides a package is not named",
        "passed | loaded | found",
        "loaded",
        (TEST + "test_a_file_with_the_name_of_a_package_is_named",),
        "core/installation.py",
    ),
    Mutation(
        "every file beside the program hides a package",
        "if os.path.dirname(module) == folder and (name in NEEDED or name in sys.stdlib_module_names):",
        "if name in NEEDED or name in sys.stdlib_module_names:",
        (TEST + "test_another_failure_of_an_import_accuses_no_file",),
        "core/installation.py",
    ),
    Mutation(
        "a missing package is not looked for",
        "    if missing:",
        "    if not NEEDED:",
        (TEST + "test_a_missing_package_is_named",),
        "core/installation.py",
    ),
    Mutation(
        "without a home directory the cache fails",
        "    except (OSError, RuntimeError, UnicodeEncodeError):",
        "    except (OSError, UnicodeEncodeError):",
        (CACHE + "test_a_user_without_a_home_directory_has_no_cache",),
        "storage/cache.py",
    ),
    Mutation(
        "a name that is no text is the cache's",
        "        str(path).encode()  # JAX needs text",
        "        str(path)  # JAX needs text",
        (CACHE + "test_a_cache_directory_whose_name_is_no_text_is_not_used",),
        "storage/cache.py",
    ),
    Mutation(
        "a cache directory that cannot be written is used",
        "    if not os.access(path, os.W_OK | os.X_OK):",
        "    if not os.path.isdir(path):",
        (CACHE + "test_an_existing_cache_directory_that_cannot_be_written_is_not_used",),
        "storage/cache.py",
    ),
    Mutation(
        "a class named by its file counts as a package",
        "    if found is None or not (found[1] or os.path.isfile(",
        "    if found is not None or not (found[1] or os.path.isfile(",
        (TRUST + "test_a_class_named_by_its_file_is_refused_with_its_module",),
        "core/imports.py",
    ),
    Mutation(
        "an import path is cut at its first colon",
        '    return (path.rpartition(":")[0] or path).rpartition("/")',
        '    return (path.partition(":")[0] or path).rpartition("/")',
        (TRUST + "test_a_path_is_cut_at_its_last_colon",),
        "config/user_parts.py",
    ),
    Mutation(
        "MUJOCO_GL is not named where MuJoCo cannot be loaded with it",
        '        if drawing and "mujoco" in str(spec.entry_point) and "mujoco" not in sys.modules:',
        '        if drawing and "mujoco" in str(spec.entry_point) and "mujoco" in sys.modules:',
        ("tests/envs/suites/test_gymnasium_suites.py::test_a_way_of_drawing_that_mujoco_cannot_load_is_named",),
        "envs/suites/gymnasium.py",
    ),
    Mutation(
        "the command's import error is a traceback",
        "    except ImportError as error:  # a broken installation",
        "    except MemoryError as error:  # a broken installation",
        (TEST + "test_the_command_ends_in_one_line",),
        "ppax_command.py",
    ),
    Mutation(
        "rows of a window are one step late",
        "            window.append(jnp.where(same[:, None], past.steps[i : i + length], 0.0))",
        "            window.append(jnp.where(same[:, None], past.steps[max(i - 1, 0) : max(i - 1, 0) + length], 0.0))",
        ("tests/system/test_xla_faults.py::test_windows_carried_through_a_compiled_loop",),
        "networks/memories/window.py",
    ),
]
