"""The network screen: who waited for whose step, the way to where that begins, whose flows."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.timer import Timer
from textual.widgets import Static

from oncall.console.network import NetworkView, Opened, StepView
from oncall.console.world import Table
from oncall.report.network.waiting_text import title, waiting_lines
from oncall.report.words import clean
from oncall.tui.actions import needs_world
from oncall.tui.goto import Target
from oncall.tui.messages import Answered, Refused
from oncall.tui.models import network as model
from oncall.tui.models.cells import cut
from oncall.tui.registry import ActionEntry
from oncall.tui.screen import ConsoleScreen, Copy
from oncall.tui.state import State
from oncall.tui.states import theme_style
from oncall.tui.widgets.line_list import LineList
from oncall.tui.widgets.network_flows import NetworkFlows
from oncall.tui.widgets.network_lanes import NetworkAxis, NetworkLanes

_WIDE, _TALL = 120, 36
_REST_S = 0.15


def _needs_graph(screen: ConsoleScreen) -> str | None:
    if why := needs_world(screen):
        return why
    assert isinstance(screen, NetworkScreen)
    return None if screen.view is not None else screen.why_nothing


def _needs_before(screen: ConsoleScreen) -> str | None:
    return _needs_neighbour(screen, -1, "this is the first collective whose steps are known")


def _needs_after(screen: ConsoleScreen) -> str | None:
    return _needs_neighbour(screen, 1, "this is the last collective whose steps are known")


def _needs_neighbour(screen: ConsoleScreen, step: int, why_not: str) -> str | None:
    if why := _needs_graph(screen):
        return why
    assert isinstance(screen, NetworkScreen) and screen.view is not None
    return why_not if model.neighbour(screen.view, step) is None else None


def _needs_choice(screen: ConsoleScreen) -> str | None:
    if why := _needs_graph(screen):
        return why
    assert isinstance(screen, NetworkScreen)
    return None if screen.chosen else "the collective that lost most is what is shown"


def _needs_node(screen: ConsoleScreen) -> str | None:
    if why := _needs_graph(screen):
        return why
    step = screen.query_one(NetworkLanes).step
    return None if step is not None and step.src_node else "the sender's host is not known"


class NetworkScreen(ConsoleScreen):
    """A strip of collectives, the senders of one, and what held up the step under the cursor."""

    CSS = """
    NetworkScreen #collective { height: 3; padding: 0 1; text-wrap: nowrap;
        text-overflow: ellipsis; }
    NetworkScreen NetworkLanes { height: auto; max-height: 45%; }
    NetworkScreen #below { margin-top: 1; }
    NetworkScreen #card { width: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    NetworkScreen #step, NetworkScreen #latencies { text-wrap: nowrap; }
    NetworkScreen #others { width: 46; padding: 0 1; border-left: solid $panel; }
    NetworkScreen #others Static { height: auto; }
    NetworkScreen NetworkFlows { height: auto; max-height: 50%; }
    NetworkScreen.narrow #others { display: none; border-left: none; width: 1fr; }
    NetworkScreen.narrow.flows #others { display: block; }
    NetworkScreen.narrow.flows #card { display: none; }
    NetworkScreen.narrow #below { margin-top: 0; }
    NetworkScreen.short.opened NetworkLanes { max-height: 4; }
    """
    ACTIONS: ClassVar[tuple[ActionEntry, ...]] = (
        ActionEntry("network.open", "enter", "Rows",
                    "Show the rows behind the step or the flow under the cursor.",
                    _needs_graph, bar=True),
        ActionEntry("network.before", "left_parenthesis", "Before",
                    "Show the collective before this one.", _needs_before, bar=True),
        ActionEntry("network.after", "right_parenthesis", "After",
                    "Show the collective after this one.", _needs_after, bar=True),
        ActionEntry("network.worst", "w", "Worst",
                    "Show the collective that lost most again.", _needs_choice),
        ActionEntry("network.critical", "c", "Critical",
                    "Go to the next step on the critical path.", _needs_graph, bar=True),
        ActionEntry("network.pane", "v", "View",
                    "Show the way port by port, over the topology, or the flows at each port.",
                    _needs_graph, bar=True),
        ActionEntry("network.flows", "t", "Flows",
                    "Go to the flows of others and the latencies, or back to the steps.",
                    _needs_graph, bar=True),
        ActionEntry("network.pings", "i", "Pings",
                    "Show the latencies from the sender's host to others.", _needs_node),
        ActionEntry("network.rank", "r", "Rank", "Show the sender in the fleet.", _needs_graph),
    )  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield Static(id="collective")
        yield NetworkLanes(id="lanes")
        yield NetworkAxis()
        with Horizontal(id="below"):
            with VerticalScroll(id="card"):
                yield Static(id="step")
            with Vertical(id="others"):
                yield Static(id="flows-title")
                yield NetworkFlows(id="flows")
                yield Static(id="latencies")

    def on_mount(self) -> None:
        self._view: NetworkView | None = None
        self._why = "nothing is read yet"
        self._key: tuple[int, int] | None = None  # None: the one that lost most
        self._pane: model.Pane = "way"
        self._step: StepView | None = None
        self._rows: Table | None = None
        self._rest: Timer | None = None
        for widget in (self.query_one(NetworkLanes), self.query_one(NetworkFlows)):
            widget.plain = self.app.ascii_only
        self.query_one(NetworkLanes).focus()

    # ------------------------------------------------------------------- shown

    @property
    def view(self) -> NetworkView | None:
        return self._view

    @property
    def why_nothing(self) -> str:
        """Why no collective is shown."""
        return self._why

    @property
    def chosen(self) -> bool:
        """Whether the reader chose a collective."""
        return self._key is not None

    def show(self, state: State, before: State | None) -> None:
        if state.world is None:
            return
        if before is None or before.world is not state.world:
            self._ask_view()
        elif (state.filter, state.faults_only) != (before.filter, before.faults_only):
            self._show_lanes()

    def _ask_view(self) -> None:
        key = self._key
        self.ask("view", lambda session: session.network(key), "reading collectives")

    def on_answered(self, message: Answered) -> None:
        if message.question.group == "network.step":
            self._step = message.value
            self._draw_step()
        elif message.question.group == "network.rows":
            self._rows = message.value
            self._make_room()
            self._draw_step()
        else:
            self._view, self._step = message.value, None
            self._show_lanes()

    def on_refused(self, message: Refused) -> None:
        if message.question.group != "network.view":
            self.tell(clean(str(message.error)))
            return
        if self.chosen:  # it is not there at this moment
            self.tell(clean(str(message.error)))
            self.action_worst()
            return
        self._view, self._why = None, clean(str(message.error))
        self.query_one(NetworkLanes).show(())
        self.query_one(NetworkFlows).show(())
        muted = theme_style(self.app, "muted")
        self.query_one("#collective", Static).update(Text(self._why, muted))
        for place in ("#step", "#latencies", "#flows-title"):
            self.query_one(place, Static).update("")
        self.query_one(NetworkAxis).update("")

    def _show_lanes(self) -> None:
        if self._view is None:
            return
        shown = model.chosen(self._view.graph, self.state.filter, self.state.faults_only)
        self.query_one(NetworkLanes).show_graph(shown)
        self.query_one(NetworkFlows).show(self._view.contributors)
        self.call_after_refresh(self._tell)

    def _tell(self) -> None:
        """All that is around the lanes."""
        if self._view is None:
            return
        self.query_one(NetworkAxis).show(self.query_one(NetworkLanes))
        self.query_one("#collective", Static).update(self._header(self._view), layout=False)
        self._tell_step()
        self._tell_others(self._view)

    def _header(self, view: NetworkView) -> Text:
        muted = theme_style(self.app, "muted")
        looks = {
            "usual": theme_style(self.app, "primary"),
            "late": theme_style(self.app, "state-blamed", bold=True),
            "open": theme_style(self.app, "state-silent"),
        }
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{title(view.graph)}\n", Style(bold=True))
        told = model.strip_phrase(view)
        room = max(self.size.width - len(told) - 5, 10)
        for glyph, look, here in model.strip(view, room, self.app.ascii_only):
            text.append(glyph, looks[look] + Style(reverse=here))
        text.append(f"  {told}", muted)
        text.append("\n")
        text.append_text(self.query_one(NetworkLanes).legend())
        if view.graph.left_out:
            text.append(f"{view.graph.left_out:,} more ranks are not drawn", muted)
        return text

    def _tell_others(self, view: NetworkView) -> None:
        """Beside the step: flows of others, and latencies."""
        heading = theme_style(self.app, "primary", bold=True)
        told = "Flows of others, by their part" if view.contributors else "No flow of others"
        self.query_one("#flows-title", Static).update(Text(told, heading))
        pane = self.query_one("#others", Vertical).content_size
        most = pane.height - len(view.contributors) - 7
        width = max(pane.width, 20)
        text, flow = Text(no_wrap=True), self.query_one(NetworkFlows).row
        if flow is not None:
            muted = theme_style(self.app, "muted")
            text.append("\n".join(model.flow_lines(flow, width)) + "\n", muted)
        text.append("\nLatency between hosts\n", heading)
        text.append("\n".join(model.latency_lines(view.latencies, width, max(most, 4))))
        if self.app.ascii_only:
            text = Text(text.plain.replace("µs", "us"))
        self.query_one("#latencies", Static).update(text)

    def _tell_step(self) -> None:
        """What the graph knows of the step at once; the rest is asked for."""
        step = self.query_one(NetworkLanes).step
        if self._view is None or step is None:
            self.query_one("#step", Static).update("")
            return
        if self._step is None or self._step.step != step:
            self._step = None
            if self._rest is not None:
                self._rest.stop()
            self._rest = self.set_timer(_REST_S, self._ask_step)
        self._draw_step()

    def _ask_step(self) -> None:
        step = self.query_one(NetworkLanes).step
        if self._view is None or step is None:
            return
        collective = self._view.graph.collective
        self.ask("step", lambda session: session.network_step(collective, step), "reading its way")

    def _draw_step(self) -> None:
        step = self.query_one(NetworkLanes).step
        if step is None:
            return
        pane = self.query_one("#card", VerticalScroll)
        width = max(pane.scrollable_content_region.width, 20)
        height = pane.size.height - 2
        heading, marked = (
            theme_style(self.app, variable, bold=True) for variable in ("primary", "state-blamed")
        )
        muted = theme_style(self.app, "muted")
        text = Text(no_wrap=True)
        text.append(f"{cut(model.step_line(step), width)}\n", heading)
        text.append(f"{cut(model.waits_line(step), width)}\n", muted)
        if self._rows is not None:
            lines = model.row_lines(self._rows, width)
        elif self._step is not None:
            plain = self.app.ascii_only
            lines = model.step_lines(self._step, self._pane, width, height, plain=plain)
        else:
            lines = []
        for line in lines:
            text.append(f"{line}\n", marked if line.startswith(("▶", ">")) else "")
        if self._rows is None:
            text.highlight_regex(model.PAUSES, marked)
            text.highlight_regex(model.ROOT, marked)
            text.highlight_regex(model.ON_THE_WAY, theme_style(self.app, "warning"))
        self.query_one("#step", Static).update(text)

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        message.stop()
        if message.control.id == "lanes":
            self._close_rows()
            self._tell_step()
        elif self._view is not None:
            self._tell_others(self._view)
        self.show_keys()

    def on_network_lanes_pointed(self) -> None:
        self._close_rows()
        self.query_one("#card", VerticalScroll).scroll_home(animate=False)
        self._tell_step()

    def _close_rows(self) -> None:
        self._rows = None
        self._make_room()

    def _make_room(self) -> None:
        """Below the steps, at their cost, where a table or a map is to be read."""
        self.set_class(self._rows is not None or self._pane != "way", "opened")

    def on_resize(self, event: object) -> None:
        super().on_resize(event)  # type: ignore[arg-type]
        self.set_class(self.size.width < _WIDE, "narrow")
        self.set_class(self.size.height < _TALL, "short")
        self.call_after_refresh(self._tell)

    # ----------------------------------------------------------------- actions

    def copies(self) -> tuple[Copy, ...]:
        step = self.query_one(NetworkLanes).step
        if self._view is None or step is None:
            return ()
        graph, told = self._view.graph, str(self.query_one("#step", Static).content)
        return (
            Copy("t", "text", told),
            Copy("s", f"step {step.step}", model.step_line(step)),
            Copy("g", "graph", "\n".join(waiting_lines(graph, 100))),
        )

    def cursor_is_on(self) -> str:
        step = self.query_one(NetworkLanes).step
        return "" if step is None else f"rank {step.src}"

    def leave(self) -> bool:
        if self._rows is not None:
            self._close_rows()
            self._draw_step()
            return True
        if self.has_class("flows"):
            self.action_flows()
            return True
        if self.chosen:
            self.action_worst()
            return True
        return False

    def action_open(self) -> None:
        if self._rows is not None:
            self.leave()
            return
        flows, step = self.query_one(NetworkFlows), self.query_one(NetworkLanes).step
        if self._view is None:
            return
        of = self._view.graph.collective
        if flows.has_focus and flows.row is not None:
            opened = Opened("flow", of, flow=flows.row.flow)
        elif step is not None:
            opened = Opened("step", of, step)
        else:
            return
        self._open(opened)

    def action_pings(self) -> None:
        step = self.query_one(NetworkLanes).step
        if self._view is not None and step is not None:
            self._open(Opened("node", self._view.graph.collective, node=step.src_node))

    def _open(self, opened: Opened) -> None:
        self.set_class(False, "flows")
        self.ask("rows", lambda session: session.network_rows(opened), "reading rows")

    def action_before(self) -> None:
        self._choose(-1)

    def action_after(self) -> None:
        self._choose(1)

    def _choose(self, step: int) -> None:
        if self._view is not None and (found := model.neighbour(self._view, step)) is not None:
            self._key = found.key
            self._close_rows()
            self._ask_view()

    def action_worst(self) -> None:
        self._key = None
        self._close_rows()
        self._ask_view()

    def action_critical(self) -> None:
        lanes = self.query_one(NetworkLanes)
        if lanes.graph is not None and (found := model.next_critical(lanes.graph, lanes.step)):
            lanes.go_to_step(*found)

    def action_pane(self) -> None:
        self._pane = model.PANES[(model.PANES.index(self._pane) + 1) % len(model.PANES)]
        self._close_rows()
        self.query_one("#card", VerticalScroll).scroll_home(animate=False)
        self.call_after_refresh(self._draw_step)

    def action_flows(self) -> None:
        away = not self.has_class("flows")
        self.set_class(away, "flows")
        (self.query_one(NetworkFlows) if away else self.query_one(NetworkLanes)).focus()
        self.call_after_refresh(self._tell)

    def action_rank(self) -> None:
        if (row := self.query_one(NetworkLanes).row) is not None:
            self.app.go_to(Target("rank", row.rank))
