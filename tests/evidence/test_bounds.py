"""Values that cannot be are removed before anything is computed, and counted."""

from __future__ import annotations

from typing import Any

import pytest

from oncall.evidence import bounds
from oncall.evidence.bounds import Disbelief, bounds_of, strip_impossible
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME, TABLES

_LIMITS = {"INTEGER": (-(2**31), 2**31 - 1), "BIGINT": (-(2**63), 2**63 - 1)}


def values(incident: Incident, table: str, column: str) -> list[Any]:
    return [row[0] for row in incident.con.execute(f"SELECT {column} FROM {table}").fetchall()]


def test_a_clock_beyond_all_arithmetic_is_unknown(incident: Incident) -> None:
    incident.append("ops", {"rank": [0, 1, 2], "started_ns": [5, 2**63 - 1, None]})
    assert incident.disbelieve() == (
        Disbelief("ops", "started_ns", 1, str(2**63 - 1), dropped=False),
    )
    assert values(incident, "ops", "started_ns") == [5, None, None]


def test_a_recording_keeps_its_problem_without_its_rank(incident: Incident) -> None:
    incident.append("recordings", {"rank": -5, "path": "dump", "problem": "cut short"})
    [found] = incident.disbelieve()
    assert not found.dropped
    assert values(incident, "recordings", "problem") == ["cut short"]


def test_sound_evidence_stays_as_it_is(incident: Incident) -> None:
    for table in TABLES:
        low, high = {}, {}
        for column in table.columns:
            limits = bounds_of(table.name, column)
            low[column.name], high[column.name] = limits or (None, None)
        incident.append(
            table.name, {name: [low[name], high[name], None] for name in table.column_names}
        )
    before = {table.name: incident.rows(table.name) for table in TABLES}
    assert incident.disbelieve() == ()
    assert {table.name: incident.rows(table.name) for table in TABLES} == before


def test_the_extremes_of_every_column_are_beyond_its_bounds(incident: Incident) -> None:
    """Whatever has bounds has them well within its type: there is room for arithmetic."""
    for table in TABLES:
        for column in table.columns:
            limits = bounds_of(table.name, column)
            if limits is None:
                continue
            least, most = _LIMITS[column.type]
            assert least <= limits[0] - 1 and limits[1] + 1 <= most
            incident.append(table.name, {column.name: [least, most]})
            found = strip_impossible(incident.con, BY_NAME[table.name])
            assert [(one.column, one.count) for one in found] == [(column.name, 2)]
            assert set(values(incident, table.name, column.name)) <= {None}
            incident.con.execute(f"DELETE FROM {table.name}")


def test_the_bounds_leave_room_for_arithmetic() -> None:
    low, high = bounds.INSTANT_NS
    assert high - low < 2**63
    assert high + (high - low) < 2**63
    assert high + bounds.CLOCK_OFFSET_NS[1] < 2**63
    assert 1_000 * bounds.DURATION_NS[1] < 2**63
    assert bounds.COUNTER[1] - bounds.COUNTER[0] < 2**63


def test_each_table_is_looked_at_once(incident: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def strip(con: Any, table: Any) -> tuple[Disbelief, ...]:
        looked.append(table.name)
        return strip_impossible(con, table)

    monkeypatch.setattr("oncall.evidence.incident.strip_impossible", strip)
    incident.append("ops", {"rank": 1})
    incident.disbelieve()
    incident.disbelieve()
    assert looked == ["ops"]
    incident.append("ops", {"rank": -1})
    assert [one.count for one in incident.disbelieve()] == [1]
    assert looked == ["ops", "ops"]


def test_what_this_process_measured_itself_is_believed(incident: Incident) -> None:
    incident.append("ops", {"rank": -1})
    assert Incident(incident.con, trusted=True).disbelieve() == ()
    assert incident.rows("ops") == 1
