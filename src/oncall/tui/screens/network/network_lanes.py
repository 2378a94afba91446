"""The waiting graph of a collective, one line per sender, the cursor on one of its steps; the other
flows by what they contributed to its being late; and the words of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Literal

from rich.style import Style

from oncall.core.units import format_duration
from oncall.render.text.lines import Line, cell_len, cut, line, padded
from oncall.render.text.provenance import provenance_lines
from oncall.render.text.topology import tier_lines, title, way_lines
from oncall.render.text.waiting import Run, axis, lane_name, lane_runs, wait_phrase
from oncall.render.text.waiting import title as waiting_title
from oncall.tui.drawing.states import theme_style
from oncall.tui.widgets.lanes import Lanes, Look, Pictures, matching
from oncall.tui.widgets.line_list import LineList
from oncall.tui.widgets.sheet_table import aligned
from oncall.views.network.collective import NetworkView, NodeLatency, StepView
from oncall.views.network.provenance import Contributor
from oncall.views.network.waiting import Collective, Lane, Step, WaitingGraph
from oncall.views.snapshot import Table


class NetworkLanes(Lanes[WaitingGraph, Lane, Step]):
    """Up and down choose a sender, left and right one of its steps."""

    WIDEST_NAME = 26
    HELP = """\
A line shows what one rank sent in a collective, step by step. 4━━ is step 4 on the critical \
path, 4── a step off it; █ and ▒ mark time beyond the expected time; dots wait for the data to \
send on. A late step on the path delays all ranks: below is what delayed it in the network. Left \
and right move between steps; tab goes to the text below, where arrows scroll."""

    def bars(self, lane: Lane) -> Sequence[Step]:
        return lane.steps

    def first_bar(self, lane: Lane) -> Step | None:
        """What lost most of the path, else is late, else critical."""
        return max(
            lane.steps,
            key=lambda step: (step.critical and step.late, step.late, step.excess_ns * step.late,
                              step.critical),
            default=None,
        )  # fmt: skip

    def beginning(self, drawing: WaitingGraph) -> tuple[int, Step] | None:
        """The step that made it late."""
        worst = drawing.worst
        return next(
            (
                (number, step)
                for number, lane in enumerate(drawing.lanes)
                for step in lane.steps
                if worst is not None and step.key == worst.key
            ),
            None,
        )

    def path(self) -> Sequence[tuple[int, Step]]:
        lanes = () if self.drawing is None else self.drawing.lanes
        return sorted(
            (
                (number, step)
                for number, lane in enumerate(lanes)
                for step in lane.steps
                if step.critical
            ),
            key=lambda one: one[1].started_ns,
        )

    def is_same(self, before: WaitingGraph, now: WaitingGraph) -> bool:
        return before.collective.key == now.collective.key

    def name_of(self, lane: Lane) -> str:
        return lane_name(lane)

    def axis(self, columns: int) -> str:
        return "" if self.drawing is None else axis(self.drawing, columns)

    # ----------------------------------------------------------------- drawing

    def dress(self) -> None:
        self._looks = {
            "critical": theme_style(self.app, "primary", bold=True),
            "other": theme_style(self.app, "muted"),
            "waits": theme_style(self.app, "state-waiting"),
            "idle": Style(),
        }
        self._off_path = theme_style(self.app, "warning")
        super().dress()

    def pieces(self, lane: Lane, columns: int, under: Step | None) -> Iterable[tuple[str, Style]]:
        if self.drawing is not None:
            for run in lane_runs(self.drawing, lane, columns):
                yield run.text, self._style(run, under)

    def _style(self, run: Run, under: Step | None) -> Style:
        if run.look == "beyond":  # a full block turned round would be blank
            return self.blamed if run.step is not None and run.step.critical else self._off_path
        pointed = run.step is not None and run.step is under
        style = self._looks.get(run.look, Style())
        return style + Style(reverse=True) if pointed else style

    def legend(self) -> Iterator[tuple[str, Style, str]]:
        """What lines mean, of those that are there."""
        steps = [step for lane in self.rows for step in lane.steps]
        late = [step for step in steps if step.late]
        yield "━━", self._looks["critical"], "critical path"
        if any(step.critical for step in late):
            yield "█", self.blamed, "late"
        if any(not step.critical for step in late):
            yield "▒", self._off_path, "late off it"
        if any(step.waited_for == "data" for step in steps):
            yield "··", self._looks["waits"], "waits for data"


class NetworkFlows(LineList[Contributor]):
    """One line of each: its place, name, part as a bar and in percent."""

    HELP = """\
Other flows, by their share in the delay of the collective; act on the first one first. A flow's \
contribution is the number of its packets that late steps queued behind, weighted by the time \
each step lost."""

    def key(self, row: Contributor) -> int:
        return row.flow

    def dress(self) -> None:
        self._bar = theme_style(self.app, "state-blamed")
        self._muted = theme_style(self.app, "muted")
        super().dress()

    def draw(self, row: Contributor, width: int) -> Iterable[tuple[str, Style]]:
        name, bar, share = flow_words(row, width)
        yield f"{name} ", Style()
        yield bar, self._bar
        yield f" {share}", self._muted


Pane = Literal["way", "map", "ports"]
PANES: tuple[Pane, ...] = ("way", "map", "ports")
_MOST_ROWS = 60
_BAR = 10


# ----------------------------------------------------------------- collectives


def pictures(view: NetworkView) -> Pictures:
    """Each collective by what share of its time it lost; half of it fills the scale."""
    heights = [(2 * one.lost_ns / max(one.took_ns, 1), _look(one)) for one in view.collectives]
    return Pictures([one.key for one in view.collectives], heights, view.graph.collective.key)


def _look(one: Collective) -> Look:
    return "open" if not one.over else "late" if one.lost_ns > 0 else "normal"


def title_line(view: NetworkView, width: int) -> str:
    """The title; where that is too long, with the beginning of the communicator's hash alone."""
    full_title, comm = waiting_title(view.graph), f"{view.graph.collective.comm:#x}"
    return full_title if len(full_title) <= width else full_title.replace(comm, f"{comm[:6]}…")


def strip_phrase(view: NetworkView) -> str:
    """`3 of 12 collectives, 2 late`."""
    late = sum(one.lost_ns > 0 for one in view.collectives)
    count = len(view.collectives)
    of = f"{pictures(view).at + 1:,} of {count:,} collectives" if count > 1 else "1 collective"
    return f"{of}, {late:,} late" if count > 1 else of


# ---------------------------------------------------------------------- cursor


def chosen(graph: WaitingGraph, text: str = "", faults_only: bool = False) -> WaitingGraph:
    """Only senders whose rank or node holds every word, and that made the collective late."""
    return replace(graph, lanes=matching(graph.lanes, text, faults_only))


# ----------------------------------------------------------------------- words


def step_line(step: Step) -> str:
    """`Step 4 from rank 13 to 14: 9.24 ms, 4.1 ms over expected`."""
    took = format_duration(step.took_ns) + ("" if step.over else ", not finished")
    beyond = ", as expected"
    if step.late:
        beyond = f", {format_duration(step.excess_ns)} over expected"
    elif step.expected_ns is None:
        beyond = ""
    return f"Step {step.step} from rank {step.src} to {step.dst}: {took}{beyond}"


def waits_line(step: Step) -> str:
    """Whether it is on the path, what it waited for, and how many waited for it."""
    steps = "step" if step.waiters == 1 else "steps"
    after = f"; {step.waiters:,} {steps} waited for it" if step.waiters else ""
    return f"{'On the critical path:' if step.critical else 'It'} {wait_phrase(step)}{after}"


def step_lines(view: StepView, pane: Pane, width: int, height: int) -> list[Line]:
    """What switches reported about a step: the way port by port, the topology with it, or the flows
    at each port; all of them where there is room."""
    if view.why_not is not None:
        return [line(text) for text in wrap(f"{view.why_not[0].upper()}{view.why_not[1:]}.", width)]
    ways = _panes(view, width)
    whole = [one for name in PANES for one in (*ways[name], Line())]
    if len(whole) <= height or (pane == "way" and not ways[pane]):
        return whole
    if pane == "way" and len(ways["way"]) + len(ways["map"]) < height:
        return [*ways["way"], Line(), *ways["map"]]
    return ways[pane] or [line("No data.")]


def _panes(view: StepView, width: int) -> dict[Pane, list[Line]]:
    shown, graph = view.topology, view.provenance
    found: dict[Pane, list[Line]] = {"way": [], "map": [], "ports": []}
    if shown is not None:
        says = [line(part) for text in title(shown) for part in wrap(text, width)]
        found["way"] = [*says, *way_lines(shown, width)]
        found["map"] = tier_lines(shown, width)
    if graph is not None:
        found["ports"] = provenance_lines(graph, width)
    return found


def row_lines(table: Table, width: int) -> list[str]:
    """A table's rows, aligned and cut."""
    if not table.rows:
        return ["No rows recorded."]
    lines = [cut(line, width) for line in aligned(table, _MOST_ROWS)]
    more = table.total - min(len(table.rows), _MOST_ROWS)
    return lines + [f"and {more:,} more"] * (more > 0)


def flow_words(one: Contributor, width: int) -> tuple[str, str, str]:
    """A contributor as name, bar and share with score: `18->14`, `████`, `25 %`."""
    share = "    -" if one.share is None else f"{100 * one.share:3.0f} %"
    bar = "█" * round((one.share or 0) * _BAR)
    room = max(width - _BAR - len(share) - 6, 6)
    return f"{one.place:>2} {padded(cut(one.name, room), room)}", f"{bar:<{_BAR}}", share


def flow_lines(one: Contributor, width: int) -> list[str]:
    """A contributor in full."""
    meets = "shares a queue with it" if one.meets else "fills a queue that blocks it"
    ports = f" at {', '.join(one.ports)}" if one.ports else ""
    ends = f"{one.src_host} to {one.dst_host}, " if one.src_host and one.dst_host else ""
    delays = f"its packets delayed this collective {one.score:,.0f} times"
    return wrap(f"{ends}{meets}{ports}; {delays}", width)


def latency_lines(latencies: Sequence[NodeLatency], width: int, most: int) -> list[str]:
    """Each NIC's share of latencies, in the network and inside the host, the slowest first."""
    if not latencies:
        return wrap("No pings: `oncall collect` measures them between nodes.", width)
    shown = latencies[: max(most - 2, 1)]
    names = [f"{one.node} {one.nic}".rstrip() for one in shown]
    measured = [(_latency(one.network_ns), _latency(one.host_ns)) for one in shown]
    wide = min(max(map(cell_len, names)), max(width - 20, 8))
    lines = [f"{'':<{wide}}  {'network':>8}  {'in host':>8}"]
    lines += [
        f"{padded(cut(name, wide), wide)}  {network:>8}  {host:>8}"
        for name, (network, host) in zip(names, measured, strict=True)
    ]
    more = len(latencies) - len(shown)
    return [cut(line, width) for line in lines] + [f"and {more:,} faster"] * (more > 0)


def _latency(duration_ns: float | None) -> str:
    return "-" if duration_ns is None else format_duration(duration_ns)
