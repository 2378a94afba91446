"""Operations found in the traffic of one node, by what its own shards hold: as all nodes' tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncall.evidence import Incident
from oncall.evidence.incident import create_table_sql
from oncall.evidence.schema import TABLES
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.reader import open_shards
from oncall_lab.shards import write_shards
from oncall_lab.traffic import TrafficFault, TrafficScenario, simulate_traffic

FOUND = (
    "job, comm, seq, kind, rank, op, group_id, algo, started_ns, ended_ns, active_ns, "
    "rank_active_ns, bytes, expected_bytes, undercount"
)
RING = TrafficScenario(workload="gpt2", tp=2, dp=4, pp=2, iterations=2, dp_bytes=64 * 2**20)
TREE = TrafficScenario(
    workload="gpt2", tp=2, dp=4, pp=2, iterations=2, dp_bytes=64 * 2**20, source="wr",
    algorithm="tree", distributed_optimizer=False,
    faults=(TrafficFault("nic_down", rank=5, iteration=1),),
)  # fmt: skip
EXPERTS = TrafficScenario(workload="mixtral", tp=2, iterations=2)
# Even volumes: only who has to receive distinguishes receivers apart.
PROXY = TrafficScenario(workload="mixtral", tp=2, iterations=2, source="proxy", imbalance=0)


@contextmanager
def node_alone(folder: Path) -> Iterator[Incident]:
    """What the shards of one node hold, as an incident."""
    with open_shards(sealed_shards(folder)) as shards:
        shards.con.execute("ATTACH ':memory:' AS alone; USE alone")
        shards.con.execute(";".join(create_table_sql(each.name, each.columns) for each in TABLES))
        for table in ("ranks", "comms", "qps", "ops", "epochs"):
            shards.con.execute(f"INSERT INTO {table} SELECT DISTINCT * FROM memory.main.{table}")
        yield Incident(shards.con)


def rows(incident: Incident, relation: str, node: str, columns: str = FOUND) -> list[Any]:
    incident.require([relation])
    query = f"SELECT {columns} FROM {relation} WHERE node = ? ORDER BY ALL"
    return incident.con.execute(query, [node]).fetchall()


@pytest.mark.parametrize(
    ("scenario", "peers"),
    [(RING, "recorded"), (TREE, "by address"), (EXPERTS, "by address"), (PROXY, "by place")],
)
def test_a_node_alone_finds_what_all_nodes_find(
    scenario: TrafficScenario, peers: str, tmp_path: Path
) -> None:
    everything, _ = simulate_traffic(scenario)
    wanted = rows(everything, "traffic", "gpu002")
    if peers == "by address":  # what verbs report; who is there is reported by its own node only
        everything.con.execute("UPDATE qps SET peer_rank = NULL")
    if peers == "by place":  # what a proxy knows: a rank within the communicator
        everything.con.execute(
            "UPDATE epochs SET comm_peer = c.comm_rank, peer = NULL FROM comms c "
            "WHERE (c.job, c.comm, c.rank) = (epochs.job, epochs.comm, epochs.peer)"
        )
    write_shards(everything, tmp_path)
    with node_alone(tmp_path / "gpu002") as alone:
        assert wanted and rows(alone, "segmented_traffic", "gpu002") == wanted


def test_receivers_alike_in_all_they_get_are_not_named(tmp_path: Path) -> None:
    """A ring of neighbours: both get as much at the same time, so who is who cannot be known;
    what the rank did as a whole can be."""
    everything, _ = simulate_traffic(TrafficScenario(workload="neighbour_exchange", iterations=2))

    as_a_whole = "group_id, rank_active_ns, bytes // 1e6"
    wanted = rows(everything, "traffic", "gpu001", as_a_whole)
    write_shards(everything, tmp_path)
    with node_alone(tmp_path / "gpu001") as alone:
        assert rows(alone, "segmented_traffic", "gpu001", as_a_whole) == wanted
        assert set(rows(alone, "segmented_traffic", "gpu001", "peer")) == {(None,)}
