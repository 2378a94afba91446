"""How often the rulebook congestion is right where no switch speaks, on Vedrfolnir's experiments.

    python benchmarks/accuracy_hosts.py [--first 1] [--seeds 20] [--kinds INCAST,...] [--jobs 2]

Each case is a collective on a simulated network with one fault, of which only hosts tell: steps as
they sent them or found in their traffic (one half each), and what their NICs counted, read every 5,
25 or 250 ms. All rulebooks are asked.

The truth comes from the simulation, not from counters: the case is played again without its fault,
and each step is longer by something. *Place* is right if every host named is at an end of a step
that is longer by at least half as much as the worst (of a slow receiver: is that host). *Verdict*
is right if it says what held a step of that host up: a port of its sender that had to stop, marks,
another flow on the host's own link, or the receiver that pauses. One root is right.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

KINDS = (
    *("CONTENTION", "INCAST", "PFC_STORM", "PFC_BACKPRESSURE", "LOAD_IMBALANCE"),
    *("SLOW_RECEIVER", "healthy"),
)
PAUSED = 0.3  # of what the step is longer by: its port had to stop for so long
AS_LATE = 0.5  # of the longest: another step that the fault made late, too
LATE_STEP = 1 / 20  # of a step's time


@dataclass(frozen=True)
class Case:
    """One case: what may be said and where, and what was said."""

    kind: str
    seed: int
    about: str
    slowdown: float
    answers: dict[str, frozenset[str]]
    roots: tuple[str, ...]
    verdict: str
    named: frozenset[str]

    @property
    def place_right(self) -> bool:
        return bool(self.named) and self.named <= self.answers.keys()

    @property
    def verdict_right(self) -> bool:
        return any(self.verdict in self.answers.get(host, ()) for host in self.named)


def run_one(task: tuple[str, int]) -> Case:
    """Draw, simulate and diagnose one case."""
    from oncall.rules.language.load import load_rulebooks, shipped_folder
    from oncall.use_case.diagnose import diagnose
    from oncall_lab.network.record import record

    kind, seed = task
    played, truth, longer_ns = draw(kind, seed)
    with record(played) as incident:
        diagnosis = diagnose(incident, load_rulebooks([shipped_folder()]))
    roots = [f for f in diagnosis.findings if f.explained_by is None]
    own = next((f for f in diagnosis.findings if f.rulebook == "congestion"), None)
    s = played.scenario
    return Case(
        kind,
        seed,
        f"k={s.fat_tree} {s.members} {s.algorithm} {s.steps} {s.nics_every_ns // 1_000_000} ms",
        (truth.faults[0].slowdown or 0.0) if truth.faults else 1.0,
        held_up_by(played, kind, longer_ns) if truth.faults else {},
        tuple(f"{f.rulebook}.{f.verdict}" for f in roots),
        own.verdict if own else "",
        frozenset(str(b.where["node"]) for b in own.blame if b.where.get("node"))
        if own
        else frozenset(),
    )


def draw(kind: str, seed: int) -> tuple[Any, Any, Any]:
    """The first attempt of a seed in which the fault delays the collective: what was played, its
    truth, and by how much each message is longer than without the fault."""
    from oncall.core.errors import UsageError
    from oncall_lab.drawn.network import unseen_attempts
    from oncall_lab.network.plan import plan
    from oncall_lab.network.play import play
    from oncall_lab.network.simulation import truth_of_network

    for scenario in unseen_attempts(kind, seed):
        try:
            played = play(scenario, plan(scenario))
            truth = truth_of_network(played)
        except UsageError:  # no place for it in this network
            continue
        if kind == "healthy":
            return played, truth, None
        if truth.faults:
            sound = dataclasses.replace(scenario, faults=())
            alone = play(sound, plan(sound)).progress
            ended = np.where(
                np.isnan(played.progress.ended_ns), played.until_ns, played.progress.ended_ns
            )
            took = ended - played.progress.started_ns
            return played, truth, np.nan_to_num(took - (alone.ended_ns - alone.started_ns))
    raise AssertionError("attempts never end")


def held_up_by(played: Any, kind: str, longer_ns: Any) -> dict[str, frozenset[str]]:
    """What may be said of each host at an end of a step that the fault made late."""
    plan, messages, tree = played.plan, played.plan.messages, played.plan.tree
    if kind == "SLOW_RECEIVER":
        port = plan.injected[0].ports[0]
        return {tree.name(int(tree.device_of[port])): frozenset({"SLOW_RECEIVER", "PFC_STORM"})}
    others = {port for flow in plan.flows for port in flow.path}
    found: dict[str, set[str]] = {}
    for message in np.flatnonzero(longer_ns >= AS_LATE * longer_ns.max()).tolist():
        route = plan.routes[messages.flow[message]]
        sender = found.setdefault(tree.name(plan.hosts[messages.src[message]]), set())
        begun, ended = played.progress.started_ns[message], played.progress.ended_ns[message]
        ended = played.until_ns if np.isnan(ended) else ended
        if stopped_ns(played, route[0], begun, ended) >= PAUSED * longer_ns[message]:
            sender.add("PAUSED_UPSTREAM")
        if played.marks[:, messages.flow[message]].any():
            sender.add("MARKED")
        if route[0] in others:  # without readings within the step, nobody counts who else sends
            sender |= {"LINK_SHARED", "NOT_HELD_UP"}
        if route[-1] in others:
            found.setdefault(tree.name(plan.hosts[messages.dst[message]]), set()).add("LINK_SHARED")
    return {host: frozenset(answers) for host, answers in found.items()}


def stopped_ns(played: Any, port: int, begin_ns: float, end_ns: float) -> float:
    """For how long a port had to stop between two moments."""
    total, since = 0.0, None
    for at_ns, which, paused in [*played.pauses, (played.until_ns, port, False)]:
        if which == port and paused:
            since = at_ns
        elif which == port and since is not None:
            total += max(0.0, min(at_ns, end_ns) - max(since, begin_ns))
            since = None
    return total


def scores(cases: list[Case]) -> Iterator[str]:
    """A line a kind."""
    yield "| kind | cases | verdict right | place right | both, and no other root | silent |"
    yield "|---|---|---|---|---|---|"
    for kind in dict.fromkeys(case.kind for case in cases):
        mine = [case for case in cases if case.kind == kind]
        if kind == "healthy":
            yield f"| healthy | {len(mine)} | | | | {sum(not c.roots for c in mine)} |"
            continue
        both = [c for c in mine if c.verdict_right and c.place_right and len(c.roots) == 1]
        yield (
            f"| {kind} | {len(mine)} | {sum(c.verdict_right for c in mine)} "
            f"| {sum(c.place_right for c in mine)} | {len(both)} "
            f"| {sum(not c.verdict for c in mine)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1, help="seeds count from here")
    parser.add_argument("--seeds", type=int, default=20, help="of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    tasks = [
        (kind, seed)
        for kind in asked.kinds.split(",")
        for seed in range(asked.first, asked.first + asked.seeds)
    ]
    cases = []
    with multiprocessing.get_context("spawn").Pool(asked.jobs, maxtasksperchild=30) as pool:
        for case in pool.imap(run_one, tasks):
            cases.append(case)
            if case.kind == "healthy":
                good = not case.roots
            else:
                good = case.verdict_right and case.place_right and len(case.roots) == 1
            if not good:
                print(
                    f"{case.kind} seed {case.seed} ({case.about}, x{case.slowdown:.2f}): "
                    f"{case.verdict or 'nothing'} at {sorted(case.named)}, roots {case.roots}; "
                    f"answers { ({host: sorted(of) for host, of in case.answers.items()}) }",
                    flush=True,
                )
    print("\n".join(scores(cases)))


if __name__ == "__main__":
    main()
