"""Rates over time: one line of glyphs each, and the one under the cursor as a chart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.widget import Widget

from oncall.console.evidence_queries import GetRates
from oncall.core.printable import clean
from oncall.render.text.lines import cell_len, cut, padded
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import theme_style
from oncall.tui.models import rates as model
from oncall.tui.models.rates import Kind, Scale
from oncall.tui.shell.actions import Needs, needs, needs_snapshot
from oncall.tui.shell.goto import Target
from oncall.tui.shell.keys import ActionEntry
from oncall.tui.shell.messages import Copy, Refused
from oncall.tui.shell.screen import ConsoleScreen
from oncall.tui.widgets.line_list import LineList
from oncall.views.rates.buckets import Series
from oncall.views.snapshot import Snapshot
from oncall.views.words import axis_phrases

_SHORTEST_NAME = 14  # columns
_NUMBER = 14  # columns of the number with its unit
_SIDE = 2  # columns of the mark on which side of the baseline it lies
_MARKS = {"below": "▼ ", "above": "▲ ", "": "  "}


def kind_styles(widget: Widget) -> dict[Kind, Style]:
    """How each kind of glyph looks in the theme in force."""
    value = theme_style(widget.app, "primary")
    outside = theme_style(widget.app, "state-blamed", bold=True)
    band = Style(bgcolor=theme_style(widget.app, "band").color)
    return {
        "value": value,
        "value band": value + band,
        "outside": outside,
        "outside band": outside + band,
        "gap": theme_style(widget.app, "state-unknown"),
        "band": band,
        "threshold": theme_style(widget.app, "warning"),
        "empty": Style(),
    }


class RateList(LineList[Series]):
    """A line for each: name, glyphs, the last number with its unit, its side of the baseline."""

    HELP = """\
Each line is a rate over time, suspects (!) first. A dot is a gap without data; `gap 10 min` \
instead of the number means no data for the last 10 minutes. ▼ and ▲ mark values below and above \
the baseline. Scales start at zero; v switches between one scale for all of a kind and one per \
line."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._scales: dict[str, Scale] = {}
        self.span = (0, 0)
        self._longest = 0  # columns of a name

    def show_rates(self, series: Sequence[Series], shared: bool) -> None:
        scales = model.scales(series, shared)
        span = model.span(series)
        now = {one.name: scale for one, scale in zip(series, scales, strict=True)}
        longest = max((cell_len(clean(one.name)) for one in series), default=0)
        if (now, span, longest) != (self._scales, self.span, self._longest):
            self._scales, self.span, self._longest = now, span, longest
            self.refresh()
        self.show(series)

    def scale_of(self, series: Series) -> Scale:
        return self._scales[series.name]

    def key(self, row: Series) -> str:
        return row.name

    def unchanged(self, before: Series, now: Series) -> bool:
        return before is now

    def dress(self) -> None:
        self._kinds = kind_styles(self)
        self._muted = theme_style(self.app, "muted")
        super().dress()

    def draw(self, row: Series, width: int) -> Iterable[tuple[str, Style]]:
        named = min(max(self._longest, _SHORTEST_NAME), width // 3)
        yield "! " if row.suspect else "  ", self._kinds["outside"]
        yield padded(cut(clean(row.name), named), named + 1), Style()
        room = max(width - named - _NUMBER - _SIDE - 4, 4)
        values = model.columns_of(row, *self.span, room)
        yield from _pieces(model.line(row, values, self.scale_of(row)), self._kinds)
        if silent_ns := model.silent_ns(row, self.span[1]):
            # The last number is old: it would be read as if it were of now.
            yield f" {model.gap_phrase(silent_ns):>{_NUMBER - 1}} ", self._kinds["gap"]
            yield _MARKS[""], Style()
            return
        number = model.value_phrase(model.latest(row), row.unit)
        yield f" {number[:_NUMBER]:>{_NUMBER - 1}} ", Style()
        yield _MARKS[model.deviation(row)], self._kinds["outside"]


def _pieces(
    glyphs: Iterable[tuple[str, Kind]], styles: dict[Kind, Style]
) -> Iterable[tuple[str, Style]]:
    """Glyphs alike as one piece of text."""
    for kind, run in groupby(glyphs, key=lambda glyph: glyph[1]):
        yield "".join(glyph for glyph, _ in run), styles[kind]


class RateChart(LiteralText):
    """One rate in full: its scale, its baseline, its threshold, its gaps and its time."""

    DEFAULT_CSS = "RateChart { height: 9; border-top: solid $panel; padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[Series | None, Scale, tuple[int, int]] | None = None

    def show(self, series: Series | None, scale: Scale, span: tuple[int, int]) -> None:
        """Draw it into what there is; None leaves the chart empty."""
        self._shown = series, scale, span
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._shown is None:
            return
        series, scale, span = self._shown
        width, height = self.content_size.width, self.content_size.height
        if series is None or width < 24 or height < 4:
            self.update("", layout=False)
            return
        marks = [model.value_phrase(mark, series.unit) for mark in (scale.high, scale.low)]
        side = max(map(len, marks)) + 1
        styles, muted = kind_styles(self), theme_style(self.app, "muted")
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{clean(series.name)}: {model.latest_phrase(series, span[1])}", "bold")
        if deviation := model.deviation_phrase(series, span[1]):
            text.append(f" · {deviation}", muted)
        text.append("\n")
        rows = model.chart(series, model.columns_of(series, *span, width - side), scale, height - 2)
        for number, row in enumerate(rows):
            mark = marks[0] if not number else marks[1] if number == len(rows) - 1 else ""
            text.append(mark.rjust(side - 1) + " ", muted)
            for piece, style in _pieces(row, styles):
                text.append(piece, style)
            text.append("\n")
        first, end = axis_phrases(*span)
        text.append(" " * side + first + end.rjust(width - side - len(first)), muted)
        self.update(text, layout=False)


# What `c` shows one after the other: kind -> what its lines are.
TITLES = {
    "suspects": "suspects and their groups",
    "job": "the whole job",
    "ranks": "bytes each rank handed to collectives",
    "nics": "bytes each port sent and received",
}
KINDS = tuple(TITLES)
_RANK = re.compile(r"rank (\d+)")
_TALL = 36  # lines of a terminal from which on a chart has more
_CHART, _TALL_CHART = 9, 14
_AROUND = 5  # lines beside list and chart: title, heading, status, keys, and one that is free


_needs_series: Needs[ConsoleScreen] = needs(
    "no rate is shown", lambda screen: screen.query_one(RateList).row is not None
)
_needs_subject: Needs[ConsoleScreen] = needs(
    "there is no finer data", lambda screen: _subject(screen), _needs_series
)
_needs_rank: Needs[ConsoleScreen] = needs(
    "this rate has no rank", lambda screen: _RANK.match(_subject(screen)), _needs_series
)


def _subject(screen: ConsoleScreen) -> str:
    """What the rate under the cursor is of."""
    row = screen.query_one(RateList).row
    return "" if row is None else row.subject


class RatesScreen(ConsoleScreen):
    """A line for each rate, and a chart of the one under the cursor."""

    CSS = """
    RatesScreen #rates-line { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """
    ACTIONS: ClassVar[tuple[ActionEntry[Any], ...]] = (
        ActionEntry("rates.finer", "enter", "Finer",
                    "Show this rate at the resolution its node recorded, or all rates again.",
                    _needs_subject, bar=True),
        ActionEntry("rates.kind", "c", "Which",
                    "Show suspects, the whole job, all ranks or all NICs.", needs_snapshot,
                    bar=True),
        ActionEntry("rates.scale", "v", "Scale",
                    "Use one scale for all of a kind, or one per line.", _needs_series, bar=True),
        ActionEntry("rates.rank", "r", "Rank", "Show this rank in the fleet.",
                    _needs_rank, bar=True),
    )  # fmt: skip

    def compose_body(self) -> ComposeResult:
        yield LiteralText(id="rates-line")
        yield RateList(id="list")
        yield RateChart()

    def on_mount(self) -> None:
        self._series: tuple[Series, ...] = ()
        self._kind = KINDS[0]
        self._finer: str | None = None  # the subject shown at its finest grain
        self._shared = True
        self._said = ""
        self.query_one(RateList).focus()

    # ------------------------------------------------------------------- shown

    def show_snapshot(self, snapshot: Snapshot) -> None:  # noqa: ARG002
        self._ask_rates()

    def _ask_rates(self) -> None:
        wanted = self._finer or self._kind
        self.ask("rates", GetRates(wanted), self._take_rates, f"reading rates of {wanted}")

    def _take_rates(self, series: tuple[Series, ...]) -> None:
        self._series = series
        self.show_narrowed()

    def refused(self, message: Refused) -> None:
        self._finer = None
        self._say(clean(str(message.error)))

    def show_narrowed(self) -> None:
        shown = model.chosen(self._series, self.state.filter, self.state.faults_only)
        self.query_one(RateList).show_rates(shown, self._shared)
        self._fit_chart(len(shown))
        self._draw_chart()
        left_out = f" of {len(self._series):,}" if len(shown) < len(self._series) else ""
        scale = "one scale" if self._shared else "a scale per line"
        what = f"{self._finer}, at full resolution" if self._finer else TITLES[self._kind]
        number = f"{len(shown):,}{left_out} rate{'s' if len(shown) != 1 else ''}"
        self._say(
            f"{number}: {what} · {scale}, from 0"
            if self._series
            else f"not recorded: {what}; c shows others"
        )

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            line = Text(text, theme_style(self.app, "muted"), no_wrap=True, overflow="ellipsis")
            self.query_one("#rates-line", LiteralText).update(line, layout=False)

    def _draw_chart(self) -> None:
        rates = self.query_one(RateList)
        scale = model.Scale(0.0, 1.0) if rates.row is None else rates.scale_of(rates.row)
        self.query_one(RateChart).show(rates.row, scale, rates.span)

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        message.stop()
        self._draw_chart()

    def on_resize(self, event: object) -> None:
        super().on_resize(event)  # type: ignore[arg-type]
        self._fit_chart(self.query_one(RateList).virtual_size.height)
        self.call_after_refresh(self._draw_chart)

    def _fit_chart(self, rates: int) -> None:
        """Give the chart what the list leaves, up to half of the screen."""
        height = self.size.height
        least = _TALL_CHART if height >= _TALL else _CHART
        left = max(least, min(height - _AROUND - rates, height // 2))
        self.query_one(RateChart).styles.height = left  # and it draws itself anew

    # ----------------------------------------------------------------- actions

    def copies(self) -> tuple[Copy, ...]:
        row = self.query_one(RateList).row
        if row is None:
            return ()
        end_ns = self.query_one(RateList).span[1]
        value = model.latest_phrase(row, end_ns)
        deviation = model.deviation_phrase(row, end_ns)
        shown_value = f"{clean(row.name)}: {value}" + (f" · {deviation}" if deviation else "")
        rows = "\n".join(
            f"{at}\t{number:.6g}" for at, number in zip(row.at_ns.tolist(), row.value, strict=True)
        )
        return (Copy("t", "text", shown_value), Copy("n", "numbers", f"at_ns\t{row.unit}\n{rows}"))

    def leave(self) -> bool:
        if self._finer is None:
            return False
        self.action_finer()
        return True

    def action_finer(self) -> None:
        row = self.query_one(RateList).row
        self._finer = None if self._finer or row is None else row.subject
        self._ask_rates()

    def action_kind(self) -> None:
        self._kind = KINDS[(KINDS.index(self._kind) + 1) % len(KINDS)]
        self._finer = None
        self._ask_rates()

    def action_scale(self) -> None:
        self._shared = not self._shared
        self.show_narrowed()

    def action_rank(self) -> None:
        row = self.query_one(RateList).row
        if row is not None and (found := _RANK.match(row.subject)):
            self.app.go_to(Target("rank", int(found[1])))
