"""What a running job would leave of an incident, as the environment of its processes says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncall.core.errors import UsageError
from oncall.fleet.ask import stopped_by_interrupt, what_became
from oncall.fleet.checkup.doctor_here import Check
from oncall.fleet.checkup.evidence_settings import Versions, job_checks, parse_version
from oncall.fleet.endpoint.process_requests import set_processes
from oncall.fleet.gather import Gather, Progress, Window
from oncall.fleet.outcome import Outcome
from oncall.fleet.stacks import processes_here
from oncall.fleet.transport import Transport
from oncall.node.store.wire import Request


@dataclass(frozen=True)
class JobCheckup:
    """Processes of a job with equal settings, and the checks of these."""

    job: str
    ranks: tuple[int, ...]
    processes: int
    hosts: tuple[str, ...]
    versions: Mapping[str, str]
    checks: tuple[Check, ...]

    @property
    def well(self) -> bool:
        """Whether no check failed."""
        return all(check.state != "wrong" for check in self.checks)

    @property
    def complete(self) -> bool:
        """Whether every check could be made."""
        return all(check.state != "unknown" for check in self.checks)


def not_checked(outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    """The hosts that did not say which processes of the job they have."""
    return [one for one in outcomes.values() if one.kind not in ("ok", "no-data")]


async def check_job(
    transport: Transport,
    hosts: Sequence[str],
    job: str,
    patience_s: float = 20.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[list[JobCheckup], Mapping[str, Outcome]]:
    """The job's processes on all hosts, equal ones together, and the outcome of each host.

    Raises UsageError if no host has a process of the job.
    """
    async with Gather(
        transport, hosts, Window(), patience_s=patience_s, progress=progress
    ) as gather:
        with stopped_by_interrupt(gather):
            await gather.greet()
            await gather.each("settings", dict.fromkeys(hosts, Request("processes", job=job)))
        outcomes = gather.answers.outcomes
    reported = {
        outcome.node: outcome.status.get("processes")
        for outcome in outcomes.values()
        if outcome.kind == "ok"
    }
    found = _together((node, one) for node, groups in reported.items() for one in groups or ())
    if not found:
        raise UsageError(f"no process of job `{job}`: {what_became(outcomes)}")
    return found, outcomes


def check_job_here(run: Path, job: str, node: str) -> list[JobCheckup]:
    """The same for this machine. Raises UsageError if no process of the job runs here."""
    return _together((node, one) for one in set_processes(processes_here(run, job)))


def _together(groups: Iterable[tuple[str, Mapping[str, Any]]]) -> list[JobCheckup]:
    alike: dict[tuple[Any, ...], list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    for node, one in groups:
        settings = one.get("settings")
        key = (
            str(one.get("job")),
            None if settings is None else tuple(sorted(_texts(settings).items())),
            tuple(sorted(_texts(one.get("versions")).items())),
        )
        alike[key].append((node, one))
    return [
        JobCheckup(
            job=job,
            ranks=tuple(
                sorted({rank for _, one in members for rank in _numbers(one.get("ranks"))})
            ),
            processes=sum(len(_numbers(one.get("pids"))) for _, one in members),
            hosts=tuple(sorted({node for node, _ in members})),
            versions=dict(versions),
            checks=_checks(settings, dict(versions)),
        )
        for (job, settings, versions), members in alike.items()
    ]


def _checks(
    settings: Iterable[tuple[str, str]] | None, loaded: Mapping[str, str]
) -> tuple[Check, ...]:
    if settings is None:
        text = "cannot read the environment of these processes: run oncall as their user"
        return (Check("environment", "unknown", text),)
    versions = Versions(parse_version(loaded.get("torch")), parse_version(loaded.get("nccl")))
    return tuple(job_checks(dict(settings), versions))


def _texts(reported: Any) -> dict[str, str]:
    items = reported.items() if isinstance(reported, dict) else ()
    return {str(key): str(value) for key, value in items}


def _numbers(reported: Any) -> list[int]:
    return [one for one in reported if isinstance(one, int)] if isinstance(reported, list) else []
