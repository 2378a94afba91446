"""The moving picture of README.md: the script still records one, of what was seen."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_spec = importlib.util.spec_from_file_location("make_cast", DOCS / "pictures" / "cast.py")
assert _spec and _spec.loader
cast = sys.modules["make_cast"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cast)

_SCREEN = """<svg xmlns="http://www.w3.org/2000/svg"><style>
    .terminal-r1 {{ fill: {colour} }}
    </style><rect fill="#000" x="0"/>
    <g transform="translate(9, 41)" clip-path="url(#terminal-clip-terminal)">
    <rect fill="#111" x="1"/>
    <g class="terminal-matrix">
    <text class="terminal-r1" x="0" y="20">{said}</text><text class="terminal-r1" x="9">same</text>
    </g>
    </g>
</svg>"""


def frame(at_s: float, said: str, colour: str = "#fff") -> object:
    return cast.Frame(at_s, _SCREEN.format(said=said, colour=colour))


def shown(svg: str, text: str) -> list[str]:
    """The steps in which a text comes and goes."""
    [name] = re.findall(rf'<g class="(k\d+)"[^>]*><text[^>]*>{text}<', svg)
    [steps] = re.findall(rf"@keyframes {name} \{{(.*?\}})\}}", svg)
    return re.findall(r"([\d.]+)%\{visibility:(\w+)", steps)


def test_each_frame_shows_what_was_seen_then_and_shared_elements_are_there_once() -> None:
    frames = [frame(0, "healthy"), frame(4, "broken"), frame(6, "healthy")]
    svg = cast.animated(frames, 10.0)
    ElementTree.fromstring(svg)
    assert shown(svg, "healthy") == [("0.00", "visible"), ("40.00", "hidden"), ("60.00", "visible")]
    assert shown(svg, "broken") == [("0.00", "hidden"), ("40.00", "visible"), ("60.00", "hidden")]
    assert shown(svg, "same") == [("0.00", "visible")]
    assert svg.count(">same<") == 1
    # Without animations the last frame is seen.
    assert re.search(r'visibility="hidden"[^>]*><text[^>]*>broken<', svg)
    assert not re.search(r'visibility="hidden"[^>]*><text[^>]*>healthy<', svg)


def test_the_same_text_in_another_colour_is_another_element() -> None:
    svg = cast.animated([frame(0, "a", "#fff"), frame(1, "a", "#f00")], 2.0)
    assert svg.count(">a<") == 2 and "fill: #f00" in svg and "fill: #fff" in svg


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_the_script_records_a_stopped_rank(tmp_path: Path, standin_job: None) -> None:  # noqa: ARG001
    out = tmp_path / "demo.svg"
    done = subprocess.run(
        [sys.executable, DOCS / "pictures" / "cast.py", out],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    svg = out.read_text()
    ElementTree.fromstring(svg)
    for seen in ("No", "Break", "named", "Process", "stopped:"):
        assert f"{seen}&#160;" in svg, seen
    [length] = {float(found) for found in re.findall(r"([\d.]+)s step-end", svg)}
    assert 7 < length < 14
    assert len(svg) < 400_000


def test_the_readme_shows_it() -> None:
    assert "docs/pictures/demo.svg" in (DOCS.parent / "README.md").read_text()
    assert "step-end" in (DOCS / "pictures" / "demo.svg").read_text()
