"""Ctrl-C reaches a query that would run for hours."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

import duckdb
import pytest

from oncall.cli.terminal import Interruptible

_HOURS = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"


def test_a_signal_stops_the_query() -> None:
    con = duckdb.connect()
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    # However the query ends, and whoever swallows its error, the interrupt is not lost.
    swallowed = suppress(duckdb.Error, RuntimeError, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt), Interruptible(con), swallowed:
        con.execute(_HOURS).fetchall()
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_everything_is_put_back() -> None:
    con = duckdb.connect()
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    threads = threading.active_count()
    with Interruptible(con):
        assert con.execute("SELECT 1").fetchall() == [(1,)]
    assert threading.active_count() == threads
    after = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(after)
    assert after == before
