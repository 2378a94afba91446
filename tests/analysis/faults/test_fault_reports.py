"""What logs and hosts report is one stream, and rulebooks/faults.yaml has a row for its codes."""

from __future__ import annotations

from oncall.evidence.codes.event_catalogue import MEANINGS
from oncall.evidence.incident import Incident
from oncall.rules.language.load import load_file, shipped_folder
from oncall.rules.language.rulebook_file import Switch, codes_of

S = 1_000_000_000


def rows_of_the_table() -> dict[str, set[str]]:
    """Source -> the codes that have a row."""
    table = load_file(shipped_folder() / "faults.yaml").book.tree
    assert isinstance(table, Switch)
    found = {}
    for source, codes in table.rows.items():
        assert isinstance(codes, Switch)
        found[source] = {code for written in codes.rows for code in codes_of(written)}
    return found


def reports(incident: Incident) -> list[tuple[str, str]]:
    incident.require(["fault_reports"])
    return incident.con.execute("SELECT DISTINCT source, code FROM fault_reports").fetchall()


def test_whatever_the_catalogue_knows_has_a_row() -> None:
    codes = sorted(code for code, (_, weight, _) in MEANINGS.items() if weight != "notice")
    with Incident.empty() as incident:
        incident.append(
            "host_events",
            {
                "node": [f"n{number}" for number in range(len(codes))],
                "code": codes,
                "device": [f"0000:{number:02x}:00.0" for number in range(len(codes))],
                "path": "dmesg",
                "line": list(range(1, len(codes) + 1)),
                "text": codes,
            },
        )
        found = reports(incident)
    table = rows_of_the_table()
    assert {source for source, _ in found} >= {"host"}
    assert [one for one in found if one[1] not in table[one[0]]] == []


def test_what_a_log_states_and_what_a_host_reports_stand_side_by_side() -> None:
    with Incident.empty() as incident:
        common = {"job": "job", "attempt": 1, "path": "job.log"}
        incident.append(
            "log_events",
            common | {"line": 1, "kind": "error", "code": "KeyError", "text": "ids", "rank": 3},
        )
        incident.append(
            "host_events",
            {"node": "n1", "code": "xid_79", "device": "0000:9b:00.0", "path": "dmesg", "line": 1},
        )
        assert sorted(reports(incident)) == [("host", "gpu_fault"), ("log", "error")]


def test_a_start_that_a_later_one_outlived_is_no_failure() -> None:
    with Incident.empty() as incident:
        common = {"job": "job", "path": "job.log"}
        incident.append(
            "log_events",
            common
            | {
                "attempt": [1, 2],
                "line": [1, 2],
                "kind": ["error", "attempt"],
                "code": ["KeyError", "restart"],
                "text": ["ids", "restarted"],
            },
        )
        steps = {"attempt": 2, "line": [3, 4, 5], "iteration": [1, 2, 3], "duration_ns": S}
        incident.append("logged_steps", common | steps)
        assert ("log", "earlier_start") in reports(incident)
