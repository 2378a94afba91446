"""What a gather costs: one busy node's digest, and whole fleets of simulated nodes.

    python benchmarks/gather.py [--nodes 8,64,256] [--seconds 600]

A node's evidence is made by SQL: 8 ranks, each on a tensor-parallel communicator within the node
and a data-parallel one across all nodes; 8 NICs with 8 priorities each, read 4 times a second, and
8 GPUs, 8 processes and the host once a second. The one node has every row, sealed every 30 s, as a
collector writes it; the nodes of a fleet have the candidates of such shards, which is all that a
digest reads. Every fleet is asked through real endpoint processes; these share this machine with
the console, so seconds are an upper bound, and the console's own CPU time is reported apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from oncall.evidence.columns import create_table_sql
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME
from oncall.fleet.ask import ask_fleet
from oncall.fleet.gather import Progress, Window
from oncall.fleet.local import AT_ONCE, LocalTransport
from oncall.node.store.catalog import nodes_in
from oncall.node.store.measured import READ
from oncall.node.store.shard_digest import ShardDigests
from oncall.node.store.wire import Request
from oncall.node.store.writer import LiveStore, Place
from oncall.rules.engine.starts import started_communicators
from oncall.rules.language.load import load_rulebooks, shipped_folder

BEGAN_NS = 1_767_225_600 * 10**9
SEAL_S = 30
RANKS = 8
TP_RATE, DP_RATE = 480, 20  # operations a second and rank

_OPERATIONS = """
    INSERT INTO ops BY NAME
    SELECT 'llama' AS job, {comm} AS comm, n AS seq, {first} + r AS rank, 'coll' AS kind,
        CASE n % 3 WHEN 0 THEN 'AllReduce' WHEN 1 THEN 'AllGather' ELSE 'ReduceScatter' END AS op,
        'bf16' AS dtype, 33554432 AS count, 67108864 AS bytes, 'RING' AS algo,
        'SIMPLE' AS proto, 16 AS channels, 7 AS stream, began - 20000 AS enqueued_ns,
        began AS started_ns, began + took AS ended_ns, true AS done, 480 AS sends, 480 AS recvs,
        round(480e9 / took) AS send_rate, round(480e9 / took) AS recv_rate
    FROM (SELECT n, r, {start} + n * 1000000000 // {rate}
                 + (hash(n * 16 + r + {first}) % 90000)::BIGINT AS began,
                 600000 + (hash(n * 32 + r + {first}) % 200000)::BIGINT AS took
          FROM range({low}, {high}) a(n), range({ranks}) b(r))
"""

# What is measured beside: counters that grow unevenly, readings that scatter.
_READINGS = """
    CREATE OR REPLACE TEMP TABLE fast AS
        SELECT t, k, {start} + t * 250000000 + hash(t * 8 + k) % 3000000 AS at_ns
        FROM range({low} * 4, {high} * 4) a(t), range(8) b(k);
    CREATE OR REPLACE TEMP TABLE slow AS
        SELECT t, k, {start} + t * 1000000000 + hash(t * 8 + k + 1) % 3000000 AS at_ns
        FROM range({low}, {high}) a(t), range(8) b(k);
    INSERT INTO nics BY NAME
    SELECT '{node}' AS node, 'mlx5_' || k AS nic, 1 AS port, at_ns, true AS link_up,
        t * 10000000000 + hash(t) % 3000000000 AS tx_bytes,
        t * 10000000000 + hash(t + 1) % 3000000000 AS rx_bytes,
        t * 40 + hash(t + 2) % 40 AS cnp_sent, t * 40 + hash(t + 3) % 40 AS cnp_handled,
        t * 9 + hash(t + 4) % 9 AS ecn_marked, t * 5 + hash(t + 5) % 5 AS pcie_stalls,
        t * 90 + hash(t + 6) % 90 AS corrected_bits, 0 AS out_of_sequence, 0 AS retransmits,
        0 AS timeouts, 0 AS pfc_rx_pause, 0 AS pfc_rx_pause_ns, 0 AS link_downs, 3 AS link_errors,
        50000000000 AS rate_bytes_per_s, 5 AS pcie_gen, 16 AS pcie_width
    FROM fast;
    INSERT INTO nic_priorities BY NAME
    SELECT '{node}' AS node, 'mlx5_' || k AS nic, 1 AS port, p AS priority, at_ns,
        CASE WHEN p IN (0, 3) THEN t * 5000000000 + hash(t * 8 + p) % 1000000000 ELSE 7 END
            AS tx_bytes, 0 AS rx_pause, 0 AS tx_pause, 0 AS discards
    FROM fast, range(8) c(p);
    INSERT INTO gpus BY NAME
    SELECT '{node}' AS node, k AS gpu, at_ns, 1700 + hash(at_ns) % 280 AS sm_clock_mhz,
        1980 AS sm_clock_max_mhz, 560 + (hash(at_ns + 1) % 80000) / 1000 AS power_w,
        700 AS power_limit_w, 60 + hash(at_ns + 2) % 9 AS temp_c,
        0.8 + (hash(at_ns + 3) % 20) / 100 AS utilisation, hash(at_ns + 4) % 2 * 4
            AS throttle_reasons, 5 AS pcie_gen, 16 AS pcie_width, 0 AS ecc_uncorrected,
        70000000000 + hash(at_ns + 5) % 1000000000 AS memory_used_bytes, 80000000000 AS memory_bytes
    FROM slow;
    INSERT INTO host_processes BY NAME
    SELECT 'llama' AS job, {first} + k AS rank, '{node}' AS node, 4000 + k AS pid, at_ns,
        t * 1500000000 + hash(at_ns) % 1000000000 AS cpu_ns, t * 9000000 + hash(at_ns + 1) % 9000000
            AS waited_ns, 24 AS cpus_allowed, 200 AS threads,
        10000000000 + hash(at_ns + 2) % 1000000000 AS rss_bytes,
        t * 50000000 + hash(at_ns + 3) % 50000000 AS read_bytes
    FROM slow;
    INSERT INTO hosts BY NAME
    SELECT '{node}' AS node, at_ns, (hash(at_ns) % 1000) / 1000 AS cpu_busy,
        (hash(at_ns + 1) % 100) / 1000 AS cpu_pressure, 0 AS memory_pressure,
        (hash(at_ns + 2) % 100) / 1000 AS io_pressure,
        2900 + hash(at_ns + 3) % 100 AS cpu_mhz, 192 AS cpus,
        1000000000000 + hash(at_ns + 4) % 1000000000 AS memory_available_bytes
    FROM slow WHERE k = 0
"""


def write_shard(
    folder: Path, number: int, begin_s: int, end_s: int, *, only_candidates: bool
) -> None:
    """One shard of node `number`, of all its operations between two seconds of the job."""
    node, first = f"gpu{number:04d}", number * RANKS
    start = BEGAN_NS + begin_s * 10**9
    store = LiveStore(Place(folder, node), start)
    con = store.cursor()
    for table in ("ops", "comms", "ranks", *READ):
        con.execute(create_table_sql(table, BY_NAME[table].columns))
    groups = [(1_000_000 + number, TP_RATE, RANKS, first)]
    groups += [(1 + local, DP_RATE, 1, first + local) for local in range(RANKS)]
    for comm, rate, ranks, of in groups:
        low, high = begin_s * rate, end_s * rate
        if only_candidates:
            low = max(low, high - max(64, 3000 * rate // TP_RATE))
        con.execute(
            _OPERATIONS.format(
                comm=comm, first=of, start=BEGAN_NS, rate=rate, low=low, high=high, ranks=ranks
            )
        )
        con.execute(
            "INSERT INTO comms BY NAME SELECT 'llama' AS job, ? AS comm, ? + r AS rank, "
            "r AS comm_rank, ? AS role FROM range(?) t(r)",
            [comm, of, "tp" if comm >= 1_000_000 else "dp", ranks],
        )
    con.execute(_READINGS.format(node=node, first=first, start=BEGAN_NS, low=begin_s, high=end_s))
    con.execute(
        "INSERT INTO ranks BY NAME SELECT 'llama' AS job, ? + r AS rank, ? AS node, r AS gpu "
        "FROM range(8) t(r)",
        [first, node],
    )
    con.close()
    store.seal(BEGAN_NS + end_s * 10**9, ShardDigests().prepare)


def measure_node(seconds: int) -> dict[str, float]:
    """The digest of one busy node: its rows, bytes, seconds and CPU, asked as SSH asks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.perf_counter()
        for begin in range(0, seconds, SEAL_S):
            write_shard(folder, 0, begin, begin + SEAL_S, only_candidates=False)
        written_s = time.perf_counter() - began
        sizes = [path.stat().st_size for path in folder.iterdir()]
        request = Request("digest", job="llama", since_ns=BEGAN_NS)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        answer = subprocess.run(
            [sys.executable, "-m", "oncall.cli.node", "query", "--data-dir", name, "--sealed"],
            input=request.line(),
            capture_output=True,
            check=True,
        ).stdout
        took_s = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        end = json.loads(answer[answer.rindex(b'{"end":') :])["end"]
        return {
            "rows stored": seconds * RANKS * (TP_RATE + DP_RATE),
            "shards": len(sizes),
            "MB stored": sum(sizes) / 1e6,
            "s to write and seal": written_s,
            "rows of the digest": end["rows"],
            "bytes of the digest": len(answer),
            "s": took_s,
            "CPU s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "MB of memory": after.ru_maxrss / 1e3,
        }


def measure_fleet(nodes: int) -> dict[str, float]:
    """A whole gather of so many healthy nodes, and what it costs the console."""
    rulebooks = load_rulebooks([shipped_folder()])
    seen = Progress("", 0, 0, 0)

    def look(progress: Progress) -> None:
        nonlocal seen
        seen = progress

    def starting(incident: Incident) -> tuple[int, ...]:
        started_communicators(incident, rulebooks)
        return ()

    with tempfile.TemporaryDirectory() as name:
        for number in range(nodes):
            for begin in (0, 200, 400):
                write_shard(Path(name), number, begin, begin + 200, only_candidates=True)
        folders = nodes_in(Path(name))
        began, cpu = time.perf_counter(), time.process_time()
        answer = asyncio.run(
            ask_fleet(
                LocalTransport(folders),
                tuple(folders),
                None,
                Window(),
                starting,
                patience_s=600,
                at_once=AT_ONCE,
                progress=look,
            )
        )
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    with answer.incident as incident:
        failed = [outcome for outcome in answer.outcomes.values() if outcome.kind != "ok"]
        if failed:
            raise SystemExit(f"{len(failed)} nodes failed: {failed[0]}")
        return {
            "nodes": nodes,
            "s": took_s,
            "console CPU s": cpu_s,
            "kB a node": seen.bytes / nodes / 1e3,
            "operations merged": incident.rows("ops"),
            "console MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="8,64,256", help="sizes of fleets")
    parser.add_argument("--seconds", type=int, default=600, help="of the busy node; 0: none")
    arguments = parser.parse_args()
    if arguments.seconds:
        for name, value in measure_node(arguments.seconds).items():
            print(f"{name:24}{value:>14,.2f}")
    for nodes in filter(None, arguments.nodes.split(",")):
        # Each in a process of its own, so that memory is its own too.
        if len(arguments.nodes.split(",")) > 1:
            subprocess.run(
                [sys.executable, __file__, "--seconds", "0", "--nodes", nodes], check=True
            )
        else:
            fleet = measure_fleet(int(nodes))
            print(" · ".join(f"{name} {value:,.1f}" for name, value in fleet.items()))


if __name__ == "__main__":
    main()
