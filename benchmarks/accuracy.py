"""How often oncall is right: simulated incidents over fresh seeds, and recordings with known truth.

    python benchmarks/accuracy.py simulated [--seeds 40] [--first 10000] [--jobs 2]
    python benchmarks/accuracy.py hooks [--seeds 24] [--first 40000] [--jobs 2]
    python benchmarks/accuracy.py measured [--seeds 12] [--healthy 24] [--kinds NIC,CABLE]
    python benchmarks/accuracy.py recordings FOLDER [--torch-python PYTHON]

A fault counts as *detected* if an unexplained finding of its class exists, as *located* if such a
finding blames exactly its ranks, or, where nothing recorded tells them apart, a tie of two with
the culprit among them (counted apart as ties). Findings that match no fault are false alarms.
Two faults at once are two faults. `hooks` is what our hooks see of stock NCCL, with the rulebook
waits and without it, and jobs looked at while they run; `measured` what NICs, GPUs and hosts tell
(accuracy_measured.py). `recordings` compares with what
`torchfrtrace` says.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SINGLE = ((), ("H1",), ("H2",), ("H3",), ("S1",), ("S2",), ("S3",))
DOUBLE = (("H1", "S1"), ("H2", "S1"), ("H3", "S2"), ("S1", "S2"))
# A deadlock by crossed order is CCL-D's inconsistent operations, named more exactly; what transfers
# wait for are its hardware faults and its slow communication.
SAME_CLASS = {"DEADLOCK": "H2", "W1": "H3", "W2": "H3", "W3": "H3", "W4": "H3", "W5": "S2"}


@dataclass(frozen=True)
class Found:
    """One unexplained finding: class, the ranks blamed, confidence, whether it is right."""

    kind: str
    ranks: tuple[int, ...]
    confidence: float


@dataclass(frozen=True)
class Incident:
    """One simulated incident: what was done to it and what was found."""

    seed: int
    asked: tuple[str, ...]
    truth: tuple[tuple[str, tuple[int, ...]], ...]
    found: tuple[Found, ...]
    skew_ns: int
    missing_nodes: int
    from_start: bool


def diagnose_scenario(task: tuple[int, tuple[str, ...], bool]) -> Incident:
    """Simulate one scenario and diagnose it with the shipped rulebooks."""
    from oncall.rules.engine import run
    from oncall.rules.load import load_rulebooks, shipped_folder
    from oncall.simulate import Scenario, simulate

    seed, asked, from_start = task
    scenario = Scenario.random(seed, asked, from_start=from_start)
    incident, truth = simulate(scenario)
    with incident:
        outcome = run(incident, load_rulebooks([shipped_folder()]), {})
    found = tuple(
        Found(
            class_of(finding, outcome.findings),
            tuple(sorted(b.where["rank"] for b in finding.blame if "rank" in b.where)),
            finding.confidence,
        )
        for finding in outcome.findings
        if finding.explained_by is None
    )
    return Incident(
        seed,
        asked,
        tuple((fault.kind, tuple(sorted(fault.ranks))) for fault in truth.faults),
        found,
        scenario.clock_offset_ns,
        len(scenario.missing_nodes),
        from_start,
    )


def class_of(finding: Any, findings: Iterable[Any]) -> str:
    """The class of fault a finding stands for; one of a stage that of what it explains."""
    explained = (f for f in findings if f.explained_by == finding.id)
    told = next(explained, finding) if finding.rulebook == "stages" else finding
    return SAME_CLASS.get(told.verdict, told.verdict)


def is_located(kind: str, ranks: tuple[int, ...], found: Found) -> bool:
    """Whether a finding names this fault: its ranks, or a tie of two that holds the culprit."""
    tie = len(found.ranks) == 2 and set(ranks) < set(found.ranks)
    return found.kind == kind and (found.ranks == ranks or tie)


def scores(incidents: Iterable[Incident]) -> Iterator[str]:
    """The table: a line a class with detection and localization precision, recall and F1."""
    counts: dict[str, Counter[str]] = {}
    healthy = alarmed = 0
    for incident in incidents:
        if not incident.truth:
            healthy += 1
            alarmed += bool(incident.found)
        for kind, ranks in incident.truth:
            counter = counts.setdefault(kind, Counter())
            counter["faults"] += 1
            counter["detected"] += any(f.kind == kind for f in incident.found)
            counter["located"] += any(is_located(kind, ranks, f) for f in incident.found)
            counter["ties"] += any(
                is_located(kind, ranks, f) and f.ranks != ranks for f in incident.found
            )
        kinds = {kind for kind, _ in incident.truth}
        for found in incident.found:
            counter = counts.setdefault(found.kind, Counter())
            counter["findings"] += 1
            counter["right class"] += found.kind in kinds
            counter["right"] += any(is_located(k, r, found) for k, r in incident.truth)
    yield "| class | faults | detection P / R / F1 | localization P / R / F1 | ties |"
    yield "|---|---|---|---|---|"
    for kind, c in sorted(counts.items()):
        detection = _prf(c["right class"], c["findings"], c["detected"], c["faults"])
        location = _prf(c["right"], c["findings"], c["located"], c["faults"])
        yield f"| {kind} | {c['faults']} | {detection} | {location} | {c['ties']} |"
    yield f"| healthy | {healthy} | {alarmed} with a finding | | |"


def _prf(right: int, findings: int, recalled: int, faults: int) -> str:
    precision = right / findings if findings else 0.0
    recall = recalled / faults if faults else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return f"{precision:.3f} / {recall:.3f} / {f1:.3f}"


def calibration(incidents: Iterable[Incident]) -> Iterator[str]:
    """Of findings with about the same confidence, the share that is right."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for incident in incidents:
        for found in incident.found:
            right = any(is_located(kind, ranks, found) for kind, ranks in incident.truth)
            bins.setdefault(min(int(found.confidence * 5), 4), []).append((found.confidence, right))
    yield "| confidence | findings | mean confidence | right |"
    yield "|---|---|---|---|"
    for number, members in sorted(bins.items()):
        mean = sum(confidence for confidence, _ in members) / len(members)
        right = sum(right for _, right in members) / len(members)
        yield f"| {number * 20}-{number * 20 + 20} % | {len(members)} | {mean:.2f} | {right:.2f} |"


def simulated(seeds: int, first: int, jobs: int, verbose: bool) -> None:
    """Every class alone, healthy runs, two faults at once, slow faults from the first step."""
    seeds_range = range(first, first + seeds)
    half = seeds_range[: max(1, seeds // 2)]
    tasks = [(seed, asked, False) for asked in SINGLE for seed in seeds_range]
    tasks += [(seed, asked, False) for asked in DOUBLE for seed in half]
    tasks += [(seed, asked, True) for asked in (("S1",), ("S2",)) for seed in half]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        incidents = list(pool.imap_unordered(diagnose_scenario, tasks, chunksize=4))
    for incident in sorted(incidents, key=lambda i: (i.asked, i.seed)):
        good = len(incident.truth) == len(incident.found) and all(
            any(is_located(kind, ranks, f) for f in incident.found)
            for kind, ranks in incident.truth
        )
        if verbose and not good:
            print(f"seed {incident.seed} {'+'.join(incident.asked) or 'healthy'}:", incident)
    singles = [i for i in incidents if len(i.asked) < 2 and not i.from_start]
    skewed = [i for i in singles if i.skew_ns >= 8_000_000]
    print(f"\n## One fault or none ({len(singles)} incidents, seeds from {first})\n")
    print("\n".join(scores(singles)))
    print(f"\n## Of these, clocks off by 8 to 10 ms and more ({len(skewed)})\n")
    print("\n".join(scores(skewed)))
    doubles = [i for i in incidents if len(i.asked) == 2]
    print(f"\n## Two faults at once ({len(doubles)} incidents)\n")
    print("\n".join(scores(doubles)))
    early = [i for i in incidents if i.from_start]
    print(f"\n## Slow from the first step, T_base not configured ({len(early)} incidents)\n")
    print("\n".join(scores(early)))
    print("\n## Calibration of confidence (all)\n")
    print("\n".join(calibration(incidents)))


# ----------------------------------------------------------------------- hooks

ANSWERS = ("exactly", "among two or more", "its communicator", "wrong or none")


@dataclass(frozen=True)
class Told:
    """What was told of one incident: an entry of ANSWERS, and the root findings beside it."""

    answer: str
    beside: int


def diagnose_hooks(task: tuple[int, str, int]) -> tuple[str, int, Told, Told]:
    """One fault in a data-parallel group, `per_node` members a host: without waits and with it."""
    from dataclasses import replace

    from oncall.rules.engine import run
    from oncall.rules.load import load_rulebooks, shipped_folder
    from oncall.simulate import Scenario, simulate

    seed, kind, per_node = task
    drawn = Scenario.random(seed, (kind,))
    scenario = replace(
        drawn,
        recorder="hooks",
        gpus_per_node=per_node * drawn.tp,
        tree=(),
        faults=tuple(replace(fault, role="dp") for fault in drawn.faults),
        missing_nodes=(),
    )
    told = []
    for without in ("waits", ""):
        incident, truth = simulate(scenario)
        with incident:
            books = [b for b in load_rulebooks([shipped_folder()]) if b.name != without]
            roots = [f for f in run(incident, books).findings if f.explained_by is None]
        (fault,) = truth.faults
        told.append(_told(fault.ranks, fault.comms, [f for f in roots if _class(f) == kind], roots))
    return kind, per_node, told[0], told[1]


def _class(finding: Any) -> str:
    return SAME_CLASS.get(finding.verdict, finding.verdict)


def _told(
    ranks: tuple[int, ...], comms: tuple[str, ...], right: list[Any], roots: list[Any]
) -> Told:
    answers = [ANSWERS[3]]
    for finding in right:
        blamed = {b.where.get("rank") for b in finding.blame} - {None}
        if blamed:
            answers.append(
                ANSWERS[0] if blamed == {*ranks} else ANSWERS[1 if blamed > {*ranks} else 3]
            )
        elif {b.where.get("comm") for b in finding.blame} & {*comms}:
            answers.append(ANSWERS[2])
    return Told(min(answers, key=ANSWERS.index), max(0, len(roots) - 1))


def look_at_running(seed: int) -> bool:
    """Whether a healthy job that is looked at while it runs gives a finding."""
    import random
    from dataclasses import replace

    from oncall.rules.engine import run
    from oncall.rules.load import load_rulebooks, shipped_folder
    from oncall.simulate import Scenario, simulate

    chance = random.Random(seed)
    drawn = Scenario.random(seed, ())
    scenario = replace(
        drawn,
        recorder="hooks",
        duration_ns=round(chance.uniform(1, 240) * 1e9),
        gpus_per_node=chance.choice((drawn.tp, 8)),
        answers_within_ns=chance.choice((0, 200_000_000, 30_000_000_000)),
        missing_nodes=(),
    )
    incident, _ = simulate(scenario)
    with incident:
        return bool(run(incident, load_rulebooks([shipped_folder()])).findings)


def hooks(seeds: int, first: int, jobs: int) -> None:
    """How often the faulty rank is named without and with the rulebook waits."""
    numbers = range(first, first + seeds)
    tasks = [(seed, kind, n) for kind in ("H3", "S2") for n in (1, 2) for seed in numbers]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        results = list(pool.imap_unordered(diagnose_hooks, tasks, chunksize=4))
        alarms = sum(pool.imap_unordered(look_at_running, numbers, chunksize=4))
    print(f"| class | a host has | rules | {' | '.join(ANSWERS)} | findings beside it |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in ("H3", "S2"):
        for per_node in (1, 2):
            mine = [r for r in results if r[:2] == (kind, per_node)]
            for index, rules in ((2, "without waits"), (3, "with waits")):
                found: list[Told] = [r[index] for r in mine]  # type: ignore[misc]
                counts = Counter(told.answer for told in found)
                cells = " | ".join(str(counts[answer]) for answer in ANSWERS)
                beside = sum(told.beside for told in found)
                members = "one member" if per_node == 1 else "two members"
                print(f"| {kind} | {members} | {rules} | {cells} | {beside} |")
    print(f"\nHealthy jobs looked at while they run: {seeds}, with a finding: {alarms}")


# ------------------------------------------------------------------ recordings

# Where the recordings lie under the given folder, and what is true of them.
RECORDINGS = (
    ("flight_recorder/healthy/pickle", None, ()),
    ("flight_recorder/healthy/json", None, ()),
    ("flight_recorder/h1_not_entered/pickle", "H1", (2,)),
    ("flight_recorder/h1_not_entered/json", "H1", (2,)),
    ("flight_recorder/h2_wrong_op/pickle", "H2", (1,)),
    ("flight_recorder/h2_wrong_op/json", "H2", (1,)),
    ("nvrx/gpu_error_2nd", "H1", (9, 14)),
    ("megatrace/log_rank2_slow.tar.xz", "S1", (2,)),
)


def recordings(folder: Path, torch_python: str | None) -> None:
    """Diagnose each recording as its user would, beside torchfrtrace's answer."""
    print("| recording | truth | oncall | right | torchfrtrace |\n|---|---|---|---|---|")
    for name, kind, ranks in RECORDINGS:
        path = folder / name
        if not path.exists():
            print(f"| {name} | | not here | | |")
            continue
        with tempfile.TemporaryDirectory() as room:
            place = _unpacked(path, Path(room))
            answer = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "oncall.cli.main",
                    "diagnose",
                    str(place),
                    "--format",
                    "json",
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            other = _torchfrtrace(place, torch_python)
        findings = json.loads(answer.stdout)["findings"] if answer.stdout else []
        roots = [f for f in findings if f["explained_by"] is None]
        got = [(f["verdict"], tuple(b.get("rank") for b in f["blame"])) for f in roots]
        right = got == ([(kind, ranks)] if kind else [])
        truth = f"{kind} {list(ranks)}" if kind else "healthy"
        said = "; ".join(f"{v} {list(r)}" for v, r in got) or "no finding"
        print(f"| {name} | {truth} | {said} | {'yes' if right else 'NO'} | {other} |")


def _unpacked(path: Path, room: Path) -> Path:
    if path.suffix != ".xz":
        return path
    with tarfile.open(path) as archive:
        archive.extractall(room, filter="data")
    return next(item for item in room.iterdir() if item.is_dir())


def _torchfrtrace(folder: Path, python: str | None) -> str:
    """What PyTorch's analyzer says of the same files, in a few words."""
    names = sorted(item.name for item in folder.iterdir())
    prefix = re.sub(r"\d+(\.json)?$", "", names[0])
    if python is None or "megatrace" in str(folder) or names[0].endswith((".json", ".log")):
        return "" if python is None else "cannot read it"
    answer = subprocess.run(
        [python, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), "-p", prefix],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1"},
    )
    if answer.returncode:
        return "fails: " + answer.stderr.strip().splitlines()[-1][:60].replace("|", "/")
    said = re.findall(
        r"missing ranks: (\{[^}]*\})|Culprit rank ([\d, ]+)", answer.stdout + answer.stderr
    )
    return "; ".join("missing " + a if a else "culprit " + b for a, b in said) or "silent"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("simulated", "hooks", "measured", "recordings"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=40, help="fresh seeds a class")
    parser.add_argument("--first", type=int, default=10_000, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--healthy", type=int, default=24, help="measured: healthy jobs")
    parser.add_argument("--kinds", default="", help="measured: these faults only, by comma")
    parser.add_argument("--torch-python", help="a Python that has torch, for torchfrtrace")
    parser.add_argument("--verbose", action="store_true", help="show what was not right")
    options = parser.parse_args()
    arguments = options.seeds, options.first, options.jobs
    if options.what == "simulated":
        simulated(*arguments, options.verbose)
    elif options.what == "hooks":
        hooks(*arguments)
    elif options.what == "measured":
        from accuracy_measured import measured

        kinds = [kind for kind in options.kinds.split(",") if kind]
        measured(*arguments, options.healthy, kinds, options.verbose)
    elif options.folder is None:
        parser.error("recordings needs the folder they lie in")
    else:
        recordings(options.folder, options.torch_python)


if __name__ == "__main__":
    main()
