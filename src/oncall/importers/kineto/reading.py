"""Reads, joins and names what a file holds in one go, so that processes share the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from oncall.core.errors import Unreadable
from oncall.importers.documents import parse_json
from oncall.importers.flight_recorder.groups import Group, listed_groups
from oncall.importers.kineto.operations import Columns, Joined, columns_of, join
from oncall.importers.kineto.tasks import NamedTasks, tasks_of
from oncall.importers.kineto.trace import Call, Owner, Trace, read_trace
from oncall.importers.kineto.work import Work
from oncall.importers.pool import on_cores

# Process groups of traces: who is meant by the name that a rank has for a group.
#
# A name is a rank's own; description and members are not. Identities are those of Flight Recorder
# dumps, so both recordings of one job speak of the same communicators.


def groups_of(trace: Trace) -> dict[str, Group]:
    """The groups of a rank by its names for them: listed ones, and those that calls tell of."""
    config: dict[str, dict[str, Any]] = {}
    for said in trace.config:
        name = str(said.get("pg_name", ""))
        config[name] = {"name": name, "desc": said.get("pg_desc", ""), "ranks": _whole(said)}
    for call in trace.calls:
        known = config.setdefault(
            call.group, {"name": call.group, "desc": call.description, "ranks": []}
        )
        if not known["ranks"]:
            known["ranks"] = call.members or _everyone(call.group_size, trace.owner.world_size)
    listed = {group.name: group for group in listed_groups(config)}
    used = {call.group for call in trace.calls}
    return listed | {
        name: Group(name, str(said["desc"]))
        for name, said in config.items()
        if name not in listed and name in used
    }


def _whole(said: Mapping[str, Any]) -> list[int]:
    """The members of a listed group; none where the list is cut, as Kineto does with long ones."""
    ranks = said.get("ranks") or []
    try:
        return list(map(int, parse_json(ranks.encode()) if isinstance(ranks, str) else ranks))
    except (TypeError, ValueError, Unreadable):
        return []


def _everyone(size: int, world_size: int | None) -> range:
    return range(size) if size and size == world_size else range(0)


_SMALL_BYTES = 16 << 20  # starting processes costs as much as reading about this much

_UNNAMED = "; those of one stream are taken for one communicator"
_NO_COLLECTIVE = (
    "no collective is in it: no described call (record_param_comms), no NCCL kernel, no "
    "operation of gloo"
)


@dataclass(frozen=True)
class Reading:
    """One trace: whose, from when to when, its groups by name, its operations and tasks,
    and its own work.

    `counted`: its collectives carry no numbers of their own. `problem` says what was not read,
    `notes` what was inferred. `span_ns` is None where there is nothing in it.
    """

    path: Path
    owner: Owner
    span_ns: tuple[int, int] | None
    groups: dict[str, Group]
    sizes: dict[Group, int]
    counted: bool
    operations: Columns
    named: NamedTasks
    work: list[Work]
    problem: str | None
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        return len(self.operations) + len(self.named.tasks)

    def without_rows(self, problem: str) -> Reading:
        """The same file, left out."""
        return replace(
            self,
            operations=columns_of([]),
            named=NamedTasks([]),
            work=[],
            problem=problem,
            notes=(),
        )


def read_files(paths: Sequence[Path]) -> Iterator[Reading]:
    """Read traces in their order, many or large ones on all cores.

    Raises BadInput if a reading process dies.
    """
    most = min(len(paths), sum(map(_text_bytes, paths)) // _SMALL_BYTES)
    return on_cores(read_file, paths, most, str(paths[0]), "traces")


def _text_bytes(path: Path) -> int:
    """How much there is to read, about: such text is packed to a tenth and less."""
    try:
        return path.stat().st_size * (10 if path.suffix == ".gz" else 1)
    except OSError:
        return 0


def read_file(path: Path) -> Reading:
    """Read one trace; what is damaged becomes its problem."""
    try:
        trace = read_trace(path)
        _describe_by_order(trace)
        groups, joined, named = groups_of(trace), join(trace), tasks_of(trace)
        work = trace.work()
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        what = str(Unreadable(f"not what the profiler writes: {type(error).__name__}: {error}"))
        nothing, named = columns_of([]), NamedTasks([])
        return Reading(path, Owner(), None, {}, {}, False, nothing, named, [], what, ())
    problem = trace.problem
    if problem is None and not trace.calls:
        problem = _NO_COLLECTIVE
    if problem is None and trace.owner.rank is None:
        problem = "neither it nor its file's name tells its rank"
    return Reading(
        path=path,
        owner=trace.owner,
        span_ns=trace.span_ns,
        groups=groups,
        sizes={groups[call.group]: call.group_size for call in trace.calls if call.group_size},
        counted=joined.counted,
        operations=columns_of(joined.operations),
        named=named,
        work=work,
        problem=problem,
        notes=tuple(_notes(trace, joined, named)),
    )


def _describe_by_order(trace: Trace) -> None:
    """Give a trace whose calls nothing describes, of PyTorch before 2.3 or of gloo, one call for
    each NCCL kernel, else for each operation of gloo: they ran in the order of the calls, and NCCL
    runs those of one communicator on one stream. Sends and receives stay out: whom they reach is
    not recorded."""
    ran = trace.kernels or trace.gloo
    ran = [one for one in ran if one.op not in (None, "SendRecv", "Send", "Recv")]
    ran.sort(key=lambda one: one.started_ns)
    if trace.calls or not ran:
        return
    only = str(trace.config[0].get("pg_name", "")) if len(trace.config) == 1 else None
    launched = dict(
        np.frombuffer(trace.launches, dtype=np.int64).reshape(-1, 3)[:, [0, 2]].tolist()
    )
    streams: dict[int | None, str] = {}
    trace.kernels = []
    for number, one in enumerate(ran, start=1):
        # Streams are called in the order of their first kernels: their numbers are a process's own.
        group = (
            only
            if only is not None
            else streams.setdefault(one.stream, f"stream {len(streams) + 1}")
        )
        called_ns = launched.get(one.correlation or -1, one.started_ns)
        trace.kernels.append(one._replace(external_id=number))
        trace.calls.append(
            Call(
                external_id=number,
                thread=0,
                at_ns=called_ns,
                until_ns=called_ns,
                op=one.op or "",
                group=group,
                description="",
                group_size=0,
                members=(),
                seq=None,
                peer=None,
                dtype=None,
                elements=None,
            )
        )
    what = "NCCL kernels" if one.stream is not None else "gloo's operations"
    trace.notes.append(
        f"it describes no call: {what} are taken for the calls, in the order they ran"
        + ("" if only is not None else _UNNAMED)
    )


def _notes(trace: Trace, joined: Joined, named: NamedTasks) -> Iterator[str]:
    """What was inferred in reading a trace, and what it leaves open."""
    yield from trace.notes
    if trace.undescribed:
        yield f"events left out as nothing describes them: {trace.undescribed:,}"
    if joined.counted:
        yield "its collectives carry no numbers: they are counted from the trace's beginning"
    if joined.by_launch:
        yield f"kernels joined by when they were launched: {joined.by_launch:,}"
    if joined.lost:
        yield f"NCCL kernels of no call in it (CUDA graphs?): {joined.lost:,}"
    if joined.left_out:
        yield f"operations left out at its end, as they may not have been over: {joined.left_out:,}"
    if trace.deep_ep:
        yield f"kernels of DeepEP, whose calls nothing describes: {trace.deep_ep:,}"
    if trace.calls and not trace.kernels:
        yield "no NCCL kernel is in it: when the device ran the operations is not known"
    yield from named.notes
