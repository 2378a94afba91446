"""From rings to sealed shards, stepped by hand: what is there, what is lost, what is said."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ring_writer import RingWriter, operations

from oncall.node.agent.agent import Agent
from oncall.node.agent.recorder import Recorder
from oncall.node.agent.service import make_sources
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.common.source import Collected, Instant
from oncall.node.rings.ring_layout import CommunicatorState, Operation
from oncall.node.rings.rings import RingSource
from oncall.node.store.batch import Batch

Rows = Callable[[str], list[tuple[Any, ...]]]
MakeAgent = Callable[..., Agent]
COMM = 0xFEDC_BA98_7654_3210
MINUTE_NS = 60 * 10**9


def test_operations_reach_a_shard_with_who_did_them(
    rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings, 3, configuration="tp=2 pp=4 micro_batches=16 colour=red dp=many")
    ring.communicator(0, COMM, rank=3)
    ring.append(operations(1, 100, transfers=2))
    agent = make_agent()
    agent.step()
    agent.finish()
    assert sealed_rows("SELECT count(*), min(seq), max(seq) FROM ops WHERE done") == [(100, 1, 100)]
    assert sealed_rows(
        "SELECT DISTINCT job, comm, rank, kind, op, dtype, count, bytes, algo, proto, channels, "
        "sends, recvs, started_ns - enqueued_ns, ended_ns - started_ns FROM ops"
    ) == [
        (
            *("llama", COMM, 3, "coll", "AllReduce", "float32", 1024, 4096),
            *("RING", "SIMPLE", 2, 8, 8, 300, 300),
        )
    ]
    assert sealed_rows("SELECT job, world_size, tp, pp, dp, micro_batches FROM jobs") == [
        ("llama", 8, 2, 4, None, 16)
    ]
    assert sealed_rows("SELECT rank, node, gpu FROM ranks") == [(3, "gpu017", 3)]
    assert sealed_rows("SELECT comm, rank, comm_rank, size, name FROM comms") == [
        (COMM, 3, 3, 8, "world")
    ]
    assert sealed_rows("SELECT launched, completed, state FROM launches") == [(100, 100, "running")]


def test_transfers_tell_their_waits(rings: Path, make_agent: MakeAgent, sealed_rows: Rows) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    ring.append(operations(1, 1, transfers=2))
    make_agent().finish()
    assert sealed_rows(
        "SELECT seq, kind, channel, comm_peer, direction, steps, steps_done, bytes, "
        "gpu_wait_ns, wire_wait_ns, ended_ns - started_ns FROM transfers ORDER BY direction"
    ) == [
        (1, "coll", 0, 1, "recv", 8, 8, 65_536, 5_000, 3_000, 10_000),
        (1, "coll", 0, 1, "send", 8, 8, 65_536, 3_000, 5_000, 10_000),
    ]


def test_rates_are_of_the_wire_and_durations_of_the_gpu(
    rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    """Eight steps were on the wire for 5 µs: how long the rank waited inside is no slowness."""
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    ring.append(operations(1, 1, transfers=2))
    make_agent().finish()
    assert sealed_rows("SELECT send_rate, recv_rate, duration_ns FROM ops") == [
        (1_600_000, None, 250)
    ]


def test_what_is_in_flight_is_reported_with_its_progress(
    rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    ring.append(operations(1, 3, transfers=2, unfinished=1))
    stuck = ring.transfers[0:1]
    for name, value in (
        *(("channel", 1), ("is_send", 1), ("operation", 3), ("peer", 1)),
        *(("steps", 8), ("steps_done", 5), ("wait", 2)),
    ):
        stuck[name] = value
    stuck["since_ns"] = stuck["started_ns"] = time.monotonic_ns()
    make_agent().finish()
    in_flight = "ended_ns IS NULL AND observed_ns IS NOT NULL"
    assert sealed_rows(f"SELECT seq, done, sends, recvs FROM ops WHERE {in_flight}") == [
        (3, False, 8 + 5, 8)
    ]
    assert sealed_rows(
        "SELECT seq, channel, direction, steps, steps_done, waits_for, since_ns = started_ns "
        f"FROM transfers WHERE {in_flight}"
    ) == [(3, 1, "send", 8, 5, "send_peer", True)]


def test_sends_and_receives_are_numbered_by_pair(
    rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    agent = make_agent()
    ring.append(operations(1, 2, op=Operation.SEND, peer=1))
    ring.append(operations(3, 1, op=Operation.RECV, peer=1))
    agent.step()
    ring.append(operations(4, 2, op=Operation.SEND, peer=1))
    ring.append(operations(6, 1, op=Operation.SEND, peer=2))
    agent.finish()
    assert sealed_rows("SELECT seq, op, comm_peer, peer, pair_seq FROM ops ORDER BY seq") == [
        (1, "Send", 1, None, 1),
        (2, "Send", 1, None, 2),
        (3, "Recv", 1, None, 1),
        (4, "Send", 1, None, 3),
        (5, "Send", 1, None, 4),
        (6, "Send", 2, None, 1),
    ]


def test_a_step_of_the_clock_bends_no_duration(
    rings: Path, make_agent: MakeAgent, clock: Any, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    reported = operations(1, 1)
    agent = make_agent()
    ring.append(reported[:3])
    agent.step()
    clock.set_by_ns = -10 * MINUTE_NS
    ring.append(reported[3:])
    agent.step()
    agent.finish()
    ((enqueued_ns, took_ns),) = sealed_rows(
        "SELECT enqueued_ns, ended_ns - enqueued_ns FROM ops WHERE seq = 1 AND ended_ns IS NOT NULL"
    )
    assert took_ns == 400
    assert abs(enqueued_ns - time.time_ns()) < MINUTE_NS  # of the time that it was in


def test_a_clock_set_back_overwrites_no_shard(
    rings: Path, make_agent: MakeAgent, clock: Any, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    agent = make_agent()
    for step in range(4):
        ring.append(operations(1 + step * 10, 10))
        clock.set_by_ns -= MINUTE_NS
        agent.step()
        agent.seal(clock())
    counted = "SELECT count(*), count(DISTINCT seq) FROM ops WHERE ended_ns IS NOT NULL"
    assert sealed_rows(counted) == [(40, 40)]


def test_an_answer_tells_what_began_since_the_last_commit(
    rings: Path, make_agent: MakeAgent
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    agent = make_agent(commit_every_ns=3600 * 10**9)
    agent.step()
    ring.append(operations(1, 3, unfinished=1))
    agent.step()
    assert ring.header["tail"][0] == 0  # nothing is in a hurry
    asking = threading.Thread(target=lambda: reported.extend(agent.present(30)))
    reported: list[Batch] = []
    asking.start()
    while agent._asked.empty():
        time.sleep(0.001)
    agent.step()
    asking.join()
    (open_ones,) = (batch for batch in reported if batch.table == "ops")
    assert open_ones.rows == 1
    agent.finish()


def test_a_ring_that_fills_up_does_not_wait_for_the_commit(
    rings: Path, make_agent: MakeAgent
) -> None:
    ring = RingWriter(rings, records=1024)
    ring.communicator(0, COMM)
    agent = make_agent(commit_every_ns=3600 * 10**9)
    agent.step()
    ring.append(operations(1, 20))
    agent.step()
    assert ring.header["tail"][0] == 0
    ring.append(operations(21, 40))
    agent.step()
    assert ring.header["tail"][0] == ring.header["head"][0] == 300
    agent.finish()


def test_a_dead_process_is_reported_with_what_it_left_in_flight(
    config: Configuration, rings: Path, clock: Any, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings)
    ring.header["process_start_ticks"] = 1  # another process had this number: it is gone
    ring.communicator(0, COMM)
    ring.append(operations(1, 2, unfinished=1))
    log = Log()
    agent = Agent(config, make_sources(config, {}), Recorder(config, log), log, clock)
    agent.step()
    agent.finish()
    assert sealed_rows("SELECT state, launched, completed FROM launches") == [("dead", 2, 1)]
    assert sealed_rows("SELECT seq FROM ops WHERE NOT done") == [(2,)]


def test_the_ring_of_a_process_gone_for_long_goes_too(rings: Path) -> None:
    ring = RingWriter(rings)
    ring.close()
    source = RingSource(rings, "gpu017", grace_ns=MINUTE_NS, bookmarks={})
    for minute in range(3):
        source.collect(Instant(0, (1 + minute) * MINUTE_NS))
    assert ring.path.exists()  # its end is in no shard yet
    source.current_state(Instant(0, 4 * MINUTE_NS))
    source.collect(Instant(0, 5 * MINUTE_NS))
    assert not ring.path.exists()


def test_an_aborted_communicator_leaves_what_it_was_in(
    rings: Path, make_agent: MakeAgent, clock: Any, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    ring.append(operations(1, 2, unfinished=1))
    agent = make_agent()
    agent.step()
    agent.seal(clock())
    ring.close_communicator(0, CommunicatorState.ABORTED)
    agent.step()
    agent.seal(clock())
    agent.finish()
    # As it stood when it was in flight, and as it stood at the abort, and no longer.
    ((first_ns, last_ns, rows),) = sealed_rows(
        "SELECT min(observed_ns), max(observed_ns), count(DISTINCT observed_ns) "
        "FROM ops WHERE seq = 2 AND NOT done"
    )
    assert rows == 2
    aborted_ns = int(ring.boards["closed_ns"][0]) + clock().offset_ns
    assert first_ns < last_ns and abs(last_ns - aborted_ns) < 10**6
    states = sealed_rows("SELECT state FROM launches ORDER BY at_ns")
    assert states == [("running",), ("abort",), ("abort",)]


def test_a_failed_call_is_reported_in_nccls_words(
    rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings, 5)
    ring.communicator(0, COMM)
    reported = operations(1, 1)[:2]
    reported["payload"][1] = (6).to_bytes(4, "little") + bytes(28)
    ring.append(reported)
    make_agent().finish()
    assert sealed_rows("SELECT source, code, text FROM host_events") == [
        ("nccl", "ncclRemoteError", "rank 5: AllReduce 1 returned ncclRemoteError")
    ]
    # It is over, though not done.
    assert sealed_rows("SELECT seq, done, ended_ns, observed_ns FROM ops") == [
        (1, None, None, None)
    ]


def test_a_stop_right_after_a_full_disk_writes_what_was_held(
    config: Configuration, rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    away = config.data_dir.with_name("away")
    config.data_dir.rename(away)
    agent = make_agent()
    ring.append(operations(1, 10))
    agent.step()
    assert any("No such file" in problem for problem in agent.problems)
    away.rename(config.data_dir)
    agent.finish()  # long before the next attempt would be due
    assert sealed_rows("SELECT count(*) FROM ops") == [(10,)]


class _Broken:
    name = "broken"

    def collect(self, now: Instant) -> Collected:
        raise RuntimeError(f"not at {now.monotonic_ns * 0}")

    def current_state(self, now: Instant) -> list[Any]:
        raise RuntimeError(f"nor at {now.monotonic_ns * 0}")

    def close(self) -> None:
        pass


def test_a_source_that_raises_is_reported_and_the_others_go_on(
    config: Configuration, rings: Path, sealed_rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    ring.append(operations(1, 10))
    log = Log()
    agent = Agent(config, [_Broken(), *make_sources(config, {})], Recorder(config, log), log)
    agent.step()
    agent.finish()
    assert sealed_rows("SELECT count(*) FROM ops") == [(10,)]
    errors = sealed_rows("SELECT error FROM collectors WHERE source = 'broken'")
    assert ("a bug: RuntimeError: not at 0",) in errors
    assert capsys.readouterr().err.count("not at 0") == 1


@pytest.mark.parametrize("rank", [8, 2**31 - 1])
def test_a_ring_of_a_rank_outside_its_world_is_named_and_not_taken(
    rings: Path,
    make_agent: MakeAgent,
    sealed_rows: Rows,
    capsys: pytest.CaptureFixture[str],
    rank: int,
) -> None:
    for each in (3, rank):
        ring = RingWriter(rings, each)
        ring.communicator(0, COMM)
        ring.append(operations(1, 10))
    agent = make_agent()
    for _ in range(3):
        agent.step()
    agent.finish()
    assert sealed_rows("SELECT DISTINCT rank FROM ops") == [(3,)]
    assert sealed_rows("SELECT rank FROM ranks") == [(3,)]
    ((error,),) = sealed_rows("SELECT arg_max(error, at_ns) FROM collectors WHERE source = 'rings'")
    assert f"{ring.path.name}: forged or damaged" in error
    assert capsys.readouterr().err.count(f"rank {rank} of a world of 8") == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_second_ring_of_a_rank_by_another_user_is_named(
    rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    for rank in (0, 1, 1):
        ring = RingWriter(rings, rank)
        ring.communicator(0, COMM, rank=rank)
    os.chown(ring.path, 1234, -1)
    agent = make_agent()
    agent.step()
    agent.finish()
    ((error,),) = sealed_rows("SELECT arg_max(error, at_ns) FROM collectors WHERE source = 'rings'")
    assert error.count("one of them is forged") == 1
    assert f"{ring.path.name}: of user 1234, claims to be rank 1 of job llama" in error


def test_a_run_folder_that_is_not_there_is_said(
    rings: Path, make_agent: MakeAgent, sealed_rows: Rows
) -> None:
    rings.rmdir()
    make_agent().finish()
    ((error,),) = sealed_rows("SELECT error FROM collectors WHERE source = 'rings'")
    assert "No such file or directory; no training process can be recorded" in error


def test_a_stopped_process_is_reported_from_one_that_runs(
    config: Configuration, rings: Path, clock: Any, sealed_rows: Rows
) -> None:
    ring = RingWriter(rings)
    ring.communicator(0, COMM)
    log = Log()
    agent = Agent(config, make_sources(config, {}), Recorder(config, log), log, clock)
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            status = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
            ring.header["pid"], ring.header["process_start_ticks"] = child.pid, int(status[19])
            agent.step()
            agent.seal(clock())
            child.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)
            agent.step()
            agent.seal(clock())
        finally:
            child.kill()
    assert sealed_rows("SELECT state FROM launches ORDER BY state") == [("running",), ("stopped",)]
