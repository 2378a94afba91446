"""How often oncall is right about jobs as people run them, from their Flight Recorder dumps.

    python benchmarks/accuracy_jobs.py [--seed 1] [--count 60] [--family none|hang|slow]
    python benchmarks/accuracy_jobs.py make OUT [--seed 1] [--count 60]
    python benchmarks/accuracy_jobs.py score FOLDER [--recording megatrace]

Jobs are drawn (`oncall_lab.drawn.jobs`), dumped and diagnosed in this process, with all rulebooks
as they are shipped. `make` keeps the set, a folder a case: `fr` with the dumps, and `truth.json`;
`score` diagnoses a set that is there. A case is right if its family and class are found and the
blamed ranks are the culprits, or a set that the dumps cannot distinguish from them; without a
fault, if nothing is found. Apart from that: how many jobs that run are called hung.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Verdicts with names of their own, as classes. A process that is gone is one that does not enter.
CLASSES = {
    "STAGE_SLOW": "S1", "STAGE_SLOW_NETWORK": "S2", "OVERDUE": "H1",
    "STAGE_HANG": "H1", "DEADLOCK": "H2", "DEAD": "H1",
}  # fmt: skip


@dataclass(frozen=True)
class Said:
    """One root finding: its class, or its verdict where that is no class, and whom it blames."""

    verdict: str
    family: str
    ranks: frozenset[int]
    confidence: float

    def right(self, truth: dict[str, Any]) -> bool:
        """Does it name a culprit, and nobody else? A standstill is right about a hang."""
        allowed = {*truth["culprits"], *truth["equivalents"]}.union(*truth["acceptable"])
        return truth["family"] == self.family and bool(self.ranks) and self.ranks <= allowed


@dataclass(frozen=True)
class Judged:
    """One case and what was said of it."""

    name: str
    truth: dict[str, Any]
    said: tuple[Said, ...]
    took_s: float
    shown: bool = True  # the recording can show it

    @property
    def right(self) -> bool:
        truth = self.truth
        if truth["family"] == "none":
            return not self.said
        mine = [one for one in self.said if one.verdict[:1] == truth["class"][0]]
        blamed = frozenset().union(*(one.ranks for one in mine))
        wanted = frozenset(truth["culprits"])
        exact = blamed in [wanted, *map(frozenset, truth["acceptable"])]
        exact |= wanted <= blamed <= frozenset(truth["equivalents"])
        return exact and any(one.verdict in truth["class_ok"] for one in mine)

    @property
    def called_hung(self) -> bool:
        """Does a finding say that a running job hangs?"""
        hung = any(one.verdict.startswith("H") for one in self.said)
        return hung and self.truth["family"] != "hang"


def make(folder: Path, seed: int, count: int, family: str | None) -> Iterator[Path]:
    """Write the cases of a set; yields the folder of each."""
    from oncall_lab.drawn.jobs import cases
    from oncall_lab.jobs.simulation import write_job

    for number, case in enumerate(cases(seed, count, family)):
        place = folder / f"{number:03d}-{case.kind}-{case.scenario.program}"
        write_job(
            case.scenario, place, flavour=case.flavour, impact=case.impact, played=case.played
        )
        yield place


def judged(place: Path, recording: str = "fr", symptom: str = "0") -> Judged:
    """Diagnose one case from the recording of that name; `symptom` as `--symptom` has it: 1 hung,
    -1 slow, 0 unknown."""
    from oncall.evidence.incident import Incident
    from oncall.importers.detect import load
    from oncall.rules.language.load import load_rulebooks, shipped_folder
    from oncall.use_case.diagnose import diagnose

    truth = json.loads((place / "truth.json").read_text())
    began = time.perf_counter()
    with Incident.empty() as incident:
        load([place / recording], incident, "job")
        rulebooks = load_rulebooks([shipped_folder()])
        found = diagnose(incident, rulebooks, overrides={"hang.symptom": symptom})
    said = tuple(
        Said(
            CLASSES.get(finding.verdict, finding.verdict),
            finding.fault_class,
            _ranks(finding, truth),
            finding.confidence,
        )
        for finding in found.findings
        if finding.explained_by is None and finding.severity != "info"
    )
    took_s = time.perf_counter() - began
    shown = truth.get("observable", {}).get(recording) != "weak"
    return Judged(place.name, truth, said, took_s, shown)


def _ranks(finding: Any, truth: dict[str, Any]) -> frozenset[int]:
    """The blamed ranks: of a group its members, where none are listed those of the truth's own."""
    ranks: set[int] = set()
    for blame in finding.blame:
        where = blame.where
        if where.get("rank") is not None:
            ranks.add(int(where["rank"]))
        elif where.get("ranks"):
            ranks |= {int(rank) for rank in where["ranks"]}
        elif truth.get("comm") and where.get("comm_name") == truth["comm"]["name"]:
            ranks |= set(truth["comm"]["ranks"])
    return frozenset(ranks)


def report(cases: Iterable[Judged]) -> None:
    """A line for each wrong case, or running job called hung, as it comes; then tables by kind,
    program, class, confidence."""
    everything = []
    for one in cases:
        everything.append(one)
        if not one.right or one.called_hung:
            said = "; ".join(f"{found.verdict} {sorted(found.ranks)}" for found in one.said)
            want = f"{one.truth['class']} {one.truth['culprits']}"
            word = "HUNG " if one.right else "WRONG"
            print(f"{word} {one.name}: {want}, said: {said or 'nothing'}", flush=True)
    for by in [key for key in ("kind", "program") if all(key in one.truth for one in everything)]:
        rows: dict[str, list[Judged]] = defaultdict(list)
        for one in everything:
            rows[one.truth[by]].append(one)
        print(f"\n| {by} | cases | right | running, called hung |\n|---|---|---|---|")
        for name, mine in sorted(rows.items()):
            right, hung = sum(m.right for m in mine), sum(m.called_hung for m in mine)
            print(f"| {name} | {len(mine)} | {right} | {hung} |")
    print("\n" + "\n".join(by_class(everything)))
    print("\n" + "\n".join(calibration(everything)))
    sound = [one for one in everything if one.truth["family"] == "none"]
    running = [one for one in everything if one.truth["family"] != "hang"]
    took = sorted(one.took_s for one in everything)
    clear = [one for one in everything if one.shown]
    print(
        f"\nright {sum(one.right for one in everything)} of {len(everything)}, "
        f"of what recordings can show {sum(one.right for one in clear)} of {len(clear)}; "
        f"false alarms {sum(not one.right for one in sound)} of {len(sound)}; "
        f"running jobs called hung {sum(one.called_hung for one in running)} of {len(running)}; "
        f"diagnosis: median {took[len(took) // 2]:.1f} s, longest {took[-1]:.1f} s"
    )


def by_class(cases: Iterable[Judged]) -> Iterator[str]:
    """Lines of a table: of the findings of a class those that name a culprit alone (precision), and
    of the faults of a class those that are right (recall)."""
    yield "| class | findings | precision | faults | recall |"
    yield "|---|---|---|---|---|"
    said, faults = defaultdict(list), defaultdict(list)
    for case in cases:
        for one in case.said:
            said[one.verdict].append(one.right(case.truth))
        if case.truth["family"] != "none":
            faults[case.truth["class"]].append(case.right)
    for name in sorted({*said, *faults}):
        shares = (f"{sum(x) / len(x):.2f}" if x else "" for x in (said[name], faults[name]))
        precision, recall = shares
        yield f"| {name} | {len(said[name])} | {precision} | {len(faults[name])} | {recall} |"


def calibration(cases: Iterable[Judged]) -> Iterator[str]:
    """Lines of a table: how sure findings were, and how many of them name a culprit alone."""
    yield "| confidence | findings | mean confidence | right |"
    yield "|---|---|---|---|"
    found = [(one.confidence, one.right(case.truth)) for case in cases for one in case.said]
    for low in range(0, 100, 20):
        within = [pair for pair in found if low <= min(99.9, 100 * pair[0]) < low + 20]
        if within:
            sure = sum(confidence for confidence, _ in within) / len(within)
            right = sum(is_right for _, is_right in within) / len(within)
            yield f"| {low}-{low + 20} % | {len(within)} | {sure:.2f} | {right:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "make", "score"), default="run")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--family", choices=("none", "hang", "slow"), help="these cases only")
    parser.add_argument("--recording", default="fr", help="score: a folder of each case")
    parser.add_argument("--symptom", default="0", help="score: 1 hung, -1 slow, as reported")
    asked = parser.parse_args()
    if asked.what != "run" and asked.folder is None:
        parser.error(f"{asked.what} needs a folder")
    if asked.what == "score":
        places = sorted(p.parent for p in asked.folder.glob(f"*/{asked.recording}"))
        report(judged(place, asked.recording, asked.symptom) for place in places)
        return
    if asked.what == "make":
        for place in make(asked.folder, asked.seed, asked.count, asked.family):
            print(place, flush=True)
        return
    with tempfile.TemporaryDirectory() as room:
        report(map(judged, make(Path(room), asked.seed, asked.count, asked.family)))


if __name__ == "__main__":
    main()
