"""What a fleet's hosts answered last, as the console shows it: hosts, their troubles, jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from oncall.core.nodeset import fold_hosts
from oncall.core.printable import clean, typed
from oncall.core.units import NS_PER_S
from oncall.fleet.checkup.doctor import checkup_of, collector_problem
from oncall.fleet.outcome import Outcome, alike, jobs_of, of_lost_gateways
from oncall.fleet.probe import why_not_probed
from oncall.fleet.transport import Clock
from oncall.node.store.wire import NO_COLLECTOR
from oncall.views.snapshot import HostAnswer, HostTrouble, JobLine

# A collector seals and answers within a minute; whoever was seen since then runs.
_RUNS_NS = 60 * NS_PER_S


@dataclass(frozen=True)
class LastAnswers:
    """`way`: how hosts are reached, in a word. By host: `outcomes`, `clocks`, and when it last
    answered, Unix ns. `had`: job -> hosts that ever knew of it. `lost_gateways`: gateway -> why."""

    way: str
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    lost_gateways: Mapping[str, str] = field(default_factory=dict)
    answered_ns: Mapping[str, int] = field(default_factory=dict)
    had: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def then(
        self,
        outcomes: Mapping[str, Outcome],
        clocks: Mapping[str, Clock],
        lost_gateways: Mapping[str, str],
        now_ns: int,
    ) -> LastAnswers:
        """With newer answers."""
        answered_ns = {host: now_ns for host, one in outcomes.items() if one.kind == "ok"}
        had = dict(self.had)
        for host, outcome in outcomes.items():
            for job in jobs_of(outcome):
                had[job] = had.get(job, frozenset()) | {host}
        return LastAnswers(
            self.way, outcomes, clocks, lost_gateways, {**self.answered_ns, **answered_ns}, had
        )

    def hosts(self, now_ns: int) -> tuple[HostAnswer, ...]:
        """What became of each host; those that know nothing of the job left out."""
        problems = {host: self._collector_problem(host, one) for host, one in self.outcomes.items()}
        return tuple(
            HostAnswer(
                host=clean(outcome.node),
                kind=outcome.kind,
                message=clean(outcome.message),
                age_ns=max(0, now_ns - self.answered_ns[host])
                if host in self.answered_ns
                else None,
                no_probe=_no_probe(outcome),
                collector=problems[host],
                collector_slow=problems[host] not in ("", NO_COLLECTOR),
                slowness=outcome.slowness,
            )
            for host, outcome in self.outcomes.items()
            if outcome.kind != "no-data"
        )

    def troubles(self) -> tuple[HostTrouble, ...]:
        """What is wrong with the hosts, and which command to type: folded, the worst first."""
        troubles: dict[tuple[bool, str], list[tuple[str, str]]] = defaultdict(list)
        for host, outcome in self.outcomes.items():
            checkup = checkup_of(outcome, self.clocks.get(host), self.way)
            for trouble in checkup.troubles:
                troubles[checkup.kind != "ok", trouble.next].append((host, trouble.what))
        groups = [
            (silent, what, command, hosts)
            for (silent, command), each in troubles.items()
            for what, hosts in alike(each).items()
        ]
        of_gateways = (
            HostTrouble(
                hosts=f"gateway {fold_hosts(gateways)}",
                count=len(gateways),
                what=what,
                command=typed("oncall doctor {host}", host=gateways[0]),
                silent=False,
            )
            for what, gateways in of_lost_gateways(self.lost_gateways).items()
        )
        of_hosts = (
            HostTrouble(
                hosts=clean(fold_hosts(hosts)),
                count=len(hosts),
                what=clean(what),
                command=typed(command, host=hosts[0]),
                silent=silent,
            )
            for silent, what, command, hosts in sorted(
                groups, key=lambda group: (not group[0], -len(group[3]))
            )
        )
        return (*of_gateways, *of_hosts)

    def jobs(self, now_ns: int, live: bool) -> tuple[JobLine, ...]:
        """The jobs that hosts see, the latest first."""
        nodes: dict[str, int] = defaultdict(int)
        ranks: dict[str, set[int]] = defaultdict(set)
        last_ns: dict[str, int] = defaultdict(int)
        quiet: set[str] = set()  # hosts that may know more than they say
        for host, outcome in self.outcomes.items():
            jobs = outcome.status.get("jobs")
            if outcome.kind != "ok" or self._collector_problem(host, outcome):
                quiet.add(host)
            for job, at_ns in jobs_of(outcome).items():
                here = jobs[job].get("ranks") if isinstance(jobs, dict) else ()
                nodes[job] += 1
                ranks[job] |= {rank for rank in here or () if isinstance(rank, int)}
                last_ns[job] = max(last_ns[job], at_ns)
        return tuple(
            JobLine(
                job=job,
                nodes=nodes[job],
                ranks=len(ranks[job]),
                last_ns=last_ns[job],
                state=_state_of(now_ns - last_ns[job], bool(quiet & self.had[job]))
                if live
                else "ended",
            )
            for job in sorted(nodes, key=lambda job: -last_ns[job])
        )

    def _collector_problem(self, host: str, outcome: Outcome) -> str:
        """What is wrong with the collector of a host that answers; empty if nothing is."""
        if outcome.kind not in ("ok", "lost"):
            return ""
        return clean(collector_problem(checkup_of(outcome, self.clocks.get(host), self.way)))


def _state_of(age_ns: int, quiet: bool) -> str:
    """A job's, by the age of its last evidence; `quiet`: one of its hosts may know of newer."""
    if age_ns < _RUNS_NS:
        return "running"
    return "silent" if quiet else "ended"


def _no_probe(outcome: Outcome) -> str:
    """Why a host that answers cannot be probed; empty if it can."""
    why = why_not_probed(outcome) if outcome.kind == "ok" else None
    return clean(why[1]) if why else ""
