"""The stacks of a job's living processes, from all its nodes or from this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.fleet.ask import stopped_by_interrupt, what_became
from oncall.fleet.branch import Tree
from oncall.fleet.endpoint.process_requests import look_rows, processes_of
from oncall.fleet.gather import Gather, Progress, Window
from oncall.fleet.merge import merge_measured
from oncall.fleet.outcome import Kind, Outcome
from oncall.fleet.transport import Transport
from oncall.node.processes.take_stacks import take_stacks
from oncall.node.processes.training_processes import TrainingProcess, one_process
from oncall.node.store.wire import Request

_MOST_PROBLEMS = 8


@dataclass(frozen=True)
class TakenStacks:
    """Stacks in an incident, which the caller closes, the outcome of each host, what is missing
    (problem -> host or process), the outcome of Flight Recorder dumps (sentence -> ranks), and
    gateways that failed with the reason."""

    incident: Incident
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dumps: Mapping[str, Sequence[int]] = field(default_factory=dict)
    lost_gateways: Mapping[str, str] = field(default_factory=dict)


async def fleet_stacks(
    transport: Transport,
    hosts: Sequence[str],
    request: Request,
    *,
    patience_s: float = 60.0,
    tree: Tree | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> TakenStacks:
    """Take the stacks that the request asks for, on all hosts at once.

    Ctrl-C stops waiting and returns what has arrived. Raises UsageError if no host has a process
    of the job.
    """
    async with Gather(
        transport, hosts, Window(), patience_s=patience_s, tree=tree, progress=progress
    ) as gather:
        with stopped_by_interrupt(gather):
            for host, outcome in (await gather.greet()).items():
                if outcome.kind == "ok" and (why := _why_not(outcome)):
                    gather.leave_out(host, *why)
            return await stacks_over(gather, request)


async def stacks_over(gather: Gather, request: Request) -> TakenStacks:
    """The same over connections that are open, of the hosts that take stacks. Raises UsageError."""
    able = [
        host
        for host, outcome in gather.answers.outcomes.items()
        if outcome.kind == "ok" and not _why_not(outcome)
    ]
    await gather.each("stacks", dict.fromkeys(able, request))
    answers = gather.answers
    if not answers.parts:
        raise UsageError(f"no stacks: {what_became(answers.outcomes)}")
    incident, bad = merge_measured(answers)
    problems = {f"cannot read some of its answers: {why}": [host] for host, why in bad.items()}
    outcomes = answers.outcomes
    return TakenStacks(
        incident,
        outcomes,
        {**_problems(outcomes), **problems},
        _dumps(outcomes) if request.recorder else {},
        gather.lost_gateways,
    )


def local_stacks(
    run: Path, node: str, job: str | None, pids: Sequence[int], *, native: bool, looks: int
) -> TakenStacks:
    """The same on this machine, or of these processes alone. Raises UsageError if there are none,
    or if a job must be chosen."""
    processes = [_named(pid) for pid in pids] or processes_here(run, job)
    incident = Incident.empty()
    problems: dict[str, list[str]] = defaultdict(list)
    for look in take_stacks(processes, node, native=native, looks=looks):
        batch, who = look_rows(look), f"process {look.process.pid}"
        if batch.rows:
            incident.append(batch.table, batch.columns)
        if look.problem is not None and who not in problems[look.problem]:
            problems[look.problem].append(who)
    return TakenStacks(incident, {}, problems)


def _named(pid: int) -> TrainingProcess:
    found = one_process(pid)
    if found is None:
        raise UsageError(f"--pid {pid}: no such process here")
    return found


def processes_here(run: Path, job: str | None) -> Sequence[TrainingProcess]:
    """The processes of `job` (None: the only one) on this machine. Raises UsageError."""
    try:
        return processes_of(run, job)
    except UsageError as error:
        raise UsageError(f"{error}; name processes with --pid, nodes with --hosts") from error


def _why_not(outcome: Outcome) -> tuple[Kind, str] | None:
    """Why a host that answered takes no stacks; None if it does."""
    asks = outcome.status.get("asks") or ()
    if "stacks" in asks:
        return None
    if "probe" not in asks and "processes" in asks:
        return "error", "your key there is read-only (`--read-only` in authorized_keys)"
    version = outcome.status.get("oncall_version")
    return "version", f"oncall {version} there takes no stacks: upgrade it"


def _problems(outcomes: Mapping[str, Outcome]) -> dict[str, list[str]]:
    """What the nodes report as missing."""
    found: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes.values():
        reported = outcome.status.get("stacks")
        listed = reported.get("problems") if isinstance(reported, dict) else None
        for one in listed[:_MOST_PROBLEMS] if isinstance(listed, list) else ():
            if isinstance(one, dict):
                found[str(one.get("problem"))].append(outcome.node)
    return found


def _dumps(outcomes: Mapping[str, Outcome]) -> dict[str, list[int]]:
    """The outcome of Flight Recorder dumps: sentence -> ranks."""
    found: dict[str, list[int]] = defaultdict(list)
    for outcome in outcomes.values():
        reported = outcome.status.get("recorder")
        for one in reported[:_MOST_PROBLEMS] if isinstance(reported, list) else ():
            if not isinstance(one, dict):
                continue
            files, problem, ranks = one.get("files"), one.get("problem"), one.get("ranks")
            said = f"no Flight Recorder dump: {problem}" if problem else "Flight Recorder dumped"
            where = f" to {files}*" if files and not problem else ""
            listed = ranks if isinstance(ranks, list) else ()
            found[f"{said}{where}"] += [rank for rank in listed if isinstance(rank, int)]
    return found
