"""The collector's socket: answers about what is not sealed yet, and about this very moment.

One request a connection, as one line of `wire`; frames come back. Whoever can connect may ask,
so the socket is the collector's own (0600), or its group's too.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

import duckdb

from oncall.collect.log import Log
from oncall.collect.recorder import Reading, Recorder
from oncall.errors import UsageError
from oncall.evidence.columns import create_table_sql, insert
from oncall.evidence.schema import BY_NAME
from oncall.shards.batch import Batch, joined
from oncall.shards.database import reason
from oncall.shards.wire import (
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

Answer = Callable[[duckdb.DuckDBPyConnection, Request], Iterator[Part | End]]
Present = Callable[[float], Sequence[Batch]]
Problems = Callable[[], Sequence[str]]

_MOST_AT_ONCE = 4
_CLIENT_TIMEOUT_S = 10.0  # for a request, and for taking each piece of the answer
_ANSWER_TIMEOUT_S = 30.0
_IN_MEMORY_BYTES = 4 * 2**20  # of an answer; the rest goes to a temporary file


class Tail:
    """A thread that accepts, and a few that answer; none of them ever holds up the drain."""

    def __init__(
        self,
        path: Path,
        recorder: Recorder,
        present: Present,
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
        self._answer = answer
        self._problems = problems
        self._log = log
        self._socket = _listen(path, 0o660 if group else 0o600)
        self._answering = ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="tail")
        self._accepting = threading.Thread(target=self._accept, name="tail", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Stop listening, and finish what is being answered."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._accepting.join()
        self._answering.shutdown(wait=True, cancel_futures=True)
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # closed
            self._answering.submit(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """Answer one client; one that does not ask, or does not listen, is left."""
        with client, suppress(OSError):
            client.settimeout(_CLIENT_TIMEOUT_S)
            with client.makefile("rb") as reading, client.makefile("wb") as writing:
                try:
                    request = parse_request(reading.readline(MOST_LINE_BYTES))
                    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as spool:
                        self._write_answer(request, spool)
                        spool.seek(0)
                        # The store is free again: a slow client holds up nobody.
                        while piece := spool.read(2**16):
                            writing.write(piece)
                except WireError as error:
                    why: Reason = "version" if error.reason == "version" else "request"
                    write_error(writing, str(error), why)
                except TimeoutError:
                    write_error(writing, "timed out: no request came, or too busy", "internal")
                except duckdb.Error as error:
                    self._log.error(f"tail: {reason(error)}")
                    write_error(writing, f"the live store: {reason(error)}", "internal")

    def _write_answer(self, request: Request, spool: IO[bytes]) -> None:
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
        """The answer, and at its end what is wrong with the collector now."""
        for frame in self._answer(con, request):
            if isinstance(frame, End) and (problems := list(self._problems())):
                frame = End({**frame.status, "problems": problems})
            yield frame


def lay_over(reading: Reading, present: Sequence[Batch]) -> None:
    """Let each evidence table in this connection be what is committed, and `present` on top."""
    for batch in joined(present):
        table = BY_NAME[batch.table]
        extra = f"present_{table.name}"
        reading.con.execute(
            create_table_sql(extra, table.columns).replace("TABLE", "TEMP TABLE", 1)
        )
        insert(reading.con, extra, table.columns, batch.columns)
        reading.con.execute(
            f"CREATE TEMP VIEW {table.name} AS "
            f"FROM {reading.base}.{table.name} UNION ALL FROM {extra}"
        )


def _listen(path: Path, mode: int) -> socket.socket:
    """A listening socket that appears with its mode. A stale one is taken away: the folder's
    lock has shown that nobody is behind it."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path.unlink(missing_ok=True)
        before = os.umask(0o777 & ~mode)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        listening.listen(_MOST_AT_ONCE)
    except OSError as error:
        listening.close()
        raise UsageError(f"{path}: cannot listen: {error.strerror or error}") from error
    return listening
