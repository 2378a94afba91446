"""What the waiting graph, the provenance graph and the rating cost, by hosts and by reports.

    python benchmarks/graphs.py [waiting|provenance] [--hosts 8,64,512,1024] [--reports 10000,...]

A ring all-gather among so many hosts of a fat tree, one flow in its way, and so many rows reported
by switches, written as tables; then the relations that a diagnosis asks for, and beside them the
same graphs as a user would build them with networkx (`pip install 'oncall[benchmark]'`). Each
measurement is a process of its own: processor time, and how far its memory grew.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

STEP_NS = 5_000_000
EPOCH_NS = 1_000_000
COMM = 1
OTHER = 1 << 20  # the number of the flow in the way


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("waiting", "provenance"))
    parser.add_argument("--hosts", default="8,32,128,512,1024")
    parser.add_argument("--reports", default="10000,30000,100000,300000,1000000")
    asked = parser.parse_args()
    sizes = [int(word) for word in asked.hosts.split(",")]
    reports = [int(word) for word in asked.reports.split(",")]
    if asked.what != "provenance":
        print("| hosts | steps | oncall | a step | networkx | a step |")
        print("|---|---|---|---|---|---|")
        for hosts in sizes:
            _line(hosts, hosts * (hosts - 1), (hosts, 0), (waiting, waiting_networkx))
    if asked.what != "waiting":
        print("| hosts | reports | oncall | a report | networkx | a report |")
        print("|---|---|---|---|---|---|")
        for rows in reports:
            _line(64, rows, (64, rows), (provenance, provenance_networkx))


def _line(
    hosts: int, size: int, tables: tuple[int, int], ways: tuple[Callable[[Any], None], ...]
) -> None:
    cells = []
    for way in ways:
        took, grown = _alone(way, tables)
        cells += [f"{took:.2f} s, {grown / 1e6:.0f} MB", f"{took / size * 1e6:.2f} us"]
    print(f"| {hosts:,} | {size:,} | {' | '.join(cells)} |", flush=True)


def _alone(way: Callable[[Any], None], tables: tuple[int, int]) -> tuple[float, float]:
    """The tables are made in another process, so that they leave no peak behind."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graphs.oncall"
        for function, arguments in ((_write, (file, tables)), (_measure, (way, file))):
            with context.Pool(1) as pool:
                result: Any = pool.apply(function, arguments)
    return result


def _write(file: Path, tables: tuple[int, int]) -> None:
    with written(*tables) as incident:
        incident.save(file)


def _measure(way: Callable[[Any], None], file: Path) -> tuple[float, float]:
    """Processor seconds, and bytes that the peak of resident memory rose by."""
    import networkx  # noqa: F401 - not the time of its import

    from oncall.evidence.incident import Incident

    with Incident.open(file) as incident:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        way(incident)
        took = time.process_time() - began
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return took, (after - before) * 1024.0


# ------------------------------------------------------------------- tables


def written(hosts: int, reports: int) -> Any:
    """An incident with the steps of a ring all-gather and, at its ports, so many rows."""
    from oncall.evidence.incident import Incident
    from oncall_lab.network.routing import hashed
    from oncall_lab.network.topology import FatTree

    rng = np.random.default_rng(hosts)
    tree = FatTree(next(k for k in (4, 6, 8, 10, 12, 16) if k**3 // 4 >= hosts))
    incident = Incident.empty()
    step, src = (grid.ravel() for grid in np.mgrid[1:hosts, 0:hosts])
    took = STEP_NS * rng.uniform(1.0, 1.02, (hosts - 1, hosts))
    took[rng.random(took.shape) < 0.02] *= 1.5
    begun = np.zeros((hosts, hosts))
    for row in range(hosts - 1):  # a step begins when the sender's and its data's are over
        ended = begun[row] + took[row]
        begun[row + 1] = np.maximum(ended, np.roll(ended, 1))
    started = begun[:-1].ravel().astype(np.int64)
    incident.append(
        "flow_steps",
        {
            "job": ["graphs"] * len(step),
            "comm": np.full(len(step), COMM, np.uint64),
            "seq": 0,
            "flow": src + 1,
            "src": src,
            "dst": (src + 1) % hosts,
            "step": step,
            "bytes": 60_000_000,
            "started_ns": started,
            "ended_ns": started + took.ravel().astype(np.int64),
            "expected_ns": STEP_NS,
        },
    )
    names = [tree.name(host) for host in range(hosts)]
    incident.append("ranks", {"job": ["graphs"] * hosts, "rank": np.arange(hosts), "node": names})
    devices = np.array([tree.name(int(device)) for device in tree.device_of])
    incident.append(
        "links",
        {
            "a": devices[0::2],
            "a_port": tree.number[0::2],
            "b": devices[1::2],
            "b_port": tree.number[1::2],
        },
    )
    paths = [hashed(tree, host, (host + 1) % hosts, host)[1:] for host in range(hosts)]
    _report(incident, tree, devices, paths, reports, int(begun.max()))
    return incident


def _report(
    incident: Any, tree: Any, devices: Any, paths: Any, reports: int, until_ns: int
) -> None:
    """Rows of flows at ports, and of ports, over the time of the collective."""
    legs = [(port, flow + 1) for flow, path in enumerate(paths) for port in path]
    legs += [(port, OTHER) for port in paths[0]]
    port, flow = (np.array(column) for column in zip(*legs, strict=True))
    epochs = -(-reports // (len(port) + len(set(port.tolist()))))
    if not epochs:
        return
    at_ns = np.linspace(EPOCH_NS, until_ns, epochs).astype(np.int64)
    length = int(until_ns / epochs)
    ports = np.unique(port)
    rows = np.tile(np.arange(len(port)), epochs), np.repeat(at_ns, len(port))
    incident.append(
        "switch_flows",
        {
            "switch": devices[port[rows[0]]],
            "port": tree.number[port[rows[0]]],
            "at_ns": rows[1],
            "epoch_ns": length,
            "flow": flow[rows[0]],
            "packets": 4_000,
            "queue_depth": 60.0,
        },
    )
    incident.append(
        "switch_ports",
        {
            "switch": np.tile(devices[ports], epochs),
            "port": np.tile(tree.number[ports], epochs),
            "at_ns": np.repeat(at_ns, len(ports)),
            "epoch_ns": length,
            "packets": 8_000,
            "queue_depth": 60.0,
            "paused_packets": 0,
        },
    )


# ------------------------------------------------------------------- graphs


def waiting(incident: Any) -> None:
    """The waiting graph and its critical path, as a diagnosis asks for them."""
    incident.provide(["critical_steps"])
    assert incident.con.execute("SELECT count(*) FROM critical_steps").fetchall()[0][0]


def waiting_networkx(incident: Any) -> None:
    """The same as in the paper's prototype: two nodes a step, edges for what it waits for."""
    import networkx

    rows = incident.con.execute(
        "SELECT src, dst, step, started_ns, ended_ns FROM flow_steps ORDER BY ended_ns"
    ).fetchall()
    graph = networkx.DiGraph()
    ends = {(src, step): ended for src, _, step, _, ended in rows}
    arrives = {(dst, step): src for src, dst, step, _, _ in rows}
    for src, _, step, started, ended in rows:
        graph.add_edge((src, step, "end"), (src, step, "begin"), weight=ended - started)
        before = [(src, step - 1), (arrives.get((src, step - 1)), step - 1)]
        known = [one for one in before if one in ends]
        if known:
            last = max(known, key=lambda one: ends[one])
            graph.add_edge((src, step, "begin"), (*last, "end"), weight=started - ends[last])
    assert networkx.dag_longest_path(graph)


def provenance(incident: Any) -> None:
    """The provenance graph and the rating of contributors."""
    incident.provide(["late_steps"])
    incident.provide(["contributors"])
    assert incident.con.execute("SELECT count(*) FROM contributors").fetchall()[0][0]


def provenance_networkx(incident: Any) -> None:
    """A graph for each late step from the rows of its time; flows scored by a walk over it."""
    import networkx

    incident.provide(["late_steps"])
    steps = incident.con.execute(
        "SELECT flow, started_ns, ended_ns FROM late_steps ORDER BY id"
    ).fetchall()
    flows = incident.con.execute(
        "SELECT switch, port, flow, at_ns, packets, queue_depth FROM switch_flows ORDER BY at_ns"
    ).fetchall()
    times = np.array([row[3] for row in flows])
    scores: dict[int, float] = {}
    for own, started, ended in steps:
        graph = networkx.DiGraph()
        total: dict[Any, float] = {}
        for row in range(*np.searchsorted(times, (started, ended)).tolist()):
            switch, port, flow, _, packets, depth = flows[row]
            place = (switch, port)
            total[place] = total.get(place, 0.0) + packets
            met = graph.get_edge_data(flow, place, {"weight": 0.0})["weight"]
            graph.add_edge(flow, place, weight=met + packets * depth)
            graph.add_edge(place, flow, weight=graph.edges[flow, place]["weight"])
        if own not in graph:
            continue
        for place in graph.successors(own):
            for flow in graph.successors(place):
                if flow >= OTHER:
                    share = graph.edges[place, flow]["weight"] / total[place]
                    scores[flow] = scores.get(flow, 0.0) + share
    assert scores


if __name__ == "__main__":
    main()
