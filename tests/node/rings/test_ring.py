"""A ring is read while it is written, when it is full, and when its process is gone."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oncall.core.errors import BadInput
from oncall.node.rings import shared_file
from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_layout import ENTERED, CommunicatorState, RecordKind, Wait

Recording = Callable[..., Any]  # tests/conftest.py: starts a process that records


def numbers(records: np.ndarray) -> list[int]:
    """The operations that records tell of."""
    return [int(number) for number in records["operation"]]


def test_who_has_ended_and_is_not_reaped_is_dead(recording: Recording) -> None:
    process = recording(RANK="5")
    with RingReader.open(process.ring, consume=False) as ring:
        assert ring.alive
        process.process.kill()
        os.waitid(os.P_PID, process.process.pid, os.WEXITED | os.WNOWAIT)
        assert not ring.alive
    process.process.wait()


# ------------------------------------------------------------------- who records


def test_header_says_who_records(recording: Recording) -> None:
    before = time.time_ns()
    process = recording(
        RANK="5",
        LOCAL_RANK="1",
        WORLD_SIZE="16",
        ONCALL_JOB="llama",
        ONCALL_NODE="gpu017",
        ONCALL_JOB_CONFIG="tp=2 pp=2",
    )
    with RingReader.open(process.ring) as ring:
        header = ring.header
    assert (header.rank, header.local_rank, header.world_size) == (5, 1, 16)
    assert (header.job, header.node, header.configuration) == ("llama", "gpu017", "tp=2 pp=2")
    assert (header.pid, header.parent_pid) == (process.process.pid, os.getpid())
    assert header.gpu is None
    assert before <= header.anchor_realtime_ns <= time.time_ns()
    assert abs(header.process_started_ns - header.anchor_realtime_ns) < 60_000_000_000
    now_ns = time.monotonic_ns() + header.realtime_offset_ns
    assert abs(now_ns - time.time_ns()) < 1_000_000_000


@pytest.mark.parametrize(
    ("environment", "job", "rank"),
    [
        ({}, "unnamed", None),
        ({"SLURM_JOB_ID": "77", "SLURM_PROCID": "3"}, "slurm-77", 3),
        ({"TORCHELASTIC_RUN_ID": "run", "RANK": "x", "PMI_RANK": "4"}, "run", 4),
        ({"ONCALL_JOB": "a" * 500, "RANK": "-1"}, "a" * 127, None),
    ],
)
def test_identity_of_each_launcher(
    recording: Recording, environment: dict[str, str], job: str, rank: int | None
) -> None:
    with RingReader.open(recording(**environment).ring) as ring:
        assert (ring.header.job, ring.header.rank) == (job, rank)


def test_only_its_user_may_read_it(recording: Recording) -> None:
    assert stat.S_IMODE(recording().ring.stat().st_mode) == 0o600


def test_a_group_may_be_let_in(recording: Recording) -> None:
    status = recording(ONCALL_RING_GROUP=str(os.getegid())).ring.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o660, os.getegid())


def test_an_unknown_group_keeps_others_out(recording: Recording) -> None:
    process = recording(ONCALL_RING_GROUP="no such group", ONCALL_DEBUG="1")
    assert stat.S_IMODE(process.ring.stat().st_mode) == 0o600
    assert "no such group" in process.leave()


# ------------------------------------------------------------------- records


def test_records_come_once_in_order(recording: Recording) -> None:
    process = recording()
    with RingReader.open(process.ring) as ring:
        assert ring.drain().shape == (0,)
        process.tell("write 3")
        records = ring.drain()
        assert numbers(records) == [1, 2, 3]
        assert set(records["kind"]) == {RecordKind.ENTERED}
        entered = records.view(ENTERED)
        assert entered["count"].tolist() == (~entered["sequence"]).tolist()
        assert (np.diff(records["time_ns"]) >= 0).all()
        process.tell("write 2")
        assert numbers(ring.drain()) == [4, 5]
        assert numbers(ring.drain()) == []
        assert (ring.head, ring.tail, ring.dropped, ring.torn) == (5, 5, 0, 0)


def test_drain_takes_at_most_what_is_asked(recording: Recording) -> None:
    process = recording()
    process.tell("write 5")
    with RingReader.open(process.ring) as ring:
        assert [numbers(ring.drain(2)) for _ in range(3)] == [[1, 2], [3, 4], [5]]


def test_a_full_ring_drops_and_counts(recording: Recording) -> None:
    process = recording(ONCALL_RING_RECORDS="64")
    process.tell("write 100")
    with RingReader.open(process.ring) as ring:
        assert numbers(ring.drain()) == [*range(1, 65)]
        assert ring.dropped == 36
        process.tell("write 40")  # around the end of the ring
        assert numbers(ring.drain()) == [*range(101, 141)]


def test_an_onlooker_leaves_the_records(recording: Recording) -> None:
    process = recording()
    process.tell("write 3")
    with RingReader.open(process.ring, consume=False) as ring:
        assert (ring.head, ring.tail, ring.alive) == (3, 0, True)
    with RingReader.open(process.ring) as ring:
        assert len(ring.drain()) == 3


def test_a_record_being_written_is_waited_for(recording: Recording) -> None:
    process = recording()
    process.tell("write 2")
    process.tell("begin")
    process.tell("write 2")
    with RingReader.open(process.ring) as ring:
        assert numbers(ring.drain()) == [1, 2]
        assert numbers(ring.drain()) == []
        process.tell("finish")
        assert numbers(ring.drain()) == [3, 4, 5]
        assert ring.torn == 0


def test_a_record_left_unfinished_for_long_is_skipped(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = recording()
    process.tell("begin")
    process.tell("write 2")
    with RingReader.open(process.ring) as ring:
        assert numbers(ring.drain()) == []
        monkeypatch.setattr(shared_file, "_PATIENCE_NS", -1)
        assert numbers(ring.drain()) == []
        assert numbers(ring.drain()) == [2, 3]
        assert ring.torn == 1


# ------------------------------------------------------------------- the process


def test_the_lock_alone_tells_a_living_process(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the process lives in another PID namespace: /proc knows its number not."""
    monkeypatch.setattr(shared_file, "_start_ticks", lambda pid: None)  # noqa: ARG005
    process = recording()
    with RingReader.open(process.ring) as ring:
        assert ring.alive
        process.kill()
        assert not ring.alive


def test_a_process_with_the_same_number_is_another(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = recording()
    with RingReader.open(process.ring) as ring:
        process.kill()
        ticks = ring.header.process_start_ticks
        monkeypatch.setattr(shared_file, "_start_ticks", lambda pid: ticks)  # noqa: ARG005
        assert ring.alive
        monkeypatch.setattr(shared_file, "_start_ticks", lambda pid: ticks + 1)  # noqa: ARG005
        assert not ring.alive


# ------------------------------------------------------------------- boards


def test_communicators_are_current_without_a_record(recording: Recording) -> None:
    process = recording()
    with RingReader.open(process.ring) as ring:
        assert len(ring.communicators().rows) == 0
        process.tell("communicator 8")
        process.tell("communicator 4")
        process.tell("close 0")
        boards = ring.communicators()
        assert boards.slots.tolist() == [0, 1]
        assert boards.rows["number"].tolist() == [1, 2]
        assert boards.rows["size"].tolist() == [8, 4]
        assert boards.rows["name"].tolist() == [b"tensor", b"tensor"]
        assert boards.rows["state"].tolist() == [
            CommunicatorState.DESTROYED,
            CommunicatorState.RUNNING,
        ]
        assert not boards.torn.any()


def test_a_board_half_written_at_death_is_given_and_marked(recording: Recording) -> None:
    process = recording()
    process.tell("communicator 8")
    process.tell("communicator 4")
    process.tell("begin-board 1")
    with RingReader.open(process.ring) as ring:
        process.kill()
        boards = ring.communicators()
        assert boards.torn.tolist() == [False, True]
        assert boards.rows["size"].tolist() == [8, 4]


def test_transfers_in_flight(recording: Recording) -> None:
    process = recording()
    with RingReader.open(process.ring) as ring:
        assert len(ring.transfers().rows) == 0
        for peer in (5, 6, 7):
            process.tell(f"transfer {peer}")
        process.tell("release 1")
        boards = ring.transfers()
        assert boards.slots.tolist() == [0, 2]
        assert boards.rows["peer"].tolist() == [5, 7]
        assert set(boards.rows["wait"]) == {Wait.SEND_PEER}


# ------------------------------------------------------------------- where nothing can be written


def test_without_a_place_the_process_runs_on(recording: Recording, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for run_dir in (Path("/proc/none"), tmp_path / "file", tmp_path / "no" / "such"):
        process = recording(run_dir)
        assert not process.recording
        assert process.tell("write 3") == "ok"
        assert process.leave() == ""  # silent, unless asked
        asked = recording(run_dir, ONCALL_DEBUG="1")
        [line] = asked.leave().splitlines()
        assert "not recorded" in line
        assert str(run_dir) in line


def test_switched_off(recording: Recording) -> None:
    assert not recording(ONCALL_DISABLE="1").recording
    assert recording(ONCALL_DISABLE="0").recording


# ------------------------------------------------------------------- rights


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_missing_rights_are_reported_plainly(recording: Recording) -> None:
    with tempfile.TemporaryDirectory() as folder:  # tmp_path lets no other user in
        Path(folder).chmod(0o755)
        path = recording(Path(folder)).ring
        os.seteuid(65534)
        try:
            with pytest.raises(BadInput, match=r"user 65534 may not read and write.*RING_GROUP"):
                RingReader.open(path)
        finally:
            os.seteuid(0)
