"""How overdue a call is that others wait for, against how long they ever waited."""

from __future__ import annotations

from typing import Any

import pytest
from tests.together import Job

MS = 1_000_000
START, ITERATIONS, EXPERTS = 1_760_000_000_000 * MS, 12, (2, 3)


def calls(slow_ms: float, exchanges: bool) -> list[dict[str, Any]]:
    """Calls of four ranks, of which rank 2 is late for some AllReduces of all, and does not make
    the last one. Ranks 2 and 3 then exchange tokens, or reduce in their pair; so do 0 and 1."""
    rows: list[dict[str, Any]] = []

    def call(comm: int, seq: int, rank: int, at_ms: float, op: str, **more: Any) -> None:
        common = {"comm": comm, "seq": seq, "rank": rank, "op": op, "count": 64}
        kind = "p2p" if op in ("Send", "Recv") else "coll"
        rows.append(common | {"kind": kind, "enqueued_ns": START + int(at_ms * MS)} | more)

    now = 0.0
    for number in range(ITERATIONS):
        late = (slow_ms if number % 3 == 2 else 1) + number % 5 / 10
        for rank in range(4):
            if rank != 2:
                call(1, number, rank, now + 1 + rank / 10, "AllReduce")
            elif number < ITERATIONS - 1:
                call(1, number, rank, now + late, "AllReduce")
        if number == ITERATIONS - 1:
            break
        now += late + 2
        for comm, pair in ((2, (0, 1)), (3, EXPERTS)):
            for rank in pair:
                at = now + rank / 10
                if comm == 3 and exchanges:
                    for place, op in enumerate(("Send", "Recv") * 2):
                        more = {"group_id": number, "peer": pair[place // 2]}
                        call(comm, number, rank, at + place / 1000, op, **more)
                else:
                    call(comm, number, rank, at, "AllReduce")
        now += 2
    return rows


@pytest.mark.parametrize("exchanges", [False, True])
@pytest.mark.parametrize(("slow_ms", "normal"), [(60, True), (1, False)])
def test_that_all_wait_for_a_slow_rank_is_normal(
    job: Job, slow_ms: float, normal: bool, exchanges: bool
) -> None:
    rows = calls(slow_ms, exchanges)
    names = {name for row in rows for name in row}
    job.append("ops", {name: [row.get(name) for row in rows] for name in names})
    for comm, ranks in ((1, [0, 1, 2, 3]), (2, [0, 1]), (3, [2, 3])):
        job.append("comms", {"comm": comm, "rank": ranks, "size": len(ranks)})
    ((share, silent_ns),) = job.found("overdue_calls", "share, longest_silent_ns", "rank = 2")
    assert (share > 0.2) == normal
    # From the exchange to its next call, not from one of its transfers to the next.
    assert silent_ns == pytest.approx((slow_ms + 2) * MS, abs=3 * MS)
