"""Rates over time: one line of glyphs each, and the one under the cursor as a chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.style import Style
from rich.text import Text
from textual.widget import Widget

from oncall.core.printable import clean
from oncall.render.text.lines import cell_len, cut, padded
from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import theme_style
from oncall.tui.models import rates as model
from oncall.tui.models.rates import Kind, Scale
from oncall.tui.widgets.line_list import LineList
from oncall.views.rates.buckets import Series
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

    plain = False

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._scales: dict[str, Scale] = {}
        self._span = (0, 0)
        self._longest = 0  # columns of a name

    def show_rates(self, series: Sequence[Series], shared: bool) -> None:
        scales = model.scales(series, shared)
        span = model.span(series)
        now = {one.name: scale for one, scale in zip(series, scales, strict=True)}
        longest = max((cell_len(clean(one.name)) for one in series), default=0)
        if (now, span, longest) != (self._scales, self._span, self._longest):
            self._scales, self._span, self._longest = now, span, longest
            self.refresh()
        self.show(series)

    def scale_of(self, series: Series) -> Scale:
        return self._scales[series.name]

    @property
    def span(self) -> tuple[int, int]:
        return self._span

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
        values = model.columns_of(row, *self._span, room)
        yield from _pieces(model.line(row, values, self.scale_of(row), self.plain), self._kinds)
        if silent_ns := model.silent_ns(row, self._span[1]):
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
        self._shown: tuple[Series | None, Scale, tuple[int, int], bool] | None = None

    def show(self, series: Series | None, scale: Scale, span: tuple[int, int], plain: bool) -> None:
        """Draw it into what there is; None leaves the chart empty."""
        self._shown = series, scale, span, plain
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._shown is None:
            return
        series, scale, span, plain = self._shown
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
        rows = model.chart(
            series, model.columns_of(series, *span, width - side), scale, height - 2, plain
        )
        for number, row in enumerate(rows):
            mark = marks[0] if not number else marks[1] if number == len(rows) - 1 else ""
            text.append(mark.rjust(side - 1) + " ", muted)
            for piece, style in _pieces(row, styles):
                text.append(piece, style)
            text.append("\n")
        first, end = axis_phrases(*span)
        text.append(" " * side + first + end.rjust(width - side - len(first)), muted)
        self.update(text, layout=False)
