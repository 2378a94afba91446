"""Profiler traces as evidence: calls, kernels, groups and tasks, as Kineto writes them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.sql import rows

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load

BASE_NS = 1_760_000_000_000_000_000
Event = dict[str, Any]


def event(category: str, name: str, at_us: float, for_us: float, **said: Any) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 7,
        "tid": said.pop("tid", 1),
        "ts": at_us,
        "dur": for_us,
        "args": said,
    }


def call(number: int, at_us: float, op: str = "allreduce", **said: Any) -> Event:
    """A call as PyTorch 2.8 records it, on the group of all four ranks."""
    said = {
        "External id": number,
        "Collective name": op,
        "dtype": "BFloat16",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "Group size": 4,
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1, 2, 3]",
        "Rank": 0,
        "Seq": number,
    } | {key.replace("_", " "): value for key, value in said.items()}
    return event("cpu_op", "record_param_comms", at_us, 20, **said)


def launch(correlation: int, at_us: float, tid: int = 1) -> Event:
    return event("cuda_runtime", "cudaLaunchKernelExC", at_us, 5, correlation=correlation, tid=tid)


def kernel(at_us: float, for_us: float, linked: int | None, correlation: int = 900) -> Event:
    link = {} if linked is None else {"External id": linked}
    return event(
        "kernel",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        at_us,
        for_us,
        device=3,
        stream=20,
        correlation=correlation,
        **link,
    )


def annotation(name: str, at_us: float, for_us: float, number: int = 0) -> Event:
    return event("user_annotation", name, at_us, for_us, **{"External id": number})


def document(events: Sequence[Event], rank: int = 0, **more: Any) -> dict[str, Any]:
    groups = [
        {
            "pg_name": "0",
            "pg_desc": "default_pg",
            "backend_config": "cuda:nccl",
            "pg_size": 4,
            "ranks": [0, 1, 2, 3],
        }
    ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": 4,
            "pg_count": 1,
            "pg_config": groups,
            "nccl_version": "2.27.3",
        },
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": list(events),
        "traceName": "trace.json",
    } | more


def write(folder: Path, content: Any, name: str = "trace.json") -> Path:
    path = folder / name
    text = content if isinstance(content, str) else json.dumps(content, indent=2)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def note(incident: Incident) -> str:
    ((problem, said),) = rows(incident, "SELECT problem, note FROM recordings")
    return f"{problem} | {said}"


@pytest.mark.parametrize("name", ["trace.json", "gpu017_4711.1760000000123.pt.trace.json.gz"])
def test_a_call_and_its_kernel_are_one_operation(
    tmp_path: Path, incident: Incident, name: str
) -> None:
    write(tmp_path, document([call(5, 100.5), kernel(150.25, 40.125, 5)]), name)
    load([tmp_path], incident)
    assert rows(
        incident,
        "SELECT seq, rank, kind, op, dtype, count, bytes, stream, enqueued_ns, started_ns, "
        "ended_ns, done FROM ops",
    ) == [
        (
            *(5, 0, "coll", "AllReduce", "BFloat16", 1024, 2048, 20),
            *(BASE_NS + 100_500, BASE_NS + 150_250, BASE_NS + 190_375, True),
        )
    ]
    assert rows(incident, "SELECT world_size FROM jobs") == [(4,)]
    assert rows(incident, "SELECT rank, comm_rank, size, name, role FROM comms ORDER BY rank") == [
        (rank, rank, 4, "0", "default_pg") for rank in range(4)
    ]
    host = ("gpu017", 4711) if name.endswith("gz") else (None, None)
    assert rows(incident, "SELECT rank, node, pid, gpu FROM ranks") == [(0, *host, 3)]
    assert rows(incident, "SELECT kind, rank, rows, problem FROM recordings") == [
        ("kineto", 0, 1, None)
    ]


def test_a_batch_of_sends_shares_the_kernel_launched_after_it(
    tmp_path: Path, incident: Incident
) -> None:
    events = [
        call(1, 10, "send", Dst_Rank=1),
        call(2, 40, "recv", Src_Rank=3),
        launch(77, 70),
        kernel(80, 30, None, 77),
        launch(78, 90, tid=2),
        kernel(120, 30, None, 78),
    ]
    write(tmp_path, document(events))
    load([tmp_path], incident)
    assert rows(incident, "SELECT kind, op, seq, peer, group_id, started_ns FROM ops") == [
        ("p2p", "Send", 1, 1, 77, BASE_NS + 80_000),
        ("p2p", "Recv", 2, 3, 77, BASE_NS + 80_000),
    ]
    assert "kernels joined by when they were launched: 1" in note(incident)
    assert "NCCL kernels of no call in it (CUDA graphs?): 1" in note(incident)


def test_a_barrier_is_not_the_all_reduce_inside_it(tmp_path: Path, incident: Incident) -> None:
    outer = call(1, 10, "barrier", Seq=9) | {"dur": 100}
    write(tmp_path, document([outer, call(2, 20, Seq=9), kernel(50, 10, 2)]))
    load([tmp_path], incident)
    assert rows(incident, "SELECT seq, op, count, bytes, ended_ns FROM ops") == [
        (9, "Barrier", 0, 0, BASE_NS + 60_000)
    ]


def test_long_groups_are_made_whole(tmp_path: Path, incident: Incident) -> None:
    cut: dict[str, Any] = {
        "Process_Group_Name": "8",
        "Process_Group_Description": "DATA_PARALLEL_GROUP",
        "Process_Group_Ranks": "[0, 8, ..., 504]",
        "Group_size": 64,
        "Global_rank_start": 0,
        "Global_rank_stride": 8,
    }
    write(tmp_path, document([call(1, 10, **cut)]))
    load([tmp_path], incident)
    assert rows(
        incident,
        "SELECT count(*), max(rank), any_value(size) FROM comms WHERE role LIKE 'DATA%'",
    ) == [(64, 504, 64)]


def test_annotations_become_tasks_of_the_steps(tmp_path: Path, incident: Incident) -> None:
    events = [
        annotation("ProfilerStep#12", 0, 1000, 1),
        annotation("forward-compute", 10, 100, 2),
        annotation("forward-send", 120, 30, 3),
        annotation("forward-compute", 160, 100, 4),
        annotation("backward-compute", 300, 100, 5),
        annotation("backward-send", 410, 30, 6),
        annotation("optimizer", 500, 50, 7),
        annotation("some other thing", 600, 50, 8),
        annotation("forward-compute", 1200, 100, 9),
        event("gpu_user_annotation", "forward-compute", 39.999, 80.002, **{"External id": 2}),
        call(50, 125, "send", Dst_Rank=1),
    ]
    write(tmp_path, document(events))
    load([tmp_path], incident)
    assert rows(
        incident,
        f"SELECT iteration, task, micro_batch, peer, started_ns - {BASE_NS}, ended_ns - {BASE_NS}, "
        "source FROM stage_tasks ORDER BY started_ns",
    ) == [
        (12, "forward", 0, None, 40_000, 120_000, "recorded"),
        (12, "forward_send", 0, 1, 120_000, 150_000, "recorded"),
        (12, "forward", 1, None, 160_000, 260_000, "recorded"),
        (12, "backward", 0, None, 300_000, 400_000, "recorded"),
        (12, "optimizer", None, None, 500_000, 550_000, "recorded"),
    ]
    assert "the host's, not the device's" in note(incident)


def test_pipelining_tells_stage_chunk_and_micro_batch(tmp_path: Path, incident: Incident) -> None:
    names = ["PP:1F0", "PP:3F0", "PP:3B0", "PP:1B0"]
    steps = [annotation("ProfilerStep#3", 0, 1000, 1)]
    steps += [annotation(name, 100 * n, 50, n) for n, name in enumerate(names, 2)]
    write(tmp_path, document([*steps, call(50, 20)]))
    load([tmp_path], incident)
    assert rows(
        incident, "SELECT stage, chunk, task, micro_batch FROM stage_tasks ORDER BY started_ns"
    ) == [
        (1, 0, "forward", 0),
        (1, 1, "forward", 0),
        (1, 1, "backward", 0),
        (1, 0, "backward", 0),
    ]


def test_an_event_that_is_no_json_is_skipped(tmp_path: Path, incident: Incident) -> None:
    text = json.dumps(document([call(1, 10), annotation("X", 20, 5), call(2, 30)]), indent=1)
    write(
        tmp_path, text.replace('"X"', '"a "quoted" name"', 2).replace('"a "quoted" name"', '"X"', 1)
    )
    load([tmp_path], incident)
    assert rows(incident, "SELECT seq FROM ops ORDER BY seq") == [(1,), (2,)]
    assert "events skipped as they are not valid JSON: 1, " in note(incident)


def test_a_trace_of_another_job_is_refused(tmp_path: Path, incident: Incident) -> None:
    write(tmp_path, document([call(1, 10)]), "rank0.json")
    other = document([call(1, 10)], rank=1)
    other["distributedInfo"]["world_size"] = 8
    write(tmp_path, other, "rank1.json")
    with pytest.raises(BadInput, match=r"disagree about the job's size \(rank0.json: 4 ranks"):
        load([tmp_path], incident)


def test_a_trace_without_described_collectives_says_so(tmp_path: Path, incident: Incident) -> None:
    path = write(tmp_path, document([event("cpu_op", "aten::mm", 1, 2)]))
    with pytest.raises(BadInput, match="no collective is in it"):
        load([path], incident)


def nccl_kernel(name: str, at_us: float, stream: int, correlation: int) -> Event:
    said = {"device": 0, "stream": stream, "correlation": correlation}
    return event("kernel", name, at_us, 8, **said)


def test_before_pytorch_2_3_kernels_are_the_calls_in_their_order(
    tmp_path: Path, incident: Incident
) -> None:
    """No arguments of collectives, no distributedInfo, the base of times behind the events."""
    for rank in range(2):
        reported = document(
            [
                event("cpu_op", "record_param_comms", 5, 3),
                launch(7, 10),
                nccl_kernel(
                    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 20, 20 + rank, 7
                ),
                nccl_kernel("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", 40, 24, 8),
                nccl_kernel(
                    "ncclKernel_AllReduce_TREE_LL_Sum_float(ncclDevComm*)", 60, 20 + rank, 9
                ),
                nccl_kernel("ncclDevKernel_SendRecv(ncclDevComm*)", 80, 28, 10),
            ]
        )
        del reported["distributedInfo"], reported["baseTimeNanoseconds"]
        reported["baseTimeNanoseconds"] = BASE_NS
        write(tmp_path, reported, f"trace_rank_{rank}.json")
    load([tmp_path], incident)
    found = rows(
        incident,
        f"SELECT rank, name, seq, op, (enqueued_ns - {BASE_NS}) // 1000, "
        f"(ended_ns - {BASE_NS}) // 1000 "
        "FROM ops JOIN comms USING (comm, rank) ORDER BY rank, started_ns",
    )
    assert found == [
        (rank, *one)
        for rank in range(2)
        for one in (
            ("stream 1", 1, "AllReduce", 10, 28),
            ("stream 2", 1, "AllGather", 40, 48),
            ("stream 1", 2, "AllReduce", 60, 68),
        )
    ]
    assert rows(incident, "SELECT count(DISTINCT comm) FROM ops") == [(2,)]
    ((said,), _) = rows(incident, "SELECT note FROM recordings")
    assert "it describes no call: NCCL kernels are taken for the calls" in said


def test_operations_of_gloo_are_read_in_their_order(tmp_path: Path, incident: Incident) -> None:
    reported = [annotation("gloo:all_reduce", 10, 5), annotation("gloo:all_gather", 20, 5)]
    write(tmp_path, document(reported), "rank0.1795403152572127674.pt.trace.json")
    load([tmp_path], incident)
    assert rows(incident, "SELECT seq, op, duration_ns FROM ops ORDER BY seq") == [
        (1, "AllReduce", 5000),
        (2, "AllGather", 5000),
    ]
    assert rows(incident, "SELECT count(*) FROM comms") == [(4,)]


def test_kernels_of_deep_ep_are_counted(tmp_path: Path, incident: Incident) -> None:
    dispatch = event("kernel", "void deep_ep::intranode::dispatch<8>(int4*)", 30, 9, stream=7)
    write(tmp_path, document([call(1, 10), kernel(20, 5, 1), dispatch]))
    load([tmp_path], incident)
    assert "kernels of DeepEP, whose calls nothing describes: 1" in note(incident)


def test_behind_the_last_kernel_a_trace_on_demand_knows_nothing(
    tmp_path: Path, incident: Incident
) -> None:
    reported = document(
        [call(1, 10, Rank=1), call(2, 20, Rank=1), kernel(30, 5, 2), call(3, 40, Rank=1)]
    )
    reported["distributedInfo"] = reported.pop("distributedInfo")  # behind the events
    write(tmp_path, reported)
    load([tmp_path], incident)
    assert rows(incident, "SELECT seq, done, ended_ns IS NULL FROM ops ORDER BY seq") == [
        (1, True, True),
        (2, True, False),
    ]
    assert "as they may not have been over: 1" in note(incident)
    # What Kineto then writes as the rank may be the root of a broadcast; the calls know better.
    assert rows(incident, "SELECT rank FROM ranks") == [(1,)]


def test_windows_of_one_rank_add_up_and_repeats_do_not(tmp_path: Path, incident: Incident) -> None:
    def window(at_us: int) -> dict[str, Any]:
        return document([call(1, at_us, "send", Dst_Rank=1), call(at_us, at_us + 50)])

    for name, at_us in (("a.json", 1000), ("b.json", 2000), ("copy.json", 2000)):
        write(tmp_path, window(at_us), name)
    load([tmp_path], incident)
    assert rows(incident, "SELECT kind, seq FROM ops ORDER BY kind, seq") == [
        *(("coll", 1000), ("coll", 2000), ("p2p", 1), ("p2p", 2)),
    ]
    assert rows(incident, "SELECT problem FROM recordings WHERE path LIKE '%copy.json'") == [
        ("left out: b.json is of rank 0 at the same time",)
    ]


def test_folders_of_ranks_are_one_job_and_other_hours_another(
    tmp_path: Path, incident: Incident
) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}").mkdir()
        write(tmp_path / f"rank{rank}", document([call(1, 10.0 + rank)], rank))
    load([tmp_path], incident)
    assert rows(incident, "SELECT count(*), count(DISTINCT rank) FROM ops") == [(4, 4)]
    later = document([call(1, 10)], baseTimeNanoseconds=BASE_NS + 2 * 3600 * 10**9)
    (tmp_path / "rerun").mkdir()
    write(tmp_path / "rerun", later)
    with pytest.raises(BadInput, match="choose one with --job"):
        load([tmp_path], incident)


@pytest.mark.parametrize(
    "recorded",
    [
        {"baseTimeNanoseconds": 1 << 80},
        {"distributedInfo": {"rank": "none"}},
        {"distributedInfo": {"rank": 0, "world_size": 4, "pg_config": [{"ranks": [-1]}]}},
        {"distributedInfo": {"rank": 1 << 40}},
    ],
)
def test_a_header_that_no_profiler_writes_is_refused(
    tmp_path: Path, incident: Incident, recorded: dict[str, Any]
) -> None:
    path = write(tmp_path, document([call(1, 10)], **recorded))
    with pytest.raises(BadInput, match="not what the profiler writes"):
        load([path], incident)


def test_an_event_with_impossible_numbers_is_left_out(tmp_path: Path, incident: Incident) -> None:
    wrong = [call(1, 10, In_msg_nelems=1 << 70), call(2, 10**30), call(3, 10, Seq="x")]
    write(tmp_path, document([*wrong, call(4, 20)]))
    load([tmp_path], incident)
    assert rows(incident, "SELECT seq FROM ops") == [(4,)]
    assert "events left out as nothing describes them: 3" in note(incident)


def test_without_steps_the_optimizer_ends_an_iteration(tmp_path: Path, incident: Incident) -> None:
    names = ["forward-compute mb 0", "backward-compute mb 0"]
    names += ["optimizer", "Optimizer.step#AdamW.step", "Optimizer.step#AdamW.step"]
    events = [annotation(name, 10 * n, 5, n) for n, name in enumerate(names * 2, 1)]
    write(tmp_path, document([*events, call(50, 5)]))
    load([tmp_path], incident)
    assert rows(
        incident, "SELECT iteration, task, micro_batch FROM stage_tasks ORDER BY started_ns"
    ) == [
        (iteration, task, of)
        for iteration in (0, 1)
        for task, of in (("forward", 0), ("backward", 0), ("optimizer", None))
    ]
    assert "counted by the optimizer's steps" in note(incident)


def test_the_events_alone_are_a_trace(tmp_path: Path, incident: Incident) -> None:
    write(tmp_path, [call(1, 10), call(2, 30)])
    load([tmp_path], incident)
    assert rows(incident, "SELECT rank, seq FROM ops ORDER BY seq") == [(0, 1), (0, 2)]


def test_a_byte_order_mark_is_no_part_of_a_trace(tmp_path: Path, incident: Incident) -> None:
    write(tmp_path, "\ufeff" + json.dumps(document([call(1, 10), call(2, 30)])))
    load([tmp_path], incident)
    assert rows(incident, "SELECT seq FROM ops ORDER BY seq") == [(1,), (2,)]


@pytest.mark.parametrize("end", ['"args": {"Seq', '"args"', '"args": {', '"args": {"Seq": 3,'])
def test_a_trace_that_is_cut_ends_early(tmp_path: Path, incident: Incident, end: str) -> None:
    text = json.dumps(document([call(1, 10), call(2, 30), call(3, 50)]))
    write(tmp_path, text[: text.rindex('"args"')] + end)
    load([tmp_path], incident)
    assert "torn after 2 events: the file ends early, at character" in note(incident)
