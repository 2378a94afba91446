"""NCCL RAS: what a running job says of itself (NCCL 2.24 and later), from files or live.

RAS counts launches, not completions, and a job in good health shows small differences between two
ranks at any instant. It is the difference that stays over several polls that tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.importers import files
from oncall.importers.process_ranks import Members, Numbering, Process, number, write_members
from oncall.importers.ras.client import DEFAULT_PORT, fetch
from oncall.importers.ras.poll import Communicator, Poll, parse_json
from oncall.importers.ras.text import looks_like_text, parse_text
from oncall.importers.recordings import append_recording

KIND = "nccl_ras"

_FACTOR = 60.0  # bytes of memory for each of an answer, at worst: JSON, and what it says
_LIVE = re.compile(r"ras:/{1,2}(\[[^]]+\]|[^:/]*)(?::(\d{1,5}))?/?$")
_PEER_DEAD = "PEER_DEAD"
_ONE_LOOK_NS = 10**9  # in which a healthy job may launch nothing; RAS's own stamps are seconds
_UNTIMED_NS = 1_000  # what keeps answers without times in order, see `_parse`


def recognises(path: Path, head: bytes) -> bool:
    """Whether `head` starts an answer of RAS, JSON or text, or `path` is `ras://host:port`."""
    if _LIVE.match(str(path)):
        return True
    text = head.decode("utf-8", "replace").lstrip()
    if text.startswith(("{", "[", "SERVER PROTOCOL", "OK")):
        status = '"communicators"' in text and '"nccl_version"' in text
        event = '"event"' in text and '"peer"' in text and '"group"' in text
        if status or event:
            return True
    return looks_like_text(text)


@dataclass
class _Recording:
    """One file, and the polls in it."""

    path: Path
    polls: list[Poll] = field(default_factory=list)
    problem: str | None = None


def read(
    paths: Sequence[Path], incident: Incident, job: str, *, risk_the_job: bool = False
) -> None:
    """Add what RAS said in all `paths`, oldest poll first within a file, as evidence of `job`.

    Fills jobs, ranks, comms, launches, host_events and recordings. A file that cannot be read
    becomes a recording with its problem; a live job that does not answer, or that the question may
    end (see `nccl_ras_client`), raises BadInput.
    """
    recordings = [_load(path, risk_the_job) for path in paths]
    comms = _members(poll for recording in recordings for poll in recording.polls)
    events = {
        event.process
        for recording in recordings
        for poll in recording.polls
        for event in poll.events
    }
    world_size = max(
        (poll.ranks for recording in recordings for poll in recording.polls), default=0
    )
    numbering = number(comms, events, world_size)
    write_members(incident, job, comms, numbering, world_size)
    repeated = _repeated(poll for recording in recordings for poll in recording.polls)
    for recording in recordings:
        polls = [poll for poll in recording.polls if id(poll) not in repeated]
        rows = sum(_write_poll(incident, job, poll, numbering) for poll in polls)
        _write_recording(incident, job, recording, rows, numbering.note)


# ------------------------------------------------------------------- reading


def _load(path: Path, risk_the_job: bool) -> _Recording:
    live = _LIVE.match(str(path))
    if live:
        host = live[1].strip("[]") or "localhost"
        port = int(live[2] or DEFAULT_PORT)
        return _Recording(path, _parse(fetch(host, port, risk_the_job=risk_the_job), None))
    try:
        text = files.text(path, _FACTOR)
        polls = _parse(text, files.modified_ns(path))
    except Unreadable as error:
        return _Recording(path, problem=str(error))
    if not any(poll.communicators or poll.events or poll.ranks or poll.gone for poll in polls):
        answered = any(poll.version for poll in polls)
        none = "NCCL RAS answered that the job has no communicator"
        said = next(
            (problem for poll in polls for problem in poll.problems),
            none if answered else "no answer of NCCL RAS in it",
        )
        return _Recording(path, problem=said)
    return _Recording(path, polls)


def _parse(text: str, written_ns: int | None) -> list[Poll]:
    """The polls of one file. The text form has no time: the last poll gets the file's."""
    if '"communicators"' in text or '"event"' in text:
        return parse_json(text)
    polls = parse_text(text)
    if written_ns is None:
        return polls
    # One nanosecond apart keeps their order without claiming that any time passed between them.
    first = written_ns - len(polls) + 1
    return [replace(poll, at_ns=poll.at_ns or first + i) for i, poll in enumerate(polls)]


def _repeated(polls: Iterable[Poll]) -> set[int]:
    """The polls, by identity, that another followed at once: together they are one look."""
    timed = [(poll.at_ns, poll) for poll in polls if poll.at_ns is not None and poll.communicators]
    timed.sort(key=lambda pair: pair[0])
    return {
        id(earlier)
        for (before, earlier), (after, _) in pairwise(timed)
        if after == before or _UNTIMED_NS <= after - before < _ONE_LOOK_NS
    }


def _members(polls: Iterable[Poll]) -> dict[int, Members]:
    """Every communicator of all polls with every process that any of them names."""
    comms: dict[int, Members] = {}
    for poll in polls:
        for found in poll.communicators:
            members = comms.setdefault(found.comm, Members(found.size))
            members.size = members.size or found.size
            members.alone = members.alone or found.alone
            for member in found.members:
                if member.process is not None:
                    members.processes.setdefault(member.comm_rank, member.process)
    return comms


# ------------------------------------------------------------------- writing


def _write_poll(incident: Incident, job: str, poll: Poll, numbering: Numbering) -> int:
    """One row for each rank and communicator, and for each event; returns how many."""
    rows: list[_Row] = []
    for comm in poll.communicators:
        rows += _launches(comm, numbering)
    for event in poll.events:
        if event.code == _PEER_DEAD:
            died = _gone(event.process, "dead", numbering)
            rows += [replace(row, at_ns=event.at_ns) for row in died]
    for process, state in poll.gone:
        rows += _gone(process, state, numbering)
    reported = {row.rank for row in rows}
    # In text, communicators in good order are counted, not listed: their ranks did answer.
    answered = range(poll.ranks if poll.complete else 0)
    rows += [_Row(rank=rank, state="running") for rank in answered if rank not in reported]
    incident.append_rows(
        "launches", (row.columns(poll.at_ns) for row in rows), job=job, source=KIND
    )
    calls = (
        {"comm": comm.comm, "rank": rank, "at_ns": poll.at_ns, "op": op, "launched": launched}
        for comm in poll.communicators
        for member in comm.members
        for rank in [numbering.ranks.get((comm.comm, member.comm_rank))]
        for op, launched in member.calls
    )
    incident.append_rows("call_counts", calls, job=job)
    events = (
        {"node": one.process.host, "at_ns": one.at_ns, "code": one.code, "text": one.text}
        for one in poll.events
    )
    incident.append_rows("host_events", events, source=KIND)
    return len(rows) + len(poll.events)


@dataclass(frozen=True)
class _Row:
    """A row of `launches`; `process` where its rank is unknown, `at_ns` where a line is stamped."""

    comm: int | None = None
    rank: int | None = None
    launched: int | None = None
    state: str | None = None
    process: Process | None = None
    at_ns: int | None = None

    def columns(self, at_ns: int | None) -> dict[str, int | str | None]:
        """The row, of a poll at an instant."""
        columns = {"comm": self.comm, "rank": self.rank, "at_ns": self.at_ns or at_ns}
        of = self.process or Process(None, None)
        where = {"node": of.host, "gpu": of.gpu, "pid": of.pid}
        return columns | {"launched": self.launched, "state": self.state} | where


def _launches(comm: Communicator, numbering: Numbering) -> Iterator[_Row]:
    for member in comm.members:
        rank = numbering.ranks.get((comm.comm, member.comm_rank))
        named = member.process if rank is None else None
        yield _Row(comm.comm, rank, member.launched, member.state, named)


def _gone(process: Process, state: str, numbering: Numbering) -> Iterator[_Row]:
    """A process that does not answer, on each communicator that it is known to be in."""
    rank = numbering.processes.get(process)
    if rank is None:
        yield _Row(state=state, process=process)
        return
    for comm in sorted(known for (known, _), there in numbering.ranks.items() if there == rank):
        yield _Row(comm, rank, None, state)


def _write_recording(
    incident: Incident, job: str, recording: _Recording, rows: int, note: str | None
) -> None:
    problems = [problem for poll in recording.polls for problem in poll.problems]
    notes = [note, *(said for poll in recording.polls for said in poll.notes)]
    versions = [poll.version for poll in recording.polls if poll.version]
    problem = recording.problem or "; ".join(dict.fromkeys(problems)) or None
    version = versions[-1] if versions else None
    said_once = dict.fromkeys(notes)
    append_recording(incident, job, KIND, recording.path, rows, problem, said_once, version=version)
