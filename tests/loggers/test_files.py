"""JSON Lines and CSV on a full disk: rows are complete or not yet written, and none is lost."""

import errno
import json
import os

import pytest

from ppax.loggers import Csv, JsonLines, files, last_row
from ppax.storage import safe_files

ROWS = [{"iteration": i, "env_steps": 8 * i, "loss": 0.5 * i} for i in range(1, 7)]


@pytest.fixture
def full_disk(monkeypatch):
    """Let `os.write` write 5 bytes and then fail while `full[0]`; `tried` has an entry for each attempt."""
    full, tried, write = [False], [], os.write

    def partly(handle, data):
        if not full[0]:
            return write(handle, data)
        tried.append(len(data))
        if len(tried) % 2:
            return write(handle, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", partly)
    monkeypatch.setattr(safe_files, "FIRST_DELAY", 0.0)
    return full, tried


def log_all(logger, rows, before=lambda row: None, after=lambda row: None):
    for row in rows:
        before(row)
        logger.log(row)
        after(row)


@pytest.mark.parametrize("kind", [JsonLines, Csv])
def test_rows_logged_while_the_disk_is_full_are_written_later(tmp_path, full_disk, kind):
    full, _ = full_disk
    logger = kind(tmp_path / "short")

    def fill(row):
        full[0] = row["iteration"] in (1, 3, 4)

    def check(row):  # only complete lines
        text = (tmp_path / "short").read_text()
        assert text == "" or text.endswith("\n")

    with pytest.warns(UserWarning, match=r"short cannot be written .*No space left") as caught:
        log_all(logger, ROWS, fill, check)
    assert len(caught) == 2  # one for each period without disk space
    logger.close()
    whole = kind(tmp_path / "whole")
    log_all(whole, ROWS)
    whole.close()
    assert (tmp_path / "short").read_text() == (tmp_path / "whole").read_text()
    assert (tmp_path / "short").read_text().count("\n") == len(ROWS) + (kind is Csv)


def test_failed_writes_are_retried_at_doubling_intervals(tmp_path, full_disk, monkeypatch):
    full, tried = full_disk
    now = [0.0]
    monkeypatch.setattr(safe_files, "FIRST_DELAY", 1.0)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    logger = JsonLines(tmp_path / "rows")
    full[0] = True

    def wait(row):
        now[0] += 0.5

    with pytest.warns(UserWarning, match="rows wait in memory"):
        log_all(logger, [ROWS[0]] * 64, after=wait)
    assert len(tried) == 2 * 6  # after 0, 1, 3, 7, 15 and 31 of the 32 seconds; two writes each
    full[0] = False
    logger.close()
    assert (tmp_path / "rows").read_text().count("\n") == 64


def test_close_warns_with_the_number_of_lost_rows(tmp_path, full_disk):
    full, _ = full_disk
    logger = JsonLines(tmp_path / "rows")
    logger.log(ROWS[0])
    full[0] = True
    with pytest.warns(UserWarning, match="rows wait in memory"):
        logger.log(ROWS[1])
    with pytest.warns(UserWarning, match="1 rows of"):
        logger.close()
    assert [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()] == [ROWS[0]]


def test_a_resumed_table_keeps_its_columns(tmp_path):
    first = Csv(tmp_path / "rows.csv")
    log_all(first, ROWS[:2])
    first.close()
    again = Csv(tmp_path / "rows.csv", 2)
    again.log({"iteration": 3, "eval_return": 7.0, "loss": 1.5, "env_steps": 24})
    again.close()
    assert (tmp_path / "rows.csv").read_text().splitlines() == [
        "iteration,env_steps,loss",
        "1,8,0.5",
        "2,16,1.0",
        "3,24,1.5",
    ]


def test_no_row_of_an_untrained_policy_is_kept_when_a_run_begins_anew(tmp_path):
    for kind in (JsonLines, Csv):
        first = kind(tmp_path / "rows")
        log_all(first, [{"iteration": 0, "env_steps": 0, "loss": 0.0}, *ROWS[:1]])
        first.close()
        kind(tmp_path / "rows", -1).close()
        assert len((tmp_path / "rows").read_text().splitlines()) == (kind is Csv)
        (tmp_path / "rows").unlink()


def test_rows_are_read_one_by_one(tmp_path):
    (tmp_path / "rows").write_text("".join(json.dumps(row) + "\n" for row in ROWS) + '{"iteration": 7')
    rows = files.rows_until(tmp_path / "rows", 4)
    assert next(rows) == ROWS[0]
    assert list(rows) == ROWS[1:4]
    assert last_row(tmp_path / "rows") == ROWS[-1]
    assert list(files.rows_until(tmp_path / "missing", 4)) == []


def test_many_rows_are_thinned_to_every_second_and_the_last(monkeypatch):
    assert files.thinned(ROWS) == ROWS
    monkeypatch.setattr(files, "NUMBERS", 9)  # three rows of three numbers
    kept = [row["iteration"] for row in files.thinned({**row} for row in (*ROWS, *ROWS))]
    assert kept == [1, 5, 3, 6]
    monkeypatch.setattr(files, "METRICS", 2)
    assert set(files.thinned(ROWS)[0]) == {"iteration", "env_steps"}


@pytest.mark.parametrize(
    "first", ["iteration," + "x" * 200_000, "a,b", "", "iteration", "#iteration,a", 'iteration,"a']
)
def test_a_table_of_somebody_else_is_begun_anew(tmp_path, first):
    """A field beyond the limit of Python's reader, other names, one column, an open quote."""
    (tmp_path / "rows.csv").write_text(first + "\n1,2\n")
    again = Csv(tmp_path / "rows.csv", 2)
    again.log(ROWS[2])
    again.close()
    assert (tmp_path / "rows.csv").read_text().splitlines()[-1].startswith("3")


def test_a_file_of_rows_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROWS_LIMIT", 20)
    (tmp_path / "rows").write_text(json.dumps(ROWS[0]) + "\n")
    for read in (JsonLines, Csv, last_row):
        with pytest.raises(OSError, match="must have at most 20"):
            read(tmp_path / "rows")
