"""The incident screen, key by key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncall.console.evidence_queries import GetStepRows
from oncall.core.diagnosis import Blame
from oncall.core.errors import UsageError
from oncall.tui.screens.incident.verdict import StepPane
from oncall.tui.widgets.reading_list import ReadingList

from .console import Running, console, piloted
from .fake_session import FakeSession
from .models.test_incident import another, with_findings
from .pictures import check_picture
from .snapshots import FAULT_NS, hang, hang_snapshot, silent_snapshot, waiting
from .until import until, until_seen

NARROW, WIDE = (80, 24), (160, 48)


def item_of(running: Running, pane: str) -> str:
    item = running.app.screen.query_one(f"#{pane}", ReadingList).item
    return item.name if item is not None else ""


def top_of(running: Running, text: str) -> int:
    """The line of the screen that a text is on."""
    return next(n for n, line in enumerate(running.text().splitlines()) if text in line)


async def arrive(running: Running, session: FakeSession, *findings: object) -> None:
    """A new snapshot comes, as while gathering again."""
    session.replace(replace(with_findings(*findings), version=2))  # type: ignore[arg-type]
    running.app.open_job(running.app.state.job or "")
    await running.settle()


@piloted
async def test_enter_drills_down_to_the_rows_and_escape_comes_back() -> None:
    async with console(size=NARROW) as running:
        await running.press("enter", "k")
        assert item_of(running, "story") == "step 1"
        await running.press("enter")
        await until_seen(running, "absent · 1 row")
        assert "SELECT m.* FROM hang_members" in running.text()
        assert "Do next" not in running.text()
        await running.press("escape")
        assert "Do next" in running.text()
        assert item_of(running, "story") == "step 1"
        await running.press("escape")
        assert running.app.focused is running.app.screen.query_one("#findings")


@piloted
@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_below_the_steps_the_rows_are_those_of_the_conclusion(size: tuple[int, int]) -> None:
    async with console(size=size) as running:
        await running.press("enter", "c")
        assert item_of(running, "story") == "next 0.1"
        await running.press("w")
        await until_seen(running, "absent · 1 row")
        assert running.app.screen.query_one(StepPane).has_focus_within
        await running.press("escape")
        assert item_of(running, "story") == "next 0.1"


@piloted
async def test_beside_the_story_rows_follow_the_cursor() -> None:
    async with console(size=(200, 60)) as running:
        await running.press("w")
        await until_seen(running, "absent · 1 row")
        await running.press("shift+tab", "g")
        await until_seen(running, "stuck · 15 rows")
        await running.press("j")
        await until_seen(running, "absent · 1 row")
        assert running.session.asked[-1] == GetStepRows("F1", 1)
        await running.press("escape", "escape")
        assert "completed operations" in running.text()  # the glance is back


@piloted
async def test_running_through_the_story_asks_only_where_one_stops() -> None:
    async with console(size=WIDE) as running:
        await running.press("w")
        await until_seen(running, "absent · 1 row")
        await running.press("shift+tab")
        await running.pilot.press("k", "k", "j", "j", "k", "k")
        await until_seen(running, "stuck · 15 rows")
        asked = running.session.asked_for(GetStepRows)
        assert asked == [GetStepRows("F1", 2), GetStepRows("F1", 0)]


@piloted
async def test_rows_that_cannot_be_read_say_why() -> None:
    session = FakeSession()
    session.fails[GetStepRows] = UsageError("gpu017 took its shards away")
    async with console(session, size=WIDE) as running:
        await running.press("w")
        await until_seen(running, "cannot read the rows: gpu017 took its shards away")
        assert "Not entered: rank 5" in running.text()


@piloted
async def test_a_new_finding_does_not_move_the_reader() -> None:
    session = FakeSession()
    async with console(session, size=NARROW) as running:
        await running.press("enter", "k")
        story = running.app.screen.query_one("#story", ReadingList)
        stands_at, scrolled = item_of(running, "story"), story.scroll_y
        followers = [replace(waiting(), id="F3", explained_by="F2")]
        await arrive(running, session, another(), replace(hang(), id="F2"), *followers)
        assert "2 root causes" in running.text()
        assert item_of(running, "findings").startswith("hang|H1")
        assert "Slow NIC: NIC mlx5_3 on gpu018  new" in running.text()
        assert item_of(running, "story") == stands_at
        assert story.scroll_y == scrolled
        assert running.app.focused is story
        await running.press("w")
        await until(running, lambda: running.session.asked[-1] == GetStepRows("F2", 1))


@piloted
async def test_who_has_not_moved_sees_the_worst_and_its_command() -> None:
    """Left open all night: what comes at 3 a.m. is on top, under the cursor, with its command."""
    session = FakeSession(with_findings(another()))
    async with console(session, size=NARROW) as running:
        assert item_of(running, "findings").startswith("slow|S2")
        worse = replace(hang(), next=("Look: `ssh gpu017 ps aux`",))
        await arrive(running, session, worse, replace(another(), id="F2"))
        assert item_of(running, "findings").startswith("hang|H1")
        assert "Next  $ ssh gpu017 ps aux" in running.text()
        await running.press("j")
        assert item_of(running, "findings").startswith("slow|S2")
        assert "Next  $ ssh gpu017 ps aux" in running.text()  # of the verdict above it


@piloted
async def test_a_finding_in_the_middle_of_a_long_list_stays_on_its_line() -> None:
    many = [
        replace(another(), id=f"F{n}", title=f"Slow NIC {n}", blame=(Blame("nic", {"nic": n}),))
        for n in range(2, 30)
    ]
    session = FakeSession(with_findings(hang(), *many))
    async with console(session, size=NARROW) as running:
        await running.press(*["j"] * 12)
        here = item_of(running, "findings")
        title = "Slow NIC 13:"
        line = top_of(running, title)
        await arrive(running, session, another(), hang(), *many)
        assert item_of(running, "findings") == here
        assert top_of(running, title) == line


@piloted
async def test_back_before_the_fault_and_forth_again() -> None:
    async with console(size=NARROW) as running:
        await running.press("j", "k")
        running.app.jump(FAULT_NS - 10**9)
        await running.settle()
        assert "No fault found" in running.line(1)
        await running.press("full_stop")
        assert "Not entered" in running.line(1)
        assert item_of(running, "findings").startswith("hang|H1")


@piloted
async def test_commands_are_copied_one_after_the_other() -> None:
    changed = replace(hang(), next=("Stacks: `py-spy dump --pid 1`, then `dmesg -T | tail`.",))
    async with console(FakeSession(with_findings(changed)), size=NARROW) as running:
        await running.press("c")
        assert running.app.clipboard == "py-spy dump --pid 1"
        assert "copied" in running.text()
        await running.press("c")
        assert running.app.clipboard == "dmesg -T | tail"
        await running.press("c", "y")
        assert running.app.clipboard == "py-spy dump --pid 1"


@piloted
async def test_rows_are_copied_with_their_columns() -> None:
    async with console(size=NARROW) as running:
        await running.press("tab", "g", "w")
        await until_seen(running, "stuck · 15 rows")
        await running.press("j", "y", "r")
        assert running.app.clipboard == "1\tgpu017\t14"
        await running.press("y", "a")
        assert running.app.clipboard.splitlines()[0] == "rank\tnode\tseq"


@piloted
async def test_consequences_unfold_and_fold() -> None:
    async with console(size=NARROW) as running:
        await running.press("o", "j")
        assert "└ ▲ Transfers wait for a rank" in running.text()
        assert "F2 waits W1" in running.text()
        await running.press("o")
        assert "explains 1 more finding" in running.text()
        assert item_of(running, "findings").startswith("hang|H1")


@piloted
async def test_go_to_a_finding_by_its_verdict() -> None:
    async with console(size=NARROW) as running:
        await running.press("j", "colon")
        await running.type("finding H1")
        assert item_of(running, "findings").startswith("hang|H1")
        await running.press("colon")
        await running.type("finding H9")
        assert "there is no such finding here" in running.text()


@piloted
async def test_the_rank_that_is_blamed_is_a_key_away() -> None:
    async with console(size=WIDE) as running:
        await running.press("r")
        assert running.app.current_mode == "fleet"


@piloted
async def test_a_filter_narrows_the_list_and_says_so() -> None:
    session = FakeSession(with_findings(another(), replace(hang(), id="F2")))
    async with console(session, size=NARROW) as running:
        await running.press("slash")
        await running.type("mlx5")
        findings = running.app.screen.query_one("#findings", ReadingList)
        assert [item.name.split("|")[0] for item in findings.items] == ["slow", "seen"]


@piloted
async def test_a_resize_keeps_the_place() -> None:
    async with console(size=WIDE) as running:
        await running.press("tab", "j", "j")
        here = item_of(running, "story")
        for size in ((60, 16), (200, 60), (80, 24)):
            await running.pilot.resize_terminal(*size)
            await running.settle()
        assert item_of(running, "story") == here
        assert "CRITICAL" in running.text()


@piloted
async def test_picture_of_silence() -> None:
    async with console(FakeSession(silent_snapshot()), size=NARROW) as running:
        check_picture(running.app, "incident-silence-80x24-dark")


@piloted
async def test_picture_with_rows_over_the_story() -> None:
    async with console(FakeSession(hang_snapshot()), size=NARROW) as running:
        await running.press("tab", "g", "w")
        await until_seen(running, "stuck · 15 rows")
        check_picture(running.app, "incident-rows-80x24-dark")


@piloted
async def test_sql_and_papers_are_one_key_away() -> None:
    async with console(size=WIDE) as running:
        await running.press("w")
        await until_seen(running, "SELECT m.* FROM hang_members")
        assert "CCL-D 4.2.2" in running.text()


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        (NARROW, "oncall-dark"),
        (NARROW, "colour-blind"),
        ((120, 40), "ansi-dark"),
        ((200, 60), "oncall-light"),
    ],
)
@piloted
async def test_the_home_screen_in_every_size_and_theme(size: tuple[int, int], theme: str) -> None:
    async with console(size=size, theme=theme) as running:
        check_picture(running.app, f"home-{size[0]}x{size[1]}-{theme}")
