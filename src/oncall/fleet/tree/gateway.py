"""What runs on a gateway, `oncall node gather`: the console's gather, of the nodes behind it.

Answers as a node does, with the rows of all its nodes in one answer, and says the outcome of each
(branch.py). Connections to the nodes last as long as the console's to the gateway.
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import duckdb

from oncall import __version__
from oncall.core.errors import OncallError
from oncall.core.json_text import json_of
from oncall.evidence.schema import SCHEMA_VERSION
from oncall.evidence.statements import reason
from oncall.fleet.branch import MOST_ORDER_BYTES, Order, parse_order
from oncall.fleet.gather import AT_ONCE, Gather, Window
from oncall.fleet.inventory import check_host
from oncall.fleet.memory import Memory
from oncall.fleet.merge import Answers
from oncall.fleet.outcome import Outcome
from oncall.fleet.transport import Clock, Transport, opened
from oncall.node.store.database import Limits, connect
from oncall.node.store.parts import ReceivedPart, join_parts
from oncall.node.store.wire import (
    MOST_LINE_BYTES,
    OLDEST_PROTOCOL,
    PROTOCOL,
    End,
    Part,
    WireError,
    parse_request,
    write_error,
    write_frames,
)

# A gateway is a login or service node: it may take more than a node, which belongs to a job.
LIMITS = Limits(memory_bytes=2 * 2**30, threads=2)


class Gateway:
    """The nodes that one console's orders name, and the gather that asks them."""

    def __init__(self, transport: Transport, memory: Memory | None, at_once: int) -> None:
        """`memory`: which ranks its nodes run, for those that no longer answer."""
        self._transport, self._memory, self._at_once = transport, memory, at_once
        self._stack = AsyncExitStack()
        self._gather: Gather | None = None
        self._hosts: frozenset[str] = frozenset()

    async def leave(self) -> None:
        """Close the connections to the nodes."""
        await self._stack.aclose()
        self._gather, self._hosts = None, frozenset()

    def stop(self) -> None:
        """Wait for no more nodes."""
        if self._gather is not None:
            self._gather.stop()

    async def answer(self, order: Order, folder: Path, answers: IO[bytes]) -> None:
        """Ask the order's nodes and write what they answered; `folder` takes it before. Raises
        WireError, OncallError, OSError, duckdb.Error."""
        gather = await self._turned(order, folder)
        (ask,) = {request.ask for request in order.requests.values()}
        if ask == "hello":
            await gather.greet()
        else:
            await gather.each(ask, order.requests)
        found = gather.answers
        job = next(iter(order.requests.values())).job
        if self._memory is not None and ask == "digest" and job is not None:
            self._memory.keep(job, found.parts)
            parts, outcomes = self._memory.recall(job, found.outcomes)
            found = replace(found, parts=(*found.parts, *parts), outcomes=outcomes)
        await asyncio.to_thread(_write, order, found, folder, answers)

    async def _turned(self, order: Order, folder: Path) -> Gather:
        """The one gather, turned to the order; begun anew if it names other nodes."""
        window = Window(order.since_ns, order.until_ns)
        if self._gather is not None and self._hosts >= set(order.requests):
            greets = any(request.ask == "hello" for request in order.requests.values())
            (self._gather.again if greets else self._gather.turn)(window, folder)
            return self._gather
        await self.leave()
        for host in order.requests:
            check_host(host)
        self._gather = await self._stack.enter_async_context(
            Gather(
                self._transport,
                tuple(order.requests),
                window,
                folder,
                patience_s=order.patience_s,
                at_once=self._at_once,
            )
        )
        self._hosts = frozenset(order.requests)
        return self._gather


async def serve(
    transport: Transport,
    requests: IO[bytes],
    answers: IO[bytes],
    *,
    memory: Memory | None = None,
    at_once: int = AT_ONCE,
) -> None:
    """Answer a request or an order a line, until the input ends."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    async with opened(transport):
        gateway = Gateway(transport, memory, at_once)
        _read(requests, lines, gateway)
        try:
            while line := await lines.get():
                await _respond(gateway, line, answers)
                if len(line) > MOST_ORDER_BYTES:
                    return  # what follows is the rest of that line
        finally:
            await gateway.leave()


def _read(requests: IO[bytes], lines: asyncio.Queue[bytes], gateway: Gateway) -> None:
    """Queue the lines as they come, in a thread; `stop` counts while an order is answered."""
    loop = asyncio.get_running_loop()

    def take(line: bytes) -> None:
        if line.startswith(b'{"stop"'):
            gateway.stop()
        else:
            lines.put_nowait(line)

    def read() -> None:
        # The loop is closed where the console has gone before its answer was written.
        with suppress(RuntimeError, ValueError):
            line = b"-"
            while line:
                line = requests.readline(MOST_ORDER_BYTES + 1)
                loop.call_soon_threadsafe(take, line)

    threading.Thread(target=read, name="orders", daemon=True).start()


async def _respond(gateway: Gateway, line: bytes, answers: IO[bytes]) -> None:
    """Answer one line; errors are answered too."""
    received_ns = time.time_ns()
    try:
        if (order := _order(line)) is not None:
            with tempfile.TemporaryDirectory(prefix="oncall-gather-") as folder:
                await gateway.answer(order, Path(folder), answers)
        else:
            status = _hello() if parse_request(line).ask == "hello" else {}
            instants = {"received_ns": received_ns, "answered_ns": time.time_ns()}
            write_frames(answers, iter([End({**status, **instants})]))
    except WireError as error:
        write_error(answers, str(error), "version" if error.reason == "version" else "request")
    except BrokenPipeError:
        raise
    except (OncallError, duckdb.Error, OSError, MemoryError) as error:
        write_error(answers, f"{type(error).__name__}: {reason(error)}", "internal")


def _order(line: bytes) -> Order | None:
    """The order that a line holds; None for a request to the gateway itself. Raises WireError."""
    if len(line) > MOST_ORDER_BYTES:
        raise WireError(f"an order of more than {MOST_ORDER_BYTES >> 20} MiB", "request")
    try:
        message = json_of(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise WireError("does not speak the protocol", "request")
    if "gather" in message:
        return parse_order(message)
    if message.get("ask") not in ("hello", "clock"):
        raise WireError("a gateway answers `hello`, `clock` and `gather`", "request")
    return None


def _hello() -> dict[str, Any]:
    return {
        "protocol": [OLDEST_PROTOCOL, PROTOCOL],
        "oncall_version": __version__,
        "schema_version": SCHEMA_VERSION,
        "node": socket.gethostname().partition(".")[0],
        "gathers": True,
    }


def _write(order: Order, found: Answers, folder: Path, answers: IO[bytes]) -> None:
    """The outcome of each node, the rows of all of them, and the end."""
    wanted = [part for part in found.parts if part.sender in order.requests]
    con = connect(LIMITS, folder)
    try:
        con.execute("SET parquet_metadata_cache = true")  # the files are there for one answer
        joined, left_out = join_parts(con, wanted, folder)
    finally:
        con.close()
    # A node whose rows cannot be read must not spoil those of the others.
    bad = {one.part.sender: f"{one.part.table}: {one.problem}" for one in left_out}
    for host in order.requests:
        outcome = found.outcomes[host]
        if host in bad:
            outcome = replace(outcome, kind="protocol", message=bad[host])
        answers.write(_of(outcome, found.clocks.get(host)))
    answers.flush()
    write_frames(answers, _frames(joined))


def _of(outcome: Outcome, clock: Clock | None) -> bytes:
    """The outcome of a node, as a line."""
    became: dict[str, Any] = {
        "of": outcome.host,
        "kind": outcome.kind,
        "message": outcome.message,
        "seconds": outcome.seconds,
        "status": outcome.status,
        "clock": [clock.at_ns, clock.offset_ns, clock.error_ns] if clock is not None else None,
    }
    line = json.dumps(became).encode()
    if len(line) >= MOST_LINE_BYTES:
        message = f"its status takes {len(line):,} bytes: more than a gateway can hand on"
        line = json.dumps({**became, "kind": "protocol", "message": message, "status": {}}).encode()
    return line + b"\n"


def _frames(parts: Sequence[ReceivedPart]) -> Iterator[Part | End]:
    for part in parts:
        yield Part(part.table, part.rows, part.path.read_bytes())
    yield End({"rows": sum(part.rows for part in parts)})
