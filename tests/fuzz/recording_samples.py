"""A small recording of every kind that is read: what the fuzzer damages.

A recording of a new kind goes into `_made`, or under fixtures/ and into `_fixtures`.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

_MOST_SAMPLE_BYTES = 200_000  # of a file that is damaged again and again

FIXTURES = Path(__file__).parents[2] / "fixtures"


@dataclass(frozen=True)
class Sample:
    """A recording, one file of it damaged, the others beside it as they are."""

    name: str
    data: bytes
    beside: tuple[tuple[str, bytes], ...] = ()


def samples(data: Path | None = None) -> list[Sample]:
    """One sample at least of each format, and all small files under `data`, if it is there."""
    found = [*_made(), *_fixtures()]
    if data is not None and data.is_dir():
        for path in sorted(data.rglob("*")):
            if path.is_file() and path.stat().st_size <= _MOST_SAMPLE_BYTES:
                found.append(Sample(path.name, path.read_bytes()))
    return found


def _fixtures() -> Iterator[Sample]:
    folder = FIXTURES / "flight_recorder" / "not_entered"
    files = sorted(folder.iterdir())
    beside = tuple((path.name, path.read_bytes()) for path in files[1:3])
    yield Sample(files[0].name, files[0].read_bytes(), beside)
    yield Sample("rank0.txt", (FIXTURES / "stacks" / "loader" / "rank0.txt").read_bytes())


def _made() -> Iterator[Sample]:
    dump = _dump()
    text, pickled = json.dumps(dump).encode(), pickle.dumps(dump, protocol=2)
    yield Sample("fr_trace_rank_0", pickled, (("fr_trace_rank_1", pickled),))
    yield Sample("fr_trace_rank_0.json", text)
    trace = json.dumps(_trace(), indent=1).encode()
    yield Sample("rank0.pt.trace.json", trace)
    yield Sample("rank0.pt.trace.json.gz", gzip.compress(trace, mtime=0))
    yield Sample("ras.json", json.dumps(_ras()).encode())
    yield Sample("ras.txt", _RAS_TEXT.encode())
    yield Sample("diag.txt", _DIAGNOSTICS)
    yield Sample("xpu_timer.prom", _XPU_TIMER)
    yield Sample("clog_rank0.log", _CLOG)
    yield Sample(
        "inspector.log", b"".join(json.dumps(_inspected(n)).encode() + b"\n" for n in range(8))
    )
    yield Sample("metrics.json", json.dumps(_inspected_otlp()).encode() + b"\n")
    yield Sample("rank0.log", b"".join(_megatrace(n) for n in range(20)))
    yield Sample("slurm-4711.out", (FIXTURES / "logs" / "slurm-4711.out").read_bytes())
    yield Sample("pfc.txt", b"100 5 1 2 1\n200 5 1 2 0\n")
    yield Sample("topology.txt", b"4 2 3\n2 3\n0 2 100Gbps 1us\n1 3 100Gbps 1us\n2 3 400Gbps 1us\n")
    yield Sample("fct.txt", _FCT, (("topology.txt", b"4 2 1\n2 3\n0 2 100Gbps 1us\n"),))
    yield Sample("telemetry_5.txt", _TELEMETRY)
    yield Sample("leaf3.pfc.txt", _PFC)
    yield Sample("gpu1.eth0.txt", _ETHTOOL)
    yield Sample("node01.dmesg.txt", _DMESG, (("node01.ibstat.txt", _IBSTAT),))
    yield Sample("node01.nvidia-smi-q.txt", _NVIDIA_SMI)
    yield Sample("switch_ports.csv", _SWITCH_PORTS)
    yield Sample("switch_ports.parquet", _parquet(_SWITCH_PORTS))
    yield Sample("trace1.csv", _STRAGGLER, (("meta1.yaml", _META),))
    yield Sample("trace1.csv.gz", gzip.compress(_STRAGGLER, mtime=0))
    yield Sample("trace1.parquet", _parquet(_STRAGGLER))
    yield Sample("meta1.yaml", _META, (("trace1.csv", _STRAGGLER),))
    yield Sample("dumps.zip", _zip(pickled))
    yield Sample("dumps.tar", _tar(pickled, "w"))
    yield Sample("dumps.tar.gz", _tar(pickled, "w:gz"))
    yield Sample("dumps.tar.xz", _tar(pickled, "w:xz"))


def _dump() -> dict[str, object]:
    def entry(n: int) -> dict[str, object]:
        p2p = n % 5 == 4
        return {
            "record_id": n, "pg_id": 0, "process_group": ("0", "default_pg"),
            "collective_seq_id": n + 1, "p2p_seq_id": n if p2p else 0, "op_id": n + 1,
            "profiling_name": "nccl:send 0->1" if p2p else "nccl:all_reduce",
            "time_created_ns": 1_760_000_000_000_000_000 + n * 10**6,
            "input_sizes": [[4, 8]], "input_dtypes": ["Float"],
            "output_sizes": [[4, 8]], "output_dtypes": ["Float"],
            "state": "completed" if n < 8 else "scheduled", "duration_ms": 1.5,
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": 1_760_000_000_000_500_000 if n < 8 else None,
            "retired": n < 8, "timeout_ms": 600000, "is_p2p": p2p,
            "frames": [{"name": "step", "filename": "train.py", "line": 12}],
        }  # fmt: skip

    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": 10,
                "last_started_collective": 10,
                "last_completed_collective": 8,
            }
        },
        "entries": [entry(n) for n in range(10)],
    }


def _trace() -> dict[str, object]:
    def call(n: int) -> list[dict[str, object]]:
        args = {
            "External id": n, "Collective name": "allreduce", "dtype": "Float", "Seq": n,
            "In msg nelems": 4, "Group size": 4, "Process Group Name": "0",
            "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2, 3]",
        }  # fmt: skip
        at = 1000.5 + 10 * n
        return [
            {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 2,
             "ts": at, "dur": 3, "args": args},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2,
             "ts": at, "dur": 1, "args": {"correlation": n, "External id": n}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7,
             "ts": at + 2, "dur": 5.25, "args": {"External id": n, "correlation": n, "stream": 7,
                                                 "device": 0}},
            {"ph": "X", "cat": "user_annotation", "name": "forward-compute", "pid": 1, "tid": 2,
             "ts": at, "dur": 3, "args": {"External id": n}},
        ]  # fmt: skip

    return {
        "schemaVersion": 1,
        "deviceProperties": [],
        "distributedInfo": {
            "backend": "nccl",
            "rank": 0,
            "world_size": 4,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]}],
        },
        "baseTimeNanoseconds": 1_760_000_000_000_000_000,
        "traceEvents": [event for n in range(1, 9) for event in call(n)],
    }


def _ras() -> dict[str, object]:
    ranks = [
        {"rank": n, "host": f"gpu{n}", "pid": 100 + n, "cuda_dev": 0, "nvml_dev": 0,
         "status": {"init_state": 0, "async_error": 0, "finalize_called": False,
                    "destroy_flag": False, "abort_flag": False},
         "collective_counts": {"Broadcast": 0, "AllReduce": 10 + n}}
        for n in range(4)
    ]  # fmt: skip
    missing = [{"rank": 4, "host": "gpu4", "pid": 104, "status": {"unresponsive": True}}]
    return {
        "nccl_version": "2.28.7", "timestamp": "2026-01-01 00:00:00", "communicators_count": 1,
        "communicators": [{"hash": "0x1a", "size": 5, "ranks_count": 4, "missing_ranks_count": 1,
                           "ranks": ranks, "missing_ranks": missing}],
    }  # fmt: skip


def _inspected(n: int) -> dict[str, object]:
    return {
        "header": {"id": "0x7f8c", "comm_name": "tp", "rank": n % 2, "n_ranks": 2, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "pid": 5, "hostname": "h",
                     "dump_timestamp_us": 1748030377748202},
        "coll_perf": {"coll": "AllReduce", "coll_sn": n // 2, "coll_msg_size_bytes": 1024,
                      "coll_exec_time_us": 61},
    }  # fmt: skip


def _inspected_otlp() -> dict[str, object]:
    def point(gpu: int, number: int) -> dict[str, object]:
        device = {"node": "h", "gpu": f"GPU{gpu}", "comm_id": "0x7f8c", "nranks": "2"}
        call = {"collective": "AllReduce", "coll_sn": f"{number}", "algo_proto": "RING_LL"}
        named = [
            {"key": key, "value": {"stringValue": value}} for key, value in (device | call).items()
        ]
        return {"attributes": named, "timeUnixNano": "1748030377748202000", "asDouble": 61}

    points = [point(gpu, number) for gpu in range(2) for number in range(4)]
    metric = {
        "name": "nccl_collective_exec_time_microseconds",
        "gauge": {"dataPoints": points},
    }
    scope = {"scope": {"name": "nccl-inspector"}, "metrics": [metric]}
    return {"resourceMetrics": [{"resource": {}, "scopeMetrics": [scope]}]}


def _megatrace(n: int) -> bytes:
    at = f"17681217{n:02}.082548236"
    return (
        f"[10.0.0.1] [node1] [save_count {n}] [{at}] [Rank {n % 2}] [Func AllReduce] [Data 8] "
        f"[stream 0x5] [opCount {n // 2}] [groupHash 0x8e]\n"
    ).encode()


def _parquet(csv: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as con:
        Path(folder, "in.csv").write_bytes(csv)
        con.execute(f"COPY (FROM read_csv('{folder}/in.csv')) TO '{folder}/out.parquet'")
        return Path(folder, "out.parquet").read_bytes()


def _zip(dump: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for rank in range(3):
            packed.writestr(zipfile.ZipInfo(f"dumps/rank_{rank}"), dump)
    return out.getvalue()


def _tar(dump: bytes, mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
        for rank in range(3):
            member = tarfile.TarInfo(f"dumps/rank_{rank}")
            member.size = len(dump)
            tar.addfile(member, io.BytesIO(dump))
    return out.getvalue()


_RAS_TEXT = """NCCL version 2.27.5 compiled with CUDA 12.9

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          1            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         1         4         4   RUNNING  MISMATCH

Errors
======

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  3 ranks have launched up to operation 6650
  1 rank has launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
"""
_FCT = b"".join(
    b"%d %d %d %d %d 1000 2000 65536 %d 900 700\n" % (n % 2, (n + 1) % 2, n // 2, 0, 0, 1000 + n)
    for n in range(6)
)
_TELEMETRY = b"""time 2000
polling
port telemetry data for port 1
enqQdepth pauseNum packetNum
 now 10 2 5
 last 3 0 4
flow telemetry data for port 1
"""
_DMESG = (
    b"[   86.000001] mlx5_core 0000:41:00.0 ens1f0np0: Link up\n"
    b"[Fri Nov 20 03:10:00 2026] NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off\n"
    b"Nov 20 03:10:00 gpu7 kernel: Out of memory: Killed process 2168 (python3)\n"
)
_IBSTAT = b"CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Down\n\t\tRate: 400\n"
_NVIDIA_SMI = (
    b"Timestamp : Fri Nov 20 03:10:00 2026\nAttached GPUs : 1\nGPU 00000000:18:00.0\n"
    b"    Product Name : NVIDIA H100\n    Remapped Rows\n        Pending : Yes\n"
    b"    Utilization\n        Gpu : 100 %\n"
)
_PFC = b"""admin@leaf3:~$ show pfc counters
     Port Rx    PFC0    PFC1    PFC2    PFC3    PFC4    PFC5    PFC6    PFC7
-----------  ------  ------  ------  ------  ------  ------  ------  ------
  Ethernet0       0       0       0   1,234       0       0       0       0
  Ethernet4       0       0       0       7       0       0       0     N/A
"""
_ETHTOOL = b"""$ ethtool -S eth0
NIC statistics:
     rx_prio3_pause: 12
     tx_prio3_pause: 5
     rx_discards_phy: 0
"""
_SWITCH_PORTS = b"""switch,port,at_ns,queue_bytes,paused,tx_bytes
SW1,1,1760000000000000000,1000,false,50000
SW1,2,1760000000000000000,0,true,70000
SW2,1,1760000001000000000,900000,false,90000
"""
_STRAGGLER = b"dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc\n" + b"".join(
    b"0,%d,%d,%d,%s-compute,%d.5,0.2,%d,0,%d,%d\n" % (r, r, s, way, 100 * s + m, m, m, r)
    for s in range(2) for r in range(2) for m in range(2) for way in (b"forward", b"backward")
)  # fmt: skip
_META = b"dp_size: 1\npp_size: 2\ntp_size: 1\ndsp_size: 1\nvpp_size: 1\nworld_size: 2\n"
_DIAGNOSTICS = b"""gpu7:4711 NCCL DIAG === RAS Diagnostics ===
gpu7:4711 NCCL DIAG [INFO] ECC: 3 uncorrected volatile errors on rank(s) {2} in comm 0x12
gpu7:4711 NCCL DIAG [INFO] NCCL environment: NCCL_ALGO=Ring on rank(s) {0,1,2}
gpu7:4711 NCCL DIAG [INFO] NCCL environment: NCCL_ALGO=Tree on rank(s) {3}
"""
_CLOG = b"""V|1|base_timestamp=1714234567.890
new_comm|comm=world|rank=0|world_size=2
split|parent=world|child=tp|ranks=0,1
C1|sig|all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f|comm=world
C1|Q|work_id=1|+0.001
C1|S|+0.002
C1|E|+0.005
C2|sig|send|in_count=8|out_count=0|dtype=bf16|peer=1|async_op=t|comm=tp
C2|Q|work_id=2|+0.010
G42|C1|Q|work_id=3|+1.000
G42|R1|C1|S|+2.001
G42|R1|C1|E|+2.004
WARN|graph replay event for an unknown graph
"""
_XPU_TIMER = b"""# TYPE XPU_TIMER_COMMON_HANG gauge
XPU_TIMER_COMMON_HANG{ip="10.0.0.1",job_name="j",local_rank="0",pod_name="p",rank="0"} 1
XPU_TIMER_COMMON_HANG{ip="10.0.0.1",job_name="j",local_rank="1",pod_name="p",rank="1"} 0
"""
