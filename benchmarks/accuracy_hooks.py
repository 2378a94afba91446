"""What our hooks see of stock NCCL: is the rank named, with the rulebook waits and without it?

And jobs that are healthy, looked at while they run: is anything found in them?
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import dataclass
from typing import Any

from accuracy_simulated import SAME_CLASS

ANSWERS = ("exactly", "among two or more", "its communicator", "wrong or none")


@dataclass(frozen=True)
class Answer:
    """The answer to one incident: an entry of ANSWERS, and the root findings beside it."""

    answer: str
    beside: int


def diagnose_hooks(task: tuple[int, str, int]) -> tuple[str, int, Answer, Answer]:
    """One fault in a data-parallel group, `per_node` members a host: without waits and with it."""
    from dataclasses import replace

    from oncall.rules.engine.engine import run
    from oncall.rules.language.load import load_rulebooks, shipped_folder
    from oncall_lab import simulate
    from oncall_lab.drawn.training import random_scenario

    seed, kind, per_node = task
    drawn = random_scenario(seed, (kind,))
    scenario = replace(
        drawn,
        recorder="hooks",
        gpus_per_node=per_node * drawn.tp,
        tree=(),
        faults=tuple(replace(fault, role="dp") for fault in drawn.faults),
        missing_nodes=(),
    )
    reported = []
    for without in ("waits", ""):
        incident, truth = simulate(scenario)
        with incident:
            books = [b for b in load_rulebooks([shipped_folder()]) if b.name != without]
            roots = [f for f in run(incident, books).findings if f.explained_by is None]
        (fault,) = truth.faults
        reported.append(
            _answer(fault.ranks, fault.comms, [f for f in roots if _class(f) == kind], roots)
        )
    return kind, per_node, reported[0], reported[1]


def _class(finding: Any) -> str:
    return SAME_CLASS.get(finding.verdict, finding.verdict)


def _answer(
    ranks: tuple[int, ...], comms: tuple[str, ...], right: list[Any], roots: list[Any]
) -> Answer:
    answers = [ANSWERS[3]]
    for finding in right:
        blamed = {b.where.get("rank") for b in finding.blame} - {None}
        if blamed:
            answers.append(
                ANSWERS[0] if blamed == {*ranks} else ANSWERS[1 if blamed > {*ranks} else 3]
            )
        elif {b.where.get("comm") for b in finding.blame} & {*comms}:
            answers.append(ANSWERS[2])
    return Answer(min(answers, key=ANSWERS.index), max(0, len(roots) - 1))


def look_at_running(seed: int) -> bool:
    """Whether a healthy job that is looked at while it runs gives a finding."""
    import random
    from dataclasses import replace

    from oncall.rules.engine.engine import run
    from oncall.rules.language.load import load_rulebooks, shipped_folder
    from oncall_lab import simulate
    from oncall_lab.drawn.training import random_scenario

    chance = random.Random(seed)
    drawn = random_scenario(seed, ())
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
                found: list[Answer] = [r[index] for r in mine]  # type: ignore[misc]
                counts = Counter(reported.answer for reported in found)
                cells = " | ".join(str(counts[answer]) for answer in ANSWERS)
                beside = sum(reported.beside for reported in found)
                members = "one member" if per_node == 1 else "two members"
                print(f"| {kind} | {members} | {rules} | {cells} | {beside} |")
    print(f"\nHealthy jobs looked at while they run: {seeds}, with a finding: {alarms}")
