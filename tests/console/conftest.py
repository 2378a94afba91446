"""Recordings of simulated jobs, made once, and rulebooks away from the reader's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncall.console.recording import Recording
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.core.units import NS_PER_S
from oncall_lab import TrainingFault, TrainingScenario, simulate, write

CULPRIT = 5
AT_NS = 30 * NS_PER_S
Open = Callable[[Path], Replay]


def scenario(*faults: TrainingFault, **changes: object) -> TrainingScenario:
    """A job without a pipeline: one rulebook tells of its hang, not two."""
    shape: dict[str, Any] = {"pp": 1, "dp": 8} | changes
    return TrainingScenario(duration_ns=60 * NS_PER_S, faults=faults, **shape)


HANG = TrainingFault("H1", (CULPRIT,), at_ns=AT_NS)
SLOW = TrainingFault("S1", (CULPRIT,), at_ns=AT_NS)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The saved incident of a name: hang, pipeline (a hang in one), slow, healthy, silent (a node
    never answered)."""
    folder = tmp_path_factory.mktemp("recorded")
    scenarios = {
        "hang": scenario(HANG),
        "pipeline": scenario(HANG, pp=2, dp=4),
        "slow": scenario(SLOW),
        "healthy": scenario(),
        "silent": scenario(HANG, missing_nodes=(1,)),
    }

    def made(name: str) -> Path:
        if not (folder / name).exists():
            incident, truth = simulate(scenarios[name])
            with incident:
                write(incident, truth, folder / name)
        return folder / name / "evidence.oncall"

    return made


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of two nodes' shards, of the hang as our hooks record it."""
    folder = tmp_path_factory.mktemp("shards")
    incident, truth = simulate(scenario(HANG, recorder="hooks"))
    with incident:
        write(incident, truth, folder, shards=True)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RulebookStore]:
    """The shipped rulebooks, and a site's folder that is not there yet."""
    one = RulebookStore(site=tmp_path / "site")
    yield one
    one.close()


@pytest.fixture
def opened(store: RulebookStore) -> Iterator[Open]:
    """Opens sessions, which end with the test."""
    sessions: list[Replay] = []

    def open_(path: Path) -> Replay:
        sessions.append(Replay(Recording([path]), store))
        return sessions[-1]

    yield open_
    for session in sessions:
        session.close()
