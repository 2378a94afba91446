"""What would decide a diagnosis that is inconclusive, while the job is alive: one command."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from oncall.core.diagnosis import Coverage
from oncall.core.nodeset import fold_hosts, named_ranks
from oncall.evidence.incident import Incident
from oncall.use_case import evidence

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # what a command may name
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST = 120  # characters of folded hosts in a command


@dataclass(frozen=True)
class _Known:
    """What the evidence holds, and whom it names."""

    job: str  # `--job NAME `, where the nodes know the job by that name
    hosts: tuple[str, ...]
    silent_ranks: tuple[int, ...]
    silent_hosts: tuple[str, ...]
    calls: bool
    counters: bool
    stacks: bool
    stacks_alike: bool
    lacks: str  # of Doubt
    logs: bool

    @property
    def stacks_of_all(self) -> str:
        return f"oncall stacks {self.job}--hosts {_folded(self.hosts)}"

    @property
    def stacks_of_silent(self) -> str:
        return f"oncall stacks {self.job}--hosts {_folded(self.silent_hosts or self.hosts)}"

    @property
    def a_host(self) -> str:
        return self.hosts[0] if self.hosts else "HOST"


@dataclass(frozen=True)
class _Lack:
    """What is missing, by what is known, and what would supply it."""

    applies: Callable[[_Known], bool]
    advice: Callable[[_Known], str]


# In this order: the first that applies.
_TABLE = (
    _Lack(
        lambda known: known.counters and not known.calls,
        lambda known: (
            "Ask RAS again after a minute; the same counts twice mean that the job is "
            f"stopped: `oncall diagnose ras://{known.a_host}`"
        ),
    ),
    _Lack(
        lambda known: known.stacks_alike and not known.calls,
        lambda _: (
            "All stacks are in the same call; the Flight Recorder dumps show which rank did not "
            "make it: `oncall diagnose DIR/fr_trace_rank_*`"
        ),
    ),
    _Lack(
        lambda known: bool(known.silent_ranks) and known.calls,
        lambda known: (
            f"See what {named_ranks(known.silent_ranks)} without a recording "
            f"{'does' if len(known.silent_ranks) == 1 else 'do'}: `{known.stacks_of_silent}`"
        ),
    ),
    _Lack(
        lambda known: known.lacks == "pings",
        lambda known: (
            "Have the nodes ping one another, to know whether the network or the hosts became "
            f"slower: `oncall probe {_folded(known.hosts)}`"
        ),
    ),
    _Lack(
        lambda known: known.lacks == "durations",
        lambda _: (
            "Profile ten steps of every rank with torch.profiler. At the next start, set "
            "`TORCH_NCCL_ENABLE_TIMING=1`, so that dumps show durations"
        ),
    ),
    _Lack(
        lambda known: known.lacks == "iterations",
        lambda _: (
            "Record more iterations: dump again after some more of them, or profile more steps. At "
            "the next start, keep more of them in dumps: `TORCH_FR_BUFFER_SIZE=20000`"
        ),
    ),
    _Lack(
        lambda known: known.stacks and (known.calls or known.logs),
        lambda known: (
            "Take the stacks again: a rank that is where it was is stopped, one that is elsewhere "
            f"runs: `{known.stacks_of_all}`"
        ),
    ),
    _Lack(
        lambda known: known.calls or known.logs or bool(known.silent_ranks),
        lambda known: (
            f"See in which call each rank is, and whether it moves: `{known.stacks_of_all}`"
        ),
    ),
)


def would_decide(incident: Incident, coverage: Coverage, lacks: str = "") -> str:
    """A sentence with the command; empty where the evidence is not of a training job's ranks.
    `lacks`: what in particular would settle the doubt."""
    known = _known(incident, coverage, lacks)
    return next((lack.advice(known) for lack in _TABLE if lack.applies(known)), "")


def _known(incident: Incident, coverage: Coverage, lacks: str) -> _Known:
    nodes = {node for node in evidence.nodes_of(incident) if _HOST.fullmatch(node)}
    job = evidence.gathered_job(incident)
    looked, alike = evidence.stacks_are_known(incident)
    silent = [gap for gap in coverage.gaps if gap.silent]
    return _Known(
        job=f"--job {job} " if job and _JOB.fullmatch(job) else "",
        hosts=tuple(sorted(nodes)),
        silent_ranks=tuple(sorted({rank for gap in silent for rank in gap.ranks})),
        silent_hosts=tuple(
            sorted({one for gap in silent for one in gap.nodes if _HOST.fullmatch(one)})
        ),
        calls=not incident.is_empty("ops"),
        counters=not incident.is_empty("launches"),
        stacks=looked,
        stacks_alike=alike,
        lacks=lacks,
        logs=not incident.is_empty("log_events") or not incident.is_empty("logged_steps"),
    )


def _folded(hosts: tuple[str, ...]) -> str:
    folded = fold_hosts(hosts)
    return folded if hosts and len(folded) <= _LONGEST else "HOSTS"
