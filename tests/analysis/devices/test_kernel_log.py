"""What a collector read of the kernel's log, and since when it may concern the job."""

from __future__ import annotations

import pytest

from oncall.evidence.incident import Incident

HOUR_NS = 3600 * 10**9
STARTED_NS = 1_760_000_000_000_000_000


@pytest.mark.parametrize(
    ("after_ns", "codes"),
    [(HOUR_NS, ["gpu_logged", "out_of_memory"]), (-HOUR_NS, [])],
)
def test_what_was_logged_before_the_processes_began_is_no_symptom(
    after_ns: int, codes: list[str]
) -> None:
    bus = "0000:18:00.0"
    with Incident.empty() as incident:
        incident.append(
            "ranks",
            {"job": ["j"], "rank": [0], "node": ["a"], "gpu": [0], "pci_bus": [bus]}
            | {"started_ns": [STARTED_NS]},
        )
        incident.append(
            "host_events",
            {"node": ["a"] * 2, "at_ns": [STARTED_NS + after_ns] * 2, "source": ["kernel"] * 2}
            | {"code": ["xid_79", "oom"], "device": [bus, None], "text": ["Xid", "killed"]},
        )
        incident.append("gpus", {"node": ["a"], "gpu": [0], "at_ns": [STARTED_NS]})
        incident.require(["machine_symptoms"])
        found = incident.con.execute("SELECT code FROM machine_symptoms ORDER BY code").fetchall()
    assert [code for (code,) in found] == codes
