"""A gather of thousands of simulated nodes: directly, and through gateways.

    python benchmarks/gather_tree.py [--nodes 64,512,4096] [--gateways 64] [--operations 480]

Simulated nodes are one process that answers over a socket a node, with the frames a node sends: a
greeting, a clock, and a digest of `--operations` operations of 8 ranks and of 20 readings of each
of 8 NICs and 8 GPUs. Rows differ from node to node. Gateways are real `oncall node gather`
services, a process each; so is the console. All share this machine, where on a cluster each gateway
and each node has its own: seconds are an upper bound, and CPU is reported of each kind apart. The
first gather starts the gateways, the second finds them connected, as a console left open does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from oncall.evidence.columns import create_table_sql
from oncall.evidence.incident import Incident
from oncall.evidence.schema import TABLES
from oncall.fleet.ask import merged
from oncall.fleet.branch import Tree
from oncall.fleet.command_prefix import CommandPrefix, PrefixTransport
from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.gather import Gather, Window
from oncall.fleet.local import StreamChannel
from oncall.fleet.transport import Connection
from oncall.node.store.database import connect
from oncall.node.store.parts import PARQUET

RANKS, READINGS = 8, 20
BEGAN_NS = 1_767_225_600 * 10**9

_ROWS = {
    "jobs": "SELECT 'llama' AS job, {world} AS world_size",
    "ranks": """SELECT 'llama' AS job, {first} + r AS rank, '{node}' AS node, r AS gpu
        FROM range(8) t(r)""",
    "comms": """SELECT 'llama' AS job, 1000000 + {number} AS comm, {first} + r AS rank,
        r AS comm_rank, 'tp' AS role FROM range(8) t(r)""",
    "ops": """SELECT 'llama' AS job, 1000000 + {number} AS comm, n AS seq, {first} + r AS rank,
        'coll' AS kind, 'AllReduce' AS op, 'bf16' AS dtype, 33554432 AS count, 67108864 AS bytes,
        began - 20000 AS enqueued_ns, began AS started_ns, began + 600000 + (hash(n, r, {first}) %
        200000)::BIGINT AS ended_ns, true AS done, 4 AS stands_for
        FROM (SELECT n, r, {start} + n * 1000000000 + (hash(r, n, {first}) % 90000)::BIGINT AS began
              FROM range({operations} // 8) a(n), range(8) b(r))""",
    "nics": """SELECT '{node}' AS node, 'mlx5_' || k AS nic, 1 AS port, {start} + t * 30000000000 +
        (hash(t, k, {first}) % 3000000)::BIGINT AS at_ns, true AS link_up,
        t * 10000000000 + (hash(t, {first}) % 3000000000)::BIGINT AS tx_bytes,
        50000000000 AS rate_bytes_per_s FROM range({readings}) a(t), range(8) b(k)""",
    "gpus": """SELECT '{node}' AS node, k AS gpu, {start} + t * 30000000000 AS at_ns,
        1700 + hash(t, k, {first}) % 280 AS sm_clock_mhz, 60 + hash(k, t, {first}) % 9 AS temp_c
        FROM range({readings}) a(t), range(8) b(k)""",
}


def write_answers(folder: Path, nodes: int, operations: int) -> None:
    """The digest of each node, as frames in a file."""
    con = connect()
    con.execute(";".join(create_table_sql(table.name, table.columns) for table in TABLES))
    part = folder / "part.parquet"
    for number in range(nodes):
        node, frames = f"gpu{number:04d}", b""
        for table, select in _ROWS.items():
            sql = select.format(
                node=node,
                number=number,
                first=number * RANKS,
                world=nodes * RANKS,
                start=BEGAN_NS,
                operations=operations,
                readings=READINGS,
            )
            ((rows,),) = con.execute(f"COPY ({sql}) TO '{part}' ({PARQUET})").fetchall()
            parquet = part.read_bytes()
            head = {"part": table, "rows": rows, "bytes": len(parquet)}
            frames += json.dumps(head).encode() + b"\n" + parquet
        (folder / node).write_bytes(frames + b'{"end": {"rows": 1, "gaps": []}}\n')
    part.unlink()


async def serve_nodes(folder: Path, socket: Path) -> None:
    """All nodes: who connects names one, and asks it line by line."""

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = (await reader.readline()).decode().strip()
        while line := await reader.readline():
            now = time.time_ns()
            ask = json.loads(line)["ask"]
            clock = {"node": name, "received_ns": now, "answered_ns": now}
            if ask == "digest":
                writer.write((folder / name).read_bytes())
            elif ask == "hello":
                ranks = [*range(int(name[3:]) * RANKS, (int(name[3:]) + 1) * RANKS)]
                jobs = {"llama": {"last_ns": now, "ranks": ranks}}
                status = {**clock, "protocol": [1, 1], "oncall_version": "0", "jobs": jobs}
                writer.write(json.dumps({"end": status}).encode() + b"\n")
            else:
                writer.write(json.dumps({"end": clock}).encode() + b"\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(node, socket, backlog=8192)
    print("serving", flush=True)
    await server.serve_forever()


class SocketTransport:
    """Reaches the simulated nodes."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        writer.write(host.encode() + b"\n")
        try:
            yield Connection(host, StreamChannel(reader, writer), silence_s=600)
        finally:
            writer.close()


def cpu_s(pids: Iterable[int]) -> float:
    """What these processes have used until now."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    ticks = sum(int(each[11]) + int(each[12]) for each in fields)
    return ticks / os.sysconf("SC_CLK_TCK")


def children() -> list[int]:
    """The gateways that this console has started."""
    listed = Path("/proc/self/task").glob("*/children")
    return [int(pid) for path in listed for pid in path.read_text().split()]


async def console(socket: str, nodes: int, gateways: int, serving: int) -> None:
    """Two gathers, the first of which starts the gateways; prints what each took, in all and as
    CPU of the console, of the gateways together and of the process that is all nodes."""
    hosts = [f"gpu{number:04d}" for number in range(nodes)]
    tree = None
    if gateways:
        command = f"{sys.executable} {__file__} --gateway {socket}"
        configuration = FleetConfiguration(command=command, answer_timeout_s=600, window=64)
        to_gateways = PrefixTransport(
            CommandPrefix("env", lambda _: ("env",), "env"), configuration
        )
        tree = Tree(to_gateways, {h: f"gw{n * gateways // nodes:02d}" for n, h in enumerate(hosts)})
    print(f"{nodes} nodes, {gateways or 'no'} gateways", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        gather = Gather(
            SocketTransport(socket), hosts, Window(), Path(folder), patience_s=600, tree=tree
        )
        async with gather:
            for name in ("first", "second"):
                gather.again(Window(), Path(folder, name))
                before = (time.process_time(), cpu_s(children()), cpu_s([serving]))
                began = time.perf_counter()
                await gather.greet()
                await gather.digest("llama")
                arrived_s = time.perf_counter() - began
                incident = await asyncio.to_thread(merged, gather.answers, "llama", None)
                took_s = time.perf_counter() - began
                after = (time.process_time(), cpu_s(children()), cpu_s([serving]))
                check(gather, incident, nodes)
                rows = sum(incident.rows(table) for table in _ROWS)
                incident.close()
                used = (now - then for now, then in zip(after, before, strict=True))
                shown = ", ".join(
                    f"{who} {cpu:.1f}"
                    for who, cpu in zip(("console", "gateways", "nodes"), used, strict=True)
                )
                peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
                print(
                    f"  {name}: {took_s:.1f} s, {arrived_s:.1f} of them until all had answered; "
                    f"CPU s: {shown}; {rows:,} rows; console {peak_mb:,.0f} MB; "
                    f"load {os.getloadavg()[0]:.0f}",
                    flush=True,
                )
    if gateways:
        largest_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
        print(f"  largest gateway {largest_mb:,.0f} MB", flush=True)


def check(gather: Gather, incident: Incident, nodes: int) -> None:
    """Every node answered, through its gateway where it has one, and nothing is lost."""
    kinds = {outcome.kind for outcome in gather.answers.outcomes.values()}
    assert kinds == {"ok"} and not gather.lost_gateways, (kinds, gather.lost_gateways)
    assert incident.rows("clocks") == nodes
    ranks = incident.con.execute("SELECT count(DISTINCT rank) FROM ops").fetchone()
    assert ranks == (nodes * RANKS,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="64,512,4096", help="sizes of fleets")
    parser.add_argument("--gateways", type=int, default=64, help="at most; 64 nodes each, or more")
    parser.add_argument("--operations", type=int, default=480, help="of a node's digest")
    parser.add_argument("--tree-only", action="store_true", help="not the direct gather")
    parser.add_argument("--gateway", help="be a gateway to the nodes of this socket")
    parser.add_argument(
        "--console", nargs=4, help="be the console: socket, nodes, gateways, pid of nodes"
    )
    parser.add_argument("--serve", nargs=2, help="be the nodes: folder, socket")
    options = parser.parse_args()
    if options.gateway:
        from oncall.fleet.tree.gateway import serve

        transport = SocketTransport(options.gateway)
        asyncio.run(serve(transport, sys.stdin.buffer, sys.stdout.buffer))
    elif options.console:
        socket, *numbers = options.console
        asyncio.run(console(socket, *map(int, numbers)))
    elif options.serve:
        asyncio.run(serve_nodes(Path(options.serve[0]), Path(options.serve[1])))
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for nodes in map(int, options.nodes.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder, socket = Path(name, "answers"), Path(name, "socket")
            folder.mkdir()
            write_answers(folder, nodes, options.operations)
            size = sum(path.stat().st_size for path in folder.iterdir()) / nodes / 1e3
            print(f"{nodes} nodes, {size:.0f} kB each, {os.cpu_count()} cores", flush=True)
            me = (sys.executable, __file__)
            served = subprocess.Popen([*me, "--serve", folder, socket], stdout=subprocess.PIPE)
            try:
                assert served.stdout is not None
                served.stdout.readline()
                tree = min(options.gateways, max(1, nodes // 64))
                for gateways in (tree,) if options.tree_only else (0, tree):
                    numbers = map(str, (nodes, gateways, served.pid))
                    subprocess.run([*me, "--console", socket, *numbers], check=True)
            finally:
                served.terminate()
                served.wait()


if __name__ == "__main__":
    main()
