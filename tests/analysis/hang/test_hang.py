"""Members of the operations where a hang begins: their states, their steps, their calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql import found
from tests.together import Job


def ops(job: Job, **columns: Any) -> None:
    """Rows in flight on communicator 1: entered at 10, seen at 110; `columns` override."""
    common = {"comm": 1, "kind": "coll", "op": "AllReduce", "observed_ns": 110}
    job.append("ops", common | {"enqueued_ns": 10} | columns)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_each_member_is_in_the_state_it_was_played_into(data: st.DataObject, recorded: Any) -> None:
    incident, played = data.draw(recorded)
    with incident:
        roots = set(found(incident, "hang_roots", "job, comm, kind, seq"))
        members = found(incident, "hang_members", "job, comm, kind, seq, rank, state, last_seq")
    assert {row[:4] for row in members} == roots
    for job, comm, kind, seq, number, state, last_seq in members:
        one = played[job]
        rank = one.ranks[number]
        made = rank.made[comm, "coll"]
        assert last_seq == (made or None)
        if not one.observed(number):
            assert state == "silent"
        elif kind == "coll":
            assert state == ("waiting" if made >= seq else "absent")
        else:
            stands = rank.head is not None and (rank.head[0].comm, rank.head[0].kind) == (
                comm,
                kind,
            )
            assert state == ("waiting" if stands else "absent")
    for job, comm, kind, seq in roots:
        if kind == "coll":
            ranks = [row[4] for row in members if row[:4] == (job, comm, kind, seq)]
            assert ranks == list(played[job].job.members[comm])


def test_who_left_is_finished_who_entered_waits(job: Job) -> None:
    job.append("comms", {"comm": 1, "rank": [0, 1, 2, 3, 4]})
    ops(job, seq=8, rank=[0, 1, 2], ended_ns=[20, None, None])
    ops(job, seq=7, rank=[3], ended_ns=9)
    assert job.found("hang_members", "rank, state, last_seq, waited_ns") == [
        (0, "finished", 8, None),
        (1, "waiting", 8, 100),
        (2, "waiting", 8, 100),
        (3, "absent", 7, None),
        (4, "silent", None, None),
    ]


def test_steps_of_channels_count_as_last_seen(job: Job) -> None:
    ops(job, seq=8, rank=[0, 1])
    job.append(
        "op_channels",
        {"comm": 1, "seq": 8, "rank": 0, "channel": [0, 0, 1], "sends": [1, 5, 7]}
        | {"recvs": [0, 2, 3], "observed_ns": [10, 20, 20]},
    )
    assert job.found("hang_members", "rank, sends, recvs") == [(0, 12, 5), (1, None, None)]


def test_members_of_a_tree_are_compared_by_layer(job: Job) -> None:
    ops(job, seq=8, rank=[0, 1, 2], algo=["tree", "Tree", "TREE"])
    ops(job, comm=2, seq=8, rank=[5, 6], algo="RING")
    groups = job.found("hang_members", "comm, rank, peer_group")
    assert groups == [(1, 0, 0), (1, 1, 2), (1, 2, 1), (2, 5, 0), (2, 6, 0)]


def test_a_receive_nobody_sends_to_names_both_ends(job: Job) -> None:
    ops(job, kind="p2p", op="Recv", seq=3, rank=[1], peer=0)
    ops(job, comm=2, seq=1, rank=[0], ended_ns=20)
    assert job.found("hang_members", "rank, kind, state") == [
        (0, "p2p", "absent"),
        (1, "p2p", "waiting"),
    ]


def test_unnoticed_counts_what_only_peers_saw_end(job: Job) -> None:
    ops(job, seq=[6] * 4 + [7] * 4, rank=[0, 1, 2, 3] * 2, ended_ns=[20, 20, 20, None] * 2)
    ops(job, seq=8, rank=[0, 1, 2], enqueued_ns=30, observed_ns=400 * 10**9)
    assert job.found("hang_suspects", "rank, detail, number") == [(3, "device", 2)]


def test_an_absent_rank_that_noticed_all_is_not_unnoticed(job: Job) -> None:
    ops(job, seq=7, rank=[0, 1, 2], ended_ns=20)
    ops(job, seq=8, rank=[0, 1], enqueued_ns=30, observed_ns=400 * 10**9)
    assert job.found("hang_suspects", "rank, detail, number") == [(2, "after", 7)]


# ------------------------------------------------------------- what they call

ODD = "rank, signature, others, judged_by"


def test_alike_calls_are_not_odd(job: Job) -> None:
    ops(job, seq=8, rank=[0, 1, 2], bytes=64)
    assert job.found("odd_calls", ODD) == []


@pytest.mark.parametrize(
    ("columns", "odd", "others"),
    [
        ({"op": ["AllReduce"] * 2 + ["Broadcast"]}, "Broadcast", "AllReduce"),
        ({"bytes": [64, 64, 32]}, "AllReduce 32 B", "AllReduce 64 B"),
        ({"count": [4, 4, 2]}, "AllReduce 2 elements", "AllReduce 4 elements"),
        ({"dtype": ["f16", "f16", "f32"]}, "AllReduce f32", "AllReduce f16"),
        ({"root": [0, 0, 1]}, "AllReduce root 1", "AllReduce root 0"),
        ({"algo": ["RING", "RING", "TREE"]}, "AllReduce TREE", "AllReduce RING"),
        ({"proto": ["LL", "LL", "SIMPLE"]}, "AllReduce SIMPLE", "AllReduce LL"),
    ],
)
def test_the_minority_is_odd(
    job: Job, columns: dict[str, list[Any]], odd: str, others: str
) -> None:
    ops(job, seq=8, rank=[0, 1, 2], **columns)
    assert job.found("odd_calls", ODD) == [(2, odd, others, "majority")]


def test_sizes_that_differ_by_design_are_not_odd(job: Job) -> None:
    ops(job, seq=8, rank=[0, 1, 2], op="AllToAll", bytes=[64, 64, 32])
    assert job.found("odd_calls", ODD) == []


def test_without_a_majority_all_are_named(job: Job) -> None:
    ops(job, seq=8, rank=[0, 1, 2, 3], bytes=[1, 1, 2, 3])
    odd = job.found("odd_calls", "rank, judged_by")
    assert odd == [(rank, "tie") for rank in range(4)]


def test_how_nccl_runs_a_call_is_compared_only_where_all_members_tell(job: Job) -> None:
    """One rank's launch was not seen: it knows no algorithm, and that is no disagreement."""
    ops(job, seq=8, rank=[0, 1, 2], algo=["RING", "RING", None], bytes=8)
    ops(job, comm=2, seq=8, rank=[3, 4, 5], algo=["RING", "RING", "TREE"], bytes=8)
    assert job.found("odd_calls", "comm, rank, signature") == [(2, 5, "AllReduce 8 B TREE")]


def test_a_call_written_before_and_after_its_launch_is_one_call(job: Job) -> None:
    for observed_ns, algo in ((50, None), (110, "RING")):
        ops(job, seq=8, rank=[0, 1, 2], algo=algo, bytes=8, observed_ns=observed_ns)
    assert job.found("hang_members", "rank, signature, waited_ns") == [
        (rank, "AllReduce 8 B RING", 100) for rank in range(3)
    ]


def test_a_silent_member_calls_nothing_odd(job: Job) -> None:
    job.append("comms", {"comm": 1, "rank": [0, 1, 2]})
    ops(job, seq=8, rank=[0, 1], algo="RING", bytes=8)
    signatures = job.found("hang_members", "rank, signature")
    assert signatures == [(0, "AllReduce 8 B RING"), (1, "AllReduce 8 B RING"), (2, None)]
    assert job.found("odd_calls", "rank") == []


STEP = ["step at train.py:9", "main at train.py:2"]  # the innermost frame first


@pytest.mark.parametrize(
    ("elsewhere", "odd"),
    [
        ([["reduce at ddp.py:4", *STEP]], [(1, "code path")]),
        ([["reduce at ddp.py:4", *STEP], ["save at io.py:3", STEP[1]]], [(1, "code path")]),
        ([["save at io.py:3", STEP[1]]], [(0, "tie"), (1, "tie")]),
        ([], [(0, "tie"), (1, "tie")]),
    ],
)
def test_of_two_who_left_the_path_of_the_others_is_odd(
    job: Job, elsewhere: list[list[str]], odd: list[tuple[int, str]]
) -> None:
    """Nothing but the operations in flight was kept: of two callers none has a majority."""
    ops(job, seq=8, rank=[0, 1], op=["ReduceScatter", "AllGather"])
    ranks = range(2, 2 + len(elsewhere))
    if elsewhere:
        ops(job, comm=2, seq=4, rank=[*ranks])
    frames = [["scatter at tp.py:5", *STEP], ["sync at ema.py:8", STEP[1]], *elsewhere]
    job.append(
        "stacks",
        {"rank": [0, 1, *ranks], "comm": [1, 1, *[2 for _ in ranks]], "kind": "coll"}
        | {"seq": [8, 8, *[4 for _ in ranks]], "frames": frames},
    )
    assert job.found("odd_calls", "rank, judged_by", "comm = 1") == odd


@pytest.mark.parametrize(
    ("oldest", "ended_ns", "shown"),
    [(8, None, [("watchdog",)]), (9, None, []), (8, 85, []), (7, 75, [])],
)
def test_in_flight_alone_shows_stillness_if_the_front_was_kept(
    job: Job, oldest: int, ended_ns: int | None, shown: list[tuple[str]]
) -> None:
    """Seven operations were retired. A small ring may have lost the eighth to calls made since."""
    status = {"launched": 12, "completed": 7, "state": "running", "source": "flight_recorder"}
    job.append("launches", status | {"comm": 1, "rank": [0, 1, 2]})
    for seq in range(oldest, 13):
        end = {"ended_ns": ended_ns if seq == oldest else None, "observed_ns": None}
        done = seq == oldest and ended_ns is not None
        ops(job, seq=seq, rank=[0, 1, 2], enqueued_ns=10 * seq, done=done, **end)
    assert job.found("progress_symptoms", "name", "name = 'watchdog'") == shown


IN_A_CALL = "all_reduce at torch/distributed/distributed_c10d.py:9"


@pytest.mark.parametrize(
    ("stacks", "named"),
    [
        ({}, [2, 3]),
        ({2: "save at metrics.py:7", 3: IN_A_CALL}, [2]),
        ({3: IN_A_CALL}, [2]),
        ({2: IN_A_CALL, 3: IN_A_CALL}, [2, 3]),
    ],
)
def test_who_has_not_called_and_waits_in_a_call_is_no_culprit(
    job: Job, stacks: dict[int, str], named: list[int]
) -> None:
    ops(job, seq=3, rank=[0, 1, 2, 3], ended_ns=20, observed_ns=None)
    ops(job, seq=4, rank=[0, 1], enqueued_ns=30, observed_ns=10 + 700 * 10**9)
    ranks = [*range(4)]
    job.append("comms", {"comm": 1, "rank": ranks, "comm_rank": ranks, "size": 4})
    if stacks:
        frames = [[frame] for frame in stacks.values()]
        main = {"is_main": True, "thread": "main", "look": 1}
        job.append("thread_stacks", main | {"rank": [*stacks], "frames": frames})
    assert job.found("hang_suspects", "rank") == [(rank,) for rank in named]


@pytest.mark.parametrize("seen_before", [True, False])
def test_of_a_cycle_who_departs_from_what_most_call_began_it(job: Job, seen_before: bool) -> None:
    """After the AllReduce of all, pairs call; rank 1 calls a Barrier of all. Without a step before
    it may be another program."""
    comms = {1: (0, 1, 2, 3), 2: (0, 1), 3: (2, 3), 4: (0, 2), 5: (1, 3)}
    roles = {1: "world", 2: "tp", 3: "tp", 4: "dp", 5: "dp"}
    for comm, ranks in comms.items():
        here = {"comm": comm, "role": roles[comm]}
        place = {"rank": [*ranks], "comm_rank": [*range(len(ranks))], "size": len(ranks)}
        job.append("comms", here | place)
    steps = range(1, 4) if seen_before else range(1, 2)
    for step in steps:
        over = {"ended_ns": step * 100 + 40, "observed_ns": None}
        ops(job, seq=step, rank=[0, 1, 2, 3], enqueued_ns=step * 100, **over)
        if step < steps[-1]:
            for comm in (2, 3):
                ranks = [*comms[comm]]
                pair = over | {"comm": comm, "ended_ns": step * 100 + 60}
                ops(job, seq=step, rank=ranks, enqueued_ns=step * 100 + 50, **pair)
    end = steps[-1]
    open_ = {"enqueued_ns": end * 100 + 50, "observed_ns": 700 * 10**9}
    ops(job, comm=2, seq=end, rank=0, **open_)
    ops(job, comm=3, seq=end, rank=[2, 3], **open_ | {"ended_ns": end * 100 + 60})
    for rank, comm in ((2, 4), (3, 5)):
        ops(job, comm=comm, seq=1, rank=rank, **open_ | {"enqueued_ns": end * 100 + 70})
    ops(job, seq=end + 1, rank=1, **open_ | {"op": "Barrier"})
    cycle = [rank for rank, how in job.found("hang_roots", "rank, how") if how == "cycle"]
    assert cycle == ([1] if seen_before else [0, 1, 2, 3])


def test_of_a_cycle_who_skipped_a_call_before_others_began_it(job: Job) -> None:
    """Rank 1 skips the second call of all. It waits two calls later, in one that is as it should
    be, and hosts ahead of their devices have called what follows."""
    groups = {1: (0, 1, 2, 3), 2: (0, 4), 3: (1, 5), 4: (2, 6), 5: (3, 7), 6: (0, 1), 7: (2, 3)}
    roles = {1: "ep", 2: "tp", 3: "tp", 4: "tp", 5: "tp", 6: "cp", 7: "cp"}
    for comm, ranks in groups.items():
        place = {"rank": [*ranks], "comm_rank": [*range(len(ranks))], "size": len(ranks)}
        job.append("comms", {"comm": comm, "role": roles[comm]} | place)
    for rank in range(4):
        tp, cp = rank + 2, 6 + rank // 2
        skipped = rank == 1
        calls = [1, 1, tp, cp] * 2 + [1, *[1] * (not skipped), tp, cp] + [1, 1]
        done = 10 if skipped else 9
        seqs = [calls[: at + 1].count(comm) for at, comm in enumerate(calls)]
        at_ns = [100 * (at + skipped * (at > 8)) for at in range(1, len(calls) + 1)]
        ended_ns = [at + 50 if nth < done else None for nth, at in enumerate(at_ns)]
        observed_ns = [None if end else 700 * 10**9 for end in ended_ns]
        times = {"enqueued_ns": at_ns, "ended_ns": ended_ns, "observed_ns": observed_ns}
        ops(job, comm=calls, seq=seqs, rank=rank, **times)
    assert job.found("hang_roots", "rank, how") == [(1, "cycle")]


def test_of_a_cycle_who_skips_a_rare_call_began_it(job: Job) -> None:
    """Experts exchange after each reduction but where all take a mean first; rank 2 skips one."""
    groups = {1: (0, 1, 2, 3), 2: (0, 1, 2, 3), 3: (0, 1), 4: (2, 3)}
    roles = {1: "world", 2: "dp", 3: "ep", 4: "ep"}
    for comm, ranks in groups.items():
        place = {"rank": [*ranks], "comm_rank": [*range(len(ranks))], "size": len(ranks)}
        job.append("comms", {"comm": comm, "role": roles[comm]} | place)
    for rank in range(4):
        experts = 3 + rank // 2
        step = [experts, 2, experts, 2]
        calls = [*step, 1, *step, *step, experts if rank == 2 else 1]
        seqs = [calls[: at + 1].count(comm) for at, comm in enumerate(calls)]
        at_ns = [100 * at for at in range(1, len(calls) + 1)]
        ended_ns = [at + 50 for at in at_ns[:-1]] + [None]
        observed_ns = [None] * len(at_ns[:-1]) + [700 * 10**9]
        times = {"enqueued_ns": at_ns, "ended_ns": ended_ns, "observed_ns": observed_ns}
        ops(job, comm=calls, seq=seqs, rank=rank, **times)
    assert job.found("hang_roots", "rank, how") == [(2, "cycle")]
