"""Waits: who blocked where and who holds whom, in played jobs and in recordings with less."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql import found
from tests.together import Job

from oncall.core.units import NS_PER_S

# ---------------------------------------------------------------- played jobs


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_who_stands_where_and_who_holds_whom(data: st.DataObject, recorded: Any) -> None:
    incident, played = data.draw(recorded)
    with incident:
        rows = found(incident, "blocked_operations", "job, rank, comm, kind, seq")
        held = found(incident, "holders", "job, comm, kind, seq, owner, rank, how")
    for job, one in played.items():
        blocked = one.blocked()
        assert {row[1:] for row in rows if row[0] == job} == {
            (rank, call.comm, call.kind, number) for rank, (call, number) in blocked.items()
        }
        assert {row[1:] for row in held if row[0] == job} == {
            (call.comm, call.kind, number, None if call.kind == "coll" else rank, holder, how)
            for rank, (call, number) in blocked.items()
            for holder, how in one.holders(rank).items()
        }


# ----------------------------------------------------------- what is recorded


def ops(job: Job, **columns: Any) -> None:
    """Rows in flight on communicator 1: entered at 10, seen at 110; `columns` override."""
    common = {"comm": 1, "kind": "coll", "op": "AllReduce", "observed_ns": 110}
    job.append("ops", common | {"enqueued_ns": 10} | columns)


def test_a_wait_lasts_from_entry_to_the_last_look(job: Job) -> None:
    ops(job, seq=4, rank=[0, 1], enqueued_ns=[10, None], started_ns=[30, None])
    ops(job, seq=4, rank=[0], started_ns=30, observed_ns=90)  # an earlier look at the same
    assert job.found("blocked_operations", "rank, seq, waited_ns") == [
        (0, 4, 80),
        (1, 4, None),
    ]


def test_an_operation_outlived_by_a_later_one_is_asynchronous(job: Job) -> None:
    ops(job, seq=4, rank=[0, 1])
    ops(job, comm=2, seq=9, rank=[0, 1], enqueued_ns=20, ended_ns=[30, None])
    job.append("comms", {"comm": 1, "rank": [0, 1, 2]})
    assert job.found("blocked_operations", "rank, comm, seq") == [(1, 1, 4)]


def test_what_most_others_completed_holds_nobody(job: Job) -> None:
    ops(job, seq=4, rank=[0, 1, 2, 3], ended_ns=[20, 20, 20, None])
    ops(job, seq=5, rank=[0, 1, 2], enqueued_ns=30)
    assert job.found("blocked_operations", "rank, seq") == [(0, 5), (1, 5), (2, 5)]
    assert job.found("holders", "seq, rank, how") == [(5, 3, "absent")]


def test_what_others_completed_under_another_call_does_hold(job: Job) -> None:
    ops(job, seq=4, rank=[0, 1, 2, 3], ended_ns=[20] * 3 + [None], bytes=[8, 8, 8, 16])
    assert job.found("blocked_operations", "rank, seq") == [(3, 4)]


def test_counters_alone_tell_who_is_ahead(job: Job) -> None:
    job.append("comms", {"comm": 1, "rank": [0, 1, 2, 3]})
    job.append(
        "launches",
        {"comm": 1, "rank": [0, 1, 2, 3] * 2, "at_ns": [5] * 4 + [65] * 4}
        | {"launched": [6, 7, 7, 7, 6, 7, 7, 7], "state": ["running"] * 7 + ["dead"]},
    )
    assert job.found("blocked_operations", "rank, kind, seq, waited_ns") == [
        (1, "coll", 7, 60),
        (2, "coll", 7, 60),
        (3, "coll", 7, None),
    ]
    assert job.found("holders", "comm, seq, rank, how") == [(1, 7, 0, "absent")]


def test_equal_counters_are_no_wait(job: Job) -> None:
    job.append("comms", {"comm": 1, "rank": [0, 1]})
    job.append("launches", {"comm": 1, "rank": [0, 1], "launched": 7, "at_ns": 5})
    assert job.found("blocked_operations", "rank") == []


def test_a_silent_member_is_suspected_where_nobody_else_is_absent(job: Job) -> None:
    job.append("comms", {"comm": [1] * 3 + [2] * 3, "rank": [0, 1, 9] * 2})
    ops(job, seq=4, rank=[0, 1])
    assert job.found("holders", "comm, rank, how") == [(1, 9, "silent")]


def test_a_rank_that_only_keeps_a_counter_is_observed(job: Job) -> None:
    job.append("comms", {"comm": 1, "rank": [0, 1, 9]})
    job.append("launches", {"comm": 1, "rank": 9, "launched": 3, "at_ns": 5})
    ops(job, seq=4, rank=[0, 1])
    assert job.found("holders", "rank, how") == [(9, "absent")]


# --------------------------------------------------------------- Send and Recv


def p2p(job: Job, *calls: tuple[int, int, str, int], **columns: Any) -> None:
    """Open calls (rank, seq, op, peer) on communicator 1."""
    rank, seq, op, peer = (list(values) for values in zip(*calls, strict=True))
    ops(job, kind="p2p", rank=rank, seq=seq, op=op, peer=peer, **columns)


PAIR = "rank, seq, state"


def test_a_send_waits_for_its_receive(job: Job) -> None:
    p2p(job, (0, 3, "Send", 1))
    ops(job, comm=2, seq=1, rank=[1], ended_ns=20)
    assert job.found("open_pairs", PAIR) == [(0, 3, "unmatched")]
    assert job.found("holders", "seq, owner, rank, how") == [(3, 0, 1, "absent")]


def test_both_sides_in_the_same_transfer_are_matched_and_hold_nobody(job: Job) -> None:
    p2p(job, (0, 3, "Send", 1), (1, 3, "Recv", 0))
    assert job.found("open_pairs", PAIR) == [(0, 3, "matched"), (1, 3, "matched")]
    assert job.found("holders", "rank") == []


def test_the_only_peer_of_a_communicator_of_two_needs_no_name(job: Job) -> None:
    job.append("comms", {"comm": 1, "rank": [0, 7], "size": 2})
    ops(job, kind="p2p", op="Send", rank=[0], seq=3)
    assert job.found("open_pairs", "rank, peer, state") == [(0, 7, "unmatched")]


@pytest.mark.parametrize(("size", "state"), [(2, "passed"), (3, "unmatched")])
def test_a_later_number_means_passed_only_where_numbers_can_be_compared(
    job: Job, size: int, state: str
) -> None:
    """Rank 1 already receives number 4, so it is done with 3; of three it may count otherwise."""
    job.append("comms", {"comm": 1, "rank": list(range(size)), "size": size})
    p2p(job, (0, 3, "Send", 1), (1, 4, "Send", 0))
    assert job.found("open_pairs", PAIR)[0] == (0, 3, state)


@pytest.mark.parametrize(("history", "state"), [(1, "passed"), (2, "unmatched")])
def test_what_is_done_shows_whether_numbers_can_be_compared(
    job: Job, history: int, state: str
) -> None:
    """Rank 1 completed number 3. It is rank 0's if their number 1 was the same transfer too."""
    job.append("comms", {"comm": 1, "rank": [0, 1, 2], "size": 3})
    p2p(job, (0, 1, "Send", 1), (1, history, "Recv", 0), ended_ns=5)
    p2p(job, (1, 3, "Recv", 0), ended_ns=9)
    p2p(job, (0, 3, "Send", 1))
    assert job.found("open_pairs", PAIR) == [(0, 3, state)]


def test_numbers_of_the_pair_match_both_sides_whatever_else_they_count(job: Job) -> None:
    """Their numbers on the communicator differ; the third transfer between them does not."""
    job.append("comms", {"comm": 1, "rank": [0, 1, 2], "size": 3})
    p2p(job, (0, 9, "Send", 1), pair_seq=3)
    p2p(job, (1, 4, "Recv", 0), pair_seq=2)
    assert job.found("open_pairs", PAIR) == [(0, 9, "unmatched"), (1, 4, "passed")]


@pytest.mark.parametrize(
    ("other", "ended_ns", "state"), [(3, None, "matched"), (3, 50, "passed"), (4, 50, "passed")]
)
def test_a_pair_that_counts_alike(job: Job, other: int, ended_ns: int | None, state: str) -> None:
    p2p(job, (0, 9, "Send", 1), pair_seq=3)
    p2p(job, (1, 4, "Recv", 0), pair_seq=other, ended_ns=ended_ns)
    assert (0, 9, state) in job.found("open_pairs", PAIR)


def test_pairs_without_numbers_on_one_side_fall_back(job: Job) -> None:
    p2p(job, (0, 3, "Send", 1), pair_seq=3)
    p2p(job, (1, 3, "Recv", 0))
    assert job.found("open_pairs", PAIR) == [(0, 3, "matched"), (1, 3, "matched")]


def test_a_peer_known_by_its_place_in_the_communicator_is_found(job: Job) -> None:
    job.append("comms", {"comm": 1, "rank": [4, 6, 8], "comm_rank": [0, 1, 2]})
    ops(job, kind="p2p", rank=[4], seq=3, op="Send", comm_peer=2)
    assert job.found("open_pairs", "rank, peer, state") == [(4, 8, "unmatched")]


def test_calls_of_one_group_are_entered_together_whatever_came_first(job: Job) -> None:
    """Both ranks send and receive in one group; the host makes one call after the other."""
    group = {"enqueued_ns": [10, 11, 12, 13], "group_id": [5, 5, 6, 6]}
    p2p(
        job, (0, 1, "Send", 1), (0, 2, "Recv", 1), (1, 1, "Recv", 0), (1, 2, "Send", 0),
        **group,
    )  # fmt: skip
    assert len(job.found("blocked_operations", "rank, op")) == 4
    assert job.found("hang_roots", "how, ends, rank") == [("together", [0, 1], None)]


@pytest.mark.parametrize(("posted_ns", "how"), [(10, "together"), (30, "cycle")])
def test_what_a_host_called_later_does_not_hold_a_send_up(
    job: Job, posted_ns: int, how: str
) -> None:
    """Rank 0 blocked in a collective that rank 1 has not entered; rank 1 receives from rank 0.

    Called before the collective, the Send waits for nothing but the transfer. Called after it, it
    may lie behind it on the device, and each waits for the other.
    """
    job.append("comms", {"comm": 2, "rank": [0, 1], "size": 2})
    p2p(job, (0, 1, "Send", 1), enqueued_ns=posted_ns)
    p2p(job, (1, 1, "Recv", 0), enqueued_ns=12)
    ops(job, comm=3, rank=[0], seq=1, enqueued_ns=15, ended_ns=18)
    ops(job, comm=2, rank=[0], seq=1, enqueued_ns=20)
    assert {row[0] for row in job.found("hang_roots", "how")} == {how}
    states = {(0, "waiting"), (1, "waiting")} if how == "together" else set()
    assert states <= set(job.found("hang_members", "rank, state"))


def test_a_collective_that_all_have_called_waits_for_no_later_one(job: Job) -> None:
    """Rank 0 went on after an asynchronous collective, and blocked where rank 1 is missing."""
    job.append("comms", {"comm": [1, 1, 2, 2], "rank": [0, 1, 0, 1], "size": 2})
    ops(job, rank=[0, 1], seq=1, enqueued_ns=10)
    ops(job, comm=3, rank=[0], seq=1, enqueued_ns=15, ended_ns=18)
    ops(job, comm=2, rank=[0], seq=1, enqueued_ns=20)
    assert job.found("blocked_operations", "rank, comm") == [(0, 2), (1, 1)]
    assert job.found("hang_roots", "comm, how") == [(1, "together")]


def test_a_collective_that_all_have_called_waits_for_an_older_one(job: Job) -> None:
    """Ranks 1 and 3 went on beside a collective that does not end, until all waited for it."""
    job.append("comms", {"comm": 1, "rank": [0, 1, 2, 3], "size": 4})
    job.append("comms", {"comm": 2, "rank": [1, 3], "size": 2})
    ops(job, comm=2, rank=[1, 3], seq=13)
    ops(job, comm=3, rank=[0, 1, 2, 3], seq=1, enqueued_ns=20, ended_ns=25)
    ops(job, rank=[0, 1, 2, 3], seq=39, enqueued_ns=30)
    assert job.found("hang_roots", "comm, seq, how, victims") == [(2, 13, "together", 4)]


def test_a_collective_that_all_have_called_waits_for_an_older_transfer(job: Job) -> None:
    """Two tensor groups wait; a rank of each is still in a transfer with the other's."""
    for comm, ranks in ((1, [0, 1]), (2, [2, 3]), (3, [0, 1, 2, 3])):
        group = {"comm": comm, "rank": ranks, "size": len(ranks)}
        job.append("comms", group)
    p2p(job, (1, 6, "Send", 3), (3, 6, "Recv", 1), comm=4, enqueued_ns=10)
    ops(job, comm=3, rank=[0, 1, 2, 3], seq=1, enqueued_ns=20, ended_ns=25)
    ops(job, comm=1, rank=[0, 1], seq=9, enqueued_ns=30)
    ops(job, comm=2, rank=[2, 3], seq=9, enqueued_ns=30)
    assert job.found("hang_roots", "comm, kind, ends, how") == [(4, "p2p", [1, 3], "together")]


def test_the_oldest_open_call_of_a_communicator_holds_up_the_newer_ones(
    job: Job,
) -> None:
    """Both called ahead: the second call is what stops the host, the first what does not end."""
    for seq, called_ns in ((1, 10), (2, 30)):
        ops(job, rank=[0, 1], seq=seq, enqueued_ns=called_ns)
    ops(job, comm=2, rank=[0, 1], seq=1, enqueued_ns=20, ended_ns=25)
    assert job.found("blocked_operations", "rank, seq") == [(0, 1), (1, 1)]


def test_the_other_half_of_a_batch_waits_for_the_whole_batch(job: Job) -> None:
    """Rank 1 exchanges with both neighbours; rank 0 has called its half, rank 2 never did."""
    job.append("comms", {"comm": 1, "rank": [0, 1, 2], "size": 3})
    p2p(
        job, (0, 7, "Send", 1), (0, 7, "Recv", 1), (1, 4, "Send", 0), (1, 4, "Recv", 0),
        (1, 4, "Send", 2), (1, 4, "Recv", 2), enqueued_ns=10, group_id=[1, 1, 2, 2, 2, 2],
    )  # fmt: skip
    ops(job, comm=2, rank=[0, 1, 2], seq=1, enqueued_ns=5, ended_ns=8)
    assert job.found("hang_roots", "how, rank, victims") == [("absent", 2, 2)]


@pytest.mark.parametrize(("first", "roots"), [(2, [(2,)]), (1, [(1,)])])
def test_a_device_may_be_held_up_by_what_its_host_called_before(
    job: Job, first: int, roots: list[tuple[int]]
) -> None:
    """All are in both collectives: the one that rank 1 called first is where it began."""
    job.append("comms", {"comm": [1, 1, 2, 2], "rank": [0, 1, 1, 2], "size": 2})
    times = {first: 10, 3 - first: 30}
    ops(job, comm=1, rank=[0, 1], seq=1, enqueued_ns=[31, times[1]])
    ops(job, comm=2, rank=[1, 2], seq=1, enqueued_ns=[times[2], 31])
    ops(job, comm=3, rank=[0, 1, 2], seq=1, enqueued_ns=20, ended_ns=22)
    assert job.found("hang_roots", "comm") == roots


@pytest.mark.parametrize(("stuck", "culprits"), [(True, [3]), (False, [1])])
def test_who_has_called_what_another_holds_up_is_no_cause(
    job: Job, stuck: bool, culprits: list[int]
) -> None:
    """Rank 1, in no call, reduces with rank 2 asynchronously and has not joined rank 0.

    If rank 2 waits for rank 3, so may rank 1 for its reduction; else nobody but rank 1 is late.
    """
    pairs = {"comm": [2, 2, 3, 3, 4, 4], "rank": [0, 1, 1, 2, 2, 3]}
    job.append("comms", {"size": 2} | pairs)
    ops(job, comm=3, rank=[1], seq=1, enqueued_ns=10)
    ops(job, comm=5, rank=[1], seq=1, enqueued_ns=15, ended_ns=18)
    ops(job, comm=5, rank=[2, 3], seq=1, enqueued_ns=15, ended_ns=18)
    ops(job, comm=2, rank=[0], seq=1, enqueued_ns=20)
    if stuck:
        ops(job, comm=4, rank=[2], seq=1, enqueued_ns=20)
    assert [row[0] for row in job.found("hang_roots", "rank")] == culprits


# ----------------------------------------------------------------------- boards


def boards(job: Job, *looks: tuple[int, list[int]]) -> None:
    """What the boards of ranks 0.. on communicator 1 said at each instant."""
    for at_ns, launched in looks:
        job.append(
            "launches",
            {"comm": 1, "rank": list(range(len(launched))), "launched": launched}
            | {"at_ns": at_ns, "completed": 0, "source": "board"},
        )


def test_boards_of_a_running_job_differ_by_the_instant_they_were_read_at(
    job: Job,
) -> None:
    job.append("comms", {"comm": 1, "rank": [0, 1]})
    boards(job, (5, [7, 6]))
    assert job.found("blocked_operations", "rank, seq, waited_ns") == [(0, 7, 0)]


def test_boards_that_stand_still_tell_for_how_long(job: Job) -> None:
    job.append("comms", {"comm": 1, "rank": [0, 1]})
    boards(job, (5, [6, 6]), (10, [7, 6]), (90, [7, 6]))
    assert job.found("blocked_operations", "rank, seq, waited_ns") == [(0, 7, 80)]


@pytest.mark.parametrize("state", ["dead", "stopped"])
def test_a_process_that_is_gone_stands_nowhere_and_holds_who_waits(job: Job, state: str) -> None:
    ops(job, kind="p2p", seq=4, rank=[1, 5], op=["Recv", "Send"], peer=[5, 1])
    ops(job, comm=2, seq=9, rank=[5, 6])
    looks = {"comm": 1, "source": "board", "launched": 4}
    job.append("launches", looks | {"rank": [1, 5], "at_ns": 50, "state": "running"})
    job.append("launches", looks | {"rank": 5, "at_ns": 90, "state": state})
    assert job.found("blocked_operations", "rank, comm") == [(1, 1), (6, 2)]
    assert job.found("holders", "comm, owner, rank") == [(1, 1, 5), (2, None, 5)]
    assert job.found("hang_roots", "rank, how, victims") == [(5, "absent", 2)]


def test_who_died_after_a_long_wait_stands_there_still(job: Job) -> None:
    ops(job, seq=4, rank=[0, 1], observed_ns=600 * NS_PER_S)
    looks = {"comm": 1, "source": "board", "launched": 4}
    job.append("launches", looks | {"rank": 1, "at_ns": 90, "state": "dead"})
    assert job.found("blocked_operations", "rank, seq") == [(0, 4), (1, 4)]


def test_who_runs_on_another_communicator_is_not_gone(job: Job) -> None:
    ops(job, seq=4, rank=[0, 1])
    looks = {"rank": 1, "at_ns": 90, "source": "board", "launched": 4}
    job.append("launches", looks | {"comm": [1, 2], "state": ["dead", "running"]})
    assert job.found("blocked_operations", "rank") == [(0,), (1,)]
