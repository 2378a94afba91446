"""Evidence rows of what was played: calls on nodes' clocks, with holes and silence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oncall.evidence.incident import Incident, Words
from oncall_lab.arrays import Bools, Floats, Ints, changes
from oncall_lab.pipeline.call_log import as_logged
from oncall_lab.pipeline.log import OPS, TASKS
from oncall_lab.pipeline.play import Played
from oncall_lab.pipeline.scenario import PipelineScenario
from oncall_lab.recording import NodeClocks, Recorder

HOST_LEAD_NS = 200e3  # how far the host's call is ahead of the device, at most
BETWEEN_CALLS_NS = 1e3  # at least
MEAN_RUN = 40  # calls a recorder loses at a time
_P2P = tuple(OPS.index(op) for op in ("Send", "Recv"))
_ROLE_NAMES = {"embedding": "embd", "model": "mp"}  # as Megatron-LM calls them


def record(scenario: PipelineScenario, played: Played) -> Incident:
    """All evidence; equal scenarios give equal rows."""
    return _Recorder(scenario, played).record()


class _Recorder(Recorder):
    def __init__(self, scenario: PipelineScenario, played: Played) -> None:
        super().__init__(scenario, NodeClocks(scenario, played.layout.nodes), played.until_ns)
        self.scenario, self.played, self.layout = scenario, played, played.layout
        self.calls_alone = scenario.recorder == "calls"

    def record(self) -> Incident:
        self._job()
        self._running()
        self._communicators()
        if self.scenario.clocks_measured and not self.calls_alone:
            self.incident.append(
                "clocks", self.clocks.measured(self.answered, self.played.until_ns)
            )
        if self.scenario.recorder == "tasks":
            self._tasks()
        else:
            self._operations()
        return self.incident

    def _job(self) -> None:
        s = self.scenario
        stated: dict[str, Any] = {"job": [s.job], "world_size": s.world_size}
        if s.configuration_stated:
            names = (
                "tp", "pp", "dp", "cp", "ep", "micro_batches", "schedule", "chunks", "layers",
                "sequence_parallel", "distributed_optimizer",
            )  # fmt: skip
            stated |= {name: getattr(s, name) for name in names}
            stated |= {"framework": "simulated", "origin": "scenario"}
        self.incident.append("jobs", stated)

    def _running(self) -> None:
        ranks = np.flatnonzero(~self.silent)
        if self.calls_alone:  # a log of calls names its rank and nothing else
            self.append("ranks", {"rank": ranks})
        else:
            local = ranks % self.scenario.gpus_per_node
            self.ranks(ranks, local, local)

    def _communicators(self) -> None:
        """Every member, as each rank that answers knows all members of its communicators. Logs of
        calls tell those that called, by the communicator's hash alone."""
        for role, groups in self.layout.groups.items():
            count, size = groups.members.shape
            rows: dict[str, Any] = {
                "comm": np.repeat(groups.comms, size),
                "rank": groups.members.ravel(),
                "comm_rank": np.tile(np.arange(size), count),
                "size": size,
            }
            if self.calls_alone:
                called = ~self.silent[rows["rank"]]
                reported_on = {name: rows[name][called] for name in ("comm", "rank", "comm_rank")}
                rows |= reported_on | {"size": None if self.silent.any() else size}
            elif self.scenario.roles_recorded:
                label = _ROLE_NAMES.get(role, role)
                names = [label if count == 1 else f"{label}_{number}" for number in range(count)]
                number = np.repeat(np.arange(count, dtype=np.int32), size)
                rows |= {"role": label, "name": Words(number, names)}
            self.append("comms", rows)

    # ------------------------------------------------------------- operations

    def _operations(self) -> None:
        calls = self.played.calls
        if self.calls_alone:
            calls = as_logged(calls, self.scenario.ep)
        called = np.isfinite(calls["called_ns"]) & (calls["called_ns"] <= self.played.until_ns)
        called &= ~self.silent[calls["rank"]] & (calls["called_ns"] >= self._recording_begins())
        lost = self._holes(calls) & called
        kept = called & ~lost
        rows = {name: column[kept] for name, column in calls.items()}
        rank, p2p = rows["rank"], np.isin(rows["op"], _P2P)
        columns: dict[str, Any] = {
            "comm": rows["comm"],
            "seq": rows["seq"],
            "rank": rank,
            "kind": Words(p2p.astype(np.int32), ["coll", "p2p"]),
            "op": Words(rows["op"], OPS),
            "count": rows["bytes"] // 2,
            "group_id": np.ma.MaskedArray(rows["group"], mask=~p2p),
            "enqueued_ns": self.clocks.shown(rank, self._calling(rows)),
        }
        if not self.calls_alone:
            columns |= {"dtype": "bfloat16"}
            columns |= {"peer": np.ma.MaskedArray(rows["peer"], mask=~p2p)}
        if self.scenario.recorder == "hooks":
            columns |= self._on_the_device(rows, p2p)
            self.collectors(rank, calls["rank"][lost])
        self.append("ops", columns)
        if self.scenario.recorder == "calls":
            self._recordings(rank, calls["rank"][lost])

    def _recording_begins(self) -> float:
        began, ended = self.played.spans[0]
        if not self.scenario.starts_in:
            return -np.inf
        return float(began + self.scenario.starts_in * (ended - began))

    def _calling(self, rows: dict[str, NDArray[Any]]) -> Floats:
        """When hosts called: a little ahead of the device, in order."""
        rng = self.scenario.rng("host")
        lead = rng.uniform(0.1, 1.0, len(rows["rank"])) * HOST_LEAD_NS
        # Nobody calls twice at once or out of order; those of one group call follow at once.
        order = np.lexsort((rows["seq"], rows["group"], rows["called_ns"], rows["rank"]))
        of_rank, group, called = (rows[name][order] for name in ("rank", "group", "called_ns"))
        apart = (group < 0) | changes(of_rank, group, called)
        together = np.maximum.accumulate(np.where(apart, np.arange(len(order)), 0))
        sorted_ns = called - lead[order][together]
        ramp = BETWEEN_CALLS_NS * np.arange(len(order))
        far = 2 * float(sorted_ns.max(initial=0.0)) + 1e9 + len(ramp) * BETWEEN_CALLS_NS
        offset = far * np.cumsum(changes(of_rank)) - ramp  # one rank's calls are no other's
        result = np.empty_like(sorted_ns)
        result[order] = np.maximum.accumulate(sorted_ns + offset) - offset
        return result

    def _on_the_device(self, rows: dict[str, NDArray[Any]], p2p: Bools) -> dict[str, Any]:
        until, rank = self.played.until_ns, rows["rank"]
        done = rows["ended_ns"] <= until
        entered = np.where(rows["entered_ns"] <= until, rows["entered_ns"], np.inf)
        ended = np.where(done, rows["ended_ns"], np.inf)
        return {
            "bytes": rows["bytes"],
            "algo": Words(np.where(p2p, -1, 0).astype(np.int32), ["RING"]),
            "proto": "SIMPLE",
            "channels": 4,
            "pair_seq": np.ma.MaskedArray(rows["pair_seq"], mask=~p2p),
            "started_ns": self.clocks.shown(rank, entered),
            "ended_ns": self.clocks.shown(rank, ended),
            "done": done,
            "observed_ns": self.clocks.shown(rank, np.where(done, ended, until)),
        }

    def _holes(self, calls: dict[str, NDArray[Any]]) -> Bools:
        """Runs of calls that recorders lost."""
        lost: Bools = np.zeros(len(calls["rank"]), dtype=np.bool_)
        if not self.scenario.holes:
            return lost
        rng = self.scenario.rng("holes")
        order = np.lexsort((calls["called_ns"], calls["rank"]))
        runs = rng.random(len(order)) < self.scenario.holes / MEAN_RUN
        for first in np.flatnonzero(runs):
            lost[order[first : first + int(rng.geometric(1 / MEAN_RUN))]] = True
        return lost

    def _recordings(self, kept: Ints, lost: Ints) -> None:
        """One log a rank, which says where it has holes."""
        ranks = np.flatnonzero(~self.silent)
        world = self.scenario.world_size
        rows, holes = (np.bincount(r, minlength=world)[ranks] for r in (kept, lost))
        paths = [f"rank_{rank}.log" for rank in ranks]
        own = {"path": paths, "kind": "megatrace", "rank": ranks, "rows": rows, "holes": holes}
        self.append("recordings", own)

    # ------------------------------------------------------------- recorded tasks

    def _tasks(self) -> None:
        tasks = self.played.tasks
        kept = np.isfinite(tasks["started_ns"]) & (tasks["started_ns"] <= self.played.until_ns)
        kept &= ~self.silent[tasks["rank"]]
        kept &= tasks["started_ns"] >= self._recording_begins()
        rows = {name: column[kept] for name, column in tasks.items()}
        rank = rows["rank"]
        until = self.played.until_ns
        times = ("started_ns", "ended_ns", "first_call_ns", "last_call_ns")
        columns: dict[str, Any] = {
            name: self.clocks.shown(rank, np.where(rows[name] <= until, rows[name], np.inf))
            for name in times
        }
        for name in ("own_ns", "late_ns"):
            known = np.isfinite(rows[name])
            value = np.rint(np.where(known, rows[name], 0)).astype(np.int64)
            columns[name] = np.ma.MaskedArray(value, mask=~known)
        for name in ("micro_batch", "peer"):
            columns[name] = np.ma.MaskedArray(rows[name], mask=rows[name] < 0)
        columns["comm"] = np.ma.MaskedArray(rows["comm"], mask=rows["comm"] == 0)
        plain = ("rank", "iteration", "stage", "chunk", "calls", "last_calls")
        self.append(
            "stage_tasks",
            {
                **{name: rows[name] for name in plain},
                **columns,
                "task": Words(rows["task"], TASKS),
                "whole": np.isfinite(rows["ended_ns"]) & (rows["ended_ns"] <= until),
                "source": "recorded",
            },
        )
