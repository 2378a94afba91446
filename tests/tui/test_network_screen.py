"""The network screen, key by key."""

from __future__ import annotations

from textual.widgets import Static

from oncall.console.evidence_queries import GetNetworkRows
from oncall.tui.screens.network.network_lanes import NetworkFlows, NetworkLanes

from .console import Running, console, piloted
from .pictures import check_picture, in_both_looks
from .until import until


def lanes(running: Running) -> NetworkLanes:
    return running.app.screen.query_one(NetworkLanes)


def shown_text(running: Running, place: str = "#description") -> str:
    return str(running.app.screen.query_one(place, Static).content)


async def opened(running: Running) -> None:
    """The screen, once the way of the step under its cursor is read."""
    await running.press("7")
    await until(running, lambda: "leaf3P1" in shown_text(running))


@piloted
async def test_the_cursor_walks_over_steps_and_filters_leave_senders_out() -> None:
    async with console(size=(120, 40)) as running:
        await opened(running)
        await running.press("l")
        step = lanes(running).bar
        assert step is not None and step.step == 5
        await until(running, lambda: "took as long as expected" in shown_text(running))
        await running.press("h", "j")
        step = lanes(running).bar
        assert step is not None and step.src == 14
        await running.press("f")
        assert [lane.rank for lane in lanes(running).rows] == [13]
        await running.press("f", "slash")
        await running.type("gpu021")
        assert [lane.rank for lane in lanes(running).rows] == [9]
        await running.press("f")
        assert "No sender matches; esc shows all again." in running.text()
        await running.press("escape", "right_parenthesis")
        assert "No sender is blamed; f shows all again." in running.text()


@piloted
async def test_rows_are_opened_and_left_and_the_critical_path_is_walked_around() -> None:
    async with console(size=(120, 40)) as running:
        await opened(running)
        await running.press("enter")
        assert "paused_ns" in shown_text(running) and "3,698,915" in shown_text(running)
        await running.press("escape")
        assert "paused_ns" not in shown_text(running)
        await running.press("i")
        [*_, asked] = running.session.asked_for(GetNetworkRows)
        assert asked.opened.node == "gpu025" and "58,000" in shown_text(running)
        seen = []
        for _ in range(7):
            await running.press("c")
            step = lanes(running).bar
            assert step is not None and step.critical
            seen.append(step.step)
        assert seen == [5, 6, 7, 1, 2, 3, 4]
        await running.press("t")
        assert running.app.screen.query_one(NetworkFlows).has_focus
        await running.press("j", "enter")
        [*_, asked] = running.session.asked_for(GetNetworkRows)
        assert (asked.opened.kind, asked.opened.flow) == ("flow", 102)
        assert "440,000" in shown_text(running)


@piloted
async def test_the_topology_and_the_ports_take_the_place_of_the_way() -> None:
    async with console(size=(100, 30)) as running:
        await opened(running)
        assert "paused 2.97 ms by spine1" in shown_text(running)
        assert "Ports that delayed" not in shown_text(running)
        await running.press("v")
        assert "[leaf3]" in shown_text(running) and "▼" in shown_text(running)
        await running.press("v")
        assert "Ports that delayed step 4" in shown_text(running) and "(this step)" in shown_text(
            running
        )
        assert "▼" not in shown_text(running)
        await running.press("v")
        assert "paused 2.97 ms by spine1" in shown_text(running)


@piloted
async def test_collectives_are_chosen_and_left_again() -> None:
    async with console(size=(120, 40)) as running:
        await opened(running)
        await running.press("right_parenthesis")
        assert "AllGather 15" in running.line(1)
        assert "no step of its critical path was late" in running.line(1)
        await running.press("right_parenthesis", "right_parenthesis", "right_parenthesis")
        assert "this is the last collective with recorded steps" in running.text()
        await running.press("escape")
        assert "AllGather 14" in running.line(1)
        await running.press("w")
        assert "the collective with the most lost time is already shown" in running.text()


@piloted
async def test_in_ascii_on_a_small_terminal_flows_take_the_place_of_the_way() -> None:
    async with console(size=(80, 24), ascii_only=True) as running:
        await opened(running)
        assert running.text().isascii()
        assert "▶ leaf3P1" in shown_text(running)
        await running.press("t")
        assert "gpu031->gpu026" in running.text() and running.text().isascii()
        await running.press("escape")
        assert lanes(running).has_focus
        screen = running.app.console_screen
        assert screen is not None
        text, step, graph = screen.copies()
        assert "The congestion starts at" in str(text.text)
        assert str(step.text).startswith("Step 4 from rank 13")
        assert str(graph.text).startswith("AllGather 14")
        await running.press("r")
        assert running.app.current_mode == "fleet"


@in_both_looks
@piloted
async def test_picture(size: tuple[int, int], theme: str) -> None:
    async with console(size=size, theme=theme) as running:
        await opened(running)
        check_picture(running.app, f"network-{size[0]}x{size[1]}-{theme.removeprefix('oncall-')}")
