"""A Flight Recorder dump a rank, as torch 2.10's format has it.

Times of discovery are those of the watchdog's next look, or of the dump; a duration is there only
with timing, and once the watchdog has retired the call. Calls of a batch stay "scheduled", and the
entry that closes the batch has the state. The watchdog's abort ends what is in flight: it is
"completed" in a dump after that, and never retired.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncall_lab.jobs.play import Operation, Played
from oncall_lab.jobs.scenario import JobScenario
from oncall_lab.recording import EPOCH_NS, STARTUP_NS

LOOK_NS = 100e6  # between two looks of the watchdog
_TORCH = "/opt/venv/lib/python3.12/site-packages/torch/distributed/"
_LIBRARY = {
    "Send": "isend", "Recv": "irecv", "coalesced": "batch_isend_irecv",
    "_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single", "all_reduce_barrier": "barrier",
}  # fmt: skip


def dump_moments(scenario: JobScenario, played: Played) -> list[float]:
    """When each rank was dumped, ns since the begin."""
    s, spread = scenario, scenario.rng("dump").random(scenario.ranks) * scenario.dump_spread_ns
    if played.strike is None:
        # Of the time in which all ranks have something to do.
        at = s.dump_at * float(played.steps[-1].min())
    else:
        at = played.until_ns + (s.dump_after_ns if s.dump == "on_demand" else s.timeout_ns)
    return [at + float(late) for late in spread]


def earlier_calls(scenario: JobScenario, played: Played) -> dict[str, int]:
    """Collectives of each group (by name) before the recorded steps; the same for all members."""
    calls = scenario.rng("age").integers(3, 40, len(played.layout.groups))
    return {
        group.name: int(number) * scenario.earlier_steps
        for group, number in zip(played.layout.groups, calls, strict=True)
    }


def entries_of(operation: Operation) -> int:
    """How many entries of the ring an operation takes: a batch has one a part, and one that ends
    it."""
    return max(1, len(operation.parts) + operation.batched)


def first_whole_step(scenario: JobScenario, played: Played, rank: int) -> int:
    """The first step of which the ring of a rank holds every call when it is dumped."""
    until_ns, room = dump_moments(scenario, played)[rank], scenario.ring_entries
    for operation in reversed(played.operations[rank]):
        if operation.created_ns <= until_ns:
            room -= entries_of(operation)
            if room < 0:
                return operation.step + 1
    return 0


def write_dumps(scenario: JobScenario, played: Played, folder: Path) -> int:
    """Write `nccl_trace_rank_<r>` for each rank; returns the number of entries."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = scenario.rng("clocks")
    offsets = rng.uniform(-1, 1, scenario.nodes) * scenario.clock_offset_ns
    first = earlier_calls(scenario, played)
    written = 0
    for rank, until_ns in enumerate(dump_moments(scenario, played)):
        offset_ns = EPOCH_NS + STARTUP_NS + float(offsets[rank // scenario.gpus_per_host])
        dump = _Dump(scenario, played, rank, until_ns, offset_ns, first).document()
        written += len(dump["entries"])
        with (folder / f"nccl_trace_rank_{rank}").open("wb") as file:
            pickle.dump(dump, file, protocol=2)
    return written


@dataclass(frozen=True)
class _Seen:
    state: str = "scheduled"
    started_ns: int | None = None
    completed_ns: int | None = None
    retired: bool = False
    duration_ms: float | None = None


class _Dump:
    def __init__(
        self, scenario: JobScenario, played: Played, rank: int, until_ns: float,
        offset_ns: float, first: dict[str, int],
    ) -> None:  # fmt: skip
        self.scenario, self.rank = scenario, rank
        self.until_ns, self.offset_ns, self.first = until_ns, offset_ns, first
        self.groups = list(played.layout.of(rank).values())
        self.pg_id = {group.name: i for i, group in enumerate(self.groups)}
        rng = scenario.rng(f"watchdog of {rank}")
        self.aborted = scenario.dump == "aborted" and rng.random() < scenario.aborted_share
        self.looks_ns = rng.uniform(0, LOOK_NS, len(self.groups))
        self.thread = str(140_000_000_000_000 + int(rng.integers(10**12)))
        self.status: dict[int, list[int]] = {}
        made = [each for each in played.operations[rank] if each.created_ns <= until_ns]
        entries = sum(map(entries_of, made))
        self.record = scenario.earlier_steps * 7
        self.oldest = self.record + entries - scenario.ring_entries
        self.entries: list[dict[str, Any]] = []
        for operation in made:
            self._add(operation)

    def document(self) -> dict[str, Any]:
        keys = ("enqueued", "started", "completed")
        return {
            "version": "2.10",
            "pg_config": {
                g.name: {"name": g.name, "desc": g.desc, "ranks": str(list(g.members))}
                for g in self.groups
            },
            "comm_lib_version": "2.27.5",
            "pg_status": {
                str(pg_id): {
                    f"last_{key}_collective": value for key, value in zip(keys, values, strict=True)
                }
                for pg_id, values in sorted(self.status.items())
            },
            "entries": self.entries,
        }

    def _clock(self, at_ns: float) -> int:
        return round(self.offset_ns + at_ns)

    def _add(self, operation: Operation) -> None:
        group, members = operation.group, len(operation.group.members)
        if operation.parts:
            for way, peer, elements in operation.parts:
                arrow = "->" if way == "send" else "<-"
                name = f"{way} {group.local(self.rank)}{arrow}{group.local(peer)}"
                seen = _Seen() if operation.batched else self._seen(operation)
                self._entry(operation, name, [[elements]], [[elements]], seen)
            if operation.batched:
                self._entry(operation, "coalesced", [], [], self._seen(operation))
            return
        whole = part = [operation.elements]
        name = operation.name
        if "gather" in name or "scatter" in name:
            part = [operation.elements // members]
        given, got = (part, whole) if "gather" in name else (whole, part)
        self._entry(operation, name, [given], [got], self._seen(operation))

    def _seen(self, operation: Operation) -> _Seen:
        """What the recorder knows of a call at the moment of the dump; counts it in pg_status."""
        timing, until, task = self.scenario.timing, self.until_ns, operation.task
        pg_id = self.pg_id[operation.group.name]
        number = operation.p2p_number if operation.parts else operation.number
        number += 0 if operation.parts else self.first[operation.group.name]
        status = self.status.setdefault(pg_id, [-1, -1, -1])
        status[0] = number
        started = task.start_ns <= until
        if timing and started:
            status[1] = number
        if task.end_ns <= until:
            phase = float(self.looks_ns[pg_id])
            look = phase + math.ceil((task.end_ns - phase) / LOOK_NS) * LOOK_NS
            if look <= until:
                status[2] = max(status[2], number)
                at, length_ms = self._clock(look), (task.end_ns - task.start_ns) / 1e6
                length = length_ms if timing else None
                return _Seen("completed", at - 1800 if timing else None, at, True, length)
        elif not self.aborted:
            if timing and started:
                return _Seen("started", self._clock(until))
            return _Seen()
        at = self._clock(until)
        return _Seen("completed", at - 900 if timing and started else None, at)

    def _entry(
        self, operation: Operation, name: str, given: list[list[int]], got: list[list[int]],
        seen: _Seen,
    ) -> None:  # fmt: skip
        self.record += 1
        if self.record <= self.oldest:
            return  # the ring has overwritten it
        group, first = operation.group, self.first[operation.group.name]
        length = {} if seen.duration_ms is None else {"duration_ms": seen.duration_ms}
        self.entries.append({
            "frames": _frames(self.scenario.program, name),
            "record_id": self.record - 1,
            "pg_id": self.pg_id[group.name],
            "process_group": (group.name, group.desc),
            "thread_name": "python3",
            "thread_id": self.thread,
            "collective_seq_id": operation.number + first,
            "p2p_seq_id": operation.p2p_number,
            "op_id": operation.number + operation.p2p_number + first,
            "profiling_name": f"nccl:{name}",
            "time_created_ns": self._clock(operation.created_ns),
            **length,
            "input_sizes": given,
            "input_dtypes": ["BFloat16"] * len(given),
            "output_sizes": got,
            "output_dtypes": ["BFloat16"] * len(got),
            "state": seen.state,
            "time_discovered_started_ns": seen.started_ns,
            "time_discovered_completed_ns": seen.completed_ns,
            "retired": seen.retired,
            "timeout_ms": self.scenario.timeout_ns // 10**6,
            "is_p2p": bool(operation.parts),
        })  # fmt: skip


_STACKS: dict[tuple[str, str], list[dict[str, Any]]] = {}


def _frames(program: str, name: str) -> list[dict[str, Any]]:
    """The Python stack of a call, one list for all calls from the same place."""
    call = name.split()[0].capitalize() if " " in name else name
    if (program, call) not in _STACKS:
        places = (
            (_LIBRARY.get(call, call), f"{_TORCH}distributed_c10d.py", 2943),
            ("wrapper", f"{_TORCH}c10d_logger.py", 83),
            ("step", f"/workspace/{program}.py", 210),
            ("<module>", f"/workspace/{program}.py", 301),
        )
        _STACKS[program, call] = [
            {"name": function, "filename": file, "line": line} for function, file, line in places
        ]
    return _STACKS[program, call]
