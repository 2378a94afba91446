"""What NCCL RAS says, as evidence: JSON, text, events, files and a live server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.importers.ras.answers import HEAD, WORLD, comm, poll, rank, read
from tests.sql import rows

from oncall.evidence.coverage import NUMBERED_BY_HOST
from oncall.importers.ras import importer as nccl_ras


def test_json_counts_are_summed_over_functions(tmp_path: Path) -> None:
    ranks = [rank(0), rank(1, {"AllReduce": 4, "AllGather": 2})]
    with read(tmp_path, poll(comm("0xffffffffffffffff", ranks))) as incident:
        assert rows(incident, "SELECT comm, rank, launched, state FROM launches ORDER BY rank") == [
            (2**64 - 1, 0, 7, "running"),
            (2**64 - 1, 1, 6, "running"),
        ]
        assert rows(incident, "SELECT rank, node, gpu, pid FROM ranks ORDER BY rank") == [
            (0, "10.0.0.0", 0, 100),
            (1, "10.0.0.0", 1, 101),
        ]
        assert rows(incident, "SELECT DISTINCT at_ns FROM launches") == [(1767323045 * 10**9,)]
        assert rows(incident, "SELECT world_size FROM jobs") == [(2,)]


def test_states_of_ranks(tmp_path: Path) -> None:
    ranks = [
        rank(0),
        rank(1, init_state=7),
        rank(2, finalize_called=True),
        rank(3, abort_flag=True),
        rank(4, async_error=3),
    ]
    missing = [
        {"rank": 5, "host": "h", "pid": 1, "status": {"unresponsive": True}},
        {"rank": 6, "host": "h", "pid": 2, "status": {"considered_dead": True}},
        {"rank": 7, "host": "h", "pid": 3, "status": {"unresponsive": False}},
    ]
    with read(tmp_path, poll(comm("0x1", ranks, missing))) as incident:
        assert [
            state for (state,) in rows(incident, "SELECT state FROM launches ORDER BY rank")
        ] == [
            "running",
            "init",
            "finalize",
            "abort",
            "error",
            "unresponsive",
            "dead",
            "nocomm",
        ]
        assert rows(incident, "SELECT count(launched) FROM launches") == [(5,)]
        assert rows(incident, "SELECT count(*), min(size) FROM comms") == [(8, 8)]


def test_ranks_of_a_subgroup_are_found_by_process(tmp_path: Path) -> None:
    world = comm("0x1", [rank(n) for n in range(4)])
    pair = [rank(3) | {"rank": 0}, rank(1) | {"rank": 1}]
    with read(tmp_path, poll(world, comm("0x2", pair))) as incident:
        assert rows(incident, "SELECT rank FROM comms WHERE comm = 2 ORDER BY comm_rank") == [
            (3,),
            (1,),
        ]
        assert rows(incident, "SELECT note FROM recordings") == [(None,)]


def test_only_subgroups_number_ranks_by_host_and_say_so(tmp_path: Path) -> None:
    pairs = [comm("0x1", [rank(2), rank(3)]), comm("0x2", [rank(0), rank(1)])]
    for pair in pairs:
        for place, member in enumerate(pair["ranks"]):
            member["rank"] = place
    with read(tmp_path, poll(*pairs)) as incident:
        assert rows(incident, "SELECT rank, pid FROM ranks ORDER BY rank") == [
            (n, 100 + n) for n in range(4)
        ]
        assert rows(incident, "SELECT note FROM recordings") == [(NUMBERED_BY_HOST,)]


def test_several_polls_and_an_event_in_one_file(tmp_path: Path) -> None:
    first, second = (
        poll(comm("0x1", [rank(0), rank(1)]), at=f"2026-01-02 03:04:{s}") for s in (10, 40)
    )
    event = {
        "timestamp": "2026-01-02 03:05:00",
        "group": "LIFECYCLE",
        "event": "PEER_DEAD",
        "peer": {"host": "10.0.0.0", "pid": 101, "cuda_devs": [1], "nvml_devs": [1]},
    }
    with read(tmp_path, f"{first}\n{second}{json.dumps(event)}") as incident:
        assert rows(incident, "SELECT count(DISTINCT at_ns) FROM launches") == [(3,)]
        assert rows(incident, "SELECT comm, rank FROM launches WHERE state = 'dead'") == [(1, 1)]
        assert rows(incident, "SELECT node, code FROM host_events") == [("10.0.0.0", "PEER_DEAD")]
        assert rows(incident, "SELECT rows, version FROM recordings") == [(6, "2.29.1")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\x00\xff\x01" * 100,
        "[1, 2, 3]",
        '{"traceEvents": []}',
        '{"communicators": 7, "nccl_version": {}}',
        '{"communicators": [1, {"hash": -1}, {"hash": "0x1ffffffffffffffff"}], "timestamp": 5}',
        '{"event": 1, "peer": [], "group": 2}',
        '{"communicators": ' + "[" * 100_000,
        '{"communicators": [{"hash": "0x1", "size": ' + "9" * 5000 + "}]}",
    ],
)
def test_junk_becomes_a_recording_with_its_problem(tmp_path: Path, text: str) -> None:
    with read(tmp_path, text) as incident:
        assert rows(incident, "SELECT rows, problem IS NOT NULL FROM recordings") == [(0, True)]
        assert incident.rows("launches") == 0


def test_absurd_numbers_are_left_out_and_the_rest_is_kept(tmp_path: Path) -> None:
    ranks = [rank(0), rank(1, {"AllReduce": 2**70}), rank(10**12), rank(-1), rank(True)]
    with read(tmp_path, poll(comm("0x1", ranks) | {"size": 3})) as incident:
        assert rows(incident, "SELECT rank, launched FROM launches ORDER BY rank") == [
            (0, 7),
            (1, None),
        ]
        assert "without a sensible number" in rows(incident, "SELECT problem FROM recordings")[0][0]


def test_a_truncated_second_poll_keeps_the_first(tmp_path: Path) -> None:
    whole = poll(comm("0x1", [rank(0), rank(1)]))
    with read(tmp_path, whole + "\n" + whole[: len(whole) // 2]) as incident:
        assert incident.rows("launches") == 2
        assert "line 2" in rows(incident, "SELECT problem FROM recordings")[0][0]


def test_the_commas_that_nccl_2_28_leaves_out_are_put_in(tmp_path: Path) -> None:
    missing = {
        "rank": 2,
        "host": "unknown",
        "pid": -1,
        "cuda_dev": 2,
        "nvml_dev": 2,
        "status": {"unresponsive": True, "considered_dead": False},
    }
    sound = json.loads(poll(comm("0x1", [rank(0), rank(1)], [missing])))
    text = json.dumps(sound, indent=2)
    lost = text.replace('"nvml_dev": 2,\n', '"nvml_dev": 2\n').replace(
        '"unresponsive": true,\n', '"unresponsive": true\n'
    )
    assert lost.count(",") == text.count(",") - 2
    later = lost.replace("03:04:05", "03:04:35")
    with read(tmp_path, text + later) as incident:
        assert rows(
            incident, "SELECT rank, state, count(*) FROM launches GROUP BY ALL ORDER BY 1"
        ) == [
            (0, "running", 2),
            (1, "running", 2),
            (2, "unresponsive", 2),
        ]
        assert rows(incident, "SELECT problem FROM recordings") == [(None,)]
        assert rows(incident, "SELECT count(*) FROM ranks WHERE rank = 2") == [(0,)]


def test_a_job_without_communicators_is_said_to_be_one(tmp_path: Path) -> None:
    with read(tmp_path, poll()) as incident:
        assert rows(incident, "SELECT problem FROM recordings") == [
            ("NCCL RAS answered that the job has no communicator",)
        ]


def test_recognition_is_by_content() -> None:
    assert nccl_ras.recognises(Path("x.log"), (HEAD + WORLD).encode())
    assert nccl_ras.recognises(Path("x"), poll().encode())
    assert nccl_ras.recognises(Path("ras://gpu001:28028"), b"")
    manual = b"RAS\n===\n  Communicators... (0.00s)\n  #0-0 (27a079b828ff1a75) MISMATCH\n"
    assert not nccl_ras.recognises(Path("ras.rst"), manual)
    assert not nccl_ras.recognises(Path("ras.json"), b'{"traceEvents": []}')
    assert not nccl_ras.recognises(Path("ras.json"), os.urandom(512))


def test_a_host_that_utf8_cannot_hold_is_a_host(tmp_path: Path) -> None:
    """JSON may escape half of a pair of surrogates, which no database stores."""
    odd = json.loads('{"host": "gpu\\udce9"}')["host"]
    with read(tmp_path, poll(comm("0x1", [rank(0) | {"host": odd}, rank(1)]))) as incident:
        assert rows(incident, "SELECT rank, node FROM ranks ORDER BY rank")[0] == (0, "gpu?")
