"""Tables of nccl-tests: the bus bandwidth of each size, and the hosts that took part."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.logs.line import Found, Line, Recogniser, event

_HOST = re.compile(r"\s*#\s+Rank\s+\d{1,6}\s.{0,80}\bPid\s+\d+ on\s+(?P<node>\S+) device\s+\d+")
_WRONG = re.compile(r"\s*# Out of bounds values : \d+ FAILED")
_TEST = re.compile(r"\b(?P<name>[a-z_]{4,20}_perf)\b")
_SPEED = re.compile(r"\d{1,6}(?:\.\d{1,6})?")
_MOST_ROWS = 120  # of a table: most have one for each power of two
_MOST_ABOVE = 40  # lines: the test's name stands among the first, if anywhere
_MOST_DIGITS = 18
_PER_GB = 1000  # GB/s as MB/s


def read(line: Line) -> Sequence[Found]:
    """A host, the table below its heading, or that results were wrong."""
    if host := _HOST.match(line.text):
        return [event("bandwidth", "host", node=host["node"])]
    if _WRONG.match(line.text):
        return [event("error", "wrong results", text=line.text.strip("# "))]
    columns = line.text.strip("# ").split()
    if columns[:2] != ["size", "count"]:
        return []
    above = (found["name"] for one in line.above(_MOST_ABOVE) if (found := _TEST.search(one)))
    test = next(above, "")
    # A launcher's prefix stands before a row; as one, its size would be taken for a line's number.
    rows = (below.split()[-len(columns) :] for below in line.raw_below(_MOST_ROWS))
    return [_row(columns, row, test) for row in rows if _is_row(columns, row)]


def _is_row(columns: Sequence[str], row: Sequence[str]) -> bool:
    is_whole = len(row) == len(columns) and row[0].isdigit() and len(row[0]) <= _MOST_DIGITS
    return is_whole and bool(_SPEED.fullmatch(row[columns.index("busbw")]))


def _row(columns: Sequence[str], row: Sequence[str], test: str) -> Found:
    """What was measured out of place. Tests without a name are alike if they reduce alike; those
    that reduce nothing (gathers, exchanges) are not."""
    said = dict(zip(columns[:5], row, strict=False))
    reduces = "-" if said.get("redop") == "none" else f"{said.get('redop')} {said.get('root')}"
    speed = row[columns.index("busbw")]
    return event(
        "bandwidth",
        f"{test or reduces} {said.get('type')}",
        seq=int(row[0]),
        number=round(float(speed) * _PER_GB),
        text=f"{speed} GB/s",
    )


BANDWIDTH = Recogniser("bandwidth", ("algbw   busbw", " Pid ", "Out of bounds values"), read)
