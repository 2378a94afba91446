"""A pane about one operation's traffic: curves first, then a map of senders and receivers if there
is room.
"""

from __future__ import annotations

from oncall.render.text.spans import Line
from oncall.render.text.traffic import curve_lines, map_lines
from oncall.views.traffic.operation import TrafficView

_AROUND = 6  # lines of a drawing that are no rank's
_LEAST_RANKS = 4


def pane_lines(view: TrafficView, width: int, height: int, *, plain: bool = False) -> list[Line]:
    """At most `width` columns; as many ranks as fit into `height` lines, the blamed in any case."""
    ranks = max(height - _AROUND, _LEAST_RANKS)
    lines = curve_lines(view.curves, width, ranks, plain=plain)
    routes = [Line(), *map_lines(view.routes, width, plain=plain)]
    return lines + routes if len(lines) + len(routes) <= height else lines
