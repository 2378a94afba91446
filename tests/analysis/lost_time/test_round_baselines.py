"""What a round is taken to last: not from rounds half recorded, nor from waits by design."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from oncall.evidence import Incident

UNIX_NS = 1_760_000_000_000_000_000
MS = 1_000_000
ROUND_NS = 100 * MS
MEMBERS, ROUNDS, WAIT_MS = 4, 60, 20
GROUPS = range(3)  # of as many are siblings compared


def baselines(
    last: Callable[[int], Collection[int]], unrecorded: Collection[tuple[int, int]] = ()
) -> dict[int, tuple[str, float]]:
    """Each group's source of its baseline and its length, ms. Of each group some members, if any,
    come `last` in all rounds by 20 ms; without what is `unrecorded`: (member, round)."""
    rows: list[dict[str, Any]] = []
    for comm in GROUPS:
        for seq in range(ROUNDS):
            for member in range(MEMBERS):
                waits = bool(last(comm)) and member not in last(comm)
                rank, at_ns = comm * MEMBERS + member, UNIX_NS + seq * ROUND_NS
                if (member, seq) not in unrecorded:
                    rows.append(
                        {"comm": comm, "seq": seq, "rank": rank, "started_ns": at_ns}
                        | {"duration_ns": (1 + WAIT_MS * waits) * MS}
                    )
    same = {"job": "j", "kind": "coll", "op": "AllGather", "bytes": 1 << 30, "done": True}
    with Incident.empty() as incident:
        incident.append("ops", same | {name: [row[name] for row in rows] for name in rows[0]})
        incident.require(["round_baselines"])
        rows_of = incident.con.execute("SELECT comm, base_source, base_ns FROM round_baselines")
        return {comm: (source, base_ns / MS) for comm, source, base_ns in rows_of.fetchall()}


def test_one_member_that_is_last_from_the_start_hides_in_no_baseline() -> None:
    found = baselines(lambda comm: {1} if comm == 2 else ())
    assert found[2][1] == pytest.approx(1)
    assert found[2][0] in ("siblings", "last arriver")


def test_where_most_groups_have_a_last_one_it_is_the_design() -> None:
    """As across pipeline stages, of which the first is the last to end its backward."""
    found = baselines(lambda _: {0})
    assert set(found.values()) == {("measured", 1.0 + WAIT_MS)}


def test_rounds_of_which_the_waiting_members_are_lost_are_no_baseline() -> None:
    """At the begin of a ring buffer only those are left that called least."""
    lost = [(member, seq) for member in (2, 3) for seq in range(ROUNDS // 4)]
    found = baselines(lambda _: {0, 1}, lost)
    assert {round(base_ms) for _, base_ms in found.values()} == {1 + WAIT_MS}
