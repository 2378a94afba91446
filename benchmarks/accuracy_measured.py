"""How often the cause is right when NICs, GPUs, hosts and latencies are measured: TFD's fifteen
faults and their kin, over fresh seeds of the simulator (`python benchmarks/accuracy.py measured`).

A fault counts as *detected* if there is any unexplained finding, as *located* if an unexplained
finding has its verdict and blames its component: for each kind the columns in `FAULTS` that make
it. Where one cause has a name on two levels (a CPU quota is a misallocated resource) either counts.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Where = tuple[tuple[str, Any], ...]  # the columns of one blame


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its category in TFD Table 1, the columns that name its component (any of
    them is enough), and the verdicts that name it as well."""

    category: str
    component: tuple[str, ...]
    also: tuple[str, ...] = ()


FAULTS: Mapping[str, Kind] = {
    "PCIE_LINK": Kind("host", ("nic", "gpu")),
    "NVLINK": Kind("host", ("gpu",)),
    "GPU": Kind("host", ("gpu",)),
    "HOST_MEMORY": Kind("host", ("node",)),
    "PCIE_PORT": Kind("host", ("node",)),
    "NIC": Kind("network", ("nic",)),
    "CABLE": Kind("network", ("nic",)),
    "SWITCH": Kind("network", ("nic",)),
    "LINK": Kind("network", ("nic",)),
    "PFC_DEADLOCK": Kind("network", ("nic",)),
    "RESOURCES": Kind("application", ("node",), ("CPU_QUOTA", "NUMA", "CPU_STARVED")),
    "PATTERN": Kind("application", ("comm", "rank", "node")),
    "SCHEDULING": Kind("application", ("comm", "rank", "node")),
    "SETTINGS": Kind("application", ("comm", "rank", "node")),
    "MEMORY": Kind("application", ("gpu", "rank", "node")),
    "THROTTLE": Kind("beyond", ("gpu",)),
    "CPU_STARVED": Kind("beyond", ("node",), ("RESOURCES",)),
    "CPU_QUOTA": Kind("beyond", ("node", "rank"), ("RESOURCES",)),
    "NUMA": Kind("beyond", ("node", "rank"), ("RESOURCES",)),
    "GC": Kind("beyond", ("rank",)),
    "DATA_LOADER": Kind("beyond", ("node", "rank")),
    "SLOW_NODE": Kind("beyond", ("node",)),
}
CATEGORIES = ("host", "network", "application", "beyond")


@dataclass(frozen=True)
class Answer:
    """One simulated incident: the fault's kind ('' for a healthy job), and what was made of it.

    `roots`: verdict and blame of each unexplained finding, surest first.
    """

    seed: int
    kind: str
    how: str
    severity: int
    slowdown: float | None
    blame: tuple[Where, ...]
    roots: tuple[tuple[str, tuple[Where, ...]], ...]

    @property
    def detected(self) -> bool:
        return bool(self.roots)

    @property
    def located(self) -> bool:
        named = (self.names(verdict, blame) for verdict, blame in self.roots if self.kind)
        return any(named)

    def names(self, verdict: str, blame: tuple[Where, ...]) -> bool:
        """Whether a finding names this fault: its verdict and, exactly, its component."""
        kind = FAULTS[self.kind]
        if verdict != self.kind and verdict not in kind.also:
            return False
        theirs = [dict(one) for one in blame]
        ours = [dict(one) for one in self.blame]
        agree = [[_agree(mine, their, kind.component) for their in theirs] for mine in ours]
        every_culprit = all(any(row) for row in agree)
        nobody_else = all(any(row[index] for row in agree) for index in range(len(theirs)))
        return bool(agree) and bool(theirs) and every_culprit and nobody_else


def _agree(truth: Mapping[str, Any], found: Mapping[str, Any], component: Sequence[str]) -> bool:
    """Whether a blame is about the culprit: no column contradicts, and one names the component."""
    known = {column for column in truth if found.get(column) is not None}
    return all(truth[c] == found[c] for c in known) and bool(known & {*component})


def diagnose_measured(task: tuple[int, str, int]) -> Answer:
    """Simulate one scenario and diagnose it with the shipped rulebooks."""
    from oncall.rules.engine.engine import run
    from oncall.rules.language.load import load_rulebooks, shipped_folder
    from oncall_lab import simulate
    from oncall_lab.drawn.training import random_scenario

    seed, kind, severity = task
    kinds = (kind,) if kind else ()
    scenario = random_scenario(seed, kinds, measured=True, severity=severity or None)
    incident, truth = simulate(scenario)
    with incident:
        outcome = run(incident, load_rulebooks([shipped_folder()]), {})
    roots = tuple(
        (finding.verdict, tuple(tuple(sorted(b.where.items(), key=str)) for b in finding.blame))
        for finding in outcome.findings
        if finding.explained_by is None
    )
    fault = truth.faults[0] if truth.faults else None
    return Answer(
        seed,
        fault.kind if fault else "",
        fault.how if fault else "",
        severity,
        fault.slowdown if fault else None,
        tuple(tuple(sorted(one.items(), key=str)) for one in fault.blame) if fault else (),
        roots,
    )


# ------------------------------------------------------------------------ report


def scores(answers: Iterable[Answer]) -> Iterator[str]:
    """The table: a line a kind, a line a category, and the whole of TFD's fifteen."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for answer in (a for a in answers if a.kind):
        category = FAULTS[answer.kind].category
        names = [answer.kind, f"*{category}*", "**all**"]
        names += ["**TFD's fifteen**"] if category != "beyond" else []
        for name in names:
            counts[name] += Counter(
                faults=1,
                detected=answer.detected,
                located=answer.located,
                beside=max(0, len(answer.roots) - 1),
            )
    yield "| fault | incidents | detected | located | findings beside |"
    yield "|---|---|---|---|---|"
    order = [*FAULTS, *(f"*{name}*" for name in CATEGORIES), "**TFD's fifteen**", "**all**"]
    for name in (name for name in order if name in counts):
        c = counts[name]
        detected, located = (100 * c[what] / c["faults"] for what in ("detected", "located"))
        yield f"| {name} | {c['faults']} | {detected:.1f} % | {located:.1f} % | {c['beside']} |"


def confusion(answers: Iterable[Answer]) -> Iterator[str]:
    """What was reported of each kind: the verdict of the first root finding, and how often."""
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    for answer in answers:
        right = [v for v, blame in answer.roots if answer.kind and answer.names(v, blame)]
        first = answer.roots[0][0] if answer.roots else "nothing"
        elsewhere = "" if right or first != answer.kind else " elsewhere"
        verdicts[answer.kind or "healthy"][right[0] if right else first + elsewhere] += 1
    yield "| truth | reported, with how many incidents |"
    yield "|---|---|"
    for kind in (*FAULTS, "healthy"):
        if kind in verdicts:
            yield f"| {kind} | {', '.join(f'{v} {n}' for v, n in verdicts[kind].most_common())} |"


def measured(
    seeds: int, first: int, jobs: int, healthy: int, kinds: Sequence[str], verbose: bool
) -> None:
    """Every kind over fresh seeds, with the severities in turn, and healthy jobs."""
    from oncall_lab.training.fault import MEASURED_WAYS

    asked = [kind for kind in FAULTS if kind in (kinds or MEASURED_WAYS)]
    numbers = range(first, first + seeds)
    tasks = [(seed, kind, 1 + seed % 3) for kind in asked for seed in numbers]
    tasks += [(seed, "", 0) for seed in range(first, first + healthy)]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        answers = sorted(
            pool.imap_unordered(diagnose_measured, tasks), key=lambda a: (a.kind, a.seed)
        )
    for answer in answers:
        if verbose and answer.located != bool(answer.kind):
            print(answer)
    sound = [answer for answer in answers if not answer.kind]
    print("\n".join(scores(answers)))
    print(f"\nHealthy jobs: {len(sound)}, with a finding: {sum(a.detected for a in sound)}\n")
    print("\n".join(confusion(answers)))
