"""Pictures of screens, kept beside the tests: what is drawn is compared cell by cell.

check_picture(running.app, "jobs-80x24-dark")     # tests/tui/pictures/jobs-80x24-dark.svg

ONCALL_UPDATE_PICTURES=1 writes them anew; look at what changed (rsvg-convert, or a browser)
before committing it.
"""

from __future__ import annotations

import difflib
import html
import os
import re
from pathlib import Path

import pytest

from oncall.tui.app import ConsoleApp

# What a size decides is laid out alike in every theme, and what a theme decides is coloured alike
# in every size: each of both is seen once.
in_both_looks = pytest.mark.parametrize(
    ("size", "theme"), [((80, 24), "oncall-dark"), ((160, 48), "oncall-light")]
)

FOLDER = Path(__file__).parent / "pictures"
_ROW = re.compile(r'<text [^>]*?clip-path="url\(#terminal-line-(\d+)\)">(.*?)</text>')


def check_picture(app: ConsoleApp, name: str) -> None:
    """Compare the screen with the picture of that name; the failure shows the lines that differ."""
    now = normalised(app.export_screenshot(title=" "))
    path = FOLDER / f"{name}.svg"
    if os.environ.get("ONCALL_UPDATE_PICTURES"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(now)
        return
    assert path.exists(), f"no picture {path.name} yet: ONCALL_UPDATE_PICTURES=1 makes it"
    before = path.read_text()
    if before != now:
        text = difflib.unified_diff(lines(before), lines(now), "picture", "now", "", "", 0, "")
        differences = "\n".join(text) or "only colours differ"
        raise AssertionError(
            f"{path.name} is drawn otherwise; if that is meant, ONCALL_UPDATE_PICTURES=1\n"
            + differences
        )


def normalised(svg: str) -> str:
    """Without names that differ from run to run."""
    return re.sub(r"terminal-\d+", "terminal", svg)


def lines(svg: str) -> list[str]:
    """The text of a picture, row by row."""
    rows: dict[int, str] = {}
    for number, text in _ROW.findall(svg):
        rows[int(number)] = rows.get(int(number), "") + html.unescape(text)
    return [rows.get(row, "") for row in range(max(rows, default=-1) + 1)]
