"""Pieces of evidence made whole: one row an operation, whole rounds, peers by name."""

from __future__ import annotations

from typing import Any

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from oncall.evidence.incident import Incident
from oncall.evidence.sampling import is_sampled
from oncall.evidence.settle import keep_whole_rounds, name_peers, settle_duplicates

S = 10**9


def ops(*rows: dict[str, Any]) -> Incident:
    incident = Incident.empty()
    for row in rows:
        common = {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce", "rank": 0}
        incident.append("ops", {name: [value] for name, value in (common | row).items()})
    return incident


def left(incident: Incident, columns: str = "rank, seq") -> list[tuple[Any, ...]]:
    return incident.con.execute(f"SELECT {columns} FROM ops ORDER BY ALL").fetchall()


def test_the_row_that_ended_counts() -> None:
    with ops(
        {"seq": 1, "observed_ns": 5 * S, "done": False},
        {"seq": 1, "ended_ns": 4 * S, "done": True},
    ) as incident:
        settle_duplicates(incident.con)
        assert left(incident, "seq, ended_ns") == [(1, 4 * S)]


def test_of_a_queue_pair_the_newest_state_counts_beside_what_the_hook_reported() -> None:
    pair = {"node": "n", "nic": "mlx5_0", "qpn": 7}
    reported = [
        {"pid": 5, "state": "rts", "observed_ns": 10 * S},
        {"pid": 5, "state": "err", "observed_ns": 30 * S},
        {"pid": 5, "state": "rts", "observed_ns": 20 * S},
        {"pid": 6, "state": "rts", "observed_ns": 5 * S},  # of a process before
        {"peer_rank": 3, "created_ns": S},
    ]
    with Incident.empty() as incident:
        for row in reported:
            incident.append("qps", {name: [value] for name, value in (pair | row).items()})
        settle_duplicates(incident.con)
        left = incident.con.execute("SELECT pid, state, peer_rank FROM qps ORDER BY ALL").fetchall()
        assert left == [(5, "err", None), (6, "rts", None), (None, None, 3)]


def test_who_entered_another_operation_since_has_gone_on() -> None:
    with ops(
        {"seq": 1, "observed_ns": 30 * S, "done": False},
        {"seq": 2, "enqueued_ns": 90 * S},
    ) as incident:
        settle_duplicates(incident.con)
        assert left(incident, "seq") == [(2,)]


def test_what_was_in_flight_once_and_is_seen_no_more_has_ended() -> None:
    # Its end was thinned away; only that it was open at an earlier seal is left.
    with ops(
        {"seq": 1, "observed_ns": 30 * S, "done": False},
        {"seq": 400, "ended_ns": 59 * S, "done": True},
    ) as incident:
        settle_duplicates(incident.con)
        assert left(incident, "seq") == [(400,)]


def test_a_send_and_a_receive_of_one_number_are_two_operations() -> None:
    both = [{"seq": 1, "kind": "p2p", "op": op, "comm_peer": 1} for op in ("Send", "Recv")]
    with ops(*both) as incident:
        settle_duplicates(incident.con)
        assert incident.rows("ops") == 2


def test_a_round_of_which_a_part_came_would_show_the_wrong_last_rank() -> None:
    rows = [
        {"rank": rank, "seq": seq, "ended_ns": seq * S, "stands_for": 1 + (seq == 100)}
        for rank in (0, 1)
        for seq in range(80, 101)
    ]
    with ops(*rows, {"rank": 0, "seq": 10, "ended_ns": 10 * S, "stands_for": 1}) as incident:
        keep_whole_rounds(incident.con)
        assert (0, 10) not in left(incident)
        assert incident.rows("ops") == len(rows)


def test_peers_are_named_by_the_memberships_of_all_nodes() -> None:
    with ops(
        {"seq": 1, "kind": "p2p", "op": "Send", "comm_peer": 1},
        {"seq": 2, "kind": "p2p", "op": "Send", "comm_peer": 7},
    ) as incident:
        members = {"job": "j", "comm": 1, "rank": [4, 9], "comm_rank": [0, 1]}
        incident.append("comms", members)
        name_peers(incident.con)
        assert left(incident, "seq, peer") == [(1, 9), (2, None)]


@given(st.integers(0, 20), st.integers(0, 2**40))
def test_what_is_kept_at_a_step_is_kept_at_every_smaller_one(power: int, first: int) -> None:
    kept = [
        {
            seq
            for (seq,) in duckdb.execute(
                f"SELECT s FROM range(?, ?) t(s) WHERE {is_sampled('s', str(2**k))}",
                [first, first + 500],
            ).fetchall()
        }
        for k in (power, power + 1)
    ]
    assert kept[1] <= kept[0]


@given(st.integers(0, 8), st.integers(1, 12), st.integers(0, 2**40))
def test_samples_are_even_and_keep_step_with_no_pattern(
    power: int, period: int, first: int
) -> None:
    """Of the calls of a step that repeats, each comes about as often as the others."""
    rounds = 4096
    rows = duckdb.execute(
        f"SELECT s % ? AS call, count(*) FROM range(?, ?) t(s) "
        f"WHERE {is_sampled('s', str(2**power))} GROUP BY ALL",
        [period, first, first + rounds * period],
    ).fetchall()
    expected = rounds / 2**power
    assert len(rows) == period
    assert all(0.5 * expected < count < 1.5 * expected + 2 for _, count in rows)


def test_transfers_are_as_coarse_as_the_coarsest_node_kept_them() -> None:
    with Incident.empty() as incident:
        for rank, step in ((0, 2), (1, 8)):
            kept = [seq for seq in range(64) if _kept(seq, step)]
            common = {"job": "j", "comm": 1, "kind": "coll", "rank": rank, "direction": "send"}
            incident.append(
                "transfers", common | {"seq": kept, "stands_for": step, "ended_ns": 5, "channel": 0}
            )
            recent = {"seq": [70], "stands_for": 1, "ended_ns": 5, "channel": 0}
            incident.append("transfers", common | recent)
        keep_whole_rounds(incident.con)
        rows = incident.con.execute("SELECT rank, seq, stands_for FROM transfers").fetchall()
    sampled = {seq for seq in range(64) if _kept(seq, 8)}
    assert {row for row in rows if row[1] < 64} == {(r, s, 8) for r in (0, 1) for s in sampled}
    assert {row[:2] for row in rows if row[1] == 70} == {(0, 70), (1, 70)}


def _kept(seq: int, step: int) -> bool:
    ((kept,),) = duckdb.sql(f"SELECT {is_sampled(str(seq), str(step))}").fetchall()
    return bool(kept)


def test_a_reading_that_came_twice_is_one() -> None:
    with Incident.empty() as incident:
        for _ in range(2):
            incident.append("nics", {"node": "a", "nic": "n", "port": 1, "at_ns": [1, 2]})
            incident.append("gpus", {"node": "a", "gpu": [0, 1], "at_ns": 1})
        settle_duplicates(incident.con)
        assert (incident.rows("nics"), incident.rows("gpus")) == (2, 2)
