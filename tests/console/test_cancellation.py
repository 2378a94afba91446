"""Stopping what another thread does."""

from __future__ import annotations

import threading

import duckdb

from oncall.console.cancellation import Cancellation
from oncall.core.errors import Interrupted

ENDLESS = "SELECT count(*) FROM range(10000000000) a, range(1000) b"


def test_a_query_is_interrupted_and_reported_as_such() -> None:
    cancellation = Cancellation()
    running = threading.Event()
    reported: list[BaseException] = []

    def work() -> None:
        con = duckdb.connect()
        try:
            with cancellation.task() as task:
                task.uses(con)
                running.set()
                con.execute(ENDLESS).fetchall()
        except Interrupted as error:
            reported.append(error)
        assert con.execute("SELECT 1").fetchall() == [(1,)]
        con.close()

    worker = threading.Thread(target=work)
    worker.start()
    assert running.wait(60)
    cancellation.cancel()
    worker.join(60)
    assert len(reported) == 1 and not worker.is_alive()


def test_without_a_task_nothing_happens_and_the_next_is_not_stopped() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.task() as task:
        task.check()
