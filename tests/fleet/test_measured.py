"""What devices and hosts measured comes with a gather, and leads to the same verdict."""

from __future__ import annotations

import asyncio
from pathlib import Path

from oncall.evidence.incident import Incident
from oncall.fleet.ask import ask_fleet
from oncall.fleet.gather import Window
from oncall.fleet.local import LocalTransport, nodes_in
from oncall.rules.engine.engine import run
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall_lab.shards import write_shards

S = 10**9
BEGAN_NS = 1_767_225_600 * S
SECONDS = 130
NODES = 4


def job_with_a_slow_host() -> Incident:
    """Four nodes with a rank each, and pings among them that the host of one delays."""
    incident = Incident.empty()
    incident.append("jobs", {"job": "j", "world_size": [NODES]})
    for node in range(NODES):
        name = f"n{node}"
        incident.append("ranks", {"job": "j", "rank": [node], "node": name, "nic": "mlx5_0"})
        incident.append("comms", {"job": "j", "comm": 1, "rank": [node], "comm_rank": node})
        at = [BEGAN_NS + k * S for k in range(SECONDS)]
        done = {"started_ns": at, "ended_ns": [t + S // 10 for t in at], "done": True}
        call = {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce", "bytes": 2**26}
        incident.append("ops", call | done | {"rank": node, "seq": list(range(SECONDS))})
        fast = [BEGAN_NS + k * S // 4 for k in range(4 * SECONDS)]
        port = {"node": name, "nic": "mlx5_0", "port": 1, "at_ns": fast}
        incident.append("nics", port | {"tx_bytes": [10**9 * k for k in range(len(fast))]})
        for target in {*range(NODES)} - {node}:
            pair = {"node": name, "nic": "mlx5_0", "target_node": f"n{target}"}
            slow = 2 in (node, target)
            for kind, rtt_us in (("network", 17), ("end_to_end", 45 if slow else 21)):
                columns = {"kind": kind, "at_ns": at, "rtt_ns": rtt_us * 1000, "lost": False}
                incident.append("pings", pair | {"target_nic": "mlx5_0"} | columns)
    return incident


def test_a_gather_brings_what_was_measured(tmp_path: Path) -> None:
    with job_with_a_slow_host() as whole:
        write_shards(whole, tmp_path)
    folders = nodes_in(tmp_path)
    answer = asyncio.run(
        ask_fleet(
            LocalTransport(folders),
            tuple(folders),
            "j",
            Window(),
            lambda _: (),
            patience_s=60,
        )
    )
    with answer.incident as gathered:
        # One in 4 s and the highest of each minute, of 520 readings.
        assert NODES * 30 < gathered.rows("nics") < NODES * 50
        ((sent,),) = gathered.con.execute(
            "SELECT max(tx_bytes) - min(tx_bytes) FROM nics WHERE node = 'n0'"
        ).fetchall()
        found = run(gathered, load_rulebooks([shipped_folder()])).findings
    assert sent == 10**9 * (4 * SECONDS - 1)
    columns = [(f.verdict, [dict(blame.where) for blame in f.blame]) for f in found]
    assert columns == [("SLOW_NODE", [{"node": "n2"}])]
