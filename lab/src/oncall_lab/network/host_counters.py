"""What the NICs of hosts count while a network is played: bytes, pauses of either direction, marks.

Counters are read at fixed instants, each host at its own phase, from before the collective until
after it, as a collector does that knows nothing of it. The last link of a host is its NIC's: it is
paused by the switch, and the switch's port to it by the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oncall_lab.arrays import Floats, Ints
from oncall_lab.network.play import WINDOW_NS, Played

NIC = "mlx5_0"
_QUANTA_BITS = 65_535 * 512  # that one pause frame lasts at most (IEEE 802.1Qbb)
REFRESH = 0.5  # of that time, after which a pause that goes on is reported again
BEFORE_NS = 5e9  # before the collective begins, and after it ends
START_BYTES = 1e12  # counters stand somewhere


def nic_rows(played: Played, rng: np.random.Generator) -> dict[str, Any]:
    """Rows of the table nics, `at_ns` in nanoseconds after the begin."""
    tree = played.plan.tree
    hosts = [tree.name(host) for host in range(tree.hosts)]
    every_ns = float(played.scenario.nics_every_ns)
    before = int(np.ceil(BEFORE_NS / every_ns))
    count = 2 * before + int(np.ceil(played.until_ns / every_ns)) + 1
    at_ns = (np.arange(count) - before) * every_ns + rng.uniform(0, every_ns, (tree.hosts, 1))
    sent, came = _bytes(played, at_ns)
    out = np.array([tree.between[host, tree.edge_of(host)] for host in range(tree.hosts)])
    rx_frames, rx_ns = _paused(played, out, at_ns)
    tx_frames, tx_ns = _paused(played, out ^ 1, at_ns)
    start = rng.integers(0, int(START_BYTES), (2, tree.hosts, 1))
    rate = int(played.scenario.network_bytes_per_s)
    return {
        "node": np.repeat(hosts, count),
        "nic": NIC,
        "port": 1,
        "at_ns": at_ns.ravel(),
        "tx_bytes": (start[0] + sent.astype(np.int64)).ravel(),
        "rx_bytes": (start[1] + came.astype(np.int64)).ravel(),
        "cnp_handled": _notified(played, at_ns).ravel(),
        "pfc_rx_pause": rx_frames.ravel(),
        "pfc_rx_pause_ns": rx_ns.ravel(),
        "pfc_tx_pause": tx_frames.ravel(),
        "pfc_tx_pause_ns": tx_ns.ravel(),
        "retransmits": 0,
        "timeouts": 0,
        "out_of_sequence": 0,
        "link_up": True,
        "rate_bytes_per_s": rate,
    }


def _bytes(played: Played, at_ns: Floats) -> tuple[Floats, Floats]:
    """(hosts, readings) bytes sent and received until then."""
    legs, tree = played.legs, played.plan.tree
    arrived = np.cumsum(played.counts.arrived, axis=0)
    ends = np.minimum(played.epoch_ns * np.arange(1, len(arrived) + 1), played.until_ns)
    edges = np.r_[0.0, ends]
    src = tree.device_of[legs.port[legs.first]]
    dst = tree.towards[legs.port[legs.last]]
    # What a host sent is what came to the second port of its way.
    totals = []
    for place, host in ((np.minimum(legs.first + 1, legs.last), src), (legs.last, dst)):
        total = np.zeros(at_ns.shape)
        for flow, leg in enumerate(place.tolist()):
            if tree.is_host(int(host[flow])):
                row = int(host[flow])
                total[row] += np.interp(at_ns[row], edges, np.r_[0.0, arrived[:, leg]])
        totals.append(total)
    return totals[0], totals[1]


def _paused(played: Played, ports: Ints, at_ns: Floats) -> tuple[Any, Any]:
    """(hosts, readings) pause frames sent to each port, and how long it had to pause, so far."""
    refresh_ns = REFRESH * _QUANTA_BITS / (8 * played.scenario.network_bytes_per_s) * 1e9
    row = {port: number for number, port in enumerate(ports.tolist())}
    frames, lasted = np.zeros(at_ns.shape), np.zeros(at_ns.shape)
    since: dict[int, float] = {}
    for moment, port, paused in [*played.pauses, *((played.until_ns, p, False) for p in row)]:
        if port not in row:
            continue
        if paused:
            since.setdefault(port, moment)
        elif port in since:
            here, began = at_ns[row[port]], since.pop(port)
            spent = np.clip(np.minimum(here, moment) - began, 0.0, None)
            lasted[row[port]] += spent
            # One to stop, more while it goes on, one to let it go.
            sent = (here >= began) + np.floor(spent / refresh_ns) + (here >= moment)
            frames[row[port]] += sent
    return frames.astype(np.int64), lasted.astype(np.int64)


def _notified(played: Played, at_ns: Floats) -> Ints:
    """(hosts, readings) notifications that each host's NIC heeded: one a marked flow and window."""
    legs, tree = played.legs, played.plan.tree
    window_ns = max(1, round(WINDOW_NS / played.quantum_ns)) * played.quantum_ns
    windows = np.floor(np.clip(at_ns, 0, None) / window_ns).astype(np.int64)
    src = tree.device_of[legs.port[legs.first]]
    total = np.vstack([np.zeros(len(src), np.int64), np.cumsum(played.marks, axis=0)])
    found = np.zeros(at_ns.shape, np.int64)
    for flow, host in enumerate(src.tolist()):
        found[host] += total[np.minimum(windows[host], len(total) - 1), flow]
    return found
