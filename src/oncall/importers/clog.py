"""Logs of torchcomms' clog: what each rank enqueued, and when it started and ended on the device.

    V|1|base_timestamp=1714234567.890
    new_comm|comm=world|rank=0|world_size=8
    split|parent=world|child=tp|ranks=0,1
    C1|sig|all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f|comm=world
    C1|Q|work_id=1|+0.001
    C1|S|+0.002
    C1|E|+0.005

`C1` names what is called, not one call: the n-th start and the n-th end are of the n-th that was
enqueued. Starts and ends are there if the log was made with LIFECYCLE. Replays of CUDA graphs
(`G42|R1|C1|S|+2.001`) come in no order, so that they are only counted.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.flight_recorder.names import operation
from oncall.importers.recordings import append_recording

KIND = "clog"
OF_ONE_JOB = True  # a file a rank, maybe in a folder a rank

_HEAD = re.compile(
    r"V\|(?P<version>\d{1,3})\|base_timestamp=(?P<at>[12]?\d{1,9}(?:\.\d{1,9})?)\s*$"
)
_MARK = re.compile(rb"V\|\d{1,3}\|base_timestamp=\d")
_EVENT = re.compile(
    r"(?:G\d{1,20}\|)?(?P<replay>R\d{1,20}\|)?C(?P<call>\d{1,18})\|(?P<event>[QSEW])"
    r"(?:\|work_id=\d{1,20})?\|\+(?P<at>\d{1,9}(?:\.\d{1,9})?)$"
)
_SIGNATURE = re.compile(r"C(?P<call>\d{1,18})\|sig\|(?P<op>\w{1,40})(?P<fields>(?:\|.{0,4000})?)$")
_WIDTHS = {
    **dict.fromkeys(("f64", "i64"), 8), **dict.fromkeys(("f32", "i32"), 4),
    **dict.fromkeys(("f16", "bf16", "i16"), 2),
    **dict.fromkeys(("i8", "u8", "bool", "fp8e4m3", "fp8e5m2"), 1),
}  # fmt: skip
_BATCH = "batch_op_issue"  # of sends and receives that it does not name
_FACTOR = 40.0  # bytes of memory for each of the text: a line becomes some numbers
_LARGEST_RANK = 1 << 17
_MOST_ELEMENTS = 1 << 53  # a call of more is damaged text


@dataclass(frozen=True)
class _Signature:
    """What is called: the operation with its parameters as logged."""

    op: str
    of: Mapping[str, str]

    @property
    def count(self) -> int | None:
        """Elements that the caller passed; of a receive, those it expects."""
        given = [self.of.get(name) for name in ("in_count", "in_counts", "in_splits", "out_count")]
        if self.op == "recv":
            given.reverse()
        parts = next((text.split(",") for text in given if text), [])
        numbers = [_number(part, _MOST_ELEMENTS) for part in parts]
        known = [number for number in numbers if number is not None]
        return sum(known) if parts and len(known) == len(parts) else None


@dataclass
class _Call:
    """One call. Times in ns; None: not logged."""

    signature: _Signature
    enqueued_ns: int
    started_ns: int | None = None
    ended_ns: int | None = None


class _Log:
    """What one rank's log holds. `comms`: its rank in each, and the size; `splits`: the global
    ranks of those that are parts of others; `lifecycle`: starts and ends are logged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version: str | None = None
        self.calls: list[_Call] = []
        self.comms: dict[str, tuple[int, int]] = {}
        self.splits: dict[str, tuple[int, ...]] = {}
        self.lifecycle = False
        self.left_out: Counter[str] = Counter()
        self.problem: str | None = None
        self.base_ns = 0
        self._signatures: dict[str, _Signature] = {}
        self._of: dict[str, list[_Call]] = defaultdict(list)  # calls of a signature
        self._over: Counter[tuple[str, str]] = Counter()  # starts and ends so far, by signature

    def take(self, line: str) -> None:
        """Add what a line says."""
        if event := _EVENT.match(line):
            self._take_event(event)
        elif signature := _SIGNATURE.match(line):
            of = dict(_fields(signature["fields"]))
            self._signatures[signature["call"]] = _Signature(signature["op"], of)
        elif head := _HEAD.match(line):
            self.version, self.base_ns = head["version"], _ns(head["at"])
        elif line.startswith("new_comm|"):
            of = dict(_fields(line))
            rank, size = _number(of.get("rank")), _number(of.get("world_size"))
            if "comm" in of and rank is not None and size is not None and rank < size:
                self.comms[of["comm"]] = (rank, size)
        elif line.startswith("split|"):
            of = dict(_fields(line))
            ranks = [_number(part) for part in of.get("ranks", "").split(",")]
            known = tuple(rank for rank in ranks if rank is not None)
            if "child" in of and len(known) == len(ranks):
                self.splits[of["child"]] = known
        elif line and not line.startswith("WARN|"):
            self.left_out["lines could not be read"] += 1

    def _take_event(self, event: re.Match[str]) -> None:
        name, kind, at_ns = event["call"], event["event"], self.base_ns + _ns(event["at"])
        signature = self._signatures.get(name)
        if event["replay"]:
            self.left_out["calls of replayed CUDA graphs are not used"] += kind == "E"
        elif signature is None:
            self.left_out["lines name a call that the log does not describe"] += 1
        elif signature.op == _BATCH:
            self.left_out["batches of sends and receives are not used"] += kind == "Q"
        elif kind == "Q":
            call = _Call(signature, at_ns)
            self._of[name].append(call)
            self.calls.append(call)
        elif kind in "SE":
            self.lifecycle = True
            calls, number = self._of[name], self._over[name, kind]
            self._over[name, kind] += 1
            if number < len(calls) and kind == "S":
                calls[number].started_ns = at_ns
            elif number < len(calls):
                calls[number].ended_ns = at_ns


@dataclass(frozen=True)
class _Group:
    """A communicator: the global rank at each place, as far as it is known."""

    comm: int
    name: str
    size: int
    ranks: Mapping[int, int]


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether `head` is the version header of clog."""
    return _MARK.match(head) is not None


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add the calls of all logs as evidence of `job`: jobs, ranks, comms, ops, recordings."""
    logs = [_read(path) for path in sorted(paths)]
    world_size = max((size for log in logs for _, size in log.comms.values()), default=0)
    ranks = {log.path: _rank_of(log, world_size) for log in logs}
    _set_older_aside(logs, ranks)
    groups = _groups(logs, ranks)
    if world_size:
        incident.append("jobs", {"job": job, "world_size": [world_size]})
    known = sorted({rank for rank in ranks.values() if rank is not None})
    incident.append_rows("ranks", ({"rank": rank} for rank in known), job=job)
    incident.append_rows("comms", _membership_rows(job, groups.values()))
    for log in logs:
        rank = ranks[log.path]
        rows = [] if rank is None else list(_rows(log, rank, groups, job))
        incident.append_rows("ops", rows)
        unplaced = "no communicator of the whole job is in it: its rank is unknown"
        append_recording(
            incident,
            job,
            KIND,
            log.path,
            len(rows),
            log.problem or (unplaced if rank is None else None),
            (f"{count:,} {what}" for what, count in log.left_out.items() if count),
            rank=rank,
            version=log.version,
        )


def _read(path: Path) -> _Log:
    log = _Log(path)
    try:
        text = files.text(path, _FACTOR)
        for line in metered(files.lines(text)):
            log.take(line)
    except Unreadable as error:
        log.problem = str(error)
    return log


def _rank_of(log: _Log, world_size: int) -> int | None:
    """The log's global rank: its place in a communicator of the whole job."""
    return next((place for place, size in log.comms.values() if size == world_size), None)


def _set_older_aside(logs: Sequence[_Log], ranks: dict[Path, int | None]) -> None:
    """Of several logs of one rank the newest counts: the others are of former starts of the job."""
    newest: dict[int, _Log] = {}
    for log in sorted(logs, key=lambda log: log.base_ns):
        rank = ranks[log.path]
        if rank is not None and rank in newest:
            older = newest[rank]
            older.problem = f"ignored: {log.path.name} is a newer log of the same rank"
            ranks[older.path] = None
        if rank is not None:
            newest[rank] = log


def _groups(
    logs: Sequence[_Log], ranks: Mapping[Path, int | None]
) -> dict[tuple[Path, str], _Group]:
    """The group that each log means by a name. Of groups that were split off all members are
    logged. Of others with one name in several logs there may be several, which nothing tells
    apart where two logs claim one place: these are left out."""
    places: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    sizes: dict[str, int] = {}
    for log in logs:
        rank = ranks[log.path]
        for name, (place, size) in log.comms.items():
            sizes[name] = max(size, sizes.get(name, 0))
            if rank is not None:
                places[name][place].add(rank)
    found: dict[tuple[Path, str], _Group] = {}
    for log in logs:
        for name in log.comms:
            if all(len(claimed) == 1 for claimed in places[name].values()):
                members = {place: min(claimed) for place, claimed in places[name].items()}
                found[log.path, name] = _Group(_hash(name), name, sizes[name], members)
        for name, global_ranks in log.splits.items():
            members = dict(enumerate(global_ranks))
            found[log.path, name] = _Group(_hash(name, global_ranks), name, len(members), members)
    return found


def _membership_rows(job: str, groups: Iterable[_Group]) -> Iterator[dict[str, object]]:
    for group in {group.comm: group for group in groups}.values():
        for place, rank in sorted(group.ranks.items()):
            yield {"job": job, "comm": group.comm, "rank": rank, "comm_rank": place,
                   "size": group.size, "name": group.name}  # fmt: skip


def _rows(
    log: _Log, rank: int, groups: Mapping[tuple[Path, str], _Group], job: str
) -> Iterator[dict[str, object]]:
    """The calls as rows of `ops`, numbered on their communicator in the order of the log, sends and
    receives apart."""
    numbers: Counter[tuple[object, ...]] = Counter()
    for call in log.calls:
        of = call.signature.of
        group = groups.get((log.path, of.get("comm", "")))
        if group is None:
            log.left_out["calls on a communicator whose ranks are not logged"] += 1
            continue
        op = operation(call.signature.op)
        p2p = op in ("Send", "Recv")
        seq = (group.comm, p2p)
        pair = (group.comm, op, of.get("peer"))
        place = _number(of.get("peer")) if p2p else None
        count = call.signature.count
        yield {
            "job": job, "comm": group.comm, "rank": rank, "seq": numbers[seq],
            "kind": "p2p" if p2p else "coll", "op": op, "dtype": of.get("dtype"),
            "count": count, "bytes": _bytes(count, of.get("dtype")),
            "root": _number(of.get("root")),
            "comm_peer": place, "peer": None if place is None else group.ranks.get(place),
            "pair_seq": numbers[pair] if p2p else None,
            "enqueued_ns": call.enqueued_ns, "started_ns": call.started_ns,
            "ended_ns": call.ended_ns,
            "done": (call.ended_ns is not None) if log.lifecycle else None,
        }  # fmt: skip
        numbers[seq] += 1
        numbers[pair] += p2p


def _bytes(count: int | None, dtype: str | None) -> int | None:
    width = _WIDTHS.get(dtype or "")
    return None if count is None or width is None else count * width


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """`name=value` between bars."""
    for part in text.split("|"):
        name, equals, value = part.partition("=")
        if equals:
            yield name, value


def _number(text: str | None, most: int = _LARGEST_RANK) -> int | None:
    """A number, of a rank unless more is allowed; None for none and for one that cannot be."""
    known = text is not None and text.isdecimal() and len(text) < 18 and int(text) <= most
    return int(text) if known and text is not None else None


def _ns(seconds: str) -> int:
    """Seconds with a fraction of up to nine digits, in ns."""
    whole, _, fraction = seconds.partition(".")
    return int(whole) * 10**9 + int(fraction.ljust(9, "0") or 0)


def _hash(name: str, ranks: Sequence[int] = ()) -> int:
    """The communicator's number: of its name, and of its members where these are logged."""
    text = f"{name}|{','.join(map(str, ranks))}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
