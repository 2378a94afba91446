"""The CPU of every host, sampled: what tells which node keeps a ring waiting (beyond Pulse)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oncall.evidence.incident import Words
from oncall_lab.arrays import Floats
from oncall_lab.recording import EPOCH_NS, node_name
from oncall_lab.traffic.play import Played
from oncall_lab.traffic.scenario import TrafficScenario

EVERY_NS = 250_000_000
CPUS = 128  # two AMD EPYC 9575F (Pulse 7.1)
MAX_MHZ = 5000.0
SAVING_MHZ = 1500.0


def host_rows(scenario: TrafficScenario, played: Played, offset_ns: Floats) -> dict[str, Any]:
    """Columns of `hosts`: four samples a second of each node, on its own clock."""
    rng = scenario.rng("hosts")
    moments = np.arange(EVERY_NS / 2, played.until_ns, EVERY_NS)
    nodes = np.repeat(np.arange(scenario.nodes), len(moments))
    true_ns = np.tile(moments, scenario.nodes)
    n = len(nodes)
    # A training's ranks keep a core or two each; other threads come and go.
    busy = np.clip(0.14 + 0.02 * rng.standard_normal(n), 0.02, 1.0)
    pressure = np.clip(0.005 * rng.standard_exponential(n), 0.0, 1.0)
    mhz = MAX_MHZ * np.clip(0.9 + 0.03 * rng.standard_normal(n), 0.5, 1.0)
    saving = np.zeros(n, dtype=np.int32)
    for fault in scenario.faults:
        since = played.conditions.since_ns.get(fault, np.inf)
        there = (nodes == played.cluster.nodes[fault.rank]) & (true_ns >= since)
        if fault.kind == "cpu_contention":
            busy[there] = np.clip(fault.cpu_busy + 0.05 * rng.random(there.sum()), 0, 1)
            level = 0.35 if fault.cpu_busy < 0.95 else 0.6
            pressure[there] = np.clip(level + 0.05 * rng.standard_normal(there.sum()), 0, 1)
        elif fault.kind == "cpu_throttling":
            mhz[there] = SAVING_MHZ * (1 + 0.02 * rng.standard_normal(there.sum()))
            busy[there] = np.clip(busy[there] * 2.2, 0, 1)
            saving[there] = 1
    return {
        "node": Words(nodes.astype(np.int32), [node_name(i) for i in range(scenario.nodes)]),
        "at_ns": EPOCH_NS + np.rint(true_ns + offset_ns[nodes]).astype(np.int64),
        "cpu_busy": busy,
        "cpu_pressure": pressure,
        "cpu_mhz": mhz,
        "cpu_max_mhz": MAX_MHZ,
        "cpus": CPUS,
        "governor": Words(saving, ["performance", "powersave"]),
    }
