"""Write Flight Recorder dumps of a job that never ran, as PyTorch 2.10-format pickles.

    python benchmarks/make_flight_recorder.py OUT --ranks 4096 --entries 500 --absent 1234

Every rank runs iterations on its tensor-, pipeline- and data-parallel groups. With --absent, that
rank enters no operation of the last iteration (CCL-D's H1) and those who need it wait, directly
or not. The bytes are laid out as PyTorch's own pickler lays them: no memo but for strings.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import EllipsisType
from typing import Any

_START_NS = 1_760_000_000_000_000_000
_OP_NS = 4_000_000
_HOLE = b"<a number goes here>"


@dataclass(frozen=True)
class Frame:
    """A line of a Python stack; PyTorch shares one dictionary among all entries that have it."""

    name: str
    filename: str
    line: int


_FRAMES = [
    Frame(name, f"/opt/train/{file}.py", line)
    for name, file, line in (
        ("all_reduce", "torch/distributed/distributed_c10d", 3245),
        ("wrapper", "torch/distributed/c10d_logger", 83),
        ("forward_step", "megatron/schedules", 512),
        ("train_step", "megatron/training", 1208),
        ("main", "pretrain", 77),
    )
]


@dataclass(frozen=True)
class Shape:
    """A job's parallelism; rank = tp + TP * (dp + DP * pp), as in Megatron."""

    ranks: int
    tp: int
    pp: int

    @property
    def dp(self) -> int:
        return self.ranks // (self.tp * self.pp)

    def place(self, rank: int) -> tuple[int, int, int]:
        """The rank's tensor-, data- and pipeline-parallel coordinates."""
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def groups(self) -> list[tuple[str, list[int]]]:
        """Description and members of every group, in order of creation."""
        axes = (("DATA", (0, 2)), ("TENSOR_MODEL", (1, 2)), ("PIPELINE_MODEL", (0, 1)))
        groups: list[tuple[str, list[int]]] = [("default_pg", list(range(self.ranks)))]
        for kind, fixed in axes:
            members: dict[tuple[int, ...], list[int]] = {}
            for rank in range(self.ranks):
                place = self.place(rank)
                members.setdefault(tuple(place[axis] for axis in fixed), []).append(rank)
            groups += [(f"{kind}_PARALLEL_GROUP", ranks) for ranks in members.values()]
        return groups


@dataclass(frozen=True)
class Call:
    """One call of an iteration: which of a rank's groups (0 world, 1 dp, 2 tp, 3 pp), and what."""

    group: int
    name: str
    elements_in: int
    elements_out: int

    @property
    def p2p(self) -> bool:
        return "->" in self.name or "<-" in self.name


class Pickler:
    """PyTorch's dialect of pickle: protocol 2, only strings and shared dictionaries memoised."""

    def __init__(self) -> None:
        self.memo: dict[str | Frame, int] = {}

    def encode(self, value: Any) -> bytes:
        """The opcodes that build a value; Ellipsis becomes a hole, to be filled with a number."""
        match value:
            case EllipsisType():
                return _HOLE
            case None:
                return b"N"
            case bool():
                return b"\x88" if value else b"\x89"
            case int():
                return self.number(value)
            case str():
                data = value.encode()
                return self._once(value, struct.pack("<cI", b"X", len(data)) + data)
            case Frame():
                return self._once(value, b"" if value in self.memo else self.encode(vars(value)))
            case tuple():
                return b"".join(map(self.encode, value)) + b"\x86"
            case list():
                return b"](" + b"".join(map(self.encode, value)) + b"e"
            case dict():
                pairs = (self.encode(k) + self.encode(v) for k, v in value.items())
                return b"}(" + b"".join(pairs) + b"u"
        raise TypeError(type(value))

    def number(self, value: int) -> bytes:
        if 0 <= value < 256:
            return struct.pack("<cB", b"K", value)
        if 0 <= value < 65536:
            return struct.pack("<cH", b"M", value)
        if -(2**31) <= value < 2**31:
            return struct.pack("<ci", b"J", value)
        return struct.pack("<cBq", b"\x8a", 8, value)

    def _once(self, value: str | Frame, opcodes: bytes) -> bytes:
        """The opcodes and a memo, or what refers to the memo if the value was written before."""
        known = value in self.memo
        code = self.memo.setdefault(value, len(self.memo))
        short, long = (b"h", b"j") if known else (b"q", b"r")
        refer = struct.pack("<cB", short, code) if code < 256 else struct.pack("<cI", long, code)
        return refer if known else opcodes + refer


def iteration(rank: int, shape: Shape) -> list[Call]:
    """What a rank calls in an iteration: its stage's tensor-parallel work between Recv and Send."""
    stage = shape.place(rank)[2]
    activation = 2048 * 5120
    calls = []
    if stage > 0:
        calls.append(Call(3, f"nccl:recv {stage}<-{stage - 1}", activation, activation))
    for _ in range(4):
        calls.append(Call(2, "nccl:_all_gather_base", activation, activation * shape.tp))
        calls.append(Call(2, "nccl:_reduce_scatter_base", activation * shape.tp, activation))
    if stage < shape.pp - 1:
        calls.append(Call(3, f"nccl:send {stage}->{stage + 1}", activation, activation))
    calls.append(Call(1, "nccl:all_reduce", 10_000_000, 10_000_000))
    calls.append(Call(0, "nccl:all_reduce", 16, 16))
    return calls


def stuck_in(rank: int, shape: Shape, absent: int | None) -> int | None:
    """Which call of the last iteration a rank never leaves, if `absent` enters none of them.

    Its tensor-parallel peers wait for it at once, so later stages of its replica never receive;
    the stage before it cannot send to it; whoever reduces gradients with any of these waits for
    them; all others meet in the reduction of the whole job, which never completes.
    """
    if absent is None:
        return None
    (tp, dp, pp), (its_tp, its_dp, its_pp) = shape.place(rank), shape.place(absent)
    groups = [call.group for call in iteration(rank, shape)]
    before_it = pp == its_pp - 1 and tp == its_tp
    if dp == its_dp and pp > its_pp:
        return 0
    if dp == its_dp and pp == its_pp:
        return groups.index(2)
    if dp == its_dp and before_it:
        return len(groups) - 3
    return len(groups) - (2 if pp >= its_pp or before_it else 1)


@dataclass(frozen=True)
class Entry:
    """One call as recorded: its numbers, and whether it completed."""

    call: Call
    number: int
    collective_seq: int
    p2p_seq: int
    done: bool

    @property
    def seq(self) -> int:
        return self.p2p_seq if self.call.p2p else self.collective_seq

    def numbers(self, rank: int) -> tuple[int, ...]:
        """What differs from entry to entry, in the order of `constant`."""
        created = _START_NS + self.number * _OP_NS + rank * 1_000
        ended = (created + _OP_NS,) if self.done else ()
        op_id = self.collective_seq + self.p2p_seq
        return (self.number, self.collective_seq, self.p2p_seq, op_id, created, *ended)


def constant(entry: Entry, group: tuple[str, str], frames: bool) -> dict[str, Any]:
    """An entry as PyTorch lays it out, with holes for its numbers."""
    return {
        **({"frames": _FRAMES} if frames else {}),
        "record_id": ...,
        "pg_id": entry.call.group,
        "process_group": group,
        "thread_name": "python3",
        "thread_id": "23437663053504",
        "collective_seq_id": ...,
        "p2p_seq_id": ...,
        "op_id": ...,
        "profiling_name": entry.call.name,
        "time_created_ns": ...,
        "input_sizes": [[entry.call.elements_in]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[entry.call.elements_out]],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if entry.done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": ... if entry.done else None,
        "retired": entry.done,
        "timeout_ms": 600000,
        "is_p2p": entry.call.p2p,
    }


def recorded(rank: int, shape: Shape, count: int, absent: int | None) -> Iterator[Entry]:
    """About `count` calls of a rank; it stops at the first one that does not complete."""
    calls = iteration(rank, shape)
    first, last = 1000, 1000 + -(-count // len(calls))
    seqs = {
        (group, p2p): first * sum((call.group, call.p2p) == (group, p2p) for call in calls)
        for group in range(4)
        for p2p in (False, True)
    }
    stuck = stuck_in(rank, shape, absent)
    for step in range(first, last):
        if step == last - 1 and rank == absent:
            return
        for place, call in enumerate(calls):
            seqs[call.group, call.p2p] += 1
            done = step < last - 1 or place != stuck
            number = step * len(calls) + place
            yield Entry(call, number, seqs[call.group, False], seqs[call.group, True], done)
            if not done:
                return


def dump(
    rank: int,
    groups: Sequence[tuple[str, str, str]],
    entries: Sequence[Entry],
    frames: bool,
) -> bytes:
    """One rank's dump. `groups` are name, description and members (as text) of its groups."""
    status = {}
    for pg_id in range(len(groups)):
        launched = [entry for entry in entries if entry.call.group == pg_id]
        completed = [entry for entry in launched if entry.done]
        status[str(pg_id)] = {
            "last_enqueued_collective": launched[-1].seq if launched else -1,
            "last_started_collective": -1,
            "last_completed_collective": completed[-1].seq if completed else -1,
        }
    head = {
        "version": "2.10",
        "pg_config": {n: {"name": n, "desc": d, "ranks": r} for n, d, r in groups},
        "comm_lib_version": "2.27.3",
        "pg_status": status,
    }
    pickler = Pickler()
    parts = [b"\x80\x02" + pickler.encode(head)[:-1] + pickler.encode("entries") + b"]("]
    templates: dict[tuple[Call, bool], list[bytes]] = {}
    for entry in entries:
        template = templates.get((entry.call, entry.done))
        if template is None:
            # The first of its kind writes its strings; the template of the others refers to them.
            form = constant(entry, groups[entry.call.group][:2], frames)
            template = pickler.encode(form).split(_HOLE)
            templates[entry.call, entry.done] = pickler.encode(form).split(_HOLE)
        numbers = [*map(pickler.number, entry.numbers(rank)), b""]
        parts += chain.from_iterable(zip(template, numbers, strict=True))
    return b"".join([*parts, b"eu."])


def make(
    out: Path,
    shape: Shape,
    count: int,
    absent: int | None = None,
    frames: bool = False,
) -> None:
    """Write one dump a rank into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    mine: list[list[tuple[str, str, str]]] = [[] for _ in range(shape.ranks)]
    for name, (desc, members) in enumerate(shape.groups()):  # in the order of Call.group
        text = str(members)
        for rank in members:
            mine[rank].append((str(name), desc, text))
    for rank in range(shape.ranks):
        entries = list(recorded(rank, shape, count, absent))
        (out / f"fr_trace_rank_{rank}").write_bytes(dump(rank, mine[rank], entries, frames))


def main() -> None:
    """Parse the command line and write the dumps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--entries", type=int, default=500)
    parser.add_argument("--tp", type=int, default=4)
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--absent", type=int, help="a rank that enters nothing more")
    parser.add_argument("--frames", action="store_true", help="with Python stacks")
    arguments = parser.parse_args()
    shape = Shape(arguments.ranks, arguments.tp, arguments.pp)
    if shape.tp * shape.pp * shape.dp != shape.ranks:
        parser.error("--ranks must be a multiple of --tp times --pp")
    make(arguments.out, shape, arguments.entries, arguments.absent, arguments.frames)


if __name__ == "__main__":
    main()
