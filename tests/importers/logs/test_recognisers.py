# ruff: noqa: E501 - lines of logs as programs print them
"""What single lines say, in the forms of the versions that print them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.importers.logs.single_lines import found_in, only

TIMEOUT = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, "
    "{}Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
)
NUMEL = "NumelIn=40, NumelOut=40, "


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[E ProcessGroupNCCL.cpp:737] [Rank 1] " + TIMEOUT.format(""), 1),
        ("[rank9]:[E ProcessGroupNCCL.cpp:523] [Rank 1] " + TIMEOUT.format(NUMEL), 9),
        (
            "[rank9]:[E816 01:45:40.183009389 ProcessGroupNCCL.cpp:607] [Rank 1] "
            + TIMEOUT.format(NUMEL),
            9,
        ),
        (
            "2026-03-11T04:41:20.911Z [pod/w-3/main] [rank9]:[E311 04:41:20.183009389 P.cpp:6] [Rank 1] "
            + TIMEOUT.format(NUMEL),
            9,
        ),
        (
            "\x1b[36m(Trainer pid=21, ip=10.1.2.3)\x1b[0m [rank9]:[E816 01:45:40.183009389 P.cpp:6] [Rank 1] "
            + TIMEOUT.format(NUMEL),
            9,
        ),
        ("12: [rank9]:[E816 01:45:40.183009389 P.cpp:6] [Rank 1] " + TIMEOUT.format(NUMEL), 9),
        ("gpu004: [rank9]:[E816 01:45:40.183009389 P.cpp:6] [Rank 1] " + TIMEOUT.format(NUMEL), 9),
        (
            "[default1]:[rank9]:[E816 01:45:40.183009389 P.cpp:6] [Rank 1] "
            + TIMEOUT.format(NUMEL),
            9,
        ),
        ("[61220] [rank9]:[E816 01:45:40.183009389 P.cpp:6] [Rank 1] " + TIMEOUT.format(NUMEL), 9),
        (
            " 38%|███▊      | 7611/20000 [2:10:44<3:33:01\r[rank9]:[E816 01:45:40.1 P.cpp:6] [Rank 1] "
            + TIMEOUT.format(NUMEL),
            9,
        ),
        (
            "[rank9]:[E816 01:45:40.183009389 P.cpp:6] [Rank 1] Watchdog caught collective operation timeout:\n"
            "  WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=40,\n"
            "  NumelOut=40, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.",
            9,
        ),
    ],
)
def test_a_timeout_in_all_its_forms_and_behind_all_prefixes(
    text: str, rank: int, tmp_path: Path
) -> None:
    rows = [found for _, found in found_in(text, tmp_path) if found.table == "watchdog_reports"]
    (row,) = rows
    line_rank = row.columns["rank"]
    assert (line_rank, row.columns["seq"], row.columns["op"]) == (rank, 77, "ALLREDUCE")
    assert row.columns["waited_ns"] == 600_020 * 10**6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[rank2]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 2] Timeout at NCCL work: 5, last enqueued NCCL work: 6, last completed NCCL work: 3904955349522264369.",
            (2, "0", 5, 6, None, -1),
        ),
        (
            "[rank3]:[E801 10:00:00.1 P.cpp:1] [PG 0 (default_pg) Rank 3] Exception (either an error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last completed NCCL work: 807.",
            (3, "0 (default_pg)", 808, 811, None, 807),
        ),
        (
            "[rank13]:[E801 10:00:00.1 P.cpp:1] [PG ID 1 PG GUID 37(mesh_ep) Rank 5]  failure detected by watchdog at work sequence id: 808 PG status: last enqueued work: 811, last completed work: 807",
            (13, "37 (mesh_ep)", 808, 811, None, 807),
        ),
        (
            "[rank13]:[E801 10:00:00.1 P.cpp:1] [PG ID 1 PG GUID 37(mesh_ep) Rank 5]  failure detected by watchdog at work sequence id: 808 PG status: last enqueued work: 811, last started work: 809 (_ALLGATHER_BASE), last completed work: 807",
            (13, "37 (mesh_ep)", 808, 811, 809, 807),
        ),
    ],
)
def test_the_status_of_a_group(text: str, expected: tuple[Any, ...], tmp_path: Path) -> None:
    _, row = only(text, tmp_path)
    names = ("rank", "process_group", "seq", "enqueued", "started", "completed")
    assert tuple(row.get(name) for name in names) == expected


def test_a_dump_signal_says_how_far_the_rank_came(tmp_path: Path) -> None:
    _, row = only(
        "[rank5]:[E801 10:00:00.1 P.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal "
        "due to a collective timeout from  rank 2 and we will try our best to dump the debug info. Last "
        "enqueued NCCL work: 136, last completed NCCL work: 136.This is most likely caused by wrong sizes",
        tmp_path,
    )
    assert (row["kind"], row["rank"], row["enqueued"], row["completed"]) == (
        "remote_dump",
        5,
        136,
        136,
    )


@pytest.mark.parametrize(
    ("text", "kind", "code", "more"),
    [
        (
            "     [5] finished collective #228, but didn't join collective #229 (count from 1)",
            "desync",
            "absent",
            {"rank": 5, "seq": 229},
        ),
        (
            "RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 30000 ms",
            "desync",
            "absent",
            {"rank": 3},
        ),
        (
            "DistStoreError: Timed out after 901 seconds waiting for clients. 1/3 clients joined.",
            "init",
            "clients",
            {"number": 3},
        ),
        (
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)",
            "init",
            "barrier",
            {"number": 8},
        ),
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500).",
            "init",
            "connect",
            {"peer_host": "10.0.0.1"},
        ),
        (
            "n5:3:3 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.4.0.4<50122> returned 113(No route to host) errno 115",
            "init",
            "connect",
            {"peer_host": "10.4.0.4"},
        ),
        (
            "n5:3:3 [6] NCCL INFO socketPollConnect: connect returned Connection refused, retrying (26/34) after sleep for 2600 msec",
            "init",
            "connect",
            {},
        ),
        (
            "[11] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
            "init",
            "store_get",
            {},
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.06 GiB. GPU 2 has a total capacity of 79.25 GiB",
            "memory",
            "gpu",
            {},
        ),
        ("  what():  CUDA error: uncorrectable ECC error encountered", "cuda", "ecc", {}),
        (
            "[rank4]:[E801 10:00:00.1 P.cpp:1] [PG 0 Rank 4] Process group watchdog thread terminated with exception: CUDA error: unspecified launch failure",
            "cuda",
            "gpu",
            {},
        ),
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "cuda",
            "illegal_access",
            {},
        ),
        ("RuntimeError: CUDA error: device-side assert triggered", "cuda", "assert", {}),
        ("[rank1]: KeyError: 'input_ids'", "error", "KeyError", {}),
        (
            "[rank0]: torch.distributed.DistBackendError: NCCL error in: ../x.cpp:93, unhandled system error",
            "error",
            "DistBackendError",
            {},
        ),
        (
            "RuntimeError: DataLoader worker (pid 30882) is killed by signal: Bus error.",
            "error",
            "DataLoaderWorker",
            {},
        ),
        ("Segmentation fault (core dumped)", "crash", None, {}),
        (
            "slurmstepd: error: *** JOB 16 ON node1 CANCELLED AT 2021-05-27T21:42:11 DUE TO TIME LIMIT ***",
            "scheduler",
            "time_limit",
            {},
        ),
        (
            "slurmstepd: error: *** STEP 16.0 ON node1 CANCELLED AT 2021-05-27T21:42:11 DUE TO PREEMPTION ***",
            "scheduler",
            "preempted",
            {},
        ),
        (
            "slurmstepd: error: *** JOB 16 ON node1 CANCELLED AT 2021-05-27T21:42:11 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
            "scheduler",
            "node_failure",
            {},
        ),
        ("srun: error: gpu-17: task 9: Killed", "exit", "-9", {"node": "gpu-17", "rank": 9}),
        ("Killed", "exit", "-9", {}),
        ("Aborted (core dumped)", "exit", "-6", {}),
        (
            "job.sh: line 3: 4711 Killed                  python train.py",
            "exit",
            "-9",
            {"pid": 4711},
        ),
        (
            "/var/spool/slurmd/job4711/slurm_script: line 14:   815 Terminated              srun python train.py",
            "exit",
            "-15",
            {"pid": 815},
        ),
        ("srun: error: gpu-17: task 9: Exited with exit code 1", "exit", "1", {"node": "gpu-17"}),
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup.",
            "memory",
            "host",
            {},
        ),
        ("x3006c0s1: rank 4 died from signal 6 and dumped core", "exit", "-6", {"rank": 4}),
        (
            "E0412 09:50:32.104000 88110 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 1 (pid: 88176) of binary: python",
            "exit",
            "-9",
            {"local_rank": 1, "pid": 88176},
        ),
        (
            "n2:57:59 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer n48<37948> with error 12, opcode 0, len 0, vendor err 129 (Recv)",
            "ib",
            "12",
            {"peer_host": "n48"},
        ),
        (
            "n2:57:59 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.6.8.4<40213> with status=12 opcode=1 len=0 vendor err 129 (Send) localGid ::ffff:10.61.4.19 remoteGids::ffff:10.61.88.41 hca mlx5_3",
            "ib",
            "12",
            {"peer_host": "10.6.8.4", "device": "mlx5_3"},
        ),
        (
            "n2:57:59 [0] transport/net_ib/p2p.cc:12 NCCL WARN NET/IB: Got completion from peer 10.6.8.4<40213> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 Send localGid x remoteGids y hca mlx5_3",
            "ib",
            "12",
            {"peer_host": "10.6.8.4"},
        ),
        (
            "n2:57:59 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error",
            "port",
            "port_error",
            {},
        ),
        (
            "n2:57:59 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_3:1 Got async error event: port error",
            "port",
            "port_error",
            {"device": "mlx5_3"},
        ),
        (
            "n2:57:59 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)",
            "port",
            "port_error",
            {"device": "mlx5_3"},
        ),
        (
            "n2:57:59 [0] misc/socket.cc:1 NCCL WARN NET/Socket : peer 10.1.1.1<5> message truncated : receiving 524288 bytes instead of 65536",
            "mismatch",
            "sizes",
            {"peer_host": "10.1.1.1"},
        ),
        (
            "  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= "
            "op.nbytes. 55584 vs 4. Received data size doesn't match expected size.",
            "mismatch",
            "sizes",
            {"text": "A rank received 55584 bytes from a peer where it expected 4"},
        ),
        (
            "n2:57:59 [0] bootstrap.cc:1 NCCL WARN Message truncated : received 256 bytes instead of 4",
            "version",
            "bootstrap",
            {},
        ),
        (
            "[2025-05-11 02:14:36] n2:57:59 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the operation cannot be performed in the present state'",
            "nvls",
            "failed",
            {},
        ),
        (
            "n2:57:59 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
            "net",
            "gdr_disabled",
            {"device": "mlx5_0"},
        ),
        (
            "n2:57:59 [0] NCCL INFO Channel 00/0 : 10[2] -> 2[2] [receive] via NET/IB/2/GDRDMA",
            "net",
            "channel_gdr",
            {},
        ),
        (
            "n2:57:59 [0] NCCL INFO ncclCommInitRank comm 0x55e8f1 rank 24 nranks 64 cudaDev 0 nvmlDev 0 busId 9b000 commId 0x71d0be44c19e2f05 - Init START",
            "nccl_init",
            "start",
            {"comm_rank": 24, "number": 64, "device": "0000:9b:00.0"},
        ),
        (
            "[  123.456789] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "xid",
            "79",
            {"device": "0000:9b:00.0"},
        ),
        (
            "Jan  3 10:00:01 gpu7 kernel: NVRM: Xid (PCI:0000:9b:00): 48, pid=1, DBE",
            "xid",
            "48",
            {},
        ),
        (
            "[Sun Feb 23 16:24:18 2025] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
            "sxid",
            "20034",
            {},
        ),
        ("saving checkpoint at iteration   500 to /ckpt", "phase", "checkpoint", {}),
        (
            "  successfully saved checkpoint at iteration     500 to /ckpt",
            "phase",
            "checkpoint_done",
            {},
        ),
        ("***** Running Evaluation *****", "phase", "evaluation", {}),
        (
            "I1123 03:00:43.000000 123 torch/distributed/elastic/agent/server/api.py:910] [default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
            "phase",
            "finished",
            {},
        ),
        (
            "INFO:torch.distributed.elastic.agent.server.api:Local worker group finished (WorkerState.SUCCEEDED). Waiting 300 seconds for other agents to finish",
            "phase",
            "finished",
            {},
        ),
        ("Job 'raysubmit_k1yZJn4sMDyPqbdR' succeeded", "phase", "finished", {}),
        (
            "2026-05-12 09:14:51,331\tSUCC cli.py:63 -- Job 'raysubmit_k1yZJn4sMDyPqbdR' succeeded",
            "phase",
            "finished",
            {},
        ),
        ("Successfully completed.", "phase", "finished", {}),
    ],
)
def test_what_a_line_says(
    text: str, kind: str, code: str | None, more: dict[str, Any], tmp_path: Path
) -> None:
    _, row = only(text, tmp_path)
    assert (row["kind"], row.get("code")) == (kind, code)
    assert {name: row.get(name) for name in more} == more


@pytest.mark.parametrize(
    "text",
    [
        "[rank0]:[W801 10:00:00.1 P.cpp:1] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 as device used by this process is currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect.",
        "[W socket.cpp:697] [c10d] The client socket has failed to connect to [::ffff:10.0.0.1]:29500 (errno: 110 - Connection timed out).",
        "Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
        "n2:57:59 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.",
        "n2:57:59 [0] NCCL INFO PROFILER/Plugin: Could not find: libnccl-profiler.so.",
        "n2:57:59 [0] NCCL INFO NVLS multicast support is not available on dev 1",
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 71 closing signal SIGTERM",
    ],
)
def test_lines_that_look_bad_say_nothing(text: str, tmp_path: Path) -> None:
    assert found_in(text, tmp_path) == []


def test_the_summary_of_an_agent_places_its_rank(tmp_path: Path) -> None:
    rows = found_in(
        "Root Cause (first observed failure):\n[0]:\n  time      : 2024-03-05_07:01:51\n"
        "  host      : vm-gpu01\n  rank      : 13 (local_rank: 5)\n  exitcode  : -9 (pid: 812)\n",
        tmp_path,
    )
    columns = rows[0][1].columns
    assert (columns["rank"], columns["node"], columns["code"]) == (13, "vm-gpu01", "-9")


def test_a_stack_shows_the_loader(tmp_path: Path) -> None:
    rows = found_in(
        'Thread 514 (idle): "MainThread"\n    wait (threading.py:306)\n    get (queue.py:179)\n'
        "    _try_get_data (torch/utils/data/dataloader.py:1011)\n    train (train.py:9)\n",
        tmp_path,
    )
    ((_, found),) = rows
    assert (found.table, found.columns["pid"]) == ("thread_stacks", 514)
    assert found.columns["frames"][2] == "_try_get_data at torch/utils/data/dataloader.py:1011"


def test_stamps_without_a_year_lie_before_the_file(tmp_path: Path) -> None:
    line, _ = only(
        "[rank0]:[E1206 18:44:12.715298746 P.cpp:1] [Rank 0] " + TIMEOUT.format(NUMEL), tmp_path
    )
    assert line.at_ns is not None
    assert line.at_ns // 10**9 == 1_765_046_652  # December of the year before the file's May


@pytest.mark.parametrize(
    ("work", "op", "elements"),
    [
        ("OpType=ALLREDUCE, TensorShape=[8, 5], ", "ALLREDUCE", (40, 40)),
        ("SeqNum=77, OpType=_ALLGATHER_BASE, TensorShape=[64], ", "_ALLGATHER_BASE", (None, 64)),
        ("SeqNum=77, OpType=BROADCAST, TensorShape=[], ", "BROADCAST", (1, 1)),
    ],
)
def test_timeouts_before_2_1_state_a_shape(
    work: str, op: str, elements: tuple[int | None, int], tmp_path: Path
) -> None:
    said = (
        f"[E ProcessGroupNCCL.cpp:587] [Rank 1] Watchdog caught collective operation timeout: "
        f"WorkNCCL({work}Timeout(ms)=1800000) ran for 1800312 milliseconds before timing out."
    )
    _, found = only(said, tmp_path)
    assert (found["op"], found.get("elements_in"), found["elements_out"]) == (op, *elements)
    assert found["timeout_ns"] == 1_800 * 10**9


def test_each_side_of_a_mismatch_has_its_own_call(tmp_path: Path) -> None:
    def call(op: str) -> str:
        tensor = "TensorShape=[4], TensorDtypes=Int, TensorDeviceTypes=T(dtype=float (default)))"
        return f"collective: CollectiveFingerPrint(SequenceNumber=9, OpType={op}, {tensor}"

    said = (
        f"RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running "
        f"{call('BROADCAST')}, but Rank 0 is running {call('ALLREDUCE')}."
    )
    rows = [one.columns for _, one in found_in(said, tmp_path)]
    assert {row["rank"]: row["text"] for row in rows} == {2: "BROADCAST [4]", 0: "ALLREDUCE [4]"}


def test_the_first_line_of_a_traceback_names_the_rank_of_the_others(tmp_path: Path) -> None:
    log = (
        "2025-01-09 09:21:10.000 s1 ERROR [rank5] Traceback (most recent call last):\n"
        '  File "/src/run.py", line 77, in step\n'
        "ValueError: a sequence too long\n"
    )
    rows = [(line.rank, one.columns["code"]) for line, one in found_in(log, tmp_path)]
    assert rows[0] == (5, "ValueError")


TABLE = """{0}# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
{0}#  Rank  0 Group  0 Pid  32221 on    gpu001 device  0 [0x1b] NVIDIA H100 80GB HBM3
{0}#                                                              out-of-place                       in-place
{0}#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
{0}#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{0}      131072         32768     float     {1}      -1    20.22    6.48   12.15      0    18.01    7.28   13.65      0
{0}   134217728      33554432     float     {1}      -1   1301.1  103.16  193.42      0      N/A     N/A     N/A    N/A
{0}# Out of bounds values : {2}
{0}# Avg bus bandwidth    : 96.1
"""


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:"])
@pytest.mark.parametrize(
    ("redop", "test", "code"),
    [
        ("sum", "", "sum -1 float"),
        ("none", "", "- float"),
        ("none", "$ mpirun ./build/alltoall_perf -b 8 -e 128M\n", "alltoall_perf float"),
    ],
)
def test_tables_of_nccl_tests(
    prefix: str, redop: str, test: str, code: str, tmp_path: Path
) -> None:
    text = test + TABLE.format(prefix, redop, "0 OK")
    found = [row.columns for _, row in found_in(text, tmp_path)]
    assert (found[0]["code"], found[0].get("node")) == ("host", "gpu001")
    assert [(one["code"], one["seq"], one["number"]) for one in found[1:] if "seq" in one] == [
        (code, 131072, 12150),
        (code, 134217728, 193420),
    ]


def test_results_of_a_test_that_were_wrong(tmp_path: Path) -> None:
    *_, (_, found) = found_in(TABLE.format("", "sum", "3 FAILED"), tmp_path)
    assert found.columns["kind"] == "error"
    assert found.columns["text"] == "Out of bounds values : 3 FAILED"
