"""Asking a running job: the text protocol of NCCL RAS on TCP port 28028.

RAS runs within the job's processes, and gathering a status has crashed them: while communicators
are made (nccl#1669, nccl#1718, fixed in 2.27.3), and where ranks do not answer (nccl#1762, seen in
2.27.3, fixed in 2.29.2). Greeting, timeout and format are answered at once by the one process that
is connected, from constants; STATUS alone gathers. The greeting does not say the version (it is
`SERVER PROTOCOL 2` in all of them), but NCCL knows `SET FORMAT` since 2.28.7: what refuses it is
older, and is not asked unless the engineer says so.
"""

from __future__ import annotations

import math
import socket
import time

from oncall.core.errors import BadInput

DEFAULT_PORT = 28028  # NCCL_RAS_ADDR changes it

_RISK = (
    "not queried: the job's NCCL is older than 2.28.7, and RAS queries are known to crash or hang "
    "jobs on NCCL 2.26.2 to 2.27.7 (nccl issues 1669, 1718, 1762). Flight Recorder dumps and "
    "oncall's hooks have no such risk. If the job is lost anyway, or its NCCL is not affected, add "
    "--yes-risk-the-job"
)
_MARGIN_S = 2.0  # the answer is put together after RAS's own timeout has passed
_MOST_BYTES = 512 * 1024**2


def fetch(
    host: str = "localhost",
    port: int = DEFAULT_PORT,
    timeout_s: float = 5.0,
    *,
    risk_the_job: bool = False,
) -> str:
    """The verbose status of the job that answers at `host`: JSON, or text before NCCL 2.28.7.

    RAS waits at most `timeout_s` for the job's other processes. Raises BadInput if nothing
    answers in that time, if what answers is not NCCL RAS, or if it is older than 2.28.7, unless
    `risk_the_job`.
    """
    place = f"ras://{host}:{port}"
    deadline = time.monotonic() + timeout_s + _MARGIN_S
    try:
        with socket.create_connection((host, port), timeout=timeout_s + _MARGIN_S) as connection:
            return _Conversation(connection, place, deadline).status(timeout_s, risk_the_job)
    except TimeoutError as error:
        raise BadInput(place, f"no answer in {timeout_s + _MARGIN_S:g} s") from error
    except OSError as error:
        raise BadInput(
            place,
            f"{error.strerror or error}; is it a node of the job, and does NCCL_RAS_ADDR agree?",
        ) from error


class _Conversation:
    """One connection: a command a line, an answer a line, and the status until the end."""

    def __init__(self, connection: socket.socket, place: str, deadline: float) -> None:
        self._connection = connection
        self._place = place
        self._deadline = deadline
        self._rest = b""

    def status(self, timeout_s: float, risk_the_job: bool) -> str:
        hello = self._ask("CLIENT PROTOCOL 2")
        if not hello.upper().startswith("SERVER PROTOCOL"):
            raise BadInput(self._place, f"this is not NCCL RAS; it answers `{hello[:60]}`")
        self._ask(f"TIMEOUT {max(1, math.ceil(timeout_s))}")
        # Older servers refuse a command they do not know and carry on in text.
        knows_format = self._ask("SET FORMAT json").upper() == "OK"
        if not knows_format and not risk_the_job:
            raise BadInput(self._place, _RISK)
        self._send("VERBOSE STATUS")
        answer = bytearray(self._rest)
        while data := self._receive():
            answer += data
            if len(answer) > _MOST_BYTES:
                raise BadInput(self._place, f"answers more than {_MOST_BYTES >> 20} MiB")
        if not answer.strip():
            raise BadInput(self._place, "closed the connection without an answer")
        return answer.decode("utf-8", "replace")

    def _ask(self, command: str) -> str:
        self._send(command)
        while b"\n" not in self._rest:
            data = self._receive()
            self._rest += data
            if not data or len(self._rest) > 4096:
                break
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    def _send(self, command: str) -> None:
        self._connection.sendall(command.encode() + b"\n")

    def _receive(self) -> bytes:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv(1 << 16)
