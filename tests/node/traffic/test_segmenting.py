"""Operations found in traffic round by round: as they are found when all is known at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oncall.core.units import NS_PER_S
from oncall.evidence import Incident
from oncall.node.store.batch import Batch
from oncall.node.traffic.epochs import Epochs
from oncall.node.traffic.recent_traffic import Flow, RecentTraffic
from oncall.node.traffic.segmenting import Found, Segmenting
from oncall_lab.traffic import TrafficFault, TrafficScenario, simulate_traffic

STEP_NS = NS_PER_S // 2
NODE = "gpu002"
COLUMNS = (
    "comm, kind, seq, rank, peer, op, algo, started_ns, ended_ns, active_ns, rank_active_ns, "
    "bytes, expected_bytes, undercount"
)
SMALL: dict[str, Any] = {"tp": 2, "dp": 4, "iterations": 3, "dp_bytes": 64 * 2**20}
HOST_CALLS = TrafficScenario(workload="gpt2", pp=2, **SMALL)
DEVICE = TrafficScenario(workload="mixtral", source="wr", device_times=True, **SMALL)
STUCK = TrafficScenario(workload="gpt2", pp=2, faults=(TrafficFault("nic_down", 5, 2),), **SMALL)


def batch(incident: Incident, table: str, where: str = "true") -> Batch:
    columns = incident.con.execute(f"SELECT * FROM {table} WHERE {where}").fetchnumpy()
    return Batch(table, len(next(iter(columns.values()))), columns)


def as_it_comes(incident: Incident, recent: RecentTraffic) -> Iterator[tuple[int, list[Batch]]]:
    """Moments, and the rows of the node's other sources since the one before; epochs go into
    `recent` a little later than they were sent."""
    con = incident.con
    mine = "rank IN (SELECT rank FROM ranks WHERE node = 'gpu002')"
    first, last = con.execute("SELECT min(enqueued_ns), max(start_ns) FROM ops, epochs").fetchall()[
        0
    ]
    con.execute(
        "CREATE TABLE written AS SELECT *, coalesce(ended_ns, enqueued_ns) AS at_ns "
        f"FROM ops WHERE {mine}"
    )
    reported = [batch(incident, "ranks", mine), batch(incident, "comms", mine)]
    reported.append(batch(incident, "qps", f"node = '{NODE}'"))
    for now_ns in range(first, last + 2 * NS_PER_S, STEP_NS):
        span = f"at_ns > {now_ns - STEP_NS} AND at_ns <= {now_ns}"
        add_epochs(incident, recent, now_ns)
        ops = con.execute(f"SELECT * EXCLUDE (at_ns) FROM written WHERE {span}").fetchnumpy()
        yield now_ns, [*reported, Batch("ops", len(ops["rank"]), ops)]


def add_epochs(incident: Incident, recent: RecentTraffic, now_ns: int) -> None:
    late_ns = STEP_NS // 2
    span = f"node = '{NODE}' AND start_ns > {now_ns - STEP_NS - late_ns}"
    found = incident.con.execute(
        "SELECT nic, qpn, job, rank, source, start_ns, bytes FROM epochs "
        f"WHERE {span} AND start_ns <= {now_ns - late_ns} ORDER BY start_ns"
    ).fetchall()
    flows = [Flow(source, NODE, nic, qpn, job, rank) for nic, qpn, job, rank, source, *_ in found]
    start, size = np.array([row[-2:] for row in found], np.int64).reshape(-1, 2).T
    recent.add(flows, Epochs(np.arange(len(found)), start // 32_000, size), now_ns)


def all_at_once(incident: Incident) -> list[tuple[Any, ...]]:
    incident.require(["traffic"])
    # Of next to nothing it is not known to which of several calls it belongs.
    query = f"SELECT {COLUMNS} FROM traffic WHERE node = '{NODE}' AND expected_bytes > 65536"
    return sorted(incident.con.execute(query).fetchall(), key=repr)


def rows(found: Batch) -> list[tuple[Any, ...]]:
    with Incident.empty() as incident:
        incident.append("op_traffic", found.columns)
        query = f"SELECT {COLUMNS} FROM op_traffic WHERE expected_bytes > 65536"
        return sorted(incident.con.execute(query).fetchall(), key=repr)


def rounds(incident: Incident, recent: RecentTraffic) -> list[Found]:
    segmenting = Segmenting(settle_ns=STEP_NS, context_ns=2 * STEP_NS, learn_ns=2 * STEP_NS)
    found = [
        segmenting.advance(seen, recent, now_ns) for now_ns, seen in as_it_comes(incident, recent)
    ]
    segmenting.close()
    return found


@pytest.mark.parametrize("scenario", [HOST_CALLS, pytest.param(DEVICE, marks=pytest.mark.slow)])
def test_round_by_round_is_found_what_is_found_at_once(scenario: TrafficScenario) -> None:
    incident, _ = simulate_traffic(scenario)
    with incident:
        found = rounds(incident, RecentTraffic(most_bytes=2**24))
        reported = sorted((row for each in found for row in rows(each.over)), key=repr)
        wanted = all_at_once(incident)
    assert len(wanted) > 20 and not found[-1].open.rows
    assert reported == wanted


def test_what_stands_still_is_reported_as_it_stands_and_is_late() -> None:
    incident, _ = simulate_traffic(STUCK)
    with incident:
        found = rounds(incident, RecentTraffic(most_bytes=2**24))
        wanted = [row for row in all_at_once(incident) if row[8] is None]
    assert wanted and rows(found[-1].open) == wanted
    assert found[-1].late_since_ns == min(row[7] for row in wanted if row[7])
    assert found[1].late_since_ns is None


def test_a_job_that_keeps_opening_queue_pairs_is_reported_all_the_same() -> None:
    """Each operation goes by a pair of its own, so that there is always one that is watched."""
    reported, recent = 0, RecentTraffic(most_bytes=2**20)
    segmenting = Segmenting(settle_ns=NS_PER_S // 10, context_ns=NS_PER_S, learn_ns=NS_PER_S)
    own: dict[str, Any] = {"job": "j", "rank": [3]}
    for number in range(1, 9):
        called_ns = (1000 + number) * NS_PER_S
        ops = own | {"comm": 7, "seq": number, "kind": "coll", "op": "AllReduce", "bytes": 10**6}
        ops |= {"enqueued_ns": called_ns, "ended_ns": called_ns + 10 * 32_000, "done": True}
        pair = own | {"node": NODE, "nic": "n0", "qpn": number, "created_ns": called_ns}
        seen = [
            Batch("ops", 1, ops),
            Batch("qps", 1, pair | {"peer_gid": "::2", "peer_qpn": number}),
            Batch("comms", 1, own | {"comm": 7, "comm_rank": 0, "size": 2}),
            Batch("ranks", 1, own | {"node": NODE}),
        ]
        epochs = Epochs(
            np.zeros(10, np.int64), called_ns // 32_000 + np.arange(10), np.full(10, 10**5)
        )
        now_ns = called_ns + NS_PER_S // 2
        recent.add([Flow("wr", NODE, "n0", number, "j", 3)], epochs, now_ns)
        reported += segmenting.advance(seen, recent, now_ns).over.rows
    segmenting.close()
    assert reported >= 6
