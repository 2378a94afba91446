"""The stage screen, key by key."""

from __future__ import annotations

from textual.widgets import Static

from oncall.console.evidence_queries import GetRates, GetStages
from oncall.core.errors import UsageError
from oncall.tui.screens.stages.stage_lanes import StageLanes

from .console import Running, console, piloted
from .fake_session import FakeSession
from .pictures import check_picture, in_both_looks
from .until import until


def lanes(running: Running) -> StageLanes:
    return running.app.screen.query_one(StageLanes)


def shown_text(running: Running, place: str = "#description") -> str:
    return str(running.app.screen.query_one(place, Static).content)


async def opened(running: Running) -> None:
    """The screen, once the task under its cursor is read."""
    await running.press("6")
    await until(running, lambda: "tensor group" in shown_text(running))


@piloted
async def test_the_cursor_walks_over_tasks_and_keeps_its_time_between_lanes() -> None:
    async with console(size=(120, 40)) as running:
        await opened(running)
        await running.press("l")
        box = lanes(running).bar
        assert box is not None and (box.task, box.micro_batch) == ("forward", 5)
        await running.press("h", "h")
        box = lanes(running).bar
        assert box is not None and (box.task, box.micro_batch) == ("forward", 4)
        before = box.started_ns
        await running.press("k")
        row, box = lanes(running).row, lanes(running).bar
        assert row is not None and box is not None and row.stage == 1
        assert abs(box.started_ns - before) < 200 * 10**6
        assert shown_text(running).startswith(f"{box.name} on rank {row.rank}")


@piloted
async def test_iterations_are_chosen_and_left_again() -> None:
    async with console(size=(120, 40)) as running:
        await opened(running)
        await running.press("left_parenthesis")
        assert "Iteration 6," in running.line(1) and "slow" in running.line(2)
        await running.press("right_parenthesis", "right_parenthesis")
        assert "Iteration 8," in running.line(1)
        await running.press("escape")
        assert "Iteration 7," in running.line(1) and running.app.current_mode == "stages"
        await running.press("w")
        assert "the worst iteration is already shown" in running.text()
        await running.press("colon")
        await running.type("iteration 11")
        assert "Iteration 11," in running.line(1)
        await running.press("right_parenthesis")
        assert "this is the last iteration recorded" in running.text()
        await running.press("colon")
        await running.type("iteration 12")
        assert "there is no iteration 12; they are 0 to 11" in running.text()
        assert "Iteration 7," in running.line(1)


@piloted
async def test_the_screen_follows_the_time_cursor() -> None:
    async with console(size=(120, 40)) as running:
        await opened(running)
        await running.press("right_parenthesis")
        running.session.last = 7  # at the moment before, the eighth has not begun
        await running.press("left_square_bracket")
        assert "Iteration 7," in running.line(1)
        assert "there is no iteration 8; they are 0 to 7" in running.text()


@piloted
async def test_a_filter_and_faults_only_leave_lanes_out_at_the_same_scale() -> None:
    async with console(size=(120, 40)) as running:
        await opened(running)
        await running.press("f")
        assert [lane.stage for lane in lanes(running).rows] == [2]
        assert "1.81 s" in running.line(5)
        await running.press("f", "slash")
        await running.type("gpu017")
        assert [lane.stage for lane in lanes(running).rows] == [0, 1]


@piloted
async def test_in_ascii_a_task_is_given_room_copied_and_its_rank_gone_to() -> None:
    async with console(size=(80, 24), ascii_only=True) as running:
        await opened(running)
        assert running.text().isascii()
        (line,) = (line for line in running.text().splitlines() if "stage 2 rank 8" in line)
        assert "B3=####" in line
        await running.press("enter")
        assert "1.2 ms" in running.text()
        screen = running.app.console_screen
        assert screen is not None
        task, iteration, rank = screen.copies()
        assert str(task.text).startswith("backward of micro-batch 3 on rank 8")
        assert str(iteration.text).startswith("Iteration 7,") and "████" in str(iteration.text)
        assert rank.text == "rank 8"
        await running.press("escape", "r")
        assert running.app.current_mode == "fleet"


@piloted
async def test_pipelines_and_ranks_are_chosen() -> None:
    async with console(size=(120, 40)) as running:
        await opened(running)
        await running.press("v")
        assert len(lanes(running).rows) == 8
        await running.press("v", "p")
        assert "Iteration 7, pipeline 1 of 0-1" in running.line(1)
        assert [lane.rank for lane in lanes(running).rows] == [2, 6, 10, 14]
        await running.press("c")
        assert "critical path" in running.text()


@piloted
async def test_what_is_not_known_says_why() -> None:
    session = FakeSession()
    session.fails[GetStages] = UsageError("no iteration of a pipeline is known here")
    async with console(session) as running:
        await running.press("6")
        assert "No iteration of a pipeline is known here." in running.line(1)
        assert "--training tp=2,pp=4" in " ".join(running.text().split())
        await running.press("c")
        assert "no iteration of a pipeline is known here" in running.text().splitlines()[-2]


@in_both_looks
@piloted
async def test_picture(size: tuple[int, int], theme: str) -> None:
    async with console(size=size, theme=theme) as running:
        await opened(running)
        check_picture(running.app, f"stages-{size[0]}x{size[1]}-{theme.removeprefix('oncall-')}")


@piloted
async def test_where_there_is_room_the_jobs_iterations_are_beside_the_task() -> None:
    session = FakeSession()
    async with console(session, size=(160, 48)) as running:
        await running.press("6")
        text = running.text()
        assert "iteration time: 10 min" in text and "completed operations: 0 ops/s" in text
        await running.press("enter")
        assert "completed operations" not in running.text()  # the task has the whole width
    session = FakeSession()
    async with console(session, size=(120, 40)) as running:
        asked = len(session.asked_for(GetRates))
        await running.press("6")
        assert len(session.asked_for(GetRates)) == asked
        assert "iteration time:" not in running.text()
