"""Breaks of loggers that are parts, films during training, and policies on the Hugging Face Hub."""

from breaks.base import Mutation

LISTS = "tests/config/test_lists.py::"
FILMS = "tests/run/films/test_recorder.py::"
BACKGROUND = "tests/loggers/test_background.py::"
MLFLOW = "tests/loggers/test_mlflow.py::"
FAILING = "tests/run/test_failing_loggers.py::"
EVALUATIONS = "tests/run/test_evaluation_file.py::"
HUB = "tests/policy/test_hub.py::"

MUTATIONS: list[Mutation] = [
    Mutation(
        "ten tables in a list are in alphabetical order",
        "sorted(table, key=lambda place: (len(place), place))",
        "sorted(table)",
        (LISTS + "test_ten_tables_and_more_keep_their_order",),
        "options.py",
    ),
    Mutation(
        "a part named on the command line loses its options of the file",
        'next((table for table in had if table.get("part") == one), {"part": one})',
        '{"part": one}',
        (LISTS + "test_parts_on_the_command_line_replace_those_of_the_file_and_keep_their_options",),
        "cli/arguments.py",
    ),
    Mutation(
        "a logger's error is raised at every row",
        "            self._removed = True\n            raise self._error",
        "            raise self._error",
        (BACKGROUND + "test_an_error_is_raised_once_and_the_logger_is_closed",),
        "loggers/background.py",
    ),
    Mutation(
        "rows that a server did not take are lost without a word",
        "        if self._thread.is_alive():",
        "        if False:",
        (BACKGROUND + "test_a_server_that_never_answers_holds_up_neither_rows_nor_the_end",),
        "loggers/background.py",
    ),
    Mutation(
        "a logger that cannot store a file goes on",
        "        self._files.pop(name, None)",
        "        pass",
        (FAILING + "test_a_logger_that_cannot_store_a_file_gets_no_more_files",),
        "run/logging.py",
    ),
    Mutation(
        "MLflow gets the rows after a checkpoint twice",
        'if row["iteration"] <= self._last:',
        "if False:",
        (MLFLOW + "test_a_resumed_run_goes_on_in_its_run_and_logs_no_row_twice",),
        "loggers/mlflow.py",
    ),
    Mutation(
        "an id of a stranger's run directory is believed",
        "and RUN_ID.fullmatch(run_id)",
        "",
        ("tests/loggers/test_services.py::test_an_invalid_record_of_a_run_directory_names_no_run",),
        "loggers/mlflow.py",
    ),
    Mutation(
        "films are missed where rows are not multiples of their interval",
        "iteration // self._every > self._films",
        "iteration % self._every == 0",
        (FILMS + "test_films_are_made_at_log_rows",),
        "run/films.py",
    ),
    Mutation(
        "a resumed run films again what it has filmed",
        "            self._films = iteration // self._every\n\n    def wanted",
        "            pass\n\n    def wanted",
        (FILMS + "test_a_resumed_run_makes_no_film_of_its_first_state",),
        "run/films.py",
    ),
    Mutation(
        "an environment that cannot be drawn fails at its first film",
        "            backend_of(self._env).first_picture(make_key(self._seed))",
        "            pass",
        (FILMS + "test_an_environment_that_cannot_be_drawn_is_refused_at_once",),
        "run/films.py",
    ),
    Mutation(
        "the card of the best policy has the scores of the last",
        "_replace(evaluation=read_evaluation(source.run_dir, source.iteration))",
        "_replace()",
        (HUB + "test_the_card_of_an_older_policy_has_no_scores",),
        "reports/upload.py",
    ),
    Mutation(
        "the score of an earlier policy stays after further training",
        '(iteration is not None and found.get("iterations") != iteration)',
        "False",
        (EVALUATIONS + "test_an_evaluation_is_of_its_own_policy_alone",),
        "run/directory.py",
    ),
    Mutation(
        "the score of another run",
        'found["run_id"] != read_about(path).get("id")',
        "False",
        (EVALUATIONS + "test_an_evaluation_is_of_its_own_policy_alone",),
        "run/directory.py",
    ),
    Mutation(
        "an evaluation outlives the policy that it measured",
        "for name in (STOPPED, EVALUATION):",
        "for name in (STOPPED,):",
        (EVALUATIONS + "test_further_training_removes_the_evaluation",),
        "run/loop.py",
    ),
    Mutation(
        "a fence in a run file ends the block of the model card",
        'fence = "`" * max(3, _longest_ticks(text) + 1)',
        'fence = "`" * 3',
        (HUB + "test_text_of_a_run_is_code_in_the_card",),
        "reports/upload.py",
    ),
]
