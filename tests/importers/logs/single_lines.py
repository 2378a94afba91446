"""What recognisers make of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncall.importers.logs import importer
from oncall.importers.logs.clock import Clock
from oncall.importers.logs.line import Found, Line
from oncall.importers.logs.reading import Log
from oncall.importers.logs.recognisers.order import NEEDLES, RECOGNISERS

WRITTEN_NS = 1_780_000_000 * 10**9  # May 2026


def found_in(text: str, tmp_path: Path) -> list[tuple[Line, Found]]:
    """Every row that a log of this text gives."""
    path = tmp_path / "job.log"
    path.write_text(text)
    clock, rows = Clock(WRITTEN_NS), []
    for candidate in Log(path, NEEDLES).candidates():
        line = importer._line(candidate, clock)
        for number, recogniser in enumerate(RECOGNISERS):
            if candidate.bits >> number & 1 and (found := recogniser.read(line)):
                rows += [(line, one) for one in found]
                break
    return rows


def only(text: str, tmp_path: Path) -> tuple[Line, dict[str, Any]]:
    ((line, found),) = found_in(text, tmp_path)
    return line, {name: value for name, value in found.columns.items() if value is not None}
