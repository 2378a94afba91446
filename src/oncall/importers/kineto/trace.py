"""One profiler trace: what a rank called, when the device ran it, and what the program named.

Kernels carry the `External id` of the call that launched them (libkineto, output_json.cpp).
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from oncall.core.errors import Unreadable
from oncall.importers.flight_recorder.groups import MOST_MEMBERS, MOST_RANKS
from oncall.importers.flight_recorder.names import operation
from oncall.importers.kineto.events import Event, Said
from oncall.importers.kineto.stream import TraceStream
from oncall.importers.kineto.work import Named, Spans, Work, called, work_of

_MOST_NS = 1 << 61  # two of them still fit 64 bits
_MOST_ELEMENTS = 1 << 53
_NO_COMMUNICATION = {"wait", "init", ""}
_BY_ALL = {"AllReduce", "AllGather", "ReduceScatter", "AllToAll"}
_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_?(?!Generic)([A-Z][A-Za-z]{1,60}?)(?=[_(]|$|Ring|Tree)")
_GLOO = re.compile(r"gloo:(\w{1,40})$")
_RANK_IN_NAME = re.compile(r"rank[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE)
# tensorboard_trace_handler calls a file HOST_PID.INSTANT.pt.trace.json, older ones without INSTANT.
_HOST_IN_NAME = re.compile(r"(?P<host>[A-Za-z][\w.-]*?)_(?P<pid>\d+)(?:\.\d+)?\.pt\.trace\.json")


class Call(NamedTuple):
    """One `record_param_comms`. `group` is the group's name on this rank; `seq` counts from 1.

    `members` are as the call lists them: empty where it does not list them all.
    """

    external_id: int
    thread: int
    at_ns: int
    until_ns: int
    op: str
    group: str
    description: str
    group_size: int
    members: tuple[int, ...]
    seq: int | None
    peer: int | None
    dtype: str | None
    elements: int | None

    @property
    def p2p(self) -> bool:
        return self.op in ("Send", "Recv")


class Kernel(NamedTuple):
    """One NCCL kernel on the device, or one operation of gloo."""

    external_id: int | None
    correlation: int | None
    started_ns: int
    ended_ns: int
    stream: int | None
    op: str | None = None


class Annotation(NamedTuple):
    """What the program named: on its thread, and from the first to the last kernel within it."""

    name: str
    external_id: int | None
    at_ns: int
    until_ns: int


@dataclass(frozen=True)
class Owner:
    """Whose trace it is; None is not known."""

    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None
    version: str | None = None


@dataclass
class Trace:
    """What was read of one file; `problem` says what was not.

    `synchronised`: all that was called had run on the device when the trace was closed. `launches`
    are (correlation, thread, instant) of each kernel launch, one after another.
    """

    path: Path
    synchronised: bool = False
    owner: Owner = Owner()
    gpu: int | None = None
    called_as: int | None = None  # the rank that its own calls show
    config: list[Mapping[str, Any]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    gloo: list[Kernel] = field(default_factory=list)
    deep_ep: int = 0  # kernels of DeepEP, which no call describes
    launches: array[int] = field(default_factory=lambda: array("q"))
    spans: Spans = field(default_factory=Spans)
    annotations: list[Annotation] = field(default_factory=list)
    device_spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    memberships: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    undescribed: int = 0
    problem: str | None = None
    notes: list[str] = field(default_factory=list)

    def work(self) -> list[Work]:
        """What the rank did itself."""
        spans = self.device_spans
        return work_of(
            self.spans,
            [
                Named(one.name, (one.at_ns, one.until_ns), spans.get(one.external_id or 0))
                for one in self.annotations
            ],
        )

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """From the first to the last instant of what was kept."""
        spans = [(one.at_ns, one.until_ns) for one in self.calls]
        spans += [(one.at_ns, one.until_ns) for one in self.annotations]
        return (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None


def read_trace(path: Path) -> Trace:
    """Read one file; what is damaged becomes its `problem`.

    Raises ValueError or TypeError where what it tells of itself is not what a profiler writes.
    """
    trace = Trace(path)
    stream = TraceStream(path)
    try:
        for event in stream:
            take = _TAKE.get(event.cat)
            if take is not None:
                try:
                    take(event, trace)
                except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError):
                    trace.undescribed += 1
    except Unreadable as error:
        trace.problem = str(error)
        return trace
    trace.problem = stream.problem
    trace.undescribed += stream.strange
    # torch.profiler tells of the job first, and synchronises the device before it stops; a trace
    # taken on demand from outside ends at any moment, and what it tells was gathered on the way.
    trace.synchronised = "distributedInfo" in stream.header
    _identify(trace, stream.trailer | stream.header)
    _to_common_time(trace, time_base_ns(stream.trailer | stream.header))
    return trace


# --------------------------------------------------------------------- events


def _take_call(event: Event, trace: Trace) -> None:
    said = event.args
    if event.name != "record_param_comms":
        name = event.name + called(said.input_dims)
        trace.spans.add("operator", name, _thread(event), *_span(event))
        return
    name = said.collective
    if name is None:
        trace.undescribed += 1
        return
    if name in _NO_COMMUNICATION:
        return
    op = operation(name)
    at_ns = nanoseconds(event.ts)
    size = _number(said.group_size, MOST_RANKS) or 0
    members = _members(said, size, trace.memberships)
    peer = said.destination if op == "Send" else said.source
    trace.calls.append(
        Call(
            external_id=int(said.external_id or 0),
            thread=_thread(event),
            at_ns=at_ns,
            until_ns=at_ns + nanoseconds(event.dur),
            op=op,
            group=str(said.group or ""),
            description=str(said.description or ""),
            group_size=size,
            members=members,
            seq=_number(said.seq),
            peer=_number(peer, MOST_RANKS) if op in ("Send", "Recv") else None,
            dtype=said.dtype,
            elements=_number(said.elements),
        )
    )
    # Of a rooted call, `Rank` is the root; of a send or receive, the other side.
    if op in _BY_ALL and members and (place := _number(said.rank)) is not None:
        trace.called_as = members[place]


def _take_kernel(event: Event, trace: Trace) -> None:
    name, said = event.name, event.args
    started_ns, ended_ns = _span(event)
    own = "nccl" not in name
    shape = called(said.grid, said.block, said.bytes) if own else ""
    stream = _number(said.stream) or 0
    trace.spans.add("kernel" if own else "collective", name + shape, stream, started_ns, ended_ns)
    if own:
        trace.deep_ep += "deep_ep" in name
        return
    trace.gpu = _number(said.device, MOST_RANKS) if trace.gpu is None else trace.gpu
    trace.kernels.append(
        Kernel(
            external_id=_number(said.external_id),
            correlation=_number(said.correlation),
            started_ns=started_ns,
            ended_ns=ended_ns,
            stream=_number(said.stream),
            op=_op(_KERNEL.search(name)),
        )
    )


def _op(found: re.Match[str] | None) -> str | None:
    """The operation that a kernel's or an annotation's name tells; one string for all of a kind."""
    return sys.intern(operation(found[1])) if found else None


def _take_launch(event: Event, trace: Trace) -> None:
    launches = "Launch" in event.name
    if launches:
        correlation = int(event.args.correlation)
        launch = (correlation, _thread(event), nanoseconds(event.ts))
        trace.launches.extend(array("q", launch))
    kind = "launch" if launches else "runtime"
    trace.spans.add(kind, event.name, _thread(event), *_span(event))


def _take_annotation(event: Event, trace: Trace) -> None:
    at_ns, until_ns = _span(event)
    external_id = _number(event.args.external_id)
    if found := _GLOO.match(event.name):
        if found[1] not in ("send", "recv"):  # which last until the host asks for their ends
            trace.spans.add("collective", event.name, 0, at_ns, until_ns)
        trace.gloo.append(Kernel(None, None, at_ns, until_ns, None, _op(found)))
    trace.annotations.append(Annotation(event.name, external_id, at_ns, until_ns))


def _take_device_span(event: Event, trace: Trace) -> None:
    """A range on one stream; Kineto draws it 1 ns wider on each side."""
    external_id = _number(event.args.external_id)
    if external_id is not None:
        start_ns = nanoseconds(event.ts) + 1
        end_ns = start_ns + nanoseconds(event.dur) - 2
        first, last = trace.device_spans.get(external_id, (start_ns, end_ns))
        trace.device_spans[external_id] = min(first, start_ns), max(last, end_ns)


_TAKE: dict[str, Callable[[Event, Trace], None]] = {
    "cpu_op": _take_call,
    "kernel": _take_kernel,
    "gpu_memcpy": _take_kernel,
    "gpu_memset": _take_kernel,
    "cuda_runtime": _take_launch,
    "cuda_driver": _take_launch,
    "user_annotation": _take_annotation,
    "gpu_user_annotation": _take_device_span,
}


def nanoseconds(microseconds: Decimal) -> int:
    """Exact. Raises ValueError."""
    exact = round(microseconds * 1000)
    return exact if -_MOST_NS < exact < _MOST_NS else _checked(exact, _MOST_NS)


def _span(event: Event) -> tuple[int, int]:
    at_ns = nanoseconds(event.ts)
    return at_ns, at_ns + nanoseconds(event.dur)


def _thread(event: Event) -> int:
    return int(event.tid)


def _number(value: Any, most: int = _MOST_ELEMENTS) -> int | None:
    return None if value is None else _checked(int(value), most)


def _checked(number: int, most: int) -> int:
    if abs(number) > most:
        raise ValueError(f"{number} is beyond what a profiler writes")
    return number


def _members(said: Said, size: int, known: dict[Any, tuple[int, ...]]) -> tuple[int, ...]:
    """Global ranks in group order. Long lists are cut (`...`); even ones have start and stride.

    All calls of a group share one tuple, kept in `known`: a few bytes can stand for a million
    ranks, so no more than MOST_MEMBERS are named in one trace.
    """
    key = said.members or "", size, said.first_member, said.stride
    found = known.get(key)
    if found is None:
        found = _named_members(*key)
        if sum(map(len, known.values())) + len(found) > MOST_MEMBERS:
            raise ValueError("more members of groups than a job has")
        known[key] = found
    return found


def _named_members(listed: str, size: int, first: Any, step: Any) -> tuple[int, ...]:
    if "..." not in listed and (words := listed.strip("[] ")):
        return tuple(map(int, words.split(",")))
    start, stride = _number(first), _number(step)
    if listed and start is not None and stride is not None and stride > 0 and size > 0:
        return tuple(range(start, start + stride * size, stride))
    return ()


# --------------------------------------------------------------------- header


def rank_of(header: Mapping[str, Any], path: Path) -> int | None:
    """The rank that a trace tells, else the one in its file's name. Raises ValueError."""
    distributed = header.get("distributedInfo")
    rank = _number(distributed.get("rank"), MOST_RANKS) if isinstance(distributed, dict) else None
    found = _RANK_IN_NAME.search(path.name)
    return int(found[1]) if rank is None and found else rank


def time_base_ns(header: Mapping[str, Any]) -> int:
    """The base of its times, in ns since 1970; 0 if that is 1970 or not recorded."""
    base_ns = header.get("baseTimeNanoseconds")
    return _checked(base_ns, _MOST_NS) if isinstance(base_ns, int) else 0


def _identify(trace: Trace, header: Mapping[str, Any]) -> None:
    """Rank, job size and groups from the header; what it lacks, from the file's name."""
    distributed = header.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    rank = rank_of(header, trace.path)
    if not trace.synchronised and trace.called_as is not None:
        rank = trace.called_as
        trace.notes.append("its rank is that of its calls")
    elif rank is not None and distributed.get("rank") is None:
        trace.notes.append("its rank is that in the file's name")
    config = distributed.get("pg_config")
    trace.config = [one for one in config if isinstance(one, dict)] if config else []
    name = trace.path.name.removesuffix(".gz")
    process = _HOST_IN_NAME.fullmatch(name)
    if process:
        trace.notes.append("its node is that in the file's name")
    version = header.get("schemaVersion")
    trace.owner = Owner(
        rank=rank,
        world_size=_number(distributed.get("world_size"), MOST_RANKS),
        host=process["host"] if process else None,
        pid=int(process["pid"]) if process else None,
        gpu=trace.gpu,
        version=None if version is None else str(version),
    )


def _to_common_time(trace: Trace, base_ns: int) -> None:
    """Add the time base; without one, instants count from 1970 or from an unknown beginning."""
    if not base_ns:
        first = trace.span_ns
        if first is not None and first[0] < 10**18:
            trace.notes.append("its times count from an instant that it does not tell")
        return
    trace.calls = [
        call._replace(at_ns=call.at_ns + base_ns, until_ns=call.until_ns + base_ns)
        for call in trace.calls
    ]
    trace.kernels = [
        kernel._replace(started_ns=kernel.started_ns + base_ns, ended_ns=kernel.ended_ns + base_ns)
        for kernel in trace.kernels
    ]
    trace.annotations = [
        one._replace(at_ns=one.at_ns + base_ns, until_ns=one.until_ns + base_ns)
        for one in trace.annotations
    ]
    trace.gloo = [
        one._replace(started_ns=one.started_ns + base_ns, ended_ns=one.ended_ns + base_ns)
        for one in trace.gloo
    ]
    for edge in (3, 4):
        trace.spans.values[edge::5] = array(
            "q", (at + base_ns for at in trace.spans.values[edge::5])
        )
    trace.launches[2::3] = array("q", (at_ns + base_ns for at_ns in trace.launches[2::3]))
    trace.device_spans = {
        key: (first + base_ns, last + base_ns) for key, (first, last) in trace.device_spans.items()
    }
