"""The recordings of benchmarks/contributions.py: files, suites of cases, jobs of the lab.

A folder with `truth.json` is one case; what lies beside it in `fr`, `megatrace`, `ras`, or saved
in `incident.oncall`, are recordings of their own. Any other folder without folders in it is one.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident

TOP = Path(__file__).resolve().parent.parent
HERE = (TOP / "fixtures", TOP.parent / "shared" / "data")  # where there, unless others are given
INPUTS = ("fr", "megatrace", "ras", "incident.oncall")
APART = ("nccl_docs", "stacks")  # folders in which each file is a recording
FIRST_SEED = 380_000  # of the lab's jobs
_SOURCES = ("nccl_standin",)


@dataclass(frozen=True)
class Recording:
    """One recording. `kind` are those that are alike, of which a sample tells of the others;
    `case`: what it was drawn with, of suites. Without a path it is a job of the lab."""

    name: str
    kind: str
    path: Path | None
    case: str = ""

    def opened(self) -> Incident:
        """Its evidence. Raises BadInput as the importers do, UsageError if a scenario fails."""
        from oncall.core.errors import SeveralJobs
        from oncall.evidence.incident import Incident
        from oncall.importers.detect import load

        if self.path is None:
            return _simulated(self.kind, int(self.name.rpartition(" ")[2]))
        if self.path.suffix == ".oncall":
            return Incident.open(self.path)
        incident = Incident.empty()
        try:
            load([self.path], incident)
        except SeveralJobs as several:
            incident.close()
            incident = Incident.empty()
            load([self.path], incident, several.jobs[0])
        return incident


def recordings(paths: Iterable[Path], sample: int, seed: int, lab: int) -> list[Recording]:
    """All below the paths and so many jobs of the lab, kinds in turn; the seed draws the order.

    Of a path's cases with truth and several inputs at most `sample` are taken.
    """
    dice = random.Random(seed)
    found = list(islice(_of_the_lab(), lab))
    for path in paths:
        inside = list(_below(path.resolve(), path.resolve()))
        cases = sorted({one.case for one in inside if one.case})
        drawn = set(dice.sample(cases, min(sample, len(cases))))
        found += [one for one in inside if not one.case or one.case in drawn]
    by_kind: dict[str, list[Recording]] = {}
    for one in found:
        by_kind.setdefault(one.kind, []).append(one)
    for alike in by_kind.values():
        dice.shuffle(alike)
    rounds = range(max(map(len, by_kind.values()), default=0))
    return [alike[turn] for turn in rounds for alike in by_kind.values() if turn < len(alike)]


def _below(path: Path, given: Path) -> Iterator[Recording]:
    """The recordings at a path; names begin with that of the folder that was given."""
    name = str(Path(given.name) / path.relative_to(given))
    kind = "/".join(Path(name).parts[:-1][:2]) or name
    if path.is_file():
        yield Recording(name, kind, path)
        return
    inside = sorted(one for one in path.iterdir() if one.name not in _SOURCES)
    folders = [one for one in inside if one.is_dir() and one.name[0] not in "._"]
    if path / "truth.json" in inside:
        inputs = [one for one in inside if one.name in INPUTS]
        for one in inputs:
            yield Recording(f"{name}/{one.name}", f"{given.name}/{one.stem}", one, case=name)
        if not inputs:
            yield Recording(name, kind, path)
    elif path.name in APART:
        for one in (one for one in inside if one.suffix not in (".md", ".rst")):
            yield from _below(one, given)
    elif folders:
        yield from chain.from_iterable(_below(one, given) for one in folders)
    else:
        yield Recording(name, kind, path)


# ------------------------------------------------------------------ jobs of the lab

_LAB = ("jobs", "training", "hooks", "measured", "pipeline", "traffic", "network", "hosts")


def _of_the_lab() -> Iterator[Recording]:
    seed = FIRST_SEED
    while True:
        for kind in _LAB:
            yield Recording(f"lab/{kind} {seed}", f"lab/{kind}", None)
        seed += 1


def _simulated(kind: str, seed: int) -> Incident:
    """A job of a kind: which fault it has, if any, follows from the seed."""
    from oncall.core.errors import UsageError
    from oncall_lab import simulate

    for scenario in _scenarios(kind.partition("/")[2], seed):
        try:
            return simulate(scenario)[0]
        except UsageError:  # its fault came to nothing
            continue
    raise UsageError(f"{kind} {seed}: no fault comes to act")


def _scenarios(kind: str, seed: int) -> Iterator[Any]:
    """Scenarios to try, the first that comes to something is taken."""
    from oncall_lab.drawn import jobs, network, pipeline, traffic, training
    from oncall_lab.training.fault import MEASURED_WAYS, WAYS

    def one_of(choices: Iterable[Any]) -> Any:
        known = list(choices)
        return known[seed % len(known)]

    if kind == "jobs":
        yield jobs.case(seed, seed % 12).scenario
    elif kind == "training":
        yield training.random_scenario(seed)
    elif kind == "hooks":
        drawn = training.random_scenario(seed, (one_of(WAYS),))
        yield dataclasses.replace(drawn, recorder="hooks", tree=(), missing_nodes=())
    elif kind == "measured":
        fault = one_of(("", *MEASURED_WAYS))
        yield training.random_scenario(seed, (fault,) if fault else (), measured=True)
    elif kind == "pipeline":
        yield pipeline.experiment(one_of(pipeline.EXPERIMENTS), seed)
    elif kind == "traffic":
        yield one_of((traffic.healthy(seed, "mixtral"), *islice(traffic.table_4(seed), 0, None, 7)))
    elif kind == "network":
        yield from network.attempts(one_of(network.COUNTS), seed)
    else:
        yield from network.unseen_attempts(one_of(network.COUNTS), seed)
