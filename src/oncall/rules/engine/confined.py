"""Facts computed in a process of their own, with limits on time and memory that hold.

DuckDB heeds its memory limit for tables, and an interrupt between vectors of rows; one call on one
value can take gigabytes and minutes. So a rulebook that was not reviewed gets a process: the
operating system bounds its memory, and its own clock ends it. What it reads is handed over through
a pipe, and what comes back has a limit too.
"""

from __future__ import annotations

import atexit
import json
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from oncall.core.units import format_bytes, format_number
from oncall.evidence.columns import ColumnData, as_words
from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations
from oncall.evidence.schema import BY_NAME
from oncall.evidence.table import Column
from oncall.rules.engine.confined_child import MOST_BYTES, MOST_ROWS, Answer, Ask
from oncall.rules.engine.sandbox import (
    FACT_TIME_LIMIT_S,
    MEMORY_LIMIT_BYTES,
    QueryFailed,
    took_too_long,
    within_this_machine,
)

DESCRIBE = "DESCRIBE "
_RUN = "from oncall.rules.engine.confined_child import main; main()"
_LOADING_LIMIT_S = 600.0  # of a table that is handed over: on a busy machine, and nobody's fault
_AS_WORDS = ("VARCHAR", "HUGEINT")  # numpy has no integers of 128 bits: they travel as text
_GRACE_S = 30.0  # to start, and beyond the process's own clock, which ends it by itself


class _Died(Exception):
    """The process ended without an answer; `args[0]` is its exit status."""


class _Process:
    """A process that computes."""

    def __init__(self, memory_bytes: int) -> None:
        from multiprocessing import Pipe  # most diagnoses start no process

        self.memory_bytes = memory_bytes
        self._connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(theirs.fileno()), str(memory_bytes)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is meant for who waits
        )
        theirs.close()

    def ask(self, ask: Ask) -> Answer:
        """Its answer. Raises _Died."""
        try:
            self._connection.send(ask)
            if not self._connection.poll(ask.limit_s + _GRACE_S):
                self.kill()
            # Twice what an answer may have: there is a frame around the rows.
            answer = pickle.loads(self._connection.recv_bytes(2 * MOST_BYTES))
            assert isinstance(answer, Answer)
            return answer
        except (EOFError, OSError):
            self.kill()
            raise _Died(self._process.wait()) from None
        except BaseException:
            self.kill()  # half an answer may be in the pipe
            raise

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self.kill()
        self._process.wait()
        self._connection.close()


class _Spare:
    """One process that nobody uses now. Starting one takes as long as a diagnosis."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def take(self, memory_bytes: int) -> _Process:
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.memory_bytes != memory_bytes:
            process.close()
            process = None
        return process or _Process(memory_bytes)

    def give_back(self, process: _Process) -> None:
        with suppress(_Died):
            process.ask(Ask("forget", (), _LOADING_LIMIT_S))
            with self._lock:
                if self._process is None:
                    self._process = process
                    return
        process.close()

    def close(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.close()
                self._process = None


_spare = _Spare()
atexit.register(_spare.close)


class Confined:
    """Computes in a process with limits. It is started when it is first needed; one that dies is
    followed by another, which is brought to where the first one was.

    Without an incident every table and relation is there, and empty: enough to check facts.
    """

    def __init__(
        self,
        incident: Incident | None,
        time_limit_s: float = FACT_TIME_LIMIT_S,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    ) -> None:
        self._incident = incident
        self._time_limit_s = time_limit_s
        self._memory_bytes = within_this_machine(memory_limit_bytes)
        self._process: _Process | None = None
        self._giving_back = threading.Lock()
        self._made: dict[str, Callable[[], Ask]] = {}  # tables and facts, in their order
        if incident is not None:
            incident.interrupts.add(self._interrupt)

    def provide(self, names: Iterable[str]) -> None:
        names = list(names)
        if self._incident is not None:
            self._incident.require(names)
        for name in names:
            if name not in self._made:
                self._make(name, lambda name=name: self._table(name))  # type: ignore[misc]

    def compute(
        self, fact: str, select: str, values: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], int]:
        ask = Ask("compute", (fact, select, dict(values)), self._time_limit_s)
        columns, total = self._make(fact, lambda: ask)
        return columns, total

    def describe(self, select: str, values: Mapping[str, Any]) -> dict[str, str]:
        """The columns that a SELECT would have, with their types; it is not run."""
        rows = self.query(DESCRIBE + select, values)
        return {row[0]: row[1] for row in rows}

    def pretend(self, fact: str, columns: Mapping[str, str]) -> None:
        """Let a fact be there, without rows."""
        declared = [Column(name, kind, "", "") for name, kind in columns.items()]
        ask = Ask("table", (fact, declared, {}), self._time_limit_s)
        self._make(fact, lambda: ask)

    def query(
        self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        parts = self._ask(Ask("query", (sql, values), self._time_limit_s))
        return [row for part in parts for row in pickle.loads(part)]

    def drop(self, facts: Iterable[str]) -> None:
        for fact in facts:
            if self._made.pop(fact, None) is not None and self._process is not None:
                with suppress(QueryFailed):
                    self.query(f'DROP TABLE IF EXISTS "{fact}"')

    def close(self) -> None:
        if self._incident is not None:
            self._incident.interrupts.discard(self._interrupt)
        with self._giving_back:  # who interrupts must not meet who has the process next
            process, self._process = self._process, None
        if process is not None:
            _spare.give_back(process)

    # ------------------------------------------------------------ the process

    def _make(self, name: str, ask: Callable[[], Ask]) -> Any:
        value = self._ask(ask())
        self._made[name] = ask
        return value

    def _ask(self, ask: Ask) -> Any:
        """The answer's value. Raises QueryFailed."""
        if self._process is None:
            self._process = _spare.take(self._memory_bytes)
            for make in tuple(self._made.values()):
                self._ask(make())
        try:
            answer = self._process.ask(ask)
        except _Died as died:
            self._end()
            raise QueryFailed(self._epitaph(died.args[0], ask)) from None
        if answer.limit == "memory":
            self._end()  # what it freed need not be free for the next fact
            raise QueryFailed(f"the fact needs {self._more_memory}")
        if answer.limit == "rows":
            most = f"{format_number(MOST_ROWS)} rows or {format_bytes(MOST_BYTES)}"
            raise QueryFailed(f"the fact's answer is larger than {most}: aggregate, or use LIMIT")
        if answer.failed:
            raise QueryFailed(_message(answer.failed), answer.failed)
        return answer.value

    def _end(self) -> None:
        with self._giving_back:
            process, self._process = self._process, None
        if process is not None:
            process.close()

    @property
    def _more_memory(self) -> str:
        return f"more than {format_bytes(self._memory_bytes)} of memory"

    def _epitaph(self, status: int, ask: Ask) -> str:
        if status == -signal.SIGALRM:
            return took_too_long(ask.limit_s)
        if status == -signal.SIGKILL:
            return "the fact was stopped"
        how = signal.Signals(-status).name if status < 0 else f"exit {status}"
        return f"the fact ended its process ({how}): most likely it needs {self._more_memory}"

    def _interrupt(self) -> None:
        with self._giving_back:
            if self._process is not None:
                self._process.kill()

    def _table(self, name: str) -> Ask:
        """A table or relation of the incident, to be handed over."""
        entry = BY_NAME.get(name) or all_relations()[name]
        incident = self._incident
        data = {} if incident is None else _data(incident, name, entry.columns)
        return Ask("table", (name, entry.columns, data), _LOADING_LIMIT_S)


def _data(incident: Incident, name: str, columns: Sequence[Column]) -> dict[str, ColumnData]:
    """The rows of a table or relation, by column, as oncall.evidence.columns puts them in.

    Of a table that a recording fills, half the columns may hold nothing: they stay away.
    """
    con, data = incident.con, dict[str, ColumnData]()
    counted = ", ".join(f'count("{column.name}")' for column in columns)
    (known,) = con.execute(f'SELECT {counted} FROM "{name}"').fetchall()
    filled = [column for column, count in zip(columns, known, strict=True) if count]
    numbers = []
    for column in filled or columns[:1]:
        if column.type.endswith("[]") or not filled:
            values = con.execute(f'SELECT "{column.name}" FROM "{name}"').fetchall()
            data[column.name] = [value for (value,) in values]
        elif column.type in _AS_WORDS:
            texts = con.execute(f'SELECT "{column.name}"::VARCHAR FROM "{name}"').fetchall()
            data[column.name] = as_words(text for (text,) in texts)
        else:
            numbers.append(f'"{column.name}"')
    if numbers:
        data |= con.execute(f'SELECT {", ".join(numbers)} FROM "{name}"').fetchnumpy()
    return data


def _message(error: str) -> str:
    """The first line of what DuckDB says, in JSON or not."""
    with suppress(ValueError):
        error = str(json.loads(error[error.index("{") :])["exception_message"])
    return error.strip().splitlines()[0]
