"""Another profiler plugin behind ours gets what it gets without us, and ours records what it
records without the other."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from oncall import native
from oncall.node.rings.ring_layout import RecordKind

Recorded = Callable[[Path], Any]  # conftest.py: reads a ring
Plugin = Callable[..., Path]

_HERE = Path(__file__).parent
_RANKS = 2
_EVERYTHING = 0xFFFF
_COLL, _PROXY_STEP, _KERNEL = 1 << 1, 1 << 4, 1 << 6
_PROXY_EVENTS = {1 << 3, 1 << 4}


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    """tests/hooks/recording_plugin.c with some versions of the interface."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: `make test` installs one")
    root = tmp_path_factory.mktemp("plugin")

    def build(*versions: int) -> Path:
        library = root / f"libnccl-profiler-recorder{''.join(map(str, versions))}.so"
        if not library.exists():
            bits = sum(1 << version for version in versions)
            options = [
                "-std=gnu11",
                "-shared",
                "-fPIC",
                "-fvisibility=hidden",
                f"-DVERSIONS={bits}",
            ]
            include = f"-I{_HERE.parents[1] / 'hooks'}"
            source = _HERE / "recording_plugin.c"
            subprocess.run([compiler, *options, include, source, "-o", library], check=True)
        return library

    return build


@dataclass
class Event:
    """One event as a plugin got it; handles as the number of the event they name."""

    context: int
    type: int
    parent: int
    group: int
    what: str
    states: list[str] = field(default_factory=list)
    stops: int = 0


@dataclass
class Received:
    """All that a plugin got in one process."""

    inits: list[str]
    finalized: list[int]
    events: dict[int, Event]

    @classmethod
    def read(cls, path: Path) -> Received:
        received = cls([], [], {})
        for line in path.read_text().splitlines():
            word, number, *rest = line.split(" ")
            if word == "init":
                received.inits.append(line)
            elif word == "finalize":
                received.finalized.append(int(number))
            elif word == "start":
                context, kind, parent = map(int, rest[:3])
                group = int(rest[-1].removeprefix("group="))
                event = Event(context, kind, parent, group, " ".join(rest[3:-1]))
                received.events[int(number)] = event
            elif word == "state":
                received.events[int(number)].states.append(" ".join(rest))
            else:
                received.events[int(number)].stops += 1
        return received

    def whole(self) -> Counter[tuple[Any, ...]]:
        """Each event with all that it is part of; the order between threads is of no account."""
        return Counter(self._with_parents(number) for number in self.events)

    def _with_parents(self, number: int) -> tuple[Any, ...]:
        if number == 0:
            return ()
        event = self.events[number]
        above = (self._with_parents(event.parent), self._with_parents(event.group))
        return (event.context, event.type, event.what, *event.states, event.stops, *above)


@dataclass
class Job:
    """What became of a job of two ranks."""

    received: list[Received]  # the other plugin, by rank; none if it never was called
    rings: list[Path]
    said: list[str]


def _run(folder: Path, **environment: str) -> Job:
    folder.mkdir()
    command = [str(native.standin_folder() / "train"), "--unique-id-file", str(folder / "id")]
    command += ["--tp", "1", "--pp", "2", "--micro-batches", "2", "--steps", "2", "--quiet"]
    settings = {"WORLD_SIZE": str(_RANKS), "ONCALL_RUN_DIR": str(folder), **environment}
    files = [folder / f"received-{rank}" for rank in range(_RANKS)]
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **settings, "RANK": str(rank), "RECORDER_FILE": str(files[rank])},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(_RANKS)
    ]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * _RANKS
    rings = [next(iter(folder.glob(f"rings/{p.pid}-*.ring")), folder) for p in processes]
    return Job([Received.read(file) for file in files if file.exists()], rings, said)


def _chained(folder: Path, other: Path | str, **environment: str) -> Job:
    hooks = str(native.hooks_library())
    return _run(
        folder,
        NCCL_PROFILER_PLUGIN=hooks,
        LD_PRELOAD=hooks,
        ONCALL_CHAIN_PROFILER=str(other),
        **environment,
    )


def _counts(recorded: Recorded, rings: list[Path]) -> list[list[int]]:
    """How many records of each kind each ring holds."""
    return [[len(recorded(ring).records(kind)) for kind in RecordKind] for ring in rings]


@pytest.mark.parametrize(
    ("nccl", "mask", "handles"),
    [
        (6, _EVERYTHING, "addresses"),
        (6, _EVERYTHING, "numbers"),
        (6, _COLL | _KERNEL, "addresses"),  # as NCCL Inspector asks
        (6, _PROXY_STEP, "addresses"),
        (6, 0, "addresses"),
        (5, _EVERYTHING, "addresses"),
        (4, _EVERYTHING, "addresses"),
    ],
)
def test_the_other_gets_what_it_gets_without_us(
    plugin: Plugin, tmp_path: Path, recorded: Recorded, nccl: int, mask: int, handles: str
) -> None:
    other = plugin(4, 5, 6)
    settings = {
        "STANDIN_PROFILER_VERSION": str(nccl),
        "RECORDER_MASK": str(mask),
        "RECORDER_HANDLES": handles,
    }
    alone = _run(tmp_path / "alone", NCCL_PROFILER_PLUGIN=str(other), **settings)
    behind = _chained(tmp_path / "behind", other, **settings)
    for without, with_us in zip(alone.received, behind.received, strict=True):
        assert with_us.inits == without.inits
        assert with_us.finalized == without.finalized
        assert with_us.whole() == without.whole()
        assert bool(with_us.events) == bool(mask)
    hooks = str(native.hooks_library())
    ours = {"NCCL_PROFILER_PLUGIN": hooks, "LD_PRELOAD": hooks}
    ours["STANDIN_PROFILER_VERSION"] = str(nccl)
    without_other = _run(tmp_path / "ours", **ours)
    assert _counts(recorded, behind.rings) == _counts(recorded, without_other.rings)
    assert behind.said == [""] * _RANKS


@pytest.mark.parametrize(("nccl", "other"), [(6, 5), (6, 4), (5, 4), (5, 6), (6, 7)])
def test_a_plugin_of_another_version(plugin: Plugin, tmp_path: Path, nccl: int, other: int) -> None:
    """It gets what NCCL's own adaptor hands on: the stand-in has one for version 4."""
    settings = {"RECORDER_MASK": str(_EVERYTHING)}
    its_own = {"STANDIN_PROFILER_VERSION": str(other), "NCCL_PROFILER_PLUGIN": str(plugin(other))}
    if other == 7:  # the stand-in speaks none: the same as one of version 6
        its_own = {"NCCL_PROFILER_PLUGIN": str(plugin(6))}
    alone = _run(tmp_path / "alone", **settings, **its_own)
    behind = _chained(
        tmp_path / "behind", plugin(other), STANDIN_PROFILER_VERSION=str(nccl), **settings
    )
    for without, with_us in zip(alone.received, behind.received, strict=True):
        assert f" {other} " in with_us.inits[0]
        for event in with_us.events.values():
            event.what = event.what.replace(" tag=0", "")
        assert with_us.whole() == without.whole()


def test_ours_gets_no_more_for_the_other(
    plugin: Plugin, tmp_path: Path, recorded: Recorded
) -> None:
    """What only the other asks for goes to the other."""
    behind = _chained(
        tmp_path / "behind", plugin(6), RECORDER_MASK=str(_PROXY_STEP), ONCALL_EVENTS="coll,collapi"
    )
    assert {
        event.type for received in behind.received for event in received.events.values()
    } >= _PROXY_EVENTS
    for ring in behind.rings:
        assert len(recorded(ring).records(RecordKind.TRANSFER)) == 0
        assert len(recorded(ring).records(RecordKind.DESCRIBED)) > 0


def test_where_ours_does_not_record_the_other_does(plugin: Plugin, tmp_path: Path) -> None:
    settings = {"RECORDER_MASK": str(_EVERYTHING)}
    alone = _run(tmp_path / "alone", NCCL_PROFILER_PLUGIN=str(plugin(6)), **settings)
    for reason in ({"ONCALL_DISABLE": "1"}, {"ONCALL_RUN_DIR": "/dev/null"}):
        behind = _chained(tmp_path / next(iter(reason)), plugin(6), **settings, **reason)
        assert [received.whole() for received in behind.received] == [
            received.whole() for received in alone.received
        ]


def test_where_the_other_fails_ours_records(
    plugin: Plugin, tmp_path: Path, recorded: Recorded
) -> None:
    hooks = str(native.hooks_library())
    ours = _run(tmp_path / "ours", NCCL_PROFILER_PLUGIN=hooks, LD_PRELOAD=hooks)
    normal = _counts(recorded, ours.rings)
    mask = {"RECORDER_MASK": str(_EVERYTHING)}
    fails = _chained(tmp_path / "fails", plugin(6), RECORDER_INIT="fails", **mask)
    assert all(not received.events and not received.finalized for received in fails.received)
    assert _counts(recorded, fails.rings) == normal
    for name, other, word in (
        ("missing", "/nowhere/plugin.so", "/nowhere/plugin.so"),
        ("none", str(native.verbs_library()), "no plugin"),
        ("itself", hooks, "this library itself"),
    ):
        job = _chained(tmp_path / name, other, **mask)
        assert job.received == []
        assert _counts(recorded, job.rings) == normal
        assert all(word in said and said.count("\n") == 1 for said in job.said)
    too_new = _chained(tmp_path / "new", plugin(5, 6), STANDIN_PROFILER_VERSION="4", **mask)
    assert too_new.received == []
    assert all("interface version 4" in said for said in too_new.said)


def test_a_plugin_by_its_name(plugin: Plugin, tmp_path: Path) -> None:
    """As NCCL takes it: NAME of libnccl-profiler-NAME.so on the library path."""
    folder = str(plugin(6).parent)
    job = _chained(
        tmp_path / "job", "recorder6", LD_LIBRARY_PATH=folder, RECORDER_MASK=str(_EVERYTHING)
    )
    assert len(job.received) == _RANKS
