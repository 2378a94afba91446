"""The way from a late step to the roots of its waiting: along its path, then along the pauses."""

from __future__ import annotations

import pytest

from oncall.analysis.network.network_paths import network
from oncall.analysis.network.pause_paths import Root, roots
from oncall.analysis.network.step_views import View

# Leaves A (hosts a1, a2) and B (hosts b1, b2), spine S.
NET = network(
    [
        ("A", 1, "a1", 1),
        ("A", 2, "a2", 1),
        ("B", 1, "b1", 1),
        ("B", 2, "b2", 1),
        ("A", 3, "S", 1),
        ("B", 3, "S", 2),
    ]
)
A3, S2, B1, B2 = (NET.number[port] for port in (("A", 3), ("S", 2), ("B", 1), ("B", 2)))
HOST_A, A2 = (NET.number[port] for port in (("a1", 1), ("A", 2)))
WAY = frozenset(NET.number[port] for port in (("a1", 1), ("A", 3), ("S", 2), ("B", 1)))


def view(**known: object) -> View:
    columns: dict[str, object] = {
        "paused": {},
        "depth": {},
        "path": WAY,
        "shared": {},
        "excess_ns": 5e6,
        "duration_ns": 1e7,
        "has_pause_spans": True,
    }
    return View(**(columns | known))  # type: ignore[arg-type]


def test_the_fabric_is_known() -> None:
    assert set(NET.follows(S2)) == {B1, B2}
    assert set(NET.follows(A3)) == {S2}
    assert set(NET.on_paths("a1", "b1").nonzero()[0].tolist()) == WAY
    assert NET.host_behind(B2) == "b2"


def test_traffic_that_meets_on_the_way_is_the_root() -> None:
    assert roots(view(shared={A3: 0.5}, depth={A3: 50.0}), NET) == [Root("queue", A3, (A3,), 1.0)]


def test_a_queue_behind_a_stopped_port_is_the_root_not_the_port() -> None:
    seen = view(
        shared={A3: 0.5}, depth={A3: 50.0, B2: 80.0}, paused={A3: (3e6, 9000), S2: (2e6, 8000)}
    )
    assert [(root.kind, root.port, root.weight) for root in roots(seen, NET)] == [
        ("queue", B2, pytest.approx(3e6 / 5e6))  # of what was lost, the pauses lasted so much
    ]


def test_a_pause_longer_than_a_buffer_lasts_is_a_storm_whatever_else_queues() -> None:
    seen = view(paused={S2: (4e6, 4_000_000), A3: (4e6, 4_000_000)}, depth={B2: 80.0})
    assert [(root.kind, root.port) for root in roots(seen, NET)] == [("storm", S2)]


def test_short_pauses_with_no_report_from_behind_leave_the_queue_unseen() -> None:
    assert [(root.kind, root.port) for root in roots(view(paused={S2: (2e6, 8000)}), NET)] == [
        ("unseen", S2)
    ]


def test_without_pause_frames_shallow_queues_behind_make_a_storm() -> None:
    seen = view(paused={S2: (2e6, 0)}, depth={B1: 0.0, B2: 1.0}, has_pause_spans=False)
    assert [(root.kind, root.port) for root in roots(seen, NET)] == [("storm", S2)]


def test_pauses_too_short_to_explain_the_loss_explain_nothing() -> None:
    assert roots(view(paused={S2: (1e5, 8000)}), NET) == []


def test_steps_of_the_collective_that_only_meet_are_no_root_beside_another() -> None:
    met = {"shared": {A3: 0.5, B1: 0.5}, "depth": {A3: 50.0, B1: 50.0}}
    beside = roots(view(**met, overrun=frozenset({A3})), NET)
    assert [(root.kind, root.port) for root in beside] == [("queue", B1)]
    alone = roots(view(**met, overrun=frozenset({A3, B1})), NET)
    assert {(root.kind, root.port) for root in alone} == {("overrun", A3), ("overrun", B1)}


def test_both_ends_of_a_link_that_stop_each_other_are_a_cycle() -> None:
    back = int(NET.back[A3])
    seen = view(paused={A3: (5e6, 5_000_000), back: (5e6, 5_000_000)})
    assert [(root.kind, set(root.ports)) for root in roots(seen, NET)] == [("deadlock", {A3, back})]


def test_pauses_explain_no_more_than_they_lasted() -> None:
    seen = view(
        shared={B1: 0.5}, depth={B1: 50.0, B2: 80.0}, paused={A3: (1e6, 9000), S2: (1e6, 9000)}
    )
    found = {root.port: root.weight for root in roots(seen, NET)}
    stopped = 1 / (1 + 4.5)  # stopped for 1 ms; for half of the other 9 ms the port served others
    assert found[B2] == pytest.approx(stopped * 80 / 130)  # of both queues that S2 leads to
    assert sum(found.values()) == pytest.approx(1)


def test_a_step_waits_where_its_own_packets_do_not_where_others_of_its_sender_go() -> None:
    both = {A3: (4e6, 9000), S2: (4e6, 9000)}
    away = {**both, HOST_A: (4e6, 9000), A2: (4e6, 9000)}
    found = roots(view(paused=away, depth={B2: 80.0}), NET)
    assert {(root.kind, root.port) for root in found} == {("queue", B2)}
