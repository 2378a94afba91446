"""The start screen: the jobs to choose from, or why none can be found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncall.core.printable import short
from oncall.views.words import instant

if TYPE_CHECKING:
    from oncall.views.snapshot import HostTrouble, JobLine

COLUMNS = ("job", "state", "nodes", "ranks", "last evidence")

_WHAT_TO_TYPE = """\
R                     try again
oncall doctor NODES   shows what is wrong on each node and how to fix it
oncall open PATH      opens a recording instead"""
_OF_RECORDINGS = """\
R                  try again
oncall open PATH   opens another recording"""


def trouble_lines(troubles: Sequence[HostTrouble]) -> list[tuple[str, str]]:
    """(what is wrong with which hosts, the command to type or "")."""
    return [
        (
            f"{'✖' if one.silent else '▲'} {one.hosts}"
            + (f" ({one.count:,})" if one.count > 1 else "")
            + f"  {one.what}",
            one.command,
        )
        for one in troubles
    ]


def job_rows(jobs: Sequence[JobLine], filter_text: str = "") -> list[tuple[str, tuple[str, ...]]]:
    """(job, cells in the order of COLUMNS) of those whose name or state holds the text."""
    wanted = filter_text.casefold()
    return [
        (
            line.job,
            (
                short(line.job),
                short(line.state),
                str(line.nodes or "?"),
                str(line.ranks or "?"),
                "unknown" if line.last_ns is None else instant(line.last_ns),
            ),
        )
        for line in jobs
        if wanted in f"{line.job} {line.state}".casefold()
    ]


def heading(
    jobs: Sequence[JobLine] | None,
    busy: str,
    problem: str,
    troubles: Sequence[HostTrouble] = (),
    *,
    live: bool = True,
) -> str:
    """The line above the jobs. Where `troubles` are listed below, each host's own is not."""
    if not jobs and problem:
        why = problem.partition(": ")[0] + "." if troubles else _one_a_line(problem)
        return f"{why}\n\n{_WHAT_TO_TYPE if live else _OF_RECORDINGS}"
    if not jobs:
        return f"{busy or 'looking for jobs'} …" if busy or jobs is None else "No jobs found."
    if problem and live:
        return "The job cannot be read yet; oncall asks its nodes again every few seconds."
    if len(jobs) == 1:
        return "One job:"
    return f"{len(jobs)} jobs; enter opens one, / filters."


def _one_a_line(problem: str) -> str:
    """A list of hosts as a list."""
    head, colon, rest = problem.partition(": ")
    if not colon or "; " not in rest:
        return problem
    return "\n".join([head + ":", *(f"  {part}" for part in rest.split("; "))])
