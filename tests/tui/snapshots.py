"""Snapshots made by hand, for screens: a hang of 16 ranks with its story, 4,096 ranks, silence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oncall.core.diagnosis import (
    Blame,
    Coverage,
    Diagnosis,
    Finding,
    Gap,
    Reason,
    RuledOut,
    SkippedRule,
    Stack,
    Step,
)
from oncall.views.snapshot import (
    CommunicatorSummary,
    HostAnswer,
    Moment,
    Ranks,
    RankState,
    Snapshot,
)

FIRST_NS = 1_760_000_000 * 10**9
FAULT_NS = FIRST_NS + 150 * 10**9
LAST_NS = FIRST_NS + 750 * 10**9
JOB = "llama-70b"
TP, DP, WORLD = 0x7A11, 0xD9, 0x30B1D


def ranks_of(
    count: int, states: dict[int, RankState], gpus_per_node: int = 8, nodes_from: int = 17
) -> Ranks:
    """`count` ranks in blocks on nodes, tp 2, pp 2; those not in `states` wait in operation 14."""
    rank = np.arange(count, dtype=np.int64)
    state = np.full(count, RankState.HUNG, dtype=np.int64)
    for one, what in states.items():
        state[one] = what
    waits = np.isin(state, (RankState.WAITING, RankState.HUNG))
    stage = rank * 2 // count
    return Ranks(
        rank=rank,
        state=state,
        node=tuple(f"gpu{nodes_from + one // gpus_per_node:03d}" for one in range(count)),
        gpu=rank % gpus_per_node,
        nic=tuple(f"mlx5_{one % gpus_per_node}" for one in range(count)),
        waited_ns=np.where(waits, 600 * 10**9, -1),
        groups={"tp": rank // 2, "dp": (rank % 2) + 2 * stage, "pp": rank % (count // 2)},
        comm=np.where(waits, np.uint64(DP), np.uint64(0)),
        seq=np.where(waits, 14, 13),
    )


def hang() -> Finding:
    """H1: rank 5 has not entered the AllReduce that the others wait in."""
    return Finding(
        id="F1",
        rulebook="hang",
        verdict="H1",
        title="Not entered",
        fault_class="hang",
        severity="critical",
        confidence=0.93,
        at_ns=FAULT_NS,
        blame=(Blame("rank", {"rank": 5, "node": "gpu017", "gpu": 5}),),
        case={"job": JOB, "comm": hex(DP), "seq": 14},
        story=(
            Step(
                "Do ranks wait in AllReduce 14 of dp longer than 5 min?",
                "yes",
                "ranks 0-4,6-15 wait in AllReduce 14 of dp for 10 min.",
                "stuck",
                15,
                "SELECT * FROM hang_members WHERE waited_ns > $hang_after",
                {"hang_after": "5 min"},
            ),
            Step(
                "Has a member not entered it?",
                "yes",
                "rank 5 stopped after operation 13.",
                "absent",
                1,
                "SELECT m.* FROM hang_members m JOIN hang_roots r USING (job, comm, seq, rank)",
            ),
            Step(
                "",
                "yes",
                "rank 5 on gpu017 never entered AllReduce 14.",
                "absent",
                1,
                "SELECT m.* FROM hang_members m JOIN hang_roots r USING (job, comm, seq, rank)",
            ),
        ),
        ruled_out=(
            RuledOut("H2", "all members call the same AllReduce of 1 GiB"),
            RuledOut("H3", "somebody has not entered, so the others wait rightly"),
        ),
        next=(
            "See where it stands, on gpu017: `py-spy dump --pid 4105`",
            "Look at the last line of rank 5's log.",
        ),
        sources=("CCL-D 4.2.2",),
        reasons=(Reason("members observed", 0.98, "16 of 16 members left evidence"),),
        stacks=(
            Stack(
                5, "last seen in AllReduce 13 of dp", ("wait at loader.py:88", "train at t.py:3")
            ),
        ),
    )


def waiting() -> Finding:
    """What follows from the hang: transfers that wait for rank 5."""
    return replace(
        hang(),
        id="F2",
        rulebook="waits",
        verdict="W1",
        title="Transfers wait for a rank",
        severity="warning",
        confidence=0.71,
        blame=(Blame("rank", {"rank": 4, "node": "gpu017", "gpu": 4}),),
        story=hang().story[:1],
        explained_by="F1",
        stacks=(),
    )


def _snapshot(
    ranks: Ranks, findings: tuple[Finding, ...], coverage: Coverage, summary: CommunicatorSummary
) -> Snapshot:
    size = len(ranks)
    return Snapshot(
        version=1,
        moment=Moment(LAST_NS, FIRST_NS, LAST_NS),
        job=JOB,
        diagnosis=Diagnosis(
            job=JOB,
            since_ns=FIRST_NS,
            until_ns=LAST_NS,
            coverage=coverage,
            findings=findings,
            checked=("hang", "process", "slow"),
        ),
        ranks=ranks,
        communicators=(
            summary,
            CommunicatorSummary(TP, "tp 0-1", "tp", 2, 812, 0, 0, -1),
            CommunicatorSummary(WORLD, "world", "world", size, 3, 0, 0, -1),
        ),
        origin="recording incident.oncall",
        timings_s={"hang": 0.061, "process": 0.004, "slow": 0.043},
    )


_SKIPPED = SkippedRule("waits", ("transfers",), "not recorded: NCCL transfers")


def hang_snapshot() -> Snapshot:
    """16 ranks on two nodes; rank 5 keeps the others waiting."""
    ranks = ranks_of(16, {5: RankState.BLAMED, 12: RankState.RUNNING, 13: RankState.WAITING})
    return _snapshot(
        ranks,
        (hang(), waiting()),
        Coverage(2, 2, 16, 16, (), (_SKIPPED,)),
        CommunicatorSummary(DP, "dp 0-15", "dp", 16, 14, 1, 14, 600 * 10**9),
    )


def large_snapshot(count: int = 4096) -> Snapshot:
    """Many ranks: one blamed, one late, fourteen silent, the others hung."""
    states = dict.fromkeys(range(count - 14, count), RankState.UNKNOWN)
    states |= {137: RankState.BLAMED, 400: RankState.LATE, 401: RankState.RUNNING}
    blamed = replace(hang(), blame=(Blame("rank", {"rank": 137, "node": "gpu034", "gpu": 1}),))
    gap = Gap("did not answer in time", ("gpu527", "gpu528"), tuple(range(count - 14, count)))
    return _snapshot(
        ranks_of(count, states),
        (blamed,),
        Coverage(count // 8, count // 8 - 2, count, count - 14, (gap,), (_SKIPPED,)),
        CommunicatorSummary(DP, "dp", "dp", count, 14, 1, count - 3, 600 * 10**9),
    )


def healthy_snapshot() -> Snapshot:
    """16 ranks that train."""
    ranks = ranks_of(16, dict.fromkeys(range(16), RankState.RUNNING))
    return _snapshot(
        ranks,
        (),
        Coverage(2, 2, 16, 16),
        CommunicatorSummary(DP, "dp 0-15", "dp", 16, 14, 0, 0, -1),
    )


def silent_snapshot() -> Snapshot:
    """A running job of 16 ranks of which one node does not answer and the other waits."""
    states = dict.fromkeys(range(8, 16), RankState.UNKNOWN)
    states |= dict.fromkeys(range(8), RankState.WAITING)
    gap = Gap("did not answer in time: no answer within 20 s", ("gpu018",), tuple(range(8, 16)))
    snapshot = _snapshot(
        ranks_of(16, states),
        (),
        Coverage(2, 1, 16, 8, (gap,), (_SKIPPED,)),
        CommunicatorSummary(DP, "dp 0-15", "dp", 16, 14, 8, 8, 20 * 10**9),
    )
    return replace(
        snapshot,
        moment=replace(snapshot.moment, live=True),
        origin="2 nodes over SSH",
        hosts=(
            HostAnswer("gpu017", "ok", age_ns=10**9),
            HostAnswer("gpu018", "timeout", "no answer within 20 s", 95 * 10**9),
        ),
    )
