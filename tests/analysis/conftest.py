"""Small jobs that block, played call by call: the truth that the hang relations are held to.

A job is a program for each rank, a list of calls in the order the rank makes them. A rank makes
its next call while at most `ahead` of its calls are open (0: it blocks in each); its calls
complete in order. A collective completes when it is the first open call of every member, a Send
when the Recv that answers it is the first open call of the other side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from tests import together

from oncall.evidence import Incident

MOST_RANKS = 6
END_NS = 10_000


@dataclass(frozen=True)
class Call:
    """A call that some rank makes; `peer` is the other side of a Send or Recv."""

    comm: int
    op: str = "AllReduce"
    peer: int | None = None

    @property
    def kind(self) -> str:
        return "coll" if self.peer is None else "p2p"


@dataclass(frozen=True)
class Job:
    """`members` of each communicator, the `programs` of the ranks, and how far they call ahead."""

    members: tuple[tuple[int, ...], ...]
    programs: tuple[tuple[Call, ...], ...]
    ahead: int = 0
    stopped: int | None = None
    swapped: int | None = None


@dataclass
class Rank:
    program: Sequence[Call]
    issued: list[tuple[Call, int, int]] = field(default_factory=list)  # call, number, instant
    ended: list[int] = field(default_factory=list)  # instants
    made: Counter[tuple[int, str]] = field(default_factory=Counter)

    @property
    def head(self) -> tuple[Call, int] | None:
        """The call it stands in, with its number."""
        return self.issued[len(self.ended)][:2] if len(self.ended) < len(self.issued) else None


class Played:
    """A job played until nothing moves: `ranks`, and who holds whom."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.ranks = [Rank(program) for program in job.programs]
        self.now = 0
        while self._issue() | self._complete():
            pass

    def _issue(self) -> bool:
        moved = False
        for rank in self.ranks:
            while len(rank.issued) < len(rank.program) and (
                len(rank.issued) - len(rank.ended) <= self.job.ahead
            ):
                call = rank.program[len(rank.issued)]
                rank.made[call.comm, call.kind] += 1
                self.now += 1
                rank.issued.append((call, rank.made[call.comm, call.kind], self.now))
                moved = True
        return moved

    def _complete(self) -> bool:
        for number, rank in enumerate(self.ranks):
            if rank.head is None:
                continue
            together = self._together(number, *rank.head)
            if together:
                self.now += 1
                for other in together:
                    self.ranks[other].ended.append(self.now)
                return True
        return False

    def _together(self, rank: int, call: Call, number: int) -> Sequence[int]:
        """The ranks that complete with this call, or none if one of them does not stand in it."""
        if call.peer is None:
            members = self.job.members[call.comm]
            return members if all(self.ranks[m].head == (call, number) for m in members) else ()
        answer = Call(call.comm, "Recv" if call.op == "Send" else "Send", rank)
        head = self.ranks[call.peer].head
        return (rank, call.peer) if head and head[0] == answer else ()

    def observed(self, rank: int) -> bool:
        return bool(self.ranks[rank].issued)

    def blocked(self) -> dict[int, tuple[Call, int]]:
        return {n: rank.head for n, rank in enumerate(self.ranks) if rank.head is not None}

    def holders(self, rank: int) -> dict[int, str]:
        """Who keeps the call that `rank` stands in from completing, and how."""
        head = self.ranks[rank].head
        assert head is not None
        call, number = head
        if call.peer is not None:
            return {call.peer: self._answers(rank, call)}
        how: dict[int, str] = {}
        for member in self.job.members[call.comm]:
            if not self.observed(member):
                how[member] = "silent"
            elif self.ranks[member].made[call.comm, "coll"] < number:
                how[member] = "absent"
            elif self.ranks[member].head != head:
                how[member] = "elsewhere"
        for worst in ("absent", "silent", "elsewhere"):
            if worst in how.values():
                return {member: found for member, found in how.items() if found == worst}
        raise AssertionError("it would have completed")

    def _answers(self, rank: int, call: Call) -> str:
        assert call.peer is not None
        peer = self.ranks[call.peer]
        if not self.observed(call.peer):
            return "silent"
        answer = Call(call.comm, "Recv" if call.op == "Send" else "Send", rank)
        made = [issued[0] for issued in peer.issued[len(peer.ended) :]]
        return "elsewhere" if answer in made else "absent"

    def causes(self) -> set[frozenset[int]]:
        """The sets of ranks that are waited for and wait for nobody outside the set."""
        edges = {rank: set(self.holders(rank)) for rank in self.blocked()}
        waited_for = set().union(*edges.values()) if edges else set()

        def reached(start: int) -> set[int]:
            found = {start}
            while more := {s for node in found for s in edges.get(node, ())} - found:
                found |= more
            return found

        all_reached = {rank: reached(rank) for rank in waited_for}
        return {
            frozenset(found)
            for rank, found in all_reached.items()
            if all(rank in all_reached[other] for other in found)
        }

    def rows(self, job: str) -> list[dict[str, Any]]:
        """The rows of `ops` that a recording of this job holds."""
        return [
            {"job": job, "comm": call.comm, "kind": call.kind, "seq": number, "rank": r}
            | {"op": call.op, "peer": call.peer, "enqueued_ns": at_ns, "observed_ns": END_NS}
            | {"ended_ns": rank.ended[i] if i < len(rank.ended) else None}
            for r, rank in enumerate(self.ranks)
            for i, (call, number, at_ns) in enumerate(rank.issued)
        ]


def calls(rank: int, members: Sequence[Sequence[int]], steps: Sequence[Any]) -> list[Call]:
    """What `rank` calls of the job's steps: a communicator, or (communicator, sender, receiver)."""
    made: list[Call] = []
    for step in steps:
        if isinstance(step, int):
            made += [Call(step)] * (rank in members[step])
        else:
            comm, sender, receiver = step
            made += [Call(comm, "Send", receiver)] * (rank == sender)
            made += [Call(comm, "Recv", sender)] * (rank == receiver)
    return made


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job whose ranks all make the same steps in one order, but for one that stops, and maybe
    one that makes two of its calls in the other order."""
    size = draw(st.integers(2, MOST_RANKS))
    some = st.sets(st.integers(0, size - 1), min_size=2).map(lambda m: tuple(sorted(m)))
    members = draw(st.lists(some, min_size=1, max_size=4))
    comm = st.integers(0, len(members) - 1)
    step = comm | comm.flatmap(
        lambda comm: st.permutations(members[comm]).map(lambda ends: (comm, *ends[:2]))
    )
    steps = draw(st.lists(step, min_size=1, max_size=12))
    programs = [calls(rank, members, steps) for rank in range(size)]
    stopped = draw(st.none() | st.integers(0, size - 1))
    if stopped is not None:
        del programs[stopped][draw(st.integers(0, len(programs[stopped]))) :]
    swapped = draw(st.none() | st.integers(0, size - 1))
    if swapped is not None and len(programs[swapped]) > 1:
        first = draw(st.integers(0, len(programs[swapped]) - 2))
        programs[swapped][first : first + 2] = reversed(programs[swapped][first : first + 2])
    return Job(
        tuple(members), tuple(map(tuple, programs)), draw(st.integers(0, 2)), stopped, swapped
    )


@st.composite
def recordings(draw: st.DrawFn) -> tuple[Incident, dict[str, Played]]:
    """An incident with the recordings of several such jobs, and what truly happened in each."""
    played = {f"j{i}": Played(job) for i, job in enumerate(draw(st.lists(jobs(), min_size=1)))}
    incident = Incident.empty()
    rows = [row for job, one in played.items() for row in one.rows(job)]
    reported = [
        {"job": job, "comm": comm, "rank": rank, "size": len(members)}
        for job, one in played.items()
        for comm, members in enumerate(one.job.members)
        for rank in members
    ]
    for table, found in (("ops", rows), ("comms", reported)):
        incident.append(
            table, {name: [row[name] for row in found] for name in found[0]} if found else {}
        )
    return incident, played


@pytest.fixture(scope="session")
def recorded() -> st.SearchStrategy[tuple[Incident, dict[str, Played]]]:
    return recordings()


@pytest.fixture(scope="module")
def jobs_together(request: pytest.FixtureRequest) -> Iterator[dict[str, together.Job]]:
    with Incident.empty() as incident:
        yield together.jobs_of(request, incident)


@pytest.fixture
def job(request: pytest.FixtureRequest, jobs_together: dict[str, together.Job]) -> together.Job:
    """This test's job in the incident of all tests of its file."""
    return jobs_together[request.node.name]
