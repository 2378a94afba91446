"""Tasks, sends and the critical path among the tracks of an incident."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from typing import Any

import pytest

from oncall.core.diagnosis import Coverage, Diagnosis
from oncall.evidence.incident import Incident
from oncall.render.perfetto.as_json import write_json
from oncall.render.perfetto.trace import trace
from oncall.views import incident_tracks


def shown_of(incident: Incident) -> list[dict[str, Any]]:
    nothing = Diagnosis("pipe", None, None, Coverage(1, 1, 8, 8), ())
    clocks = incident_tracks.prepare(incident)
    written = io.BytesIO()
    events, arrows = incident_tracks.events(incident), incident_tracks.arrows(incident)
    write_json(trace(nothing, clocks, events, arrows), written)
    shown: list[dict[str, Any]] = json.loads(written.getvalue())["traceEvents"]
    return shown


@pytest.mark.parametrize("recorded", ["delayed", "grouped"])
def test_slices_of_a_thread_nest(recorded: str, request: pytest.FixtureRequest) -> None:
    """What Perfetto asks of complete events: one ends before the next begins, or holds it."""
    lanes = defaultdict(list)
    for event in shown_of(request.getfixturevalue(recorded)):
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        open_until: list[float] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)


@pytest.mark.parametrize(("recorded", "pipelines"), [("delayed", 2), ("grouped", 1)])
def test_each_send_is_an_arrow_from_within_its_task_to_the_one_that_waits(
    recorded: str, pipelines: int, request: pytest.FixtureRequest
) -> None:
    events = shown_of(request.getfixturevalue(recorded))
    slices = [e for e in events if e["ph"] == "X"]
    fourth = {
        (one["pid"], one["tid"], one["ts"], one["ts"] + one["dur"])
        for one in slices
        if one["args"].get("iteration") == 4
    }
    starts = {e["id"]: e for e in events if e["ph"] == "s" and e["name"].startswith("sends")}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    within = [
        number
        for number, start in starts.items()
        if any(
            (pid, tid) == (start["pid"], start["tid"]) and begin <= start["ts"] < end
            for pid, tid, begin, end in fourth
        )
    ]
    assert len(within) == pipelines * 3 * 2 * 4
    assert all(starts[number]["ts"] <= ends[number]["ts"] for number in starts)
