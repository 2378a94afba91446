"""The pictures of docs/ are what the program draws now; `make docs` draws them anew."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncall.evidence.incident import Incident
from oncall.render.svg.stages import timeline_svg
from oncall.views.stages.iterations import timeline

DOCS = Path(__file__).parents[2] / "docs"
_spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "pictures" / "make.py")
assert _spec and _spec.loader
make = sys.modules["make_pictures"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
Simulated = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


@pytest.fixture
def simulated(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Simulated:
    """The recording of a job, by a path without folders: it is in the picture."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def made(job: str) -> Path:
        recording = Path(f"{job}.oncall")
        found: Path = recording if recording.exists() else make.simulated(job)
        return found

    return made


@pytest.mark.parametrize("picture", make.PICTURES, ids=lambda picture: picture.name)
def test_a_screen(picture: Any, simulated: Simulated) -> None:
    drawn = asyncio.run(make.take(picture, simulated(picture.job)))
    assert drawn == (DOCS / "pictures" / f"{picture.name}.svg").read_text()


def test_the_timeline(simulated: Simulated) -> None:
    with Incident.open(simulated("late-backward")) as incident:
        assert timeline_svg(timeline(incident)) == (DOCS / "guide" / "stages.svg").read_text()


def test_the_network(simulated: Simulated) -> None:
    with Incident.open(simulated("incast")) as incident:
        for name, drawn in make.network_pictures(incident).items():
            assert drawn == (DOCS / "guide" / name).read_text(), name
