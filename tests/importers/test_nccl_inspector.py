"""NCCL Inspector's JSON lines as evidence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.sql import rows

from oncall.core.errors import BadInput
from oncall.evidence.coverage import NUMBERED_BY_HOST
from oncall.evidence.incident import Incident
from oncall.importers import nccl_inspector
from oncall.importers.detect import load

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "nccl_docs"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings are not on this machine")
DUMP_US = 1_750_000_000_000_000


def line(rank: int, perf: dict[str, Any], comm: str = "0xffffffffffffffff", **other: Any) -> str:
    header = {"id": comm, "comm_name": "unknown", "rank": rank, "n_ranks": 2, "nnodes": 1}
    metadata = {
        "inspector_output_format_version": "v4.2",
        "dump_timestamp_us": DUMP_US,
        "hostname": "gpu001",
        "pid": 100 + rank,
    }
    return json.dumps({"header": header | other, "metadata": metadata} | perf)


def coll(op: str, number: int, us: int = 50, **other: Any) -> dict[str, Any]:
    perf = {"coll": op, "coll_sn": number, "coll_msg_size_bytes": 4096, "coll_exec_time_us": us}
    return {"coll_perf": perf | other}


def read(tmp_path: Path, incident: Incident, *files: list[str]) -> None:
    paths = []
    for i, lines in enumerate(files):
        paths.append(tmp_path / f"rank[{i}]*.log")
        paths[-1].write_text("".join(text + "\n" for text in lines))
    nccl_inspector.read(paths, incident, "j")


def test_completed_operations(tmp_path: Path) -> None:
    perf = coll("AllReduce", 3, coll_algo="RING", coll_proto="unknown")
    with Incident.empty() as incident:
        read(tmp_path, incident, [line(0, perf)], [line(1, perf)])
        assert rows(
            incident,
            "SELECT comm, seq, rank, kind, op, bytes, duration_ns, algo, proto, done, ended_ns, "
            "observed_ns FROM ops ORDER BY rank",
        ) == [
            (
                2**64 - 1,
                3,
                rank,
                "coll",
                "AllReduce",
                4096,
                50_000,
                "RING",
                None,
                True,
                None,
                DUMP_US * 1000,
            )
            for rank in (0, 1)
        ]
        assert rows(
            incident, "SELECT rank, rows, version, problem FROM recordings ORDER BY rank"
        ) == [
            (0, 1, "v4.2", None),
            (1, 1, "v4.2", None),
        ]
        assert rows(incident, "SELECT world_size FROM jobs") == [(2,)]


def test_times_come_from_the_kernels(tmp_path: Path) -> None:
    kernels = [
        {"channel_id": 0, "kernel_start_ts": 7, "kernel_stop_ts": 20},
        {"channel_id": 1, "kernel_start_ts": 5, "kernel_stop_ts": 18},
        {"channel_id": 2, "kernel_start_ts": 0, "kernel_stop_ts": 0},
    ]
    trace = {"coll_start_ts": 2, "coll_stop_ts": 3, "kernel_events": kernels}
    with Incident.empty() as incident:
        read(tmp_path, incident, [line(0, coll("AllReduce", 0, event_trace_ts=trace))])
        assert rows(incident, "SELECT enqueued_ns, started_ns, ended_ns FROM ops") == [
            (2000, 5000, 20000)
        ]


def test_numbers_shared_by_two_functions_are_made_one_order(tmp_path: Path) -> None:
    order = [("AllGather", 0), ("AllReduce", 0), ("AllReduce", 1), ("AllGather", 1)]
    both = [[line(rank, coll(*call)) for call in order] for rank in (0, 1)]
    with Incident.empty() as incident:
        read(tmp_path, incident, *both)
        for rank in (0, 1):
            found = rows(incident, f"SELECT op FROM ops WHERE rank = {rank} ORDER BY seq")
            assert [op for (op,) in found] == [op for op, _ in order]
        assert rows(incident, "SELECT DISTINCT seq FROM ops ORDER BY seq") == [
            (0,),
            (1,),
            (2,),
            (3,),
        ]


def test_since_v4_3_a_dumps_marker_says_whose_its_lines_are(tmp_path: Path) -> None:
    def marker(rank: int, records: int) -> str:
        stats = {"coll_records": records, "p2p_records": 0, "coll_dropped_total": 3}
        message = json.loads(line(rank, {"dump_stats": stats}))
        message["metadata"]["inspector_output_format_version"] = "v4.3"
        return json.dumps(message)

    bare = [json.dumps(coll("AllReduce", number)) for number in range(3)]
    lines = [marker(0, 2), bare[0], bare[1], marker(1, 1), bare[2], bare[0]]
    with Incident.empty() as incident:
        read(tmp_path, incident, lines)
        assert rows(incident, "SELECT rank, seq FROM ops ORDER BY ALL") == [(0, 0), (0, 1), (1, 2)]
        assert rows(incident, "SELECT version, rows, holes, problem FROM recordings") == [
            ("v4.3", 3, 6, "1 of 4 lines could not be read")
        ]


def test_text_for_prometheus_holds_no_operation_and_says_what_does(tmp_path: Path) -> None:
    text = 'nccl_bus_bandwidth_gbs{version="v5.1",node="n1",gpu="GPU0",nranks="4"} 678.2\n'
    (tmp_path / "gpu0.prom").write_text(text)
    with Incident.empty() as incident, pytest.raises(BadInput, match="NCCL_INSPECTOR_PROM_DUMP=0"):
        load([tmp_path / "gpu0.prom"], incident)


def test_bad_lines_are_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    good = line(0, coll("AllReduce", 1))
    bad = [
        "garbage {{{",
        good[:80],
        "[1, 2]",
        "{}",
        line(0, coll("AllReduce", 2**70)),
        line(5, coll("AllReduce", 1)),
        line(-1, coll("AllReduce", 1)),
        line(0, coll("AllReduce", 1), comm="no number"),
    ]
    stats = line(0, {"dump_stats": {"coll_dropped_total": 12, "p2p_dropped_total": 1}})
    with Incident.empty() as incident:
        read(tmp_path, incident, [good, *bad, stats])
        assert incident.rows("ops") == 1
        assert rows(incident, "SELECT rows, holes, problem FROM recordings") == [
            (1, 13, f"{len(bad)} of {len(bad) + 1} lines could not be read")
        ]


def test_a_file_that_is_half_readable_is_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "inspector.log"
    path.write_text(line(0, coll("AllReduce", 1)) + "\ngarbage\n")
    with Incident.empty() as incident:
        load([path], incident, "j")
        assert incident.rows("ops") == 1


@pytest.mark.parametrize("data", [b"", b"\n\n", os.urandom(5000), b"\xff\xfe{", b"{" * 9000])
def test_junk_becomes_a_recording_with_its_problem(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "junk"
    path.write_bytes(data)
    with Incident.empty() as incident:
        nccl_inspector.read([path, tmp_path / "absent"], incident, "j")
        found = rows(incident, "SELECT rows, problem IS NOT NULL FROM recordings")
        assert found == [(0, True), (0, True)]


@shared
def test_documented_samples() -> None:
    with Incident.empty() as incident:
        nccl_inspector.read([SHARED / "inspector_samples.jsonl"], incident, "j")
        assert rows(incident, "SELECT op, seq, ended_ns - started_ns FROM ops ORDER BY seq") == [
            ("ReduceScatter", 1231, 40_630_000),
            ("AllReduce", 1407, None),
        ]


# What a collector of OpenTelemetry writes of its metrics: a request a line.


def point(value: float, **about: Any) -> dict[str, Any]:
    named = [{"key": key, "value": {"stringValue": str(one)}} for key, one in about.items()]
    return {"attributes": named, "timeUnixNano": str(DUMP_US * 1000), "asDouble": value}


def request(**metrics: list[dict[str, Any]]) -> str:
    gauges = [
        {"name": name, "unit": "us", "gauge": {"dataPoints": points}}
        for name, points in metrics.items()
    ]
    scopes = [{"scope": {"name": "nccl-inspector"}, "metrics": gauges}]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "training"}}]}
    return json.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": scopes}]})


def operations(node: str, gpu: int, *numbers: int) -> str:
    device = {"version": "v6.2", "node": node, "gpu": f"GPU{gpu}", "comm_name": "unknown"}
    comm = {"comm_id": "0xffffffffffffffff", "n_nodes": 2, "nranks": 4}
    call = {"coll_msg_size_bytes": 4096, "collective": "AllReduce", "algo_proto": "NVLS_TREE_LL128"}
    about = device | comm | call
    return request(
        nccl_bus_bandwidth_gbs=[point(10.5, **about, coll_sn=one) for one in numbers],
        nccl_collective_exec_time_microseconds=[point(50, **about, coll_sn=one) for one in numbers],
    )


def test_operations_of_otlp_are_those_of_ranks_counted_by_host_and_gpu(tmp_path: Path) -> None:
    devices = [("gpu10", 0), ("gpu10", 1), ("gpu9", 0), ("gpu9", 1)]
    with Incident.empty() as incident:
        read(
            tmp_path,
            incident,
            *([operations(node, gpu, 7), operations(node, gpu, 8)] for node, gpu in devices),
        )
        found = rows(
            incident,
            "SELECT comm, seq, op, bytes, duration_ns, algo, proto, observed_ns, done, ended_ns "
            "FROM ops WHERE rank = 0 ORDER BY seq",
        )
        assert found == [
            (2**64 - 1, seq, "AllReduce", 4096, 50_000, "NVLS_TREE", "LL128", DUMP_US * 1000,
             True, None)
            for seq in (7, 8)
        ]  # fmt: skip
        assert rows(incident, "SELECT rank, node, gpu FROM ranks ORDER BY rank") == [
            (0, "gpu9", 0),
            (1, "gpu9", 1),
            (2, "gpu10", 0),
            (3, "gpu10", 1),
        ]
        assert rows(incident, "SELECT rank, rows, version, problem, note FROM recordings") == [
            (rank, 2, "v6.2", None, NUMBERED_BY_HOST) for rank in (2, 3, 0, 1)
        ]


def test_sends_and_what_was_lost_in_otlp(tmp_path: Path) -> None:
    device = {"version": "v6.2", "node": "gpu9", "gpu": "GPU0"}
    send = {"comm_id": "0x5", "nranks": 2, "p2p_operation": "Send", "p2p_sn": 4, "p2p_peer": 1}
    lines = [
        request(nccl_p2p_exec_time_microseconds=[point(9, **device, **send)]),
        request(nccl_p2p_dropped_total=[point(3, **device)]),
        request(nccl_p2p_dropped_total=[point(5, **device)]),
        request(nccl_collectives_dropped_total=[point(2, **device)]),
    ]
    with Incident.empty() as incident:
        read(tmp_path, incident, lines)
        # Its peer is a rank of the job's own numbering, which nobody names.
        assert rows(incident, "SELECT kind, op, seq, peer, duration_ns FROM ops") == [
            ("p2p", "Send", 4, None, 9000)
        ]
        assert rows(incident, "SELECT holes, problem FROM recordings") == [(7, None)]


def test_means_of_otlp_are_no_operations(tmp_path: Path) -> None:
    about = {"node": "gpu9", "gpu": "GPU0", "collective": "AllReduce", "message_size": "4-5MB"}
    path = tmp_path / "metrics.json"
    path.write_text(request(nccl_collective_exec_time_microseconds=[point(9, **about)]) + "\n")
    with (
        Incident.empty() as incident,
        pytest.raises(BadInput, match="NCCL_INSPECTOR_OTEL_VERBOSE=1"),
    ):
        load([path], incident, "j")


def test_a_damaged_request_is_passed_over(tmp_path: Path) -> None:
    lines = [operations("gpu9", 0, 7), operations("gpu9", 0, 8)[:-40], '{"resourceMetrics": 5}']
    with Incident.empty() as incident:
        read(tmp_path, incident, lines)
        assert rows(incident, "SELECT seq FROM ops") == [(7,)]
