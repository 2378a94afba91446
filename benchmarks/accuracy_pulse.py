"""How often the rulebook traffic is right: Pulse's experiments, fresh seeds (Pulse 8.1, Table 4).

    python benchmarks/accuracy_pulse.py [--seeds 1] [--first 501] [--healthy 6] [--jobs 2]
    python benchmarks/accuracy_pulse.py granularity [--first 501]

Each experiment is simulated traffic (`oncall_lab.traffic`) with one failure, diagnosed with
the rulebook as it is shipped. A finding is right if it names the class and the faulty machine and
nobody else (Pulse 8.1). Beside it a baseline of our own that sees operations only as a whole,
their starts and durations, as Aegis, Holmes and Greyhound do. `granularity` diagnoses the same
traffic in epochs of 32 and of 64 us (Pulse 7.2.1).
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

CLASSES = {
    "COMM_FAIL_SLOW": "comm fail-slow",
    "COMM_FAIL_STOP": "comm fail-stop",
    "COMP_FAIL_SLOW": "comp fail-slow",
    "COMP_FAIL_STOP": "comp fail-stop",
    "CPU_BOTTLENECK": "cpu bottleneck",
    "GROUP_ANOMALY": "group anomaly",
}
# Pulse counts a bottleneck of the CPU among computation fail-slow, in groups.
PULSE = {
    "comm fail-slow": "100 / 100",
    "comm fail-stop": "100 / 100",
    "comp fail-slow": "over 90 / 100",
    "comp fail-stop": "100 / 100",
    "cpu bottleneck": "group only",
}
Claim = tuple[str, frozenset[str]]  # class, machines


@dataclass(frozen=True)
class Experiment:
    """One simulated job: the failure and what was said of it."""

    name: str
    truth: Claim | None
    pulse: tuple[Claim, ...]
    operations: tuple[Claim, ...]
    diagnosis_s: float


def run_one(task: tuple[str, int, int]) -> Experiment:
    """Simulate and diagnose one experiment: (table, seed, number)."""
    from oncall.rules.engine.engine import run
    from oncall.rules.language.load import load_rulebooks, shipped_folder
    from oncall_lab.traffic import simulate_traffic

    scenario = scenarios(task[0], task[1])[task[2]]
    incident, truth = simulate_traffic(scenario)
    books = [book for book in load_rulebooks([shipped_folder()]) if book.name == "traffic"]
    with incident:
        incident.provide(["rank_traffic"])
        coarse = tuple(operation_level(incident.con))
        began = time.perf_counter()
        outcome = run(incident, books)
        took = time.perf_counter() - began
    said = tuple(
        (CLASSES[f.verdict], frozenset(b.where["node"] for b in f.blame if b.where.get("node")))
        for f in outcome.findings
        if f.explained_by is None and f.verdict in CLASSES
    )
    fault = scenario.faults[0] if scenario.faults else None
    real = None
    if fault and fault.pulse_class != "none":
        real = fault.pulse_class, frozenset(truth.faults[0].nodes)
    severity = f" {fault.severity}" if fault and fault.severity is not None else ""
    name = f"{fault.kind}{severity}" if fault else "healthy"
    return Experiment(f"{name} {scenario.workload} seed {task[1]}", real, said, coarse, took)


def scenarios(table: str, seed: int) -> list[Any]:
    from oncall_lab.drawn.traffic import beyond_table_4, healthy, table_4

    if table == "healthy":
        return [healthy(seed, name) for name in ("gpt2", "mixtral", "neighbour_exchange")]
    return [*(table_4 if table == "table 4" else beyond_table_4)(seed)]


# ------------------------------------------------------- operations as a whole

_ABSENT = """
    WITH last AS (SELECT job, comm, kind, max(turn) AS turn FROM rank_traffic GROUP BY ALL),
    here AS (SELECT r.* FROM rank_traffic r JOIN last USING (job, comm, kind, turn)
             WHERE started_ns IS NOT NULL),
    stuck AS (SELECT DISTINCT comm, kind, turn FROM here WHERE ended_ns IS NULL)
    SELECT s.comm, min(s.turn), list(DISTINCT m.node), list(DISTINCT h.node), count(DISTINCT m.node)
    FROM stuck s JOIN (SELECT DISTINCT comm, rank, node FROM rank_traffic) m USING (comm)
    LEFT JOIN here h ON h.comm = s.comm AND h.kind = s.kind AND h.rank = m.rank GROUP BY s.comm
"""
_LATE = """
    WITH each AS (
        SELECT comm, turn, node, started_ns - median(started_ns) OVER one AS late_ns,
            max(started_ns) OVER one = started_ns AS last,
            dense_rank() OVER (PARTITION BY comm ORDER BY turn DESC) AS back
        FROM rank_traffic WHERE bytes > 1e6 AND started_ns IS NOT NULL
        WINDOW one AS (PARTITION BY comm, kind, turn))
    SELECT node, avg(last::INTEGER) AS last, median(late_ns) AS late_ns FROM each
    WHERE back <= 10 GROUP BY node HAVING median(late_ns) > 1e6 AND avg(last::INTEGER) > 0.5
"""
_LONG = """
    WITH each AS (
        SELECT comm, rank, node, peers, is_custom, median(ended_ns - started_ns) AS lasted_ns,
            avg(bytes * 1e9 / (ended_ns - started_ns)) AS rate
        FROM (SELECT *, dense_rank() OVER (PARTITION BY comm ORDER BY turn DESC) AS back
              FROM rank_traffic WHERE ended_ns > started_ns AND bytes > 1e6)
        WHERE back <= 10 AND (kind = 'coll' OR is_custom) GROUP BY ALL),
    compared AS (
        SELECT *, lasted_ns / median(lasted_ns) OVER (PARTITION BY is_custom) AS times,
            rate / median(rate) OVER (PARTITION BY comm) AS share FROM each)
    SELECT node FROM compared
    WHERE CASE WHEN is_custom THEN share < 0.87 ELSE times > 1.15 END
    QUALIFY CASE WHEN is_custom THEN share = min(share) OVER (PARTITION BY comm)
                 ELSE lasted_ns = max(lasted_ns) OVER (PARTITION BY comm) END
"""


def operation_level(con: Any) -> Iterator[Claim]:
    """What starts, durations and observed rates of operations tell, without what goes on inside."""
    stuck = con.execute(_ABSENT).fetchall()
    if stuck:
        first = min(stuck, key=lambda row: row[1])
        missing = frozenset(first[2]) - frozenset(node for node in first[3] if node)
        yield ("comp fail-stop", missing) if missing else ("comm fail-stop", frozenset(first[2]))
        return
    late = frozenset(node for node, *_ in con.execute(_LATE).fetchall())
    if late:
        yield "comp fail-slow", late
    for node in {node for (node,) in con.execute(_LONG).fetchall()} - late:
        yield "comm fail-slow", frozenset([node])


# ------------------------------------------------------------------------ scores


def scores(experiments: Iterable[Experiment]) -> Iterator[str]:
    """A line a class: precision and recall of the rulebook and of the baseline, in percent."""
    experiments = list(experiments)
    yield "| class | experiments | oncall P / R | Pulse P / R | operations only P / R |"
    yield "|---|---|---|---|---|"
    for name in PULSE:
        faults = [e for e in experiments if e.truth and e.truth[0] == name]
        parts = [_precision_recall(experiments, faults, name, which) for which in (True, False)]
        yield f"| {name} | {len(faults)} | {parts[0]} | {PULSE[name]} | {parts[1]} |"
    quiet = [e for e in experiments if e.truth is None]
    counts = [sum(bool(e.pulse) for e in quiet), sum(bool(e.operations) for e in quiet)]
    yield f"| no fault | {len(quiet)} | {counts[0]} with a finding | | {counts[1]} with a finding |"


def _precision_recall(
    experiments: Iterable[Experiment], faults: list[Experiment], name: str, ours: bool
) -> str:
    count: Counter[str] = Counter()
    for e in experiments:
        claims = [c for c in (e.pulse if ours else e.operations) if c[0] == name]
        count["said"] += len(claims)
        count["right"] += sum(claim == e.truth for claim in claims)
    found = sum(e.truth in (e.pulse if ours else e.operations) for e in faults)
    precision = 100 * count["right"] / count["said"] if count["said"] else float("nan")
    return f"{precision:.1f} / {100 * found / max(1, len(faults)):.1f}"


def granularity(seed: int) -> None:
    """A halved path: how much longer sound members of its group seem to send, by epoch length."""
    from oncall_lab.traffic import simulate_traffic

    found = next(
        s for s in scenarios("table 4", seed)
        if s.faults[0].kind == "congestion" and s.workload == "gpt2"
    )  # fmt: skip
    print("| epochs | straggler, ms | other members, ms | members of other groups, ms |")
    print("|---|---|---|---|")
    for epoch_us in (16, 32, 64, 128, 1000):
        scenario = dataclasses.replace(
            found, epoch_ns=epoch_us * 1000, channels=2, source="dpa", lost_epochs=0.0
        )
        incident, truth = simulate_traffic(scenario)
        with incident:
            incident.provide(["rank_traffic"])
            (rank,) = truth.faults[0].ranks
            row = incident.con.execute(
                """WITH mine AS (SELECT DISTINCT comm FROM rank_traffic
                                 WHERE rank = $rank AND kind = 'coll' AND bytes > 1e6)
                   SELECT median(active_ns) FILTER (rank = $rank) / 1e6,
                       median(active_ns) FILTER (rank <> $rank AND comm IN (FROM mine)) / 1e6,
                       median(active_ns) FILTER (comm NOT IN (FROM mine)) / 1e6
                   FROM rank_traffic WHERE kind = 'coll' AND bytes > 1e6 AND turn > 12""",
                {"rank": rank},
            ).fetchall()[0]
        print(f"| {epoch_us} us | " + " | ".join(f"{value:.2f}" for value in row) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("experiments", "granularity"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=501)
    parser.add_argument("--healthy", type=int, default=2, help="seeds of healthy jobs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    if asked.what == "granularity":
        granularity(asked.first)
        return
    seeds = range(asked.first, asked.first + asked.seeds)
    tasks = [
        (table, seed, number)
        for table in ("table 4", "beyond")
        for seed in seeds
        for number in range(len(scenarios(table, seed)))
    ]
    tasks += [
        ("healthy", seed, number)
        for seed in range(asked.first, asked.first + asked.healthy)
        for number in range(3)
    ]
    experiments = []
    with multiprocessing.get_context("spawn").Pool(asked.jobs, maxtasksperchild=8) as pool:
        for e in pool.imap_unordered(run_one, tasks):
            experiments.append(e)
            right = e.pulse == ((e.truth,) if e.truth else ())
            if asked.verbose or not right:
                print(f"{'right' if right else 'WRONG'} {e.name}: {e.truth} {e.pulse}", flush=True)
    print("\n".join(scores(experiments)))
    took = sorted(e.diagnosis_s for e in experiments)
    print(f"diagnosis: median {took[len(took) // 2]:.1f} s, longest {took[-1]:.1f} s")


if __name__ == "__main__":
    main()
