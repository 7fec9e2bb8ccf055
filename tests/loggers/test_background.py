"""Logger in a thread: rows in order, errors raised once, and a server that does not answer holds nothing up."""

import threading

import pytest

from ppax.core.protocols import Artifact
from ppax.loggers import background
from ppax.loggers.background import Background


class Keeps:
    def __init__(self):
        self.seen, self.threads = [], set()

    def log(self, row):
        self.seen.append(row["iteration"])
        self.threads.add(threading.current_thread())

    def store(self, artifact):
        self.seen.append(artifact.kind)

    def close(self):
        self.seen.append("closed")


class Fails(Keeps):
    def log(self, row):
        super().log(row)
        if row["iteration"] == 1:
            raise OSError("no route to host")


def test_rows_and_files_arrive_in_order_in_another_thread():
    kept = Keeps()
    logger = Background(lambda: kept)
    logger.log({"iteration": 1})
    logger.store(Artifact("film", {}, 1))
    logger.log({"iteration": 2})
    logger.close()
    assert kept.seen == [1, "film", 2, "closed"]
    assert kept.threads.isdisjoint({threading.current_thread()})


def test_an_error_is_raised_once_and_the_logger_is_closed():
    failing = Fails()
    logger = Background(lambda: failing)
    logger.log({"iteration": 1})
    logger._thread.join()
    with pytest.raises(OSError, match="no route to host"):
        logger.log({"iteration": 2})
    logger.close()  # says nothing more
    assert failing.seen == [1, "closed"]


def test_an_error_after_the_last_row_is_raised_by_close():
    def refused():
        raise PermissionError("no API key")

    logger = Background(refused)
    with pytest.raises(PermissionError, match="no API key"):
        logger.close()


def test_a_server_that_never_answers_holds_up_neither_rows_nor_the_end():
    answers = threading.Event()
    logger = Background(lambda: answers.wait() and Keeps(), patience=0.05)
    for iteration in range(3):
        logger.log({"iteration": iteration})
    with pytest.raises(TimeoutError, match=r"4 rows or files still waited after 0.05 s"):  # and the sign of the end
        logger.close()
    answers.set()
    logger._thread.join()


def test_rows_do_not_pile_up_without_limit(monkeypatch):
    monkeypatch.setattr(background, "WAITING", 2)
    answers = threading.Event()
    logger = Background(lambda: answers.wait() and Keeps())
    logger.log({"iteration": 1})
    logger.log({"iteration": 2})
    with pytest.raises(TimeoutError, match="2 rows or files wait"):
        logger.log({"iteration": 3})
    logger.close()  # removed: it waits for nothing
    answers.set()
