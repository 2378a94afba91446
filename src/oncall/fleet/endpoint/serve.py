"""Answers the requests of one connection, line by line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, get_args

import duckdb

from oncall.core.errors import OncallError
from oncall.evidence.statements import reason
from oncall.fleet.endpoint.hello import hello, pulse
from oncall.fleet.endpoint.node import Node
from oncall.fleet.endpoint.process_requests import answer_processes, answer_stacks
from oncall.fleet.endpoint.sealed import SealedAnswers, evidence_of
from oncall.node.store.wire import (
    MOST_LINE_BYTES,
    Ask,
    End,
    Part,
    Request,
    WireError,
    parse_request,
    write_error,
    write_frames,
)

if TYPE_CHECKING:
    from oncall.fleet.endpoint.probe_node import ProbeNode

_INTERVENING = ("probe", "stacks")  # what does more than read evidence


def serve(node: Node, requests: IO[bytes], answers: IO[bytes], *, read_only: bool = False) -> None:
    """Answer one request per line until the input ends. `read_only`: refuse probes."""
    kept = SealedAnswers()
    with _Probes(node, requests, read_only) as probes:
        while line := requests.readline(MOST_LINE_BYTES + 1):
            respond(node, line, answers, probes, kept)
            if len(line) > MOST_LINE_BYTES:
                return  # what follows is the rest of that line, not a request


class _Probes:
    """Probes and stacks for one connection; probes are loaded at the first request for one."""

    def __init__(self, node: Node, requests: IO[bytes], read_only: bool) -> None:
        self._node, self._requests, self._read_only = node, requests, read_only
        self._probe_node: ProbeNode | None = None

    @property
    def asks(self) -> list[str]:
        """The requests that this connection may make."""
        return [ask for ask in get_args(Ask) if not (self._read_only and ask in _INTERVENING)]

    def answer(self, request: Request) -> Iterator[Part | End]:
        if self._read_only:
            what = "probe" if request.ask == "probe" else "take stacks"
            raise WireError(f"this key is read-only: it may not {what}", "read-only")
        if request.ask == "stacks":
            yield from answer_stacks(self._node.name, self._node.run, request)
            return
        if self._probe_node is None:
            from oncall.fleet.endpoint.probe_node import ProbeNode

            self._probe_node = ProbeNode(self._node.name, self._requests.fileno())
        yield from self._probe_node.answer(request)

    def __enter__(self) -> _Probes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._probe_node is not None:
            self._probe_node.close()


def respond(
    node: Node,
    line: bytes,
    answers: IO[bytes],
    probes: _Probes | None = None,
    kept: SealedAnswers | None = None,
) -> None:
    """Answer one request; errors are answered too. `kept`: what the connection was answered of
    sealed shards."""
    received_ns = time.time_ns()
    try:
        request = parse_request(line)
        frames = _frames(node, request, probes, kept or SealedAnswers())
        write_frames(answers, _stamped(node, frames, received_ns))
    except WireError as error:
        known = ("version", "request", "no-data", "job", "read-only")
        why = error.reason if error.reason in known else "internal"
        write_error(answers, str(error), why)  # type: ignore[arg-type]
    except (OncallError, duckdb.Error, OSError, MemoryError) as error:
        write_error(answers, f"{type(error).__name__}: {reason(error)}", "internal")


def _stamped(node: Node, frames: Iterator[Part | End], received_ns: int) -> Iterator[Part | End]:
    """The frames, with the node's name and clock added to the last."""
    for frame in frames:
        if isinstance(frame, End):
            clock = {"received_ns": received_ns, "answered_ns": time.time_ns()}
            frame = End({**frame.status, "node": node.name, **clock})
        yield frame


def _frames(
    node: Node, request: Request, probes: _Probes | None, kept: SealedAnswers
) -> Iterator[Part | End]:
    match request.ask:
        case "clock":
            yield End()
        case "pulse":
            yield End({"pulse": pulse(node.run, request.job)})
        case "hello":
            yield End(hello(node, request, kept) | ({"asks": probes.asks} if probes else {}))
        case "probe" | "stacks":
            if probes is None:
                raise WireError(
                    f"`{request.ask}` needs a lasting connection: use `oncall node serve`",
                    "request",
                )
            yield from probes.answer(request)
        case "processes":
            yield from answer_processes(node.run, request)
        case _:
            yield from evidence_of(node, request, kept)
