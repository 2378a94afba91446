"""How often the rulebook congestion is right: Vedrfolnir's experiments, fresh seeds (IV-A, Fig. 9).

    python benchmarks/accuracy_network.py [--first 1] [--share 1.0] [--kinds INCAST,...] [--asks 3]

Each case is a collective on a simulated network (`oncall_lab.network`) with one fault, in the
paper's counts, diagnosed with the rulebooks as they are shipped. By the paper: a contention or an
incast is a true positive if all injected flows are named, a false positive if only some are, a
false negative if nothing is found; a storm or backpressure is a true positive if its source port is
named, a false positive if only pauses are reported. Ours is stricter: the root finding must also
have the right verdict, no innocent flow may be named, and no second root cause.

A flow must be named if ports served it, while the collective waited there, for at least a twentieth
of a step. It is innocent if they did for less than a two-hundredth, and no step of the collective
would be shorter by as much without it (the case is played again without it). Flows of an incast,
and others through the port it fills, are no innocents, whichever of them it is that fills it.
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

CULPRIT = 1 / 20  # of a step's time
INNOCENT = 1 / 200
OF_FLOWS = ("CONTENTION", "INCAST")


@dataclass(frozen=True)
class Case:
    """One case: what was true and what was said.

    `must`: flows to be named; `innocent`: of those named; `ports`: the source.
    """

    kind: str
    seed: int
    must: frozenset[str]
    innocent: frozenset[str]
    ports: frozenset[str]
    verdicts: tuple[str, ...]
    flows: frozenset[str]
    blamed_ports: frozenset[str]
    slowdown: float
    about: str
    simulation_s: float
    diagnosis_s: float

    @property
    def paper(self) -> str:
        """TP, FP or FN as the paper counts; of a healthy case TN or FP."""
        if self.kind == "healthy":
            return "FP" if self.verdicts else "TN"
        if not self.verdicts:
            return "FN"
        if self.kind in OF_FLOWS or self.kind == "FORWARDING_LOOP":
            return "TP" if self.must <= self.flows else "FP"
        return "TP" if self.ports & self.blamed_ports else "FP"

    @property
    def strict(self) -> str:
        """The same, if also the kind is right, alone, and nobody innocent is named."""
        right = self.verdicts == (self.kind,) and not self.innocent
        return "FP" if self.paper == "TP" and not right else self.paper


def run_one(task: tuple[str, int, int]) -> Case:
    """Draw, simulate and diagnose one case: (kind, seed, asks)."""
    kind, seed, asks = (*task, 0)[:3]
    began = time.perf_counter()
    played, truth = draw(kind, seed, asks)
    return judge(kind, seed, played, truth, time.perf_counter() - began)


def judge(
    kind: str, seed: int, played: Any, truth: Any, simulation_s: float = 0.0, reported: Any = None
) -> Case:
    """Diagnose a case. `reported` (epochs, ports): what switches reported, if not as drawn."""
    from oncall.rules.language.load import load_file, shipped_folder
    from oncall.use_case.diagnose import diagnose
    from oncall_lab.network.record import record

    simulated = time.perf_counter()
    books = [load_file(shipped_folder() / "congestion.yaml")]
    with record(played, reported) as incident:
        diagnosis = diagnose(incident, books)
    diagnosed = time.perf_counter()
    roots = [f for f in diagnosis.findings if f.explained_by is None]
    blames = [blame.where for finding in roots for blame in finding.blame]
    flows = frozenset(where["flow"] for where in blames if where.get("flow"))
    fault = truth.faults[0] if truth.faults else None
    s = played.scenario
    return Case(
        kind,
        seed,
        culprits(played, truth),
        innocent(played, truth, flows),
        frozenset(str(b["port"]) for b in (fault.blame if fault else ()) if "port" in b),
        tuple(sorted(finding.verdict for finding in roots)),
        flows,
        frozenset(where["port"] for where in blames if where.get("port")),
        (fault.slowdown or 0.0) if fault else 1.0,
        f"k={s.fat_tree} {s.members} {s.algorithm} {s.op} {s.reports}",
        simulation_s,
        diagnosed - simulated,
    )


def draw(kind: str, seed: int, asks: int = 0) -> tuple[Any, Any]:
    """The first attempt of a seed in which the fault delays the collective, with its truth."""
    from oncall.core.errors import UsageError
    from oncall_lab.drawn.network import attempts
    from oncall_lab.network.plan import plan
    from oncall_lab.network.play import play
    from oncall_lab.network.simulation import truth_of_network

    for drawn in attempts(kind, seed):
        scenario = dataclasses.replace(drawn, asks=asks) if asks else drawn
        try:
            played = play(scenario, plan(scenario))
        except UsageError:  # no place for it in this network
            continue
        truth = truth_of_network(played)
        if kind == "healthy" or (
            truth.faults and (kind not in OF_FLOWS or culprits(played, truth))
        ):
            return played, truth
    raise AssertionError("attempts never end")


def step_ns(played: Any) -> float:
    return float(played.scenario.step_bytes / played.scenario.network_bytes_per_s * 1e9)


def served_ns(truth: Any) -> dict[str, float]:
    """Of each injected flow: how long ports served it while the collective waited there."""
    blame = truth.faults[0].blame if truth.faults else ()
    return {b["flow"]: b["lost_ns"] for b in blame if "flow" in b}


def culprits(played: Any, truth: Any) -> frozenset[str]:
    least = CULPRIT * step_ns(played)
    return frozenset(flow for flow, ns in served_ns(truth).items() if ns >= least)


def innocent(played: Any, truth: Any, named: frozenset[str]) -> frozenset[str]:
    """Of the flows named, those without which no step of the collective would be shorter."""
    from oncall_lab.network.simulation import steps_longer_ns

    least = INNOCENT * step_ns(played)
    served = served_ns(truth)
    # Of an incast, any one could be missing and the others would do the same together.
    if truth.faults and truth.faults[0].kind != "CONTENTION":
        served = dict.fromkeys([*served, *_through_root(played)], least)
    doubtful = [flow for flow in named if served.get(flow, 0.0) < least]
    return frozenset(flow for flow in doubtful if steps_longer_ns(played, flow) < least)


def _through_root(played: Any) -> list[str]:
    """Flows of others on a port where the fault's flows queue."""
    from oncall_lab.network.record import flow_names

    ports = {port for fault in played.plan.injected for port in fault.ports}
    others = zip(flow_names(played)[played.members :], played.plan.flows, strict=True)
    return [name for name, flow in others if ports & set(flow.path)]


def scores(cases: Iterable[Case]) -> Iterator[str]:
    """A line a kind: precision and recall, as the paper counts and strictly."""
    cases = list(cases)
    yield "| kind | cases | precision, recall by the paper | strictly, ours |"
    yield "|---|---|---|---|"
    for kind in dict.fromkeys(case.kind for case in cases):
        mine = [case for case in cases if case.kind == kind]
        if kind == "healthy":
            wrong = sum(bool(case.verdicts) for case in mine)
            yield f"| healthy | {len(mine)} | {wrong} with a finding | |"
            continue
        parts = [_ratio(Counter(c.paper for c in mine)), _ratio(Counter(c.strict for c in mine))]
        yield f"| {kind} | {len(mine)} | {parts[0]} | {parts[1]} |"


def _ratio(count: Counter[str]) -> str:
    said, real = count["TP"] + count["FP"], count["TP"] + count["FN"]
    values = [count["TP"] / whole if whole else float("nan") for whole in (said, real)]
    return f"{values[0]:.3f}, {values[1]:.3f}"


def main() -> None:
    from oncall_lab.drawn.network import COUNTS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1, help="seeds count from here")
    parser.add_argument("--share", type=float, default=1.0, help="of the paper's counts")
    parser.add_argument("--kinds", default=",".join(COUNTS))
    parser.add_argument("--asks", type=int, default=0, help="of a late sender; 0: as drawn")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    tasks = [
        (kind, seed, asked.asks)
        for kind in asked.kinds.split(",")
        for seed in range(asked.first, asked.first + max(1, round(COUNTS[kind] * asked.share)))
    ]
    cases = []
    with multiprocessing.get_context("spawn").Pool(asked.jobs, maxtasksperchild=30) as pool:
        for case in pool.imap(run_one, tasks):
            cases.append(case)
            if case.strict not in ("TP", "TN"):
                print(
                    f"{case.paper}/{case.strict} {case.kind} seed {case.seed} ({case.about}, "
                    f"x{case.slowdown:.2f}): {', '.join(case.verdicts) or 'nothing'}; "
                    f"missing {sorted(case.must - case.flows)}, innocent "
                    f"{sorted(case.innocent)}, ports {sorted(case.blamed_ports)} "
                    f"of {sorted(case.ports)}",
                    flush=True,
                )
    print("\n".join(scores(cases)))
    for name in ("simulation_s", "diagnosis_s"):
        took = sorted(getattr(case, name) for case in cases)
        print(f"{name}: median {took[len(took) // 2]:.1f}, longest {took[-1]:.1f}")


if __name__ == "__main__":
    main()
