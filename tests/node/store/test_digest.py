"""Laws of the digest: what is kept, for how much it stands, and that members keep the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.evidence.incident import Incident
from oncall.node.store.answer import TRANSFERS_PART, answer
from oncall.node.store.digest import LAST, LAST_MOVED
from oncall.node.store.wire import End, Part, Request, WireError

S = 10**9


def job_of(ranks: int, rounds: int, in_flight: int = 0, seed: int = 0) -> Incident:
    """Ranks in one communicator, with so many rounds done and so many open after them."""
    rng = np.random.default_rng(seed)
    incident = Incident.empty()
    total = rounds + in_flight
    for rank in range(ranks):
        seq = np.arange(total)
        started = S + seq * S // 10
        ended = np.ma.MaskedArray(started + rng.integers(1, S // 20, total), mask=seq >= rounds)
        columns: dict[str, Any] = {
            "job": "j",
            "comm": 7,
            "seq": seq,
            "rank": rank,
            "kind": "coll",
            "op": "AllReduce",
            "bytes": 8,
            "started_ns": started,
            "ended_ns": ended,
            "done": seq < rounds,
            "observed_ns": S + total * S // 10,
        }
        incident.append("ops", columns)
    return incident


def kept(incident: Incident, budget_rows: int) -> list[tuple[int, int, int, bool]]:
    """What the digest keeps: (rank, seq, stands_for, in flight)."""
    list(answer(incident.con, Request("digest", job="j", budget_rows=budget_rows)))
    return incident.con.execute(
        "SELECT rank, seq, stands_for, ended_ns IS NULL FROM temp.digest_operations"
    ).fetchall()


@settings(max_examples=20, deadline=None)
@given(
    rounds=st.integers(0, 3000),
    in_flight=st.integers(0, 40),
    budget_rows=st.integers(1, 5000),
    seed=st.integers(0, 99),
)
def test_laws_of_thinning(rounds: int, in_flight: int, budget_rows: int, seed: int) -> None:
    ranks = 3
    with job_of(ranks, rounds, in_flight, seed) as incident:
        rows = kept(incident, budget_rows)
    total = rounds + in_flight
    assert len({row[:2] for row in rows}) == len(rows)
    # Nothing in flight, and nobody's last operations, are thinned away.
    assert sum(open_ for *_, open_ in rows) == ranks * in_flight
    of_last = [row for row in rows if row[1] >= total - LAST]
    assert len(of_last) == ranks * min(LAST, total)
    # All members keep the same rounds by sampling.
    sampled = [{seq for r, seq, stands, _ in rows if r == rank and stands > 1} for rank in range(3)]
    assert sampled[0] == sampled[1] == sampled[2]
    # What is sampled stands for all rounds, give or take one step's worth or two.
    steps = {stands for _, _, stands, _ in rows if stands > 1}
    if steps:
        (step,) = steps
        assert abs(len(sampled[0]) * step - total) <= 3 * step
    # The budget holds but for what is always kept.
    minutes = total // 600 + 2
    assert len(rows) <= budget_rows + ranks * (LAST + 2 * minutes + in_flight + 2)


def test_a_request_names_tables_of_the_schema_only() -> None:
    with job_of(1, 3) as incident, pytest.raises(WireError, match="no table `secrets`"):
        list(answer(incident.con, Request("digest", job="j", tables=("secrets",))))


def test_a_damaged_clock_costs_its_own_time_and_no_answer() -> None:
    with job_of(ranks=2, rounds=5) as incident:
        incident.con.execute(
            f"UPDATE ops SET started_ns = {-(2**63)}, ended_ns = {2**63 - 1} WHERE seq = 3"
        )
        *parts, end = answer(incident.con, Request("digest", job="j", budget_rows=1000))
    assert [part.table for part in parts if isinstance(part, Part)] == ["ops"]
    assert end == End({"rows": 10, "gaps": []})


def test_what_cannot_be_computed_is_a_gap_of_the_answer() -> None:
    with job_of(ranks=2, rounds=5) as incident:
        incident.append("comms", {"job": "j", "comm": 7, "rank": [0, 1]})
        incident.con.execute(
            "ALTER TABLE ops RENAME TO real; CREATE VIEW ops AS SELECT * REPLACE "
            "(CASE seq WHEN 3 THEN (seq + 9223372036854775807) ELSE started_ns END AS started_ns) "
            "FROM real"
        )
        *parts, end = answer(incident.con, Request("digest", job="j", budget_rows=1000))
    assert [part.table for part in parts if isinstance(part, Part)] == ["comms"]
    assert isinstance(end, End)
    [gap] = end.status["gaps"]
    assert gap.startswith("operations could not be computed: Out of Range Error")


def test_a_job_is_a_value_whatever_it_is_called() -> None:
    name = "j' OR '1'='1"
    with job_of(1, 3) as incident:
        rows = [
            frame.rows
            for frame in answer(incident.con, Request("digest", job=name))
            if isinstance(frame, Part) and frame.table == "ops"
        ]
    assert rows == []


def test_what_is_in_flight_after_the_window_was_in_flight_at_its_end() -> None:
    """A later look at some communicators would tell that all else of the rank is over."""
    with job_of(2, 10, in_flight=2) as incident:
        until_ns = S + 11 * S // 10
        list(answer(incident.con, Request("detail", job="j", until_ns=until_ns)))
        looks = "SELECT DISTINCT observed_ns FROM temp.digest_operations WHERE ended_ns IS NULL"
        assert incident.con.execute(looks).fetchall() == [(until_ns,)]


def test_the_window_keeps_where_everyone_stood_when_it_opened() -> None:
    with job_of(2, 50) as incident:
        request = Request("digest", job="j", since_ns=10**15)
        incident.con.execute("UPDATE ops SET observed_ns = NULL")
        list(answer(incident.con, request))
        rows = incident.con.execute(
            "SELECT rank, seq FROM temp.digest_operations ORDER BY ALL"
        ).fetchall()
    assert rows == [(0, 49), (1, 49)]


@settings(max_examples=20, deadline=None)
@given(rounds=st.integers(1, 2000), channels=st.integers(1, 4), budget_rows=st.integers(1, 4000))
def test_transfers_have_a_budget_and_a_weight(rounds: int, channels: int, budget_rows: int) -> None:
    ranks, in_flight = 2, 3
    with job_of(ranks, rounds) as incident:
        for rank in range(ranks):
            for channel in range(channels):
                seq = np.arange(rounds)
                ended = np.ma.MaskedArray(S + seq * S, mask=seq >= rounds - in_flight)
                columns = {"job": "j", "comm": 7, "kind": "coll", "rank": rank, "channel": channel}
                columns |= {"seq": seq, "ended_ns": ended, "direction": "send"}
                incident.append("transfers", columns)
        list(answer(incident.con, Request("digest", job="j", budget_rows=budget_rows)))
        rows = incident.con.execute(
            "SELECT rank, channel, seq, stands_for FROM temp.digest_moved"
        ).fetchall()
    assert len({row[:3] for row in rows}) == len(rows)
    a_round = ranks * channels
    assert len(rows) <= budget_rows // TRANSFERS_PART + a_round * (LAST_MOVED + 4)
    # Neither what is in flight nor what of the last operations is over is thinned away.
    recent = [row for row in rows if row[2] >= rounds - LAST_MOVED]
    assert len(recent) == a_round * min(rounds, LAST_MOVED)
    steps = {stands_for for *_, stands_for in rows if stands_for > 1}
    if steps:
        (step,) = steps
        weight = sum(stands_for for *_, stands_for in rows if stands_for > 1)
        assert abs(weight - rounds * a_round) <= 3 * step * a_round
