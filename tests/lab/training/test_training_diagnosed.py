"""What the shipped rulebooks make of incidents together, where one cause must not hide another."""

from __future__ import annotations

from typing import Any

from oncall.core.diagnosis import Finding
from oncall.evidence import Incident
from oncall.rules.engine.engine import SoFar, run
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall_lab import TrainingScenario, simulate

# Four nodes with two GPUs and two NICs each; data parallelism crosses the nodes.
JOB: dict[str, Any] = {
    "tp": 2,
    "pp": 1,
    "dp": 4,
    "gpus_per_node": 2,
    "duration": "90 s",
    "dp_bytes": "4 GiB",
    "network": "21 GB/s",
    "forward": "100 ms",
}


def simulated(**fields: Any) -> Incident:
    incident, _ = simulate(TrainingScenario.from_mapping(JOB | fields))
    return incident


def roots(incident: Incident) -> list[Finding]:
    found = run(incident, load_rulebooks([shipped_folder()]), {}).findings
    return [finding for finding in found if finding.explained_by is None]


def test_hosts_that_starve_alike_do_not_hide_the_rank_that_is_slow() -> None:
    """As a loaded laptop that plays all nodes: each tells the same, and one rank is slow."""
    slow = {"fault": "S1", "rank": 5, "at": "40 s"}
    with simulated(faults=[slow], measured=True) as incident:
        incident.con.execute("UPDATE hosts SET cpu_pressure = 0.6, cpu_busy = 0.95")

        found = roots(incident)

    (starved,) = [finding for finding in found if finding.verdict == "CPU_STARVED"]
    nodes = {f"gpu{number:03}" for number in range(1, 5)}
    assert {blame.where["node"] for blame in starved.blame} == nodes
    others = [finding for finding in found if finding is not starved]
    assert [[b.where.get("rank") for b in finding.blame] for finding in others] == [[5]]


def test_bytes_lost_to_counters_of_32_bits_are_no_bytes_by_sockets() -> None:
    """Read every five seconds, such a counter goes round many times unseen."""
    with simulated(measured=True) as incident:
        for table in ("nics", "nic_priorities"):
            incident.con.execute(f"DELETE FROM {table} WHERE at_ns // 250_000_000 % 20 <> 0")
            incident.con.execute(f"UPDATE {table} SET tx_bytes = tx_bytes % 4294967296")

        assert roots(incident) == []


def test_a_hang_is_known_before_most_rulebooks_have_run() -> None:
    reports: list[SoFar] = []
    books = load_rulebooks([shipped_folder()])
    with simulated(faults=[{"fault": "H1", "rank": 5, "at": "40 s"}]) as incident:
        found = run(incident, books, {}, progress=reports.append)

    assert [so_far.run for so_far in reports] == [*range(len(books))]
    early = reports[len(books) // 4].worst
    assert early is not None
    assert early.blame == found.findings[0].blame
    assert reports[0].worst is None
