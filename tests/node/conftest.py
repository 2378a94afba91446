"""A node's folders, a clock to set, and rings as the hooks write them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.node.agent.agent import Agent
from oncall.node.agent.recorder import Recorder
from oncall.node.agent.service import make_sources
from oncall.node.common.config import Configuration
from oncall.node.common.log import Log
from oncall.node.common.source import Instant, read_clock
from oncall.node.store.catalog import sealed_shards
from oncall.node.store.places import rings_dir
from oncall.node.store.reader import open_shards

sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures"))


class SettableClock:
    """The machine's clocks, of which the one on the wall can be set."""

    def __init__(self) -> None:
        self.set_by_ns = 0

    def __call__(self) -> Instant:
        now = read_clock()
        return replace(now, realtime_ns=now.realtime_ns + self.set_by_ns)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def config(tmp_path: Path) -> Configuration:
    reported = Configuration(
        node="gpu017",
        data_dir=tmp_path / "data",
        run_dir=tmp_path / "run",
        keep_free_bytes=0,
        sources=("rings",),
    )
    reported.data_dir.mkdir()
    rings_dir(reported.run_dir).mkdir(parents=True)
    return reported


@pytest.fixture
def rings(config: Configuration) -> Path:
    return rings_dir(config.run_dir)


@pytest.fixture
def make_agent(config: Configuration, clock: SettableClock) -> Callable[..., Agent]:
    """An agent over the node's folders, to be stepped by hand."""

    def make(**changed: object) -> Agent:
        scenario = replace(config, **changed)  # type: ignore[arg-type]
        log = Log()
        recorder = Recorder(scenario, log)
        return Agent(scenario, make_sources(scenario, {}), recorder, log, clock)

    return make


@pytest.fixture
def sealed_rows(config: Configuration) -> Callable[[str], list[tuple[object, ...]]]:
    """What a query finds in all sealed shards of the node."""

    def rows(query: str) -> list[tuple[object, ...]]:
        with open_shards(sealed_shards(config.data_dir)) as shards:
            assert shards.gaps == ()
            found: list[tuple[object, ...]] = shards.con.execute(query).fetchall()
            return found

    return rows


@pytest.fixture
def until() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Wait until something is so; fails after a generous time."""

    def wait(is_so: Callable[[], object], within_s: float = 30.0) -> None:
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)

    yield wait
