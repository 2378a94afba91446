"""Gather a job's evidence from all hosts that answer into one incident."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from oncall.core.errors import UsageError
from oncall.core.nodeset import fold_hosts
from oncall.core.printable import named
from oncall.core.scheduler import Scheduler
from oncall.evidence.incident import Incident
from oncall.fleet.branch import Tree
from oncall.fleet.gather import AT_ONCE, Gather, Progress, Window
from oncall.fleet.memory import Memory
from oncall.fleet.merge import Answers, merge, own_gaps
from oncall.fleet.outcome import REASONS, Outcome, alike, jobs_of
from oncall.fleet.transport import Transport

Starting = Callable[[Incident], Iterable[int]]  # communicators of the rulebooks that start
_MOST_COMMS = 2_000  # of one node's detail; a request is one line
_MOST_LISTED = 12


@dataclass(frozen=True)
class Answer:
    """The job, its evidence, the outcome of each host, the scheduler that placed it, if that is
    known, and gateways that failed with the reason. The caller closes the incident."""

    job: str
    incident: Incident
    outcomes: Mapping[str, Outcome]
    scheduler: Scheduler | None = None
    lost_gateways: Mapping[str, str] = field(default_factory=dict)


async def ask_fleet(
    transport: Transport,
    hosts: Sequence[str],
    job: str | None,
    window: Window,
    starting: Starting,
    *,
    patience_s: float = 20.0,
    at_once: int = AT_ONCE,
    memory: Memory | None = None,
    tree: Tree | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Answer:
    """The evidence of `job` (None: the only one) from those of `hosts` that answer.

    The first Ctrl-C stops waiting and returns what has arrived; the second interrupts. Raises
    UsageError if no host has such a job, or if `job` is None and there are several.
    """
    async with Gather(
        transport,
        hosts,
        window,
        patience_s=patience_s,
        at_once=at_once,
        tree=tree,
        progress=progress,
    ) as gather:
        with stopped_by_interrupt(gather):
            name, incident = await gather_job(gather, job, window.since_ns, starting, memory)
        return Answer(name, incident, gather.answers.outcomes, lost_gateways=gather.lost_gateways)


@contextmanager
def stopped_by_interrupt(gather: Gather) -> Iterator[None]:
    """Make the first Ctrl-C stop the gather; the second interrupts."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield  # which hears no signals
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: object) -> None:  # noqa: ARG001
        signal.signal(signal.SIGINT, before)
        loop.call_soon_threadsafe(gather.stop)

    # Not the loop's own handlers: they take the wakeup descriptor from `interrupts_reported`.
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def gather_job(
    gather: Gather,
    job: str | None,
    since_ns: int | None,
    starting: Starting,
    memory: Memory | None = None,
    tables: Sequence[str] = (),
) -> tuple[str, Incident]:
    """Run all phases; returns the job's name and its evidence. With `tables`, digests of these
    alone. The caller closes the incident.

    Raises UsageError as `ask_fleet` does.
    """
    outcomes = await gather.greet()
    name = choose_job(outcomes, job, since_ns)
    await gather.digest(name, tables)
    incident = await asyncio.to_thread(merged, gather.answers, name, memory)
    thinned = thinned_communicators(incident)
    if thinned and not tables and not gather.stopped:
        with incident:
            comms = thinned & set(await asyncio.to_thread(starting, incident))
            outcomes = gather.answers.outcomes
            asked, until_ns = _holders(incident, comms, outcomes), _ends(incident, outcomes)
        # No later than the digest: communicators of which nothing more was asked would seem to
        # have stopped.
        await gather.detail(name, asked, until_ns=until_ns)
        # Rules have run on the first incident, which is read-only since.
        incident = await asyncio.to_thread(merged, gather.answers, name, memory)
    return name, incident


def merged(answers: Answers, job: str, memory: Memory | None) -> Incident:
    """One incident of the answers, plus the remembered memberships of hosts that did not answer."""
    if memory is not None:
        memory.keep(job, answers.parts)
        parts, outcomes = memory.recall(job, answers.outcomes)
        answers = replace(answers, parts=(*answers.parts, *parts), outcomes=outcomes)
    return merge(answers, job)


def choose_job(outcomes: Mapping[str, Outcome], job: str | None, since_ns: int | None) -> str:
    """The job to query. Raises UsageError if it has not run since `since_ns`, or if there are
    several."""
    seen: dict[str, list[str]] = defaultdict(list)
    last_ns: dict[str, int] = defaultdict(int)
    for host, outcome in outcomes.items():
        for name, at_ns in jobs_of(outcome).items():
            seen[name].append(host)
            last_ns[name] = max(last_ns[name], at_ns)
    wanted = None if job is None else named(job, seen)
    known = list(seen) if job is None else [] if wanted is None else [wanted]
    running = [name for name in known if last_ns[name] >= (since_ns or 0)]
    if len(running) == 1:
        return running[0]
    if running or (seen and not known):
        listed = sorted(running or seen)[:_MOST_LISTED]
        each = "; ".join(f"{name} on {fold_hosts(seen[name])}" for name in listed)
        several = "several jobs are running; choose one with --job"
        raise UsageError(f"{several if job is None else f'no job `{job}`'}: {each}")
    if known:
        each = "; ".join(f"{name} at {_utc(last_ns[name])}" for name in known[:_MOST_LISTED])
        raise UsageError(
            f"no evidence in the window; change --since or --at. Last seen: {each} UTC"
        )
    raise UsageError(
        f"no host has evidence of {f'job `{job}`' if job else 'any job'}: {what_became(outcomes)}"
    )


def _utc(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def what_became(outcomes: Mapping[str, Outcome]) -> str:
    """The outcomes by kind: `gpu[001-003] cannot be reached (...); gpu004 answered`, with what a
    node itself says of its shards or its collector."""
    by_reason: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for host, outcome in outcomes.items():
        said = outcome.message or next((gap for _, gap in own_gaps(outcome.status)), "")
        by_reason[REASONS[outcome.kind]].append((host, said))
    groups = [
        (hosts, reason, message)
        for reason, reported in by_reason.items()
        for message, hosts in alike(reported).items()
    ]
    parts = [
        f"{fold_hosts(hosts)} {reason}{f' ({message})' if message else ''}"
        for hosts, reason, message in sorted(groups, key=lambda group: -len(group[0]))
    ]
    return "; ".join(parts[:_MOST_LISTED]) or "no hosts"


def thinned_communicators(incident: Incident) -> set[int]:
    """Communicators of which the digest holds only some operations."""
    rows = incident.con.execute(
        "SELECT comm FROM ops WHERE stands_for > 1 AND comm IS NOT NULL "
        "UNION SELECT comm FROM transfers WHERE stands_for > 1 AND comm IS NOT NULL"
    ).fetchall()
    return {comm for (comm,) in rows}


def _holders(
    incident: Incident, comms: Iterable[int], outcomes: Mapping[str, Outcome]
) -> dict[str, list[int]]:
    """Host -> the given communicators with members on its node."""
    rows = incident.con.execute(
        "SELECT DISTINCT r.node, o.comm FROM "
        "(SELECT DISTINCT job, comm, rank FROM ops WHERE list_contains(?::UBIGINT[], comm)) o "
        "JOIN ranks r USING (job, rank) WHERE r.node IS NOT NULL ORDER BY ALL",
        [sorted(comms)],
    ).fetchall()
    hosts = _hosts(outcomes)
    asked: dict[str, list[int]] = defaultdict(list)
    for node, comm in rows:
        if node in hosts and len(asked[hosts[node]]) < _MOST_COMMS:
            asked[hosts[node]].append(comm)
    return asked


def _ends(incident: Incident, outcomes: Mapping[str, Outcome]) -> dict[str, int]:
    """Host -> the newest instant of its node's operations, on the node's clock."""
    rows = incident.con.execute(
        "SELECT r.node, max(greatest(o.enqueued_ns, o.started_ns, o.ended_ns, o.observed_ns)) "
        "FROM ops o JOIN ranks r USING (job, rank) WHERE r.node IS NOT NULL GROUP BY r.node"
    ).fetchall()
    hosts = _hosts(outcomes)
    return {hosts[node]: at_ns for node, at_ns in rows if node in hosts and at_ns is not None}


def _hosts(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Node -> the host that it was asked by."""
    return {outcome.node: host for host, outcome in outcomes.items()}
