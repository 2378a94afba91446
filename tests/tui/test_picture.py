"""The picture of the finding under the cursor, on the home screen where there is room."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oncall.console.evidence_queries import GetPicture
from oncall.core.errors import UsageError
from oncall.render.text.lines import cell_len
from oncall.tui.screens.incident import overview
from oncall.tui.screens.incident.picture import LEAST, picture_lines
from oncall.views.ranks.communicators import CommunicatorView
from oncall.views.rates.buckets import Series

from .console import console, piloted
from .fake_session import FakeSession
from .pictures import check_picture
from .snapshots import DP, FAULT_NS, FIRST_NS, LAST_NS, hang_snapshot

ROOMY = (160, 50)


def view(session: FakeSession | None = None) -> CommunicatorView:
    from oncall.console.evidence_queries import GetCommunicator

    return (session or FakeSession()).communicator(GetCommunicator(DP))


def test_members_that_have_not_entered_come_first_and_fit() -> None:
    found = view()
    lines = picture_lines(found, 60, 11)
    assert "members against its last operations" in lines[0][0][0]
    assert lines[2][0][0].startswith("rank 5")
    assert all(sum(cell_len(text) for text, _ in line) <= 60 for line in lines)
    assert "AllReduce 14: 0 of 16 done" in lines[-1][0][0]
    assert not picture_lines(found, 60, LEAST - 1)
    many = replace(found, state=np.arange(found.state.size).reshape(found.state.shape) % 4)
    few = picture_lines(many, 60, 6)
    assert len(few) == 6 and "more members" in few[-2][0][0]


def test_lines_of_a_report_are_cut_to_the_pane() -> None:
    lines = picture_lines(("x" * 90, "b", "c", "d", "e", "f"), 40, 5)
    assert len(lines) == 5 and cell_len(lines[0][0][0]) == 40


@piloted
async def test_the_picture_is_there_where_there_is_room() -> None:
    async with console(size=ROOMY) as running:
        assert "members against its last operations" in running.text()
        asked = [one for one in running.session.asked if isinstance(one, GetPicture)]
        assert [one.finding for one in asked] == ["F1"]
        check_picture(running.app, "picture-160x50-dark")
        await running.press("G")  # the coverage has none
        assert "members against" not in running.text()
    async with console(size=(160, 40)) as running:
        assert "members against" not in running.text()
        assert not any(isinstance(one, GetPicture) for one in running.session.asked)


@piloted
async def test_what_cannot_be_drawn_leaves_no_trace_of_another() -> None:
    session = FakeSession()
    session.fails[GetPicture] = UsageError("not in this evidence")
    async with console(session, ROOMY) as running:
        assert "members against" not in running.text()
        assert "completed operations" in running.text()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.97, 1.0])
def test_an_axis_has_its_ends_unless_the_mark_is_there(share: float) -> None:
    at_ns = np.linspace(FIRST_NS, LAST_NS, 40).astype(np.int64)
    series = (Series("completed operations", "ops/s", at_ns, np.ones(40)),)
    moment_ns = FIRST_NS + round((LAST_NS - FIRST_NS) * share)
    glance = overview.Glance(hang_snapshot(), series, (), moment_ns)
    said = "".join(text for text, _ in overview.narrow(glance, 90)[1])
    assert "▲" in said and cell_len(said) <= 90
    assert ("08:53:20 UTC " in said) == (share > 0.2 or share == 0)
    assert ("09:05:50 UTC" in said) == (share < 0.8 or share == 1)
    without = replace(glance, moment_ns=None)
    said = "".join(text for text, _ in overview.narrow(without, 90)[1])
    assert "08:53:20 UTC" in said and "09:05:50 UTC" in said and FAULT_NS
