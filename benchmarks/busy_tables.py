"""Tables that an incident lacks, as collectors of a sound and idle cluster would have written them,
and lines of the kernel's log that say nothing of the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import duckdb
import numpy as np
from busy_noise import Draws

Columns = dict[str, Any]
NO_TRACE: Final = {  # by table: faults of which sound readings say nothing untrue
    "pings": ("gpu_throttle", "gpu_error", "cuda_oom", "imbalance"),
    "nics": ("gpu_throttle", "gpu_error", "cuda_oom", "imbalance", "cpu_throttle"),
    "gpus": ("pcie_downgrade", "pcie_contention", "congestion", "misaligned", "imbalance"),
    "hosts": ("pcie_downgrade", "congestion", "misaligned", "imbalance", "gpu_throttle"),
}
SOURCES: Final = {"pings": "probes", "nics": "rdma_nics", "gpus": "gpus", "hosts": "hosts"}
LOG_REACHES_BACK_S: Final = 12 * 3600.0  # what the kernel's ring holds of a quiet host

# (code, per hour and host, only before the job, what it is about, text). The job is not slower
# for any; what could have hurt one happened to another before it.
LINES: Final = (
    ("machine_check_logged", 0.02, False, "", "mce: [Hardware Error]: Machine check events logged"),
    ("cpu_hot", 0.03, False, "", "CPU17: Core temperature above threshold, cpu clock throttled"),
    ("segfault", 0.05, False, "9713", "agent[9713]: segfault at 8 ip 00005602 sp 00007ffd error 4"),
    ("oom", 0.01, True, "8120", "Memory cgroup out of memory: Killed process 8120 (jupyter-lab)"),
    ("storage_stalled", 0.02, True, "store1", "nfs: server store1 not responding, still trying"),
    ("xid_31", 0.02, True, "gpu", "NVRM: Xid (PCI:{at}): 31, pid=2877, name=python, MMU Fault"),
    ("xid_43", 0.02, True, "gpu", "NVRM: Xid (PCI:{at}): 43, pid=2877, name=python, Ch 00000008"),
    ("link_down", 0.01, True, "nic", "mlx5_core {at}: Link down"),
    ("pcie_bandwidth", 0.01, True, "nic", "mlx5_core {at}: 126.028 Gb/s available PCIe bandwidth,"),
)


@dataclass(frozen=True)
class Case:
    """Where an incident's rows are, and when each node's collectors wrote, on its clock."""

    con: duckdb.DuckDBPyConnection
    ends_ns: dict[str, int]
    lasts_s: float

    @classmethod
    def of(cls, con: duckdb.DuckDBPyConnection) -> Case:
        last = con.execute("SELECT node, max(at_ns) FROM collectors GROUP BY node ORDER BY node")
        ends = {node: int(at) for node, at in last.fetchall()}
        firsts = "SELECT min(at_ns) FROM nics UNION ALL SELECT min(enqueued_ns) FROM ops"
        firsts += " UNION ALL SELECT min(started_ns) FROM op_traffic"
        first = min(row[0] for row in con.execute(firsts).fetchall() if row[0] is not None)
        return cls(con, ends, max((max(ends.values()) - first) / 1e9, 1.0))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.con.execute(sql).fetchall()

    def is_empty(self, table: str) -> bool:
        return self.rows(f"SELECT count(*) FROM {table}")[0][0] == 0

    def insert(self, table: str, columns: Columns) -> None:
        """Rows, of which a scalar holds for all."""
        size = next(len(v) for v in columns.values() if isinstance(v, np.ndarray))
        full = {k: v if isinstance(v, np.ndarray) else np.full(size, v) for k, v in columns.items()}
        self.con.register(
            "new", {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in full.items()}
        )
        self.con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new")
        self.con.unregister("new")

    def times(self, node: str, every_s: float, rng: np.random.Generator) -> Any:
        """Instants of a collector's looks, Unix ns on the node's clock."""
        back = np.arange(0, self.lasts_s, every_s)[::-1] + rng.uniform(0, every_s / 2)
        return (self.ends_ns[node] - back * 1e9).astype(np.int64)


def gain(case: Case, kind: str, draws: Draws) -> list[str]:
    """Half of the tables that are empty and that this kind of fault leaves as they are."""
    gained = []
    for table, write in (("pings", _pings), ("nics", _nics), ("gpus", _gpus), ("hosts", _hosts)):
        fits = kind == "healthy" or kind in NO_TRACE[table]
        if draws.rng.random() < 0.5 and fits and case.is_empty(table):
            write(case, draws.rng)
            gained.append(table)
            for node, end in case.ends_ns.items():
                account = {"at_ns": np.array([end]), "rows": 1000, "dropped": 0}
                case.insert("collectors", {"node": node, "source": SOURCES[table], **account})
    return gained


def _pings(case: Case, rng: np.random.Generator) -> None:
    nics = case.rows("SELECT DISTINCT node, device FROM devices WHERE kind = 'nic' ORDER BY ALL")
    for node, nic in nics:
        to = [far for far, other in nics if other == nic and far != node for _ in range(3)]
        at = np.sort(rng.choice(case.times(node, 0.05, rng), len(to)))
        rtt = rng.normal(17e3, 1e3, len(to))  # three switches and two NICs
        columns = {"node": node, "nic": nic, "target_node": np.array(to), "target_nic": nic}
        turn = rng.normal(9e3, 1e3, len(to)).astype(np.int64)
        columns |= {"at_ns": at, "kind": "network", "lost": False, "clock": "nic"}
        if to:
            case.insert("pings", columns | {"rtt_ns": rtt.astype(np.int64), "target_ns": turn})


def _nics(case: Case, rng: np.random.Generator) -> None:
    """Ports with the job's own bytes and no errors."""
    sent = case.rows(
        "SELECT t.node, t.nic, r.node, r.nic, coalesce(t.ended_ns, t.started_ns), t.bytes"
        " FROM op_traffic t LEFT JOIN qps q ON q.node = t.node AND q.nic = t.nic AND q.qpn = t.qpn"
        " LEFT JOIN qps r ON r.qpn = q.peer_qpn AND r.peer_qpn = q.qpn ORDER BY ALL"
    )
    for node, nic in case.rows("SELECT DISTINCT node, nic FROM ranks ORDER BY ALL"):
        at = case.times(node, 0.25, rng)
        columns: Columns = {"node": node, "nic": nic, "port": 1, "at_ns": at, "link_up": True}
        for name, ends in (("tx_bytes", (0, 1)), ("rx_bytes", (2, 3))):
            own = [(r[4], r[5]) for r in sent if (r[ends[0]], r[ends[1]]) == (node, nic)]
            own.sort()
            total = np.cumsum([0, *(b for _, b in own)])
            past = np.searchsorted([t for t, _ in own], at)
            columns[name] = (total[past] + int(rng.integers(10**14))).astype(np.int64)
        zero = "cnp_sent cnp_handled ecn_marked out_of_sequence retransmits timeouts pfc_rx_pause"
        zero += " pfc_tx_pause pfc_rx_pause_ns pfc_tx_pause_ns link_downs link_errors rx_discards"
        zero += " corrected_bits out_of_buffer pcie_stalls pcie_errors"
        columns |= dict.fromkeys(zero.split(), 0) | {"rate_bytes_per_s": 50_000_000_000}
        columns |= dict.fromkeys(("pcie_gen", "pcie_gen_max"), 5)
        columns |= dict.fromkeys(("pcie_width", "pcie_width_max"), 16)
        case.insert("nics", columns | {"pcie_waiting": rng.uniform(0, 0.03, len(at))})


def _gpus(case: Case, rng: np.random.Generator) -> None:
    for node, gpu in case.rows("SELECT DISTINCT node, gpu FROM ranks ORDER BY ALL"):
        at = case.times(node, 1.0, rng)
        columns: Columns = {"node": node, "gpu": gpu, "at_ns": at, "throttle_reasons": 0}
        columns |= {"sm_clock_mhz": np.round(rng.normal(1965, 10, len(at))).astype(np.int64)}
        columns |= {"power_w": rng.normal(590, 25, len(at)), "power_limit_w": 700.0}
        columns |= {"temp_c": rng.normal(62, 0.7, len(at)), "utilisation": 0.99}
        columns |= {"sm_clock_max_mhz": 1980, "memory_bytes": 141 * 10**9, "processes": 1}
        columns |= {"memory_used_bytes": 105 * 10**9, "nvlinks": 18, "nvlinks_up": 18}
        zero = ("ecc_uncorrected", "ecc_corrected", "nvlink_errors", "pcie_replays")
        case.insert("gpus", columns | dict.fromkeys(zero, 0))


def _hosts(case: Case, rng: np.random.Generator) -> None:
    for node in case.ends_ns:
        at = case.times(node, 1.0, rng)
        columns: Columns = {"node": node, "at_ns": at, "cpus": 128, "governor": "performance"}
        columns |= {"cpu_busy": rng.normal(0.1, 0.01, len(at)), "cpu_pressure": 0.002}
        columns |= {"cpu_mhz": rng.normal(3700, 50, len(at)), "cpu_max_mhz": 5000.0}
        columns |= {"memory_bytes": 1_500 * 10**9, "memory_available_bytes": 1_100 * 10**9}
        zero = ("swap_used_bytes", "memory_corrected", "memory_uncorrected")
        columns |= {"io_pressure": 0.001, "memory_pressure": 0.0}
        case.insert("hosts", columns | dict.fromkeys(zero, 0))


@dataclass(frozen=True)
class Corrected:
    """When, in seconds of Unix time on the node's clock, hardware corrected an error."""

    nics: dict[tuple[str, str], list[float]]
    gpus: dict[tuple[str, int], list[float]]
    hosts: dict[str, list[float]]


def say_nothing(case: Case, draws: Draws) -> Corrected:
    """Writes lines of the logs that are read. Returns the errors corrected during the job, which
    counters show."""
    rng, corrected = draws.rng, Corrected({}, {}, {})
    found = "SELECT DISTINCT node, kind, device, pci_bus FROM devices ORDER BY ALL"
    devices = [d for d in case.rows(found) if d[3]]
    reads = case.rows("SELECT DISTINCT node FROM collectors WHERE source = 'kernel_log' ORDER BY 1")
    for node, end in [(node, case.ends_ns[node]) for (node,) in reads]:
        here = [d for d in devices if d[0] == node]

        def some(rate_s: float, before: bool, end: int = end) -> list[int]:
            times = rng.uniform(0, LOG_REACHES_BACK_S, rng.poisson(rate_s * LOG_REACHES_BACK_S))
            return [int(end - t * 1e9) for t in times if not before or t > case.lasts_s + 600]

        def say(at: int, code: str, device: str, text: str, node: str = node) -> None:
            about = device or None
            case.con.execute(
                "INSERT INTO host_events BY NAME SELECT ? AS node, ? AS at_ns, 'kernel' AS source,"
                " ? AS code, ? AS device, ? AS text",
                [node, at, code, about, text],
            )

        for at in some(draws.of("aer", 20 / 3600), False):
            _, kind, device, pci = here[rng.integers(len(here))]
            say(at, "aer_corrected", pci, f"pcieport {pci}: PCIe Bus Error: severity=Corrected")
            of: dict[Any, list[float]] = corrected.nics if kind == "nic" else corrected.gpus
            key = (node, device if kind == "nic" else int(device))
            if at > end - case.lasts_s * 1e9:
                of.setdefault(key, []).append(at / 1e9)
        for at in some(draws.of("ce", 2 / 3600), False):
            say(at, "edac_corrected", "MC0", "EDAC MC0: 1 CE memory read error on DIMM#1")
            if at > end - case.lasts_s * 1e9:
                corrected.hosts.setdefault(node, []).append(at / 1e9)
        for code, per_hour, before, about, text in LINES:
            for at in some(per_hour / 3600, before):
                fits = [d for d in here if d[1] == about]
                pci = fits[rng.integers(len(fits))][3] if fits else about
                say(at, code, pci, text.format(at=pci))
                if code == "link_down":
                    say(at + 4 * 10**9, "link_up", pci, f"mlx5_core {pci}: Link up")
                if code == "storage_stalled":
                    say(at + 8 * 10**9, "storage_answers", pci, f"nfs: server {pci} OK")
    return corrected
