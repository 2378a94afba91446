"""Inference servers that hang while their processes live: what they print after the last answer."""

from __future__ import annotations

from oncall.analysis.faults.lines import Attempt, Row
from oncall.analysis.faults.rows import Cause, caused, ranks_of

# Reports in a row of requests that run and no token; vLLM reports every ten seconds, and a long
# prompt is worked on for less.
_REPORTS = 6
# Lines in a row that workers read nothing: each is a minute. While a server starts it loads and
# compiles for many minutes.
_MINUTES, _MINUTES_OF_START = 2, 15


def server_cause(attempt: Attempt) -> list[Cause]:
    """One row, of no rank: servers print no word of the worker that hangs."""
    rows = attempt.of("server")
    if not rows:
        return []
    answers = [row for row in attempt.of("served") if row["path"] == rows[-1]["path"]]
    last = max((row["line"] for row in answers), default=0)
    open_rows = [row for row in rows if row["path"] == rows[-1]["path"] and row["line"] > last]
    watchdogs = [row for row in open_rows if row["code"] == "watchdog"]
    stated = [row for row in open_rows if row["code"] == "no_answer"]
    waits = [row for row in open_rows if row["code"] == "no_block"]
    idle = [row for row in open_rows if row["code"] == "no_token"]
    about = {"rank": None, "node": None}
    if watchdogs:
        ranks = {row["rank"] for row in watchdogs if row["rank"] is not None}
        said = watchdogs[0]["text"] + (f", printed by {ranks_of(ranks)}" if ranks else "")
        return [caused("all_waiting", "forward", {**watchdogs[0], **about, "text": said})]
    if stated:
        return [caused("server_hung", "stated", {**stated[0], **about})]
    if len(waits) >= (_MINUTES if answers or idle else _MINUTES_OF_START):
        said = f"its workers have read nothing for {_minutes(waits)} min"
        return [caused("server_hung", "waits", {**waits[0], **about, "text": said})]
    if len(idle) >= _REPORTS:
        count = idle[-1]["number"]
        said = f"{count} {'request runs' if count == 1 else 'requests run'} and no token comes"
        return [caused("server_hung", "idle", {**idle[0], **about, "text": said})]
    return []


def _minutes(waits: list[Row]) -> int:
    return sum(row["number"] or 60 for row in waits) // 60
