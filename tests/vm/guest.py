"""What runs inside the virtual machine: real RDMA between two soft RoCE devices.

Writes /control/results.json, and the collector's shards into /control/data. The tests that judge
them run outside, where time is cheaper.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from guest_verbs import empty_probes, verbs

from oncall.node.agent.service import build, make_folders
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.ping.local_nics import LocalNic, local_nics
from oncall.node.ping.ping import Ping, Pinger, Target, run_pings
from oncall.node.ping.ping_packet import find
from oncall.node.ping.rdma_endpoint import RdmaEndpoint
from oncall.node.ping.rdma_ping import RdmaPinger, respond_by_rdma
from oncall.node.ping.responder import Responder, Responding
from oncall.node.ping.stamped_socket import StampedSocket

CONTROL = Path("/control")
PORT = 7766
PATIENCE_S = 60.0


def main() -> None:
    here, there = local_nics()
    results: dict[str, Any] = {"nics": [here.nic, there.nic]}
    with answering(there, here):
        results["plain"] = pings(here, there, 60)
        with netem("delay 50ms"):
            results["delayed"] = pings(here, there, 20)
        with netem("loss 30%"):
            results["lossy"] = pings(here, there, 40)
        results["empty_probes"] = empty_probes(wait_until, netem, PORT)
    results["traffic"] = collect()
    results["probe"] = probe()
    results["verbs"] = verbs(wait_until, listens)
    (CONTROL / "results.json").write_text(json.dumps(results))


# ------------------------------------------------------------------------------ pings


@contextmanager
def answering(nic: LocalNic, other: LocalNic) -> Iterator[None]:
    """A process that answers pings at a NIC, as another node's would, reached from the other."""
    process = get_context("spawn").Process(target=respond, args=(nic,), daemon=True)
    process.start()
    wait_until(lambda: find((nic.address, PORT), other.address, 0.5))
    yield
    process.terminate()
    process.join()


def respond(nic: LocalNic) -> None:
    by_rdma, addresses, without = respond_by_rdma([nic])
    assert without is None, without
    responder = Responder(StampedSocket(nic.address, PORT), lambda _: nic.nic, addresses)
    for each in (responder, *by_rdma):
        Responding(each)
    time.sleep(3600)


def pings(here: LocalNic, there: LocalNic, count: int) -> dict[str, list[dict[str, Any]]]:
    """Pings by UDP, then by RDMA: the machine has no core for both at once."""
    address = (there.address, PORT)
    found = find(address, here.address)
    assert found is not None, "the responder takes no RDMA pings"
    udp = Pinger(here.nic, StampedSocket(here.address))
    rdma = RdmaPinger(here.nic, RdmaEndpoint(here))
    columns = {
        "network": run_pings([(udp, Target("there", address))], count, 50),
        "end_to_end": run_pings([(rdma, Target("there", found[1], found[0]))], count, 50),
    }
    udp.close()
    rdma.close()
    return {kind: [row(ping) for ping in measured] for kind, measured in columns.items()}


def row(ping: Ping) -> dict[str, Any]:
    times = {"rtt_ns": ping.rtt_ns, "target_ns": ping.target_ns, "clock": ping.clock}
    return times | {"nic": ping.nic, "target_nic": ping.target.nic, "lost": ping.lost}


@contextmanager
def netem(disturbance: str) -> Iterator[None]:
    """What the switch does to packets on their way to the second NIC."""
    subprocess.run(f"tc qdisc add dev port1 root netem {disturbance}".split(), check=True)
    yield
    subprocess.run(["tc", "qdisc", "del", "dev", "port1", "root"], check=True)


# -------------------------------------------------------------------------- collector


def collect() -> dict[str, int]:
    """The collector at work while RDMA traffic flows; returns what that was."""
    config = replace(
        Configuration(node="guest", data_dir=CONTROL / "data", run_dir=Path("/tmp/run")),
        sources=("rdma_nics", "probes"),
        keep_free_bytes=0,
    ).with_source("probes", respond=True, targets=("10.77.0.2",), every_ns=100_000_000)
    make_folders(config)
    agent, _ = build(config, Log())
    agent.step()
    wait_until(lambda: agent.step() or rows_of(agent, "rdma_nics") >= 2)
    messages, size = 1000, 4096
    server = perftest("ib_send_bw", "rxe1", messages, size)
    wait_until(lambda: listens(18515))
    client = perftest("ib_send_bw", "rxe0", messages, size, "127.0.0.1")
    wait_until(lambda: agent.step() or client.poll() is not None)
    codes = client.wait(), server.wait()
    seen = rows_of(agent, "rdma_nics")
    wait_until(lambda: agent.step() or rows_of(agent, "rdma_nics") >= seen + 8)
    wait_until(lambda: agent.step() or rows_of(agent, "probes") >= 10)
    agent.finish()
    return {"messages": messages, "size": size, "failed": max(codes)}


def rows_of(agent: Any, source: str) -> int:
    rows: int = agent._accounts[source].rows
    return rows


def perftest(
    program: str, device: str, messages: int, size: int, *server: str
) -> subprocess.Popen[bytes]:
    options = f"-d {device} -x 1 -n {messages} -s {size} -F".split()
    return subprocess.Popen([program, *options, *server], stdout=sys.stderr)


def listens(port: int) -> bool:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    lines += Path("/proc/net/tcp6").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") for line in lines)


# ------------------------------------------------------------------------------ probe


def probe() -> dict[str, Any]:
    """`oncall probe` between two endpoints, every NIC with every one."""
    from oncall.fleet.local import LocalTransport
    from oncall.fleet.probe import ProbeOrder, probe_fleet

    folders = {node: Path("/tmp/nodes", node) for node in ("one", "two")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    order = ProbeOrder(count=5, mesh=True)
    probed = asyncio.run(
        probe_fleet(LocalTransport(folders), tuple(folders), order, patience_s=120)
    )
    names = "node, nic, target_node, target_nic, kind, rtt_ns, lost"
    with probed.incident as incident:
        found = incident.con.execute(f"SELECT {names} FROM pings").fetchall()
    return {
        "pings": found,
        "outcomes": [outcome.kind for outcome in probed.outcomes.values()],
        "without_rdma": list(probed.without_rdma),
    }


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("waited in vain")
        time.sleep(0.05)


if __name__ == "__main__":
    os.environ["ONCALL_NODE"] = "guest"
    main()
