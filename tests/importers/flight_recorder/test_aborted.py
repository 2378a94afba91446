"""Operations that a dump calls completed although they were aborted, or never launched."""

from __future__ import annotations

import pytest
from tests.importers.flight_recorder.dumps import WORLD, ops, read
from tests.sql import rows

S = 10**9
HELD = {"retired": False}


def written(fr, folder, calls, status=None):
    """Dumps of two ranks with these entries."""
    for rank, entries in calls.items():
        fr.write(folder, rank, fr.dump(entries, WORLD, status and {0: status[rank]}))


def test_what_a_member_never_called_was_aborted(fr, tmp_path, incident):
    calls = [fr.entry(number, number + 1) for number in range(3)]
    written(fr, tmp_path, {0: [*calls[:2], calls[2] | HELD], 1: calls[:2]})
    read(tmp_path, incident)
    assert ops(incident, "seq, done, ended_ns IS NULL", "rank = 0") == [
        (1, True, False),
        (2, True, False),
        (3, False, True),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("retired", True, id="the watchdog saw it end"),
        pytest.param("profiling_name", "nccl:broadcast", id="its root is done first"),
    ],
)
def test_what_can_have_completed_has(fr, field, value, tmp_path, incident):
    calls = [fr.entry(number, number + 1) for number in range(3)]
    last = calls[2] | HELD | {field: value}
    written(fr, tmp_path, {0: [*calls[:2], last], 1: calls[:2]})
    read(tmp_path, incident)
    assert ops(incident, "done", "rank = 0 AND seq = 3") == [(True,)]


def test_a_member_whose_ring_lost_its_calls_says_nothing(fr, tmp_path, incident):
    """Rank 1 called on another communicator so often that none of these calls is left."""
    groups = WORLD | {"1": ("tp", range(2))}
    called = fr.entry(0, 3, **HELD)
    other = fr.entry(1, 900, ("1", "tp"), pg_id=1)
    fr.write(tmp_path, 0, fr.dump([called, other], groups))
    fr.write(tmp_path, 1, fr.dump([other], groups))
    read(tmp_path, incident)
    assert ops(incident, "done", "seq = 3") == [(True,)]


def test_what_was_recorded_and_not_launched_is_in_flight(fr, tmp_path, incident):
    """Its events were never recorded, and such an event is not pending."""
    calls = [fr.entry(number, number + 1, **HELD) for number in range(3)]
    written(fr, tmp_path, {0: calls, 1: calls}, {0: (2, 2), 1: (3, 3)})
    read(tmp_path, incident)
    assert ops(incident, "rank", "NOT done") == [(0,)]
    incident.require(["contradictions"])
    assert rows(incident, "FROM contradictions") == []
