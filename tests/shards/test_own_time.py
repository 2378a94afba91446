"""The own time that a node measures stands beside the operation it was measured for."""

from __future__ import annotations

import tracemalloc

from oncall.evidence.incident import Incident
from oncall.shards.digest import measure_own_time


def test_each_rank_has_its_own() -> None:
    # Rank 3 computes for 700 ns before each collective, rank 9 for 100; each lasts 50.
    computes_ns = {3: 700, 9: 100}
    rows = [
        {
            "rank": rank,
            "seq": seq,
            "started_ns": seq * (own + 50),
            "ended_ns": seq * (own + 50) + 50,
        }
        for rank, own in computes_ns.items()
        for seq in range(1, 6)
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    with Incident.empty() as incident:
        incident.append("ops", {**columns, "job": "j", "comm": 2**63 + 1, "kind": "coll"})
        measure_own_time(incident.con, "ops", "measured")
        found = incident.con.execute(
            "SELECT rank, seq, own_ns FROM measured ORDER BY rank, seq"
        ).fetchall()
    assert found == [
        (rank, seq, None if seq == 1 else own)
        for rank, own in computes_ns.items()
        for seq in range(1, 6)
    ]


def test_memory_does_not_grow_with_the_length_of_names() -> None:
    rows, name = 20_000, "a job's name " * 100
    with Incident.empty() as incident:
        started_ns = [seq * 100 for seq in range(rows)]
        ended_ns = [at_ns + 50 for at_ns in started_ns]
        told = {"seq": list(range(rows)), "started_ns": started_ns, "ended_ns": ended_ns}
        incident.append("ops", {**told, "job": name, "comm": 1, "rank": 0, "kind": "coll"})
        tracemalloc.start()
        try:
            measure_own_time(incident.con, "ops", "measured")
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < rows * len(name) / 2
