"""Volumes, active peers, queue pairs: who sends how much to whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.analysis.traffic.active_peers import double_tree, inferred_algorithm, ring_share
from oncall.evidence import Incident
from oncall_lab.traffic import TrafficScenario, simulate_traffic

SIZES = st.integers(2, 200)
MOST = 0.8  # of a tree's edges


def ring(size: int) -> set[tuple[int, int]]:
    return {(place, (place + 1) % size) for place in range(size)}


@given(SIZES)
def test_a_double_tree_sends_everything_up_and_down_once(size: int) -> None:
    edges = double_tree(size)
    # Each tree has size - 1 edges, with half of the data each way.
    assert sum(edges.values()) == pytest.approx(2 * (size - 1))
    assert all(edges[b, a] == share for (a, b), share in edges.items())
    assert {place for edge in edges for place in edge} == set(range(size))


@given(SIZES)
def test_a_ring_of_two_and_a_tree_of_two_carry_the_same(size: int) -> None:
    assert ring_share("AllReduce", 2) == sum(double_tree(2).values()) / 2
    reduced, gathered = ring_share("ReduceScatter", size), ring_share("AllGather", size)
    assert reduced is not None and gathered is not None
    whole = ring_share("AllReduce", size)
    # An AllReduce of n parts is a ReduceScatter and an AllGather of one part each.
    assert whole == pytest.approx((reduced + gathered) / size)
    assert ring_share("AllToAll", size) is None


@given(st.integers(3, 64))
def test_peers_show_the_algorithm(size: int) -> None:
    assert inferred_algorithm("AllReduce", ring(size), size, MOST) == "RING"
    assert inferred_algorithm("AllReduce", set(double_tree(size)), size, MOST) == "TREE"
    star = {(0, place) for place in range(1, size)} | {(place, 0) for place in range(1, size)}
    assert size < 5 or inferred_algorithm("AllReduce", star, size, MOST) is None
    assert inferred_algorithm("AllToAll", ring(size), size, MOST) is None


def pair(
    node: str, qpn: int, rank: int, gid: str, peer: int, made: int | None
) -> dict[str, object]:
    return {
        "job": "j", "node": node, "nic": "mlx5_0", "qpn": qpn, "rank": rank,
        "peer_gid": gid, "peer_qpn": peer, "created_ns": made,
    }  # fmt: skip


def queue_pairs(*rows: dict[str, object]) -> dict[tuple[object, ...], tuple[object, ...]]:
    with Incident.empty() as incident:
        incident.append("qps", {name: [row[name] for row in rows] for name in rows[0]})
        incident.require(["queue_pairs"])
        found = incident.con.execute(
            "SELECT node, qpn, created_ns, peer, how FROM queue_pairs"
        ).fetchall()
    return {tuple(row[:3]): tuple(row[3:]) for row in found}


def test_sides_that_name_each_other_belong_together() -> None:
    found = queue_pairs(
        pair("a", 7, 0, "gid b", 9, 5), pair("b", 9, 1, "gid a", 7, 5),
        pair("a", 8, 0, "gid z", 99, 5),
    )  # fmt: skip
    assert found["a", 7, 5] == (1, "matched")
    assert found["b", 9, 5] == (0, "matched")
    assert found["a", 8, 5] == (None, "unmatched")


def test_strangers_with_the_same_numbers_are_distinguished_by_the_gid() -> None:
    found = queue_pairs(
        pair("a", 7, 0, "gid b", 9, 5), pair("b", 9, 1, "gid a", 7, 5),
        pair("c", 7, 2, "gid d", 9, 5), pair("d", 9, 3, "gid c", 7, 5),
        # Beyond doubt, so that GIDs are known.
        pair("a", 20, 0, "gid b", 30, 5), pair("b", 30, 1, "gid a", 20, 5),
        pair("c", 21, 2, "gid d", 31, 5), pair("d", 31, 3, "gid c", 21, 5),
    )  # fmt: skip
    assert [found[node, qpn, 5][0] for node, qpn in (("a", 7), ("b", 9), ("c", 7), ("d", 9))] == [
        1, 0, 3, 2,
    ]  # fmt: skip


def test_a_number_that_is_used_again_is_another_queue_pair() -> None:
    found = queue_pairs(
        pair("a", 7, 0, "gid b", 9, 5), pair("b", 9, 1, "gid a", 7, 5),
        pair("a", 7, 0, "gid c", 4, 50), pair("c", 4, 2, "gid a", 7, 50),
    )  # fmt: skip
    assert found["a", 7, 5] == (1, "matched")
    assert found["a", 7, 50] == (2, "matched")


@pytest.mark.parametrize(
    "scenario",
    [
        TrafficScenario(workload="gpt2", tp=2, dp=4, pp=2, iterations=3),
        TrafficScenario(workload="gpt2", tp=2, dp=4, pp=2, iterations=3, source="wr",
                        algorithm="tree", distributed_optimizer=False),
        TrafficScenario(workload="mixtral", tp=2, iterations=3, lost_epochs=0.002),
    ],
)  # fmt: skip
def test_every_operation_is_found_in_traffic(scenario: TrafficScenario) -> None:
    incident, _ = simulate_traffic(scenario)
    with incident:
        incident.require(["traffic", "flow_comms"])
        total, whole, off = incident.con.execute(
            """SELECT count(*), count(*) FILTER (complete OR undercount),
                   count(*) FILTER (NOT undercount AND bytes NOT BETWEEN expected_bytes
                       AND 1.05 * expected_bytes)
               FROM traffic WHERE expected_bytes > 65536"""
        ).fetchall()[0]
        ((unknown,),) = incident.con.execute(
            "SELECT count(*) FROM flow_comms WHERE comm IS NULL"
        ).fetchall()
    assert total > 50 and whole == total and off == 0 and unknown == 0
