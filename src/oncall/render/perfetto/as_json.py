"""A trace in Chrome's Trace Event Format, which chrome://tracing reads, too.

Times are microseconds since the first event: `X` for what lasts, `C` for readings, `i` for
instants, `s` and `f` for arrows, `M` for names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import IO, Any

from oncall.core.printable import harmless
from oncall.render.perfetto.trace import End, Item, Placed, Process, Thread


def write_json(items: Iterable[Item], file: IO[bytes]) -> None:
    """Write what `trace` yields, at least one item."""
    origin_ns, before = None, b'{"displayTimeUnit": "ms", "traceEvents": [\n'
    for item in items:
        if isinstance(item, Placed) and origin_ns is None:
            origin_ns = item.event.at_ns
        for text in _written(item, origin_ns or 0):
            file.write(before + text.encode())
            before = b",\n"
    about = json.dumps({"origin_unix_ns": origin_ns})
    file.write(f'\n], "otherData": {about}}}\n'.encode())


def _written(item: Item, origin_ns: int) -> Iterator[str]:
    match item:
        case Process(pid, name, order):
            yield _about("process_name", pid, 0, name=name)
            yield _about("process_sort_index", pid, 0, sort_index=order)
        case Thread(pid, tid, name, reads):
            if not reads:
                yield _about("thread_name", pid, tid, name=name)
        case Placed():
            yield _event(item, origin_ns)
        case End():
            yield _end(item, origin_ns)


def _event(placed: Placed, origin_ns: int) -> str:
    event = placed.event
    ts = (event.at_ns - origin_ns) / 1000
    if event.value is not None:
        counter = {"ph": "C", "pid": placed.pid, "name": event.thread, "ts": ts}
        return json.dumps(counter | {"args": {event.name: event.value}})
    head: dict[str, Any] = {"ph": "i", "s": "t"}
    if event.until_ns is not None:
        head = {"ph": "X", "dur": max(event.until_ns - event.at_ns, 0) / 1000}
    place = {"pid": placed.pid, "tid": placed.tid, "name": event.name, "ts": ts}
    # What an event is about is JSON already, though not all of its characters are harmless.
    return f'{json.dumps(head | place)[:-1]}, "args": {harmless(event.about)}}}'


def _end(end: End, origin_ns: int) -> str:
    phase = {"ph": "s"} if end.starts else {"ph": "f", "bp": "e"}
    place = {"cat": "wait", "id": end.number, "name": end.name, "pid": end.pid, "tid": end.tid}
    return json.dumps(phase | place | {"ts": (end.at_ns - origin_ns) / 1000})


def _about(kind: str, pid: int, tid: int, **args: Any) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})
