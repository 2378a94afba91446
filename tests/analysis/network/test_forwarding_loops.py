"""A link whose ends stop each other is a loop; whose flow goes round there, if it is known."""

from __future__ import annotations

from collections.abc import Sequence

from oncall.evidence.incident import Incident

MS = 1_000_000
# Leaves A (hosts a, c) and B (hosts b, d), spines S and T.
LINKS = [
    ("a", 1, "A", 1), ("c", 1, "A", 2), ("b", 1, "B", 1), ("d", 1, "B", 2),
    ("A", 3, "S", 1), ("B", 3, "S", 2), ("A", 4, "T", 1), ("B", 4, "T", 2),
]  # fmt: skip
Others = list[tuple[int, str, str, int | None]]  # flow, sender, receiver, end in ms


def still_flows(others: Others, seen: Sequence[int] = ()) -> Incident:
    """A step from a to b that does not end, since B and S stop each other after 2 ms."""
    incident = Incident.empty()
    step = {"src": [0], "dst": [1], "step": [1], "bytes": [60_000_000], "started_ns": [0]}
    steps = {"job": ["j"], "comm": [1], "seq": [0], "flow": [1], **step, "expected_ns": [5 * MS]}
    incident.append("flow_steps", steps)
    incident.append("ranks", {"job": ["j", "j"], "rank": [0, 1], "node": ["a", "b"]})
    names = ("a", "a_port", "b", "b_port")
    incident.append("links", {name: [row[i] for row in LINKS] for i, name in enumerate(names)})
    flows = [(1, "a", "b", None), *others]
    incident.append(
        "flows",
        {
            "flow": [flow for flow, *_ in flows],
            "name": [f"{src}->{dst}" for _, src, dst, _ in flows],
            "src_host": [src for _, src, _, _ in flows],
            "dst_host": [dst for _, _, dst, _ in flows],
            "started_ns": 0,
            "ended_ns": [None if end is None else end * MS for *_, end in flows],
            "is_collective": [flow == 1 for flow, *_ in flows],
        },
    )
    incident.append(
        "switch_pauses",
        {"switch": ["B", "S"], "port": [3, 2], "at_ns": 2 * MS, "paused": [True, True]},
    )
    at = {"switch": "S", "port": 2, "at_ns": 40 * MS, "epoch_ns": MS, "queue_depth": 0.0}
    incident.append("switch_ports", {**at, "packets": [0], "paused_packets": [0]})
    if seen:
        rows = {**at, "at_ns": 2 * MS, "flow": list(seen), "packets": [10] * len(seen)}
        incident.append("switch_flows", rows)
    incident.provide(["forwarding_loops"])
    return incident


def routes_found(incident: Incident) -> list[tuple[object, ...]]:
    with incident:
        return incident.con.execute("SELECT name, ports, astray FROM forwarding_loops").fetchall()


def test_the_only_flow_that_may_have_come_there_and_has_not_ended_goes_round() -> None:
    assert routes_found(still_flows([(2, "c", "d", None), (3, "d", "c", 1)])) == [
        ("c->d", ["BP3", "SP2"], ["BP3"])
    ]


def test_of_two_that_may_have_nobody_is_named() -> None:
    assert routes_found(still_flows([(2, "c", "d", None), (3, "d", "c", None)])) == [
        (None, ["BP3", "SP2"], None)
    ]


def test_who_was_seen_where_no_short_way_leads_goes_round() -> None:
    others: Others = [(2, "c", "d", None), (3, "d", "c", None)]
    assert routes_found(still_flows(others, seen=[2, 3])) == [("d->c", ["BP3", "SP2"], ["SP2"])]
