"""What one answer of NCCL RAS says, and its JSON form (NCCL 2.28.7 and later, MONITOR 2.29)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from oncall.core.errors import Unreadable
from oncall.importers.documents import JsonValues
from oncall.importers.process_ranks import Process

# Beyond these a file is damaged, not large: 131,072 ranks, counters and ids below 2**63.
MOST_RANKS = 1 << 17
MOST_GPUS = 1 << 16  # on one node
_MOST = 1 << 63

_LOST_COMMA = re.compile(r'([\w"}\]])((?=[^\S\n]*+\n)\s*+"[^"\n]{1,64}"\s*+:)')

_SUCCESS, _IN_PROGRESS = 0, 7  # ncclSuccess, ncclInProgress


@dataclass(frozen=True)
class Member:
    """One rank of a communicator at one poll; `launched` is None if RAS has no count of it.

    `calls` counts them by operation, where the answer does.
    """

    comm_rank: int
    process: Process | None
    launched: int | None
    state: str | None
    calls: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Communicator:
    """One communicator at one poll. `alone`: no other of this size is in the job."""

    comm: int
    size: int | None
    members: tuple[Member, ...]
    alone: bool = False


@dataclass(frozen=True)
class Event:
    """Something that RAS reports of a process: PEER_DEAD and the like."""

    at_ns: int | None
    code: str
    process: Process
    text: str


@dataclass(frozen=True)
class Poll:
    """One answer. The text form tells that there are `ranks` GPUs, and if all of them answered.

    `gone` are processes that do not answer, with their state, where no communicator names them.
    """

    at_ns: int | None = None
    version: str | None = None
    communicators: tuple[Communicator, ...] = ()
    events: tuple[Event, ...] = ()
    ranks: int = 0
    complete: bool = False
    gone: tuple[tuple[Process, str], ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def parse_json(text: str) -> list[Poll]:
    """Every poll and event in `text`: one JSON value, a list, lines, or values one after another.

    What cannot be read becomes a problem of the last poll returned; nothing is raised.
    """
    polls: list[Poll] = []
    for value in _values(text):
        if isinstance(value, str):
            polls.append(Poll(problems=(value,)))
        elif "communicators" in value:
            polls.append(_status(value))
        elif "event" in value:
            polls.append(_monitor_event(value))
        else:
            polls.append(Poll(problems=("JSON that is no RAS status and no RAS event",)))
    return polls


def at_ns(text: object) -> int | None:
    """RAS prints local time without its zone; it is taken as UTC. None if it is no time."""
    try:
        when = datetime.strptime(str(text), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(when.timestamp()) * 1_000_000_000


def whole(value: object, below: int = _MOST) -> int | None:
    """`value` if it is a whole number in [0, below), else None."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below:
        return value
    return None


def _values(text: str) -> Iterator[dict[str, Any] | str]:
    """The JSON objects in `text`, and a sentence in place of what is damaged."""
    values = JsonValues()
    place = 0
    while (start := text.find("{", place)) >= 0:
        try:
            value, place = values.at(text, start)
        except (ValueError, Unreadable):
            whole_text = _with_commas(text)
            if whole_text != text:
                text = whole_text
                continue
            line = text.count("\n", 0, start) + 1
            yield f"broken off or damaged: the JSON that starts at line {line}"
            return
        yield value


def _with_commas(text: str) -> str:
    """The text with the commas that NCCL 2.28.7 and 2.28.9 leave out between a missing rank's
    values. What is sound has none to add, so that doing it twice changes nothing."""
    return _LOST_COMMA.sub(r"\1,\2", text)


def _status(value: Mapping[str, Any]) -> Poll:
    problems: list[str] = []
    found = value["communicators"]
    comms = [_communicator(item, problems) for item in found] if isinstance(found, list) else []
    version = value.get("nccl_version")
    return Poll(
        at_ns=at_ns(value.get("timestamp")),
        version=version if isinstance(version, str) else None,
        communicators=tuple(comm for comm in comms if comm is not None),
        problems=tuple(dict.fromkeys(problems)),
    )


def _communicator(item: object, problems: list[str]) -> Communicator | None:
    comm = _hash(item.get("hash")) if isinstance(item, dict) else None
    if not isinstance(item, dict) or comm is None:
        problems.append("a communicator without its hash is left out")
        return None
    size = whole(item.get("size"), MOST_RANKS + 1)
    members: dict[int, Member] = {}
    for key in ("ranks", "missing_ranks"):
        ranks = item.get(key)
        for rank in ranks if isinstance(ranks, list) else ():
            member = _member(rank, key == "missing_ranks")
            if member is None or (size is not None and member.comm_rank >= size):
                problems.append(f"a rank of communicator {comm:#x} without a sensible number")
            else:
                members[member.comm_rank] = member
    return Communicator(comm, size, tuple(members[rank] for rank in sorted(members)))


def _member(item: object, missing: bool) -> Member | None:
    if not isinstance(item, dict):
        return None
    rank = whole(item.get("rank"), MOST_RANKS)
    status = item.get("status")
    status = status if isinstance(status, dict) else item
    if rank is None:
        return None
    state = _missing_state(status) if missing else _state(status)
    counts = item.get("collective_counts")
    counted = {op: whole(n) for op, n in counts.items()} if isinstance(counts, dict) else {}
    calls = tuple((op, n) for op, n in counted.items() if n is not None and not missing)
    gpu = item.get("nvml_dev", item.get("cuda_dev"))
    return Member(
        comm_rank=rank,
        process=_process(item.get("host"), item.get("pid"), gpu),
        launched=whole(sum(n for _, n in calls)) if calls else None,
        state=state,
        calls=calls,
    )


def _state(status: Mapping[str, Any]) -> str | None:
    """RAS's own order of precedence: abort, finalize, then how initialisation went."""
    init, error = status.get("init_state"), status.get("async_error")
    if status.get("abort_flag"):
        return "abort"
    if init not in (None, _SUCCESS, _IN_PROGRESS) or error not in (None, _SUCCESS, _IN_PROGRESS):
        return "error"
    if status.get("finalize_called") or status.get("destroy_flag"):
        return "finalize"
    return "init" if init == _IN_PROGRESS else "running"


def _missing_state(status: Mapping[str, Any]) -> str:
    if status.get("considered_dead"):
        return "dead"
    return "unresponsive" if status.get("unresponsive") else "nocomm"


def _monitor_event(value: Mapping[str, Any]) -> Poll:
    when = at_ns(value.get("timestamp"))
    peer = value.get("peer")
    peer = peer if isinstance(peer, dict) else {}
    gpus = peer.get("nvml_devs") or peer.get("cuda_devs")
    gpus = (
        [gpu for gpu in gpus if whole(gpu, MOST_GPUS) is not None] if isinstance(gpus, list) else []
    )
    code = str(value["event"])
    details = str(value.get("details") or "")
    events = [
        Event(when, code, process, details or f"process {process.pid} on GPU {process.gpu}")
        for process in (_process(peer.get("host"), peer.get("pid"), gpu) for gpu in gpus or [None])
        if process is not None
    ]
    return Poll(at_ns=when, events=tuple(events))


def _process(host: object, pid: object, gpu: object) -> Process | None:
    host = host if isinstance(host, str) and host not in ("", "unknown") else None
    pid = whole(pid)
    return (
        Process(host, pid, whole(gpu, MOST_GPUS)) if host is not None or pid is not None else None
    )


def _hash(value: object) -> int | None:
    try:
        return whole(int(str(value), 16), 1 << 64)
    except ValueError:
        return None
