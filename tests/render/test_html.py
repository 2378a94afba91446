"""The page for a browser: one file that loads and runs nothing, whatever the evidence says."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from oncall.core.diagnosis import Diagnosis
from oncall.render.html import to_html

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class _Elements(HTMLParser):
    """Which elements and attributes a page has, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_tells_what_the_report_tells(hang: Diagnosis) -> None:
    page = _Elements(to_html(hang, drawings={"F1": ["rank 2 <drawn>"]}))
    for step in hang.findings[0].story:
        assert step.say in page.text and step.ask in page.text
    assert "rank 2 <drawn>" in page.text and "details" in page.tags


@pytest.mark.parametrize("bad", ["<script>alert(1)</script>", "<img src=x onerror=y>",
                                 "[x](javascript:y)", "@everyone", "![x](http://y)"])  # fmt: skip
def test_evidence_brings_no_element(hang: Diagnosis, bad: str) -> None:
    root = hang.findings[0]
    step = replace(root.story[0], say=bad)
    hostile = replace(hang, job=bad, findings=(replace(root, title=bad, story=(step,)),))
    page = _Elements(to_html(hostile, drawings={root.id: [bad]}))
    plain = _Elements(to_html(hang, drawings={root.id: [""]}))
    assert page.tags <= plain.tags and page.attributes <= plain.attributes
    assert bad in page.text


@pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_shows_it(hang: Diagnosis, tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text(to_html(hang, drawings={}), encoding="utf-8")
    assert _CHROMIUM is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/user"]
    done = subprocess.run(
        [_CHROMIUM, *options, "--dump-dom", f"file://{tmp_path}/x.html"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert '<h1 class="critical">' in done.stdout
