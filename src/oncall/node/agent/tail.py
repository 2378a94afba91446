"""The collector's socket: answers about rows that are not sealed yet, and about the current moment.

A greeting asks nothing of the collector's loop, nor of the store, and is answered at once, however
long these take.

One request per connection, one line of `wire`; frames come back. Everybody who can connect may ask,
so the socket belongs to the collector's user (0600), or also to its group.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

import duckdb

from oncall.core.errors import UsageError
from oncall.evidence.columns import create_table_sql, insert
from oncall.evidence.schema import BY_NAME
from oncall.evidence.statements import reason
from oncall.node.agent.clients import Clients
from oncall.node.agent.recorder import Reading, Recorder
from oncall.node.common.log import Log
from oncall.node.common.source import say_bug
from oncall.node.store.batch import Batch, joined
from oncall.node.store.wire import (
    MOST_LINE_BYTES,
    End,
    Part,
    Reason,
    Request,
    WireError,
    parse_request,
    write_error,
    write_frames,
)

Greeting = Callable[[], Mapping[str, Any]]
Answer = Callable[[duckdb.DuckDBPyConnection, Request], Iterator[Part | End]]
Present = Callable[[float], Sequence[Batch]]
Problems = Callable[[], Sequence[str]]

_MOST_NOT_ACCEPTED = 32  # connections that the kernel holds for us
_ANSWER_TIMEOUT_S = 30.0
_IN_MEMORY_BYTES = 4 * 2**20  # of an answer; the rest goes to a temporary file


class Tail:
    """Answers every connection; no client delays the drain or another client."""

    def __init__(
        self,
        path: Path,
        recorder: Recorder,
        present: Present,
        greeting: Greeting,
        answer: Answer,
        problems: Problems,
        log: Log,
        *,
        group: bool = False,
    ) -> None:
        """Listen at `path`. Raises UsageError if that cannot be."""
        self._path = path
        self._recorder = recorder
        self._present = present
        self._greeting = greeting
        self._answer = answer
        self._problems = problems
        self._log = log
        self._socket = _listen(path, 0o660 if group else 0o600)
        self._clients = Clients(
            self._socket,
            self._make_answer,
            _spool,
            is_quick=_greets,
            most_question_bytes=MOST_LINE_BYTES,
        )

    def close(self) -> None:
        """Stop listening, and finish what is being answered."""
        self._clients.close()
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _make_answer(self, question: bytes, spool: IO[bytes]) -> None:
        """Answer one request; a failure becomes an answer, too."""
        try:
            self._write_answer(parse_request(question), spool)
        except WireError as error:
            why: Reason = "version" if error.reason == "version" else "request"
            self._refuse(spool, str(error), why)
        except TimeoutError:
            self._refuse(spool, "timed out: the collector is too busy", "internal")
        except (duckdb.Error, OSError, MemoryError) as error:
            self._log.error(f"tail: {reason(error)}")
            self._refuse(spool, f"the live store: {reason(error)}", "internal")
        except Exception as error:  # a bug in one answer must not cost us the next
            self._log.error(f"tail: {say_bug(error)}")
            self._refuse(spool, say_bug(error), "internal")

    @staticmethod
    def _refuse(spool: IO[bytes], message: str, why: Reason) -> None:
        """Say that there is no answer, instead of the parts that are there already."""
        with suppress(OSError):
            spool.seek(0)
            spool.truncate()
            write_error(spool, message, why)

    def _write_answer(self, request: Request, spool: IO[bytes]) -> None:
        if request.ask == "hello":
            problems = {"problems": found} if (found := list(self._problems())) else {}
            write_frames(spool, iter([End({**self._greeting(), **problems})]))
            return
        present = self._present(_ANSWER_TIMEOUT_S)
        with self._recorder.reading() as reading:
            watchdog = threading.Timer(_ANSWER_TIMEOUT_S, reading.con.interrupt)
            watchdog.start()
            try:
                lay_over(reading, present)
                write_frames(spool, self._frames(reading.con, request))
            finally:
                watchdog.cancel()

    def _frames(self, con: duckdb.DuckDBPyConnection, request: Request) -> Iterator[Part | End]:
        """The answer, ending with the collector's current problems."""
        for frame in self._answer(con, request):
            if isinstance(frame, End) and (problems := list(self._problems())):
                frame = End({**frame.status, "problems": problems})
            yield frame


def _greets(question: bytes) -> bool:
    """Whether it is answered at once, by whoever reads it."""
    with suppress(WireError):
        return parse_request(question).ask == "hello"
    return False


def _spool() -> IO[bytes]:
    """A file for an answer, in memory as long as it is small; whoever gets it closes it."""
    return cast(IO[bytes], tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES))


def lay_over(reading: Reading, present: Sequence[Batch]) -> None:
    """Let each evidence table in this connection be what is committed, and `present` on top."""
    for batch in joined(present):
        table = BY_NAME[batch.table]
        extra = f"present_{table.name}"
        reading.con.execute(
            create_table_sql(extra, table.columns).replace("TABLE", "TEMP TABLE", 1)
        )
        insert(reading.con, extra, table.columns, batch.columns)
        committed = table.name in reading.tables
        below = f"FROM live.main.{table.name} UNION ALL " if committed else ""
        reading.con.execute(f"CREATE TEMP VIEW {table.name} AS {below}FROM {extra}")


def _listen(path: Path, mode: int) -> socket.socket:
    """A listening socket, created with its mode. A stale socket file is removed: the folder's lock
    shows that no collector is behind it."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path.unlink(missing_ok=True)
        before = os.umask(0o777 & ~mode)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(_MOST_NOT_ACCEPTED)
    except OSError as error:
        listening.close()
        raise UsageError(f"{path}: cannot listen: {error.strerror or error}") from error
    return listening
