"""Beside the task under the cursor, where there is room: how long iterations took over time, and
what the job completed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical

from oncall.tui.models import rates as model
from oncall.tui.screens.rates.rate_line import RateChart
from oncall.views.rates.buckets import Series

ROOMY = (150, 44)  # columns and lines of a screen from which on there is room


class JobCharts(Vertical):
    """At most two charts over the same time, iterations first; what was not recorded is empty."""

    DEFAULT_CSS = """
    JobCharts { display: none; width: 1fr; border-left: solid $panel; }
    JobCharts > RateChart { height: 1fr; max-height: 20; border-top: none; }
    """

    def compose(self) -> ComposeResult:
        yield RateChart()
        yield RateChart()

    def show(self, series: Sequence[Series]) -> None:
        """Show these of the job's rates."""
        shown = sorted(series, key=lambda one: one.unit != "s")[:2]
        scales, span = model.scales(shown, shared=False), model.span(shown)
        plain = self.app.ascii_only  # type: ignore[attr-defined]
        for place, chart in enumerate(self.query(RateChart)):
            if place < len(shown):
                chart.show(shown[place], scales[place], span, plain)
            else:
                chart.show(None, model.Scale(0.0, 1.0), span, plain)
