"""Transfers of a tensor group's ranks that wait alike are one place; those of replicas are not."""

from __future__ import annotations

from typing import Any

import pytest

from oncall.evidence import Incident
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

HANG = [book for book in load_rulebooks([shipped_folder()]) if book.name == "hang"]
UNIX_NS, MS = 1_700_000_000 * 10**9, 10**6
RANKS = 4  # of each of two stages
BATCHES = 6
STAGE = (100, 200)  # communicators of the ranks of a stage


def stopped(calls: int, observed_s: float | None = None) -> dict[str, Any]:
    """Each rank of the first stage sends to one of the second. All of a stage reduce `calls` times
    before each transfer, or once in all if 0. Then the second stage stops before a transfer."""
    rows: list[dict[str, Any]] = []
    at_ns = UNIX_NS

    def call(rank: int, comm: int, seq: int, **columns: Any) -> None:
        done = {"ended_ns": at_ns + MS, "done": True}
        now = {"job": "j", "comm": comm, "seq": seq, "rank": rank, "enqueued_ns": at_ns}
        seen = None if observed_s is None else UNIX_NS + int(observed_s * 1e9)
        rows.append({"observed_ns": seen, "peer": None} | now | done | columns)

    for batch in range(BATCHES):
        for stage in (0, 1):
            reduced = range(batch * calls, (batch + 1) * calls) if calls else range(not batch)
            for seq in reduced:
                at_ns += 10 * MS
                for member in range(RANKS):
                    call(stage * RANKS + member, STAGE[stage], seq, kind="coll", op="AllReduce")
            at_ns += 10 * MS
            if (stage, batch) == (1, BATCHES - 1):
                continue  # stopped
            open_still = {"ended_ns": None, "done": False} if batch == BATCHES - 1 else {}
            for member in range(RANKS):
                peer, op = ((1 - stage) * RANKS + member, ("Send", "Recv")[stage])
                rank = stage * RANKS + member
                call(rank, member, batch, kind="p2p", op=op, peer=peer, **open_still)
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize(("calls", "places"), [(3, 1), (0, RANKS)])
def test_transfers_of_a_tensor_group_are_one_place(calls: int, places: int) -> None:
    with Incident.empty() as incident:
        incident.append("ops", stopped(calls))
        incident.require(["hang_roots", "progress_symptoms"])
        con = incident.con
        roots = con.execute("SELECT rank, comm FROM hang_roots ORDER BY rank").fetchall()
        assert roots == [(rank, 0 if calls else rank - RANKS) for rank in range(RANKS, 2 * RANKS)]
        spread = con.execute("SELECT why FROM progress_symptoms WHERE name = 'spread'").fetchall()
        assert spread == [(f"ranks wait in {places} unrelated places",)] * (places > 1)


def test_a_stage_that_stops_is_one_finding_that_names_all_its_ranks() -> None:
    with Incident.empty() as incident:
        incident.append("ops", stopped(3, observed_s=1200))
        (finding,) = diagnose(incident, HANG).findings
        assert finding.verdict == "H1"
        assert [blame.where["rank"] for blame in finding.blame] == [*range(RANKS, 2 * RANKS)]
        assert finding.confidence > 0.9
