"""A program linked with NCCL under the hooks: its calls come through, and are recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_layout import CommunicatorState, Operation, RecordKind

Calling = Callable[..., Any]  # conftest.py: starts a process that calls NCCL


# ------------------------------------------------------------------- operations


def test_every_operation_is_recorded_with_what_was_passed(calling: Calling) -> None:
    process = calling("newer")
    assert process.calls("init 1 4 7") == [0]
    calls = ["all_reduce 0 10", "all_gather 0 20", "reduce_scatter 0 30", "broadcast 0 40 2"]
    calls += ["bcast 0 50 3", "reduce 0 60 1", "all_to_all 0 70", "send 0 80 2", "recv 0 90 3"]
    assert process.calls(*calls) == [0] * 9
    entered = process.recorded.records(RecordKind.ENTERED)
    assert [(Operation(row["op"]).name, row["count"], row["peer"]) for row in entered] == [
        ("ALL_REDUCE", 10, -1),
        ("ALL_GATHER", 20, -1),
        ("REDUCE_SCATTER", 30, -1),
        ("BROADCAST", 40, 2),
        ("BROADCAST", 50, 3),  # once, though NCCL's ncclBcast calls ncclBroadcast
        ("REDUCE", 60, 1),
        ("ALL_TO_ALL", 70, -1),
        ("SEND", 80, 2),
        ("RECV", 90, 3),
    ]
    assert entered["sequence"].tolist() == [1, 2, 3, 4, 5, 6, 7, 1, 2]
    assert (entered["dtype"] == 7).all() and (entered["stream"] == 5).all()
    returned = process.recorded.records(RecordKind.ENQUEUED)
    assert returned["operation"].tolist() == entered["operation"].tolist()
    assert (returned["time_ns"] >= entered["time_ns"]).all()
    [board] = process.recorded.communicators()
    assert board["collectives"]["entered"] == 7 and board["point_to_point"]["entered"] == 2
    assert board["collectives"]["enqueued"] == 7 and board["collectives"]["count"] == 70


def test_errors_come_through_and_are_recorded(calling: Calling) -> None:
    process = calling(FAKE_RESULT="3")
    assert process.calls("init 0 2", "all_reduce 0 1", "send 0 1 1") == [0, 3, 3]
    assert process.recorded.records(RecordKind.ENQUEUED)["result"].tolist() == [3, 3]
    [board] = process.recorded.communicators()
    assert board["async_error"] == 3 and board["state"] == CommunicatorState.RUNNING


def test_group_calls_number_their_operations(calling: Calling) -> None:
    process = calling()
    process.calls("init 0 4", "send 0 1 1", "group_start", "group_start", "send 0 2 1")
    process.calls("recv 0 2 1", "group_end", "group_end", "group_start", "send 0 3 1", "group_end")
    groups = process.recorded.records(RecordKind.ENTERED)["group"].tolist()
    assert groups[0] == 0 and groups[1] == groups[2] and len({*groups}) == 3
    whole = process.recorded.records(RecordKind.GROUP)
    assert whole["group"].tolist() == [groups[1], groups[3]]


@pytest.mark.parametrize(("calls", "over"), [("all_reduce 0 0", 1), ("send 0 0 1", 0)])
def test_what_waits_for_nobody_is_over_at_once(calling: Calling, calls: str, over: int) -> None:
    process = calling()
    process.calls("init 0 2", calls)
    assert len(process.recorded.records(RecordKind.ENDED)) == over


def test_a_communicator_of_one_rank_waits_for_nobody(calling: Calling) -> None:
    process = calling()
    process.calls("init 0 1", "all_reduce 0 5", "send 0 5 0")
    assert len(process.recorded.records(RecordKind.ENDED)) == 2


# ------------------------------------------------------------------- communicators


def test_members_give_a_communicator_the_same_name(calling: Calling) -> None:
    boards = []
    for rank in range(2):
        process = calling()
        process.calls(f"init {rank} 4 7", "split 0 5 0", "split 0 6 0", f"init {rank} 4 8")
        boards.append(process.recorded.communicators())
    first, second = boards
    assert first["identity"].tolist() == second["identity"].tolist()
    assert len(set(first["identity"].tolist())) == 4
    assert first["parent"].tolist() == [0, first["identity"][0], first["identity"][0], 0]
    assert first["rank"].tolist() == [0, 0, 0, 0] and second["rank"].tolist() == [1, 0, 0, 1]


def test_who_leaves_a_split_counts_it_all_the_same(calling: Calling) -> None:
    staying, leaving = calling(), calling()
    staying.calls("init 0 4 7", "split 0 1 0", "split 0 1 0")
    leaving.calls("init 0 4 7", "split 0 -1 0", "split 0 1 0")
    assert (
        staying.recorded.communicators()["identity"][2]
        == leaving.recorded.communicators()["identity"][1]
    )


def test_life_of_communicators(calling: Calling) -> None:
    process = calling()
    process.calls("init 0 2 1", "init 0 2 2", "init 0 2 3")
    process.calls("finalize 0", "destroy 1", "abort 2")
    states = [CommunicatorState(state).name for state in process.recorded.communicators()["state"]]
    assert states == ["FINALISED", "DESTROYED", "ABORTED"]
    with RingReader.open(process.rings[0], consume=False) as ring:
        assert (ring.header.nccl_version, ring.header.gpu) == ("2.27.3", 3)


def test_a_pointer_that_comes_again_is_another_communicator(calling: Calling) -> None:
    process = calling()
    process.calls("init 0 2 1", "all_reduce 0 1", "destroy 0", "init 1 3 2", "all_reduce 1 1")
    boards = process.recorded.communicators()
    assert boards["pointer"][0] == boards["pointer"][1]
    assert boards["collectives"]["entered"].tolist() == [1, 1]
    assert boards["size"].tolist() == [2, 3]


def test_initialisation_that_goes_on_after_its_call(calling: Calling) -> None:
    process = calling(FAKE_INIT="7")
    assert process.calls("init 1 4 7") == [7]
    assert process.recorded.communicators()["state"].tolist() == [CommunicatorState.INITIALISING]
    assert process.calls("error 0", "all_reduce 0 4") == [0, 0]
    [board] = process.recorded.communicators()
    assert board["state"] == CommunicatorState.RUNNING and board["device"] == 3
    assert board["collectives"]["entered"] == 1


def test_initialisation_within_a_group(calling: Calling) -> None:
    process = calling()
    process.calls("group_start", "init 1 4 7")
    assert process.recorded.communicators()["state"].tolist() == [CommunicatorState.INITIALISING]
    process.calls("group_end", "all_reduce 0 4")
    [board] = process.recorded.communicators()
    assert board["state"] == CommunicatorState.RUNNING and board["collectives"]["entered"] == 1


def test_initialisation_that_fails(calling: Calling) -> None:
    process = calling(FAKE_INIT="2")
    assert process.calls("init 1 4 7") == [2]
    [board] = process.recorded.communicators()
    assert board["state"] == CommunicatorState.FAILED and board["async_error"] == 2


def test_all_communicators_of_one_process(calling: Calling) -> None:
    process = calling()
    process.calls("init_all 3", "all_reduce 2 5")
    boards = process.recorded.communicators()
    assert boards["rank"].tolist() == [0, 1, 2] and (boards["size"] == 3).all()
    assert len(set(boards["identity"].tolist())) == 1
    assert boards["collectives"]["entered"].tolist() == [0, 0, 1]


def test_a_communicator_from_before_the_hooks_is_known_at_first_sight(calling: Calling) -> None:
    process = calling()
    process.calls("init_unseen 1 4", "all_reduce 0 5")
    [board] = process.recorded.communicators()
    assert (board["rank"], board["size"], board["device"]) == (1, 4, 3)
    assert board["identity"] == 0 and board["collectives"]["entered"] == 1


# ------------------------------------------------------------------- leaving no trace


def test_what_nccl_lacks_a_program_sees_lacking(calling: Calling) -> None:
    older, newer = calling("older"), calling("newer")
    assert older.calls("has:ncclAlltoAll", "has:ncclAllReduce", "has:ncclCommGrow") == [0, 1, 0]
    assert newer.calls("has:ncclAlltoAll", "has:ncclAllReduce", "has:ncclCommGrow") == [1, 1, 0]
    assert older.calls("init 0 2", "all_to_all 0 5") == [0, 5]
    assert older.leave().count("has no ncclAlltoAll") == 1
    assert len(older.recorded.records(RecordKind.ENTERED)) == 0


def test_without_a_ring_the_program_runs_all_the_same(calling: Calling, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    commands = ("init 0 2", "group_start", "all_reduce 0 1", "group_end", "split 0 1 0")
    bare = calling(hooked=False).calls(*commands)
    for setting in ({"ONCALL_DISABLE": "1"}, {"ONCALL_RUN_DIR": str(tmp_path / "file")}):
        process = calling(**setting)
        assert process.calls(*commands, "destroy 0") == [*bare, 0]
        assert process.rings == [] and process.leave() == ""
