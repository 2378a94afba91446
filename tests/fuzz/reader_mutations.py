"""Recordings of every kind, damaged by chance or by malice, and what reading them may end in.

    python tests/fuzz/reader_mutations.py --seeds 0-9999 [--data FOLDER]

`checked(seeds, samples())` damages a sample for each seed and reads it as `oncall diagnose` does.
It may be read, or refused by BadInput, within ten seconds of CPU and two gigabytes; whatever else
happens is yielded. One seed makes one file, always the same.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import pickle
import random
import re
import resource
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load

MOST_CPU_S = 10.0
MOST_BYTES = 2 * 2**30
MOST_TEXT = 10_000  # characters of what is said of one recording
_MOST_SAMPLE_BYTES = 200_000  # of a file that is damaged again and again
_MOST_DAMAGED_BYTES = 2_000_000

FIXTURES = Path(__file__).parents[2] / "fixtures"


@dataclass(frozen=True)
class Sample:
    """A recording, one file of it damaged, the others beside it as they are."""

    name: str
    data: bytes
    beside: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Failure:
    """What must not happen, and the file that made it happen."""

    seed: int
    name: str
    problem: str
    data: bytes


# -------------------------------------------------------------------- samples


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
    yield Sample(
        "inspector.log", b"".join(json.dumps(_inspected(n)).encode() + b"\n" for n in range(8))
    )
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


# ------------------------------------------------------------------- damages

Damage = Callable[[random.Random, bytearray, Sequence[Sample]], bytes]
_NUMBERS = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483647", b"-2147483648", b"4294967296",
    b"9223372036854775807", b"-9223372036854775808", b"18446744073709551615", b"1" + b"0" * 30,
    b"9" * 5000, b"NaN", b"Infinity", b"-Infinity", b"1e308", b"1e-400", b"1.5", b"null", b'""',
    b"[]", b"{}", b"true", b'"\\ud800"', b"1000000", b"999999", b"0x7f", b"1e9",
)  # fmt: skip
_WORDS = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\ud800", b"\xe2\x80\xa8", b"[/]",
    b"'; DROP TABLE ops; --", b"../" * 10, b"\x1b[2J", b"a" * 70_000, b'"', b"{", b"[", b"\\",
)  # fmt: skip


def _flip(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    for _n in range(r.choice((1, 1, 2, 8, 64))):
        if data:
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    return bytes(data)


def _set(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    for _n in range(r.choice((1, 2, 8))):
        if data:
            data[r.randrange(len(data))] = r.choice((0, 255, 127, 128, r.randrange(256)))
    return bytes(data)


def _cut(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    return bytes(data[: r.randrange(len(data) + 1)])


def _drop(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    first, last = _span(r, data)
    return bytes(data[:first] + data[last:])


def _repeat(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    first, last = _span(r, data)
    times = r.choice((2, 3, 10, 100, 10_000))
    times = min(times, max(1, _MOST_DAMAGED_BYTES // max(1, last - first)))
    return bytes(data[:first] + data[first:last] * times + data[last:])


def _splice(r: random.Random, data: bytearray, all_samples: Sequence[Sample]) -> bytes:
    other = r.choice(all_samples).data
    first, last = _span(r, bytearray(other))
    at = r.randrange(len(data) + 1)
    return (
        bytes(data[:at]) + other[first:last] + bytes(data[at + (last - first) * r.randrange(2) :])
    )


def _number(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", bytes(data)))
    for one in sorted(
        r.sample(found, min(len(found), r.choice((1, 1, 3)))), key=lambda m: -m.start()
    ):
        data[one.start() : one.end()] = r.choice(_NUMBERS)
    return bytes(data)


def _every_number(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    """The same field everywhere: what a counter that broke would write."""
    keys = list(set(re.findall(rb'"\w+"\s*:', bytes(data))))
    key = r.choice(keys) if keys else b""
    return re.sub(re.escape(key) + rb"\s*-?\d+", lambda _m: key + r.choice(_NUMBERS), bytes(data))


def _key(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    keys = list(re.finditer(rb'"(\w+)"\s*:', bytes(data)))
    if keys:
        one, other = r.choice(keys), r.choice(keys)
        data[one.start(1) : one.end(1)] = r.choice((other[1], b"", b"x", other[1] * 2))
    return bytes(data)


def _nest(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    depth = r.choice((10, 500, 5000, 200_000))
    opening, closing = r.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"ph":', b"}"), (b"(", b"t")))
    at = r.randrange(len(data) + 1)
    inner = opening * depth + b"0" + closing * (depth if r.randrange(2) else 0)
    return bytes(data[:at]) + inner + bytes(data[at:])


def _word(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    at = r.randrange(len(data) + 1)
    data[at:at] = r.choice(_WORDS)
    return bytes(data)


def _integer(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    """A length or an offset in a binary format."""
    form = r.choice(("<I", "<Q", ">I", "<H"))
    count = struct.calcsize(form)
    if len(data) > count:
        value = r.choice((0, 1, 2 ** (8 * count) - 1, 2 ** (8 * count - 1), 2 ** (8 * count - 2)))
        struct.pack_into(form, data, r.randrange(len(data) - count), value)
    return bytes(data)


def _encode(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    text = bytes(data).decode("latin-1")
    return text.encode(r.choice(("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "utf-8")))


def _pack(r: random.Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    return gzip.compress(bytes(data) + bytes(r.choice((0, 10**6))), mtime=0) * r.choice((1, 2))


_DAMAGES: tuple[Damage, ...] = (
    _flip, _flip, _set, _cut, _drop, _repeat, _splice, _number, _number, _every_number, _key, _nest,
    _word, _integer, _encode, _pack,
)  # fmt: skip


def _span(r: random.Random, data: bytearray) -> tuple[int, int]:
    first = r.randrange(len(data) + 1)
    return first, min(len(data), first + r.choice((1, 4, 16, 64, 256, 1024, len(data))))


def damaged(seed: int, all_samples: Sequence[Sample]) -> Sample:
    """The file of a seed."""
    r = random.Random(seed)
    sample = r.choice(all_samples)
    data, packed = sample.data, sample.name.endswith(".gz") and not sample.name.endswith(".tar.gz")
    # Damage within what is packed would be found by its checksum alone.
    inside = packed and r.random() < 0.7
    data = gzip.decompress(data) if inside else data
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        data = r.choice(_DAMAGES)(r, bytearray(data), all_samples)[:_MOST_DAMAGED_BYTES]
    return Sample(sample.name, gzip.compress(data, mtime=0) if inside else data, sample.beside)


# --------------------------------------------------------------------- checks


class Reader:
    """Reads damaged recordings into one incident, which is as empty as before after each: making
    its tables takes longer than reading into them."""

    def __init__(self) -> None:
        self._incident = Incident.empty()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._incident.close()

    def check(self, seed: int, all_samples: Sequence[Sample]) -> Failure | None:
        """Read the file of a seed; what must not happen, if it did."""
        sample = damaged(seed, all_samples)
        before_bytes, before_s = _most_bytes(), time.process_time()
        problem = self.read(sample)
        spent_s, grown = time.process_time() - before_s, _most_bytes() - before_bytes
        if problem is None and spent_s > MOST_CPU_S:
            problem = f"took {spent_s:.1f} s of CPU"
        if problem is None and grown > MOST_BYTES:
            problem = f"took {grown >> 20} MiB"
        return None if problem is None else Failure(seed, sample.name, problem, sample.data)

    def read(self, sample: Sample) -> str | None:
        """What must not happen when a sample is read, if it did."""
        con = self._incident.con
        with _written(sample) as place:
            con.begin()
            try:
                load([place], self._incident)
                return self._amiss()
            except BadInput as error:
                return None if str(error).isprintable() else "an error that cannot be printed"
            except BaseException:
                return traceback.format_exc(limit=-6)
            finally:
                con.rollback()

    def kinds(self, sample: Sample) -> set[str]:
        """The kinds of recordings that a sample is read as, without a problem."""
        con = self._incident.con
        with _written(sample) as place, suppress(BadInput):
            con.begin()
            try:
                load([place], self._incident)
                rows = con.execute("SELECT kind FROM recordings WHERE problem IS NULL AND rows > 0")
                return {kind for (kind,) in rows.fetchall()}
            finally:
                con.rollback()
        return set()  # one file of a simulation alone tells nothing

    def _amiss(self) -> str | None:
        """What no recording may leave in the evidence."""
        rows = self._incident.con.execute("SELECT path, problem, note FROM recordings").fetchall()
        if not rows or any(path is None for path, *_ in rows):
            return "nothing says what was read"
        texts = [text for row in rows for text in row[1:] if text is not None]
        return None if all(len(text) < MOST_TEXT for text in texts) else "a problem without end"


@contextmanager
def _written(sample: Sample) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oncall-fuzz-") as folder:
        place = Path(folder, "job")
        place.mkdir()
        for name, data in (*sample.beside, (sample.name, sample.data)):
            (place / name).write_bytes(data)
        yield place


def _most_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def checked(seeds: Iterable[int], all_samples: Sequence[Sample]) -> Iterator[Failure]:
    """The failures among the files of these seeds."""
    with Reader() as reader:
        for seed in seeds:
            failure = reader.check(seed, all_samples)
            if failure is not None:
                yield failure


def main() -> None:
    """Check a span of seeds, and print what fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-999", help="FIRST-LAST")
    parser.add_argument("--data", type=Path, help="a folder with more recordings")
    parser.add_argument("--keep", type=Path, help="a folder for the files that fail")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    found, failures = samples(options.data), 0
    for failure in checked(range(first, last + 1), found):
        failures += 1
        print(f"seed {failure.seed} {failure.name}: {failure.problem}", flush=True)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{failure.seed}-{failure.name}").write_bytes(failure.data)
    print(f"{last - first + 1:,} damaged recordings of {len(found)} samples, {failures} failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
