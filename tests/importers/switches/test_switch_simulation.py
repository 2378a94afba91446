"""The published simulator's files: what each becomes, and what broken ones say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.importers.switches.reports import Reports, read_reports

TOPOLOGY = """4 2 3
0 1
2 0 100Gbps 0.002ms 0
3 1 100Gbps 0.002ms 0
0 1 25Gbps 0.002ms 0
"""
ENDED = """2 3 1 1 3 10000 10000 60000000 2000000000 5000000 4900000
3 2 1 2 2 10000 10000 60000000 2000000000 6000000 4900000
### 2 3 10001 10001 24000000 2002000000 4000000 2000000
2 3 2 2 3 10000 10000 60000000 2006000000 5000000 4900000
"""
PAUSES = "2003000000 0 1 2 1\n2003000500 2 0 1 1\n2003009000 0 1 2 0\n"
REPORT = """time 2004600000

signal

epoch now

traffic meter form port 1 to port 2
portToPortBytes
5061740

port telemetry data for port 2
enqQdepth pfcPausedPacketNum packetNum
750 20 100

flow telemetry data for port 2
flowIdx srcIp dstIp srcPort dstPort protocol minSeq maxSeq packetNum enqQdepth pfcPausedPacketNum
7 0b000201 0b000301 10000 10000 17 0 1300 60 600 12
8 0b000201 0b000301 10001 10001 17 0 1300 40 150 8

epoch last

port telemetry data for port 2
enqQdepth pfcPausedPacketNum packetNum
0 0 0

end
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (
        ("topology.txt", TOPOLOGY),
        ("fct.txt", ENDED),
        ("pfc.txt", PAUSES),
        ("telemetry_0.txt", REPORT),
        ("telemetry_1.txt", ""),
        ("config.txt", "CC_MODE 1\n"),
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_port_whose_flows_all_aged_out_has_passed_nothing(
    folder: Path, incident: Incident
) -> None:
    stale = "\n".join(line for line in REPORT.splitlines() if "0b000201" not in line)
    (folder / "telemetry_0.txt").write_text(stale + "\n")
    load([folder], incident)
    rows = incident.con.execute(
        "SELECT packets, queue_depth FROM switch_ports WHERE at_ns = 2004600000"
    ).fetchall()
    assert rows == [(0, None)]


def test_flows_are_the_same_in_steps_and_reports(folder: Path, incident: Incident) -> None:
    load([folder], incident)
    rows = incident.con.execute(
        """SELECT name, is_collective, s.queue_depth, f.bytes, f.ended_ns - f.started_ns
        FROM flows f JOIN switch_flows s USING (flow) ORDER BY is_collective"""
    ).fetchall()
    assert rows == [
        ("2->3", False, 4.6875, 24_000_000, 4_000_000),
        ("2->3", True, 12.5, None, None),
    ]


def test_a_step_that_began_and_did_not_end_is_in_flight(folder: Path, incident: Incident) -> None:
    load([folder], incident)
    rows = incident.con.execute(
        "SELECT src, step, started_ns FROM flow_steps WHERE ended_ns IS NULL"
    ).fetchall()
    assert rows == [(3, 2, 2_006_000_000)]


def test_parts_may_lie_in_folders_beside_each_other(folder: Path, incident: Incident) -> None:
    for part, names in (
        ("out", ["fct.txt", "pfc.txt"]),
        ("data", ["telemetry_0.txt", "telemetry_1.txt"]),
    ):
        (folder / part).mkdir()
        for name in names:
            (folder / name).rename(folder / part / name)
    load([folder], incident)
    assert [incident.rows(table) for table in ("flow_steps", "links", "switch_flows")] == [4, 3, 2]


def test_two_recordings_are_two_jobs(folder: Path, incident: Incident) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()
        for part in ("fct.txt", "topology.txt"):
            (folder / name / part).write_text((folder / part).read_text())
    for file in folder.glob("*.txt"):
        file.unlink()
    with pytest.raises(BadInput, match="2 jobs; choose one with --job: one, two"):
        load([folder], incident)


def test_what_is_cut_off_is_reported(folder: Path, incident: Incident) -> None:
    (folder / "fct.txt").write_text(ENDED[:-20])
    (folder / "topology.txt").write_text(TOPOLOGY[:60])
    (folder / "telemetry_0.txt").write_text(REPORT[: REPORT.index("flow telemetry")])
    load([folder], incident)
    problems = dict(
        incident.con.execute(
            "SELECT parse_filename(path), problem FROM recordings "
            "WHERE problem IS NOT NULL AND kind IS NOT NULL"
        ).fetchall()
    )
    assert problems == {
        "fct.txt": "1 of 3 lines could not be read",
        "topology.txt": "1 of 3 links are missing",
        "telemetry_0.txt": "cut off in its last report",
    }


def test_without_steps_nothing_can_be_late_and_that_is_reported(
    folder: Path, incident: Incident
) -> None:
    (folder / "fct.txt").unlink()
    (folder / "config.txt").unlink()  # the simulator's own, which nothing reads
    load([folder], incident)
    problems = incident.con.execute(
        "SELECT problem FROM recordings WHERE problem IS NOT NULL"
    ).fetchall()
    assert problems == [("no step of a collective has ended: late steps are unknown",)]


@given(text=st.text(alphabet=st.sampled_from("time 0123 \nepochnwlastdporfm->")), cut=st.data())
def test_any_text_is_read_or_counted_never_a_crash(text: str, cut: st.DataObject) -> None:
    at = cut.draw(st.integers(0, len(REPORT)))
    rows, problem = read_reports(REPORT[:at] + text + REPORT[at:], "SW0", Reports())
    assert rows >= 0
    assert problem is None or "could not be read" in problem or "cut off" in problem


@given(st.integers(1, len(REPORT) - 1))
def test_an_epoch_reported_twice_counts_once(at: int) -> None:
    twice = Reports()
    read_reports(REPORT + REPORT[:at], "SW0", twice)
    once = Reports()
    read_reports(REPORT, "SW0", once)
    assert once.ports == twice.ports or at > REPORT.index("750")
    assert set(once.ports) == set(twice.ports)
