"""The network screen: which rank waited for whose step, the path to where the delay begins, and the
flows there.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll

from oncall.console.evidence_queries import GetNetwork, GetNetworkRows, GetNetworkStep
from oncall.render.text.lines import cut, line, plain_lines
from oncall.render.text.waiting import waiting_lines
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import styled, theme_style
from oncall.tui.screens.lanes import LaneScreen, Words, lane_actions, needs_picture
from oncall.tui.screens.network import network_lanes
from oncall.tui.screens.network.network_lanes import NetworkFlows, NetworkLanes
from oncall.tui.shell.actions import Needs, needs
from oncall.tui.shell.keys import ActionEntry
from oncall.tui.shell.messages import Copy
from oncall.tui.widgets.lanes import Pictures
from oncall.tui.widgets.line_list import LineList
from oncall.views.network.collective import NetworkView, Opened, StepView
from oncall.views.network.waiting import Lane, Step, WaitingGraph
from oncall.views.snapshot import Table

if TYPE_CHECKING:
    from oncall.console.session import Query

_WIDE = 120
_WORDS = Words(
    "collective", "with recorded steps", "the collective with the most lost time", "sender", "step"
)
_SHARED = lane_actions("network", _WORDS)


_needs_node: Needs[NetworkScreen] = needs(
    "the sender's host is unknown",
    lambda screen: screen.lanes.bar is not None and screen.lanes.bar.src_node,
    needs_picture,
)


class NetworkScreen(LaneScreen):
    """A strip of collectives, the senders of one, and what held up the step under the cursor."""

    CSS = """
    NetworkScreen Lanes { max-height: 45%; }
    NetworkScreen #below { margin-top: 1; }
    NetworkScreen #card { width: 1fr; }
    NetworkScreen #latencies { text-wrap: nowrap; }
    NetworkScreen #others { width: 46; padding: 0 1; border-left: solid $panel; }
    NetworkScreen #others Static { height: auto; }
    NetworkScreen NetworkFlows { height: auto; max-height: 50%; }
    NetworkScreen.narrow #others { display: none; border-left: none; width: 1fr; }
    NetworkScreen.narrow.flows #others { display: block; }
    NetworkScreen.narrow.flows #card { display: none; }
    NetworkScreen.narrow #below { margin-top: 0; }
    """
    WORDS = _WORDS
    view: NetworkView
    EMPTY = (
        "To record them, load the hooks (oncall hooks env), run oncall collect on the nodes, and "
        "keep switch data or NIC counters of the same time."
    )
    ACTIONS: ClassVar[tuple[ActionEntry[Any], ...]] = (
        ActionEntry("network.open", "enter", "Rows",
                    "Show the rows behind the step or the flow under the cursor.",
                    needs_picture, bar=True),
        _SHARED["critical"],
        ActionEntry("network.pane", "v", "View",
                    "Show the path port by port, on the topology, or the flows at each port.",
                    needs_picture, bar=True),
        ActionEntry("network.flows", "t", "Flows",
                    "Go to other flows and latencies, or back to the steps.",
                    needs_picture, bar=True),
        _SHARED["before"],
        _SHARED["after"],
        _SHARED["worst"],
        ActionEntry("network.pings", "i", "Pings",
                    "Show the latencies from the sender's host to others.", _needs_node),
        _SHARED["rank"],
    )  # fmt: skip

    def make_lanes(self) -> NetworkLanes:
        return NetworkLanes(id="lanes")

    def compose_below(self) -> ComposeResult:
        with Horizontal(id="below"):
            with VerticalScroll(id="card"):
                yield LiteralText(id="description")
            with Vertical(id="others"):
                yield LiteralText(id="flows-title")
                yield NetworkFlows(id="flows")
                yield LiteralText(id="latencies")

    def on_mount(self) -> None:
        super().on_mount()
        self._pane: network_lanes.Pane = "way"
        self._rows: Table | None = None

    # ------------------------------------------------------------------- shown

    @property
    def flows(self) -> NetworkFlows:
        return self.query_one(NetworkFlows)

    def reading(self) -> Query[NetworkView]:
        key: Any = self.chosen_key
        return GetNetwork(key)

    def drawing(self, view: NetworkView, text: str, faults_only: bool) -> WaitingGraph:
        return network_lanes.chosen(view.graph, text, faults_only)

    def headline(self, view: NetworkView, width: int) -> str:
        return network_lanes.title_line(view, width)

    def pictures(self, view: NetworkView) -> Pictures:
        return network_lanes.pictures(view)

    def strip_phrase(self, view: NetworkView) -> str:
        return network_lanes.strip_phrase(view)

    def bar_reading(self, lane: Lane, bar: Step) -> Query[StepView]:  # noqa: ARG002
        collective = self.view.graph.collective
        return GetNetworkStep(collective, bar)

    def is_of(self, answer: StepView, lane: Lane | None, bar: Step | None) -> bool:  # noqa: ARG002
        return answer.step == bar

    def _take_rows(self, rows: Table) -> None:
        self._rows = rows
        self._make_room()
        self.query_one("#card").focus()
        self.draw_bar()

    def show_beside(self, view: NetworkView) -> None:
        """Flows of others, and latencies."""
        self.flows.show(view.contributors)
        heading = theme_style(self.app, "primary", bold=True)
        heading_text = "Other flows, by contribution" if view.contributors else "No other flows"
        self.query_one("#flows-title", LiteralText).update(Text(heading_text, heading))
        pane = self.query_one("#others", Vertical).content_size
        most = pane.height - len(view.contributors) - 7
        width = max(pane.width, 20)
        text, flow = Text(no_wrap=True), self.flows.row
        if flow is not None:
            muted = theme_style(self.app, "muted")
            text.append("\n".join(network_lanes.flow_lines(flow, width)) + "\n", muted)
        text.append("\nLatency between hosts\n", heading)
        text.append("\n".join(network_lanes.latency_lines(view.latencies, width, max(most, 4))))
        self.query_one("#latencies", LiteralText).update(text)

    def bar_text(self, lane: Lane, bar: Step, answer: StepView | None) -> Text:  # noqa: ARG002
        width, height = self.card_width, self.query_one("#card", VerticalScroll).size.height - 2
        lines = [line(cut(network_lanes.step_line(bar), width), "heading")]
        lines += [line(text, "dim") for text in wrap(network_lanes.waits_line(bar), width)]
        if self._rows is not None:
            lines += map(line, network_lanes.row_lines(self._rows, width))
        elif answer is not None:
            lines += network_lanes.step_lines(answer, self._pane, width, height)
        return styled(self, lines)

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        super().on_line_list_moved(message)
        if message.control is self.flows and self.has_view:
            self.show_beside(self.view)

    def pointed(self) -> None:
        self._close_rows()
        super().pointed()

    def _close_rows(self) -> None:
        self._rows = None
        self._make_room()

    def _make_room(self) -> None:
        """Below the steps, at their cost, where a table or a map is to be read."""
        opened = self._rows is not None or self._pane != "way"
        if opened != self.has_class("opened"):
            self.set_class(opened, "opened")
            self.call_after_refresh(self.show_all)

    def on_resize(self, event: object) -> None:
        self.set_class(self.size.width < _WIDE, "narrow")
        super().on_resize(event)

    # ----------------------------------------------------------------- actions

    def copies(self) -> tuple[Copy, ...]:
        step = self.lanes.bar
        if not self.has_view or step is None:
            return ()
        described = str(self.query_one("#description", LiteralText).content)
        return (
            Copy("t", "text", described),
            Copy("s", f"step {step.step}", network_lanes.step_line(step)),
            Copy("g", "graph", "\n".join(plain_lines(waiting_lines(self.view.graph, 100)))),
        )

    def leave(self) -> bool:
        if self._rows is not None:
            self._close_rows()
            self.lanes.focus()
            self.draw_bar()
            return True
        if self.has_class("flows"):
            self.action_flows()
            return True
        return super().leave()

    def choose(self, key: Any) -> None:
        self._close_rows()
        super().choose(key)

    def action_open(self) -> None:
        collective, step = self.view.graph.collective, self.lanes.bar
        if self._rows is not None:
            self.leave()
        elif self.flows.has_focus and self.flows.row is not None:
            self._open(Opened("flow", collective, flow=self.flows.row.flow))
        elif step is not None:
            self._open(Opened("step", collective, step))

    def action_pings(self) -> None:
        if (step := self.lanes.bar) is not None:
            self._open(Opened("node", self.view.graph.collective, node=step.src_node))

    def _open(self, opened: Opened) -> None:
        self.set_class(False, "flows")
        self.ask("rows", GetNetworkRows(opened), self._take_rows, "reading rows")

    def action_pane(self) -> None:
        self._pane = network_lanes.PANES[
            (network_lanes.PANES.index(self._pane) + 1) % len(network_lanes.PANES)
        ]
        self._close_rows()
        self.query_one("#card", VerticalScroll).scroll_home(animate=False)
        self.call_after_refresh(self.draw_bar)

    def action_flows(self) -> None:
        away = not self.has_class("flows")
        self.set_class(away, "flows")
        (self.flows if away else self.lanes).focus()
        self.call_after_refresh(self.show_all)
