"""JSON Lines and CSV on a full disk: rows are complete or not yet written, and none is lost."""

import errno
import json
import os

import pytest

from ppax.loggers import Csv, JsonLines
from ppax.storage import backoff

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
    monkeypatch.setattr(backoff, "FIRST_DELAY", 0.0)
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
    monkeypatch.setattr(backoff, "FIRST_DELAY", 1.0)
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
