"""What a front end shows: the snapshot of one job at one moment, frozen.

Live is a replay whose cursor is now, so there is one kind of snapshot. Numbers by rank are numpy
arrays in the order of `rank`; they are written once and never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from oncall.core.diagnosis import Diagnosis, Finding, Severity
from oncall.core.nodeset import fold_hosts
from oncall.core.printable import clean
from oncall.evidence.incident import Incident

if TYPE_CHECKING:
    # Named only: the console's first frame is painted before numpy is imported.
    import numpy as np
    import numpy.typing as npt

    from oncall.fleet.outcome import Kind

    Ints = npt.NDArray[np.int64]


class RankState(IntEnum):
    """What a rank does, the worst last: a cell shows the highest that holds."""

    RUNNING = 0
    WAITING = 1  # in an operation, for less than a rulebook would call a hang
    LATE = 2  # others wait for it in an operation that it has not entered
    HUNG = 3  # waits in an operation that a finding calls hung or slow
    UNKNOWN = 4  # no call of it was recorded
    BLAMED = 5  # a root finding names it


@dataclass(frozen=True)
class Moment:
    """The time cursor: `at_ns` within what the evidence spans, Unix ns. `live`: it follows now."""

    at_ns: int | None
    first_ns: int | None
    last_ns: int | None
    live: bool = False


@dataclass(frozen=True)
class Ranks:
    """Every rank of the job. All arrays are (n,) in the order of `rank`; -1 is unknown."""

    rank: Ints
    state: Ints  # RankState
    node: tuple[str, ...]  # "" where unknown
    gpu: Ints
    nic: tuple[str, ...]
    waited_ns: Ints  # time blocked in its operation; -1: in none, or unknown
    groups: Mapping[str, Ints]  # by role (tp, dp, pp, ...): which group of that role it is in
    comm: npt.NDArray[np.uint64]  # the communicator it is blocked in, 0: none
    seq: Ints

    def __len__(self) -> int:
        return len(self.rank)

    def place(self, rank: int) -> int | None:
        """Where a rank is in the arrays; None: it is not in this job."""
        found: list[int] = (self.rank == rank).nonzero()[0].tolist()
        return found[0] if found else None


@dataclass(frozen=True)
class CommunicatorSummary:
    """One line of a list of communicators."""

    comm: int
    label: str  # role and name, for people
    role: str
    size: int
    entered: int  # furthest operation that a member entered, -1 unknown
    behind: int  # members that have not entered it
    waiting: int
    longest_wait_ns: int  # -1: nobody waits, or unknown


@dataclass(frozen=True)
class HostAnswer:
    """The outcome of querying one host: kind as in fleet.outcome, and the age of what is shown.
    `collector`: why nothing is recorded there any more, although it answers; `slowness`: that it
    answers late (outcome.slowness)."""

    host: str
    kind: Kind
    message: str = ""
    age_ns: int | None = None
    no_probe: str = ""  # why it cannot be probed, although it answers
    collector: str = ""
    collector_slow: bool = False  # it may still record: it only did not answer in time
    slowness: str = ""

    @property
    def silent(self) -> bool:
        """Whether it gave no answer; one that tells of its dead collector gave one, and one that
        is late will."""
        return self.kind != "ok" and not self.collector and not self.slowness


@dataclass(frozen=True)
class HostTrouble:
    """What is wrong with some hosts alike, and what to type; `silent`: they give no answer."""

    hosts: str  # folded: gpu[001-003]
    count: int
    what: str
    command: str = ""  # for the first of them
    silent: bool = True


@dataclass(frozen=True)
class Earlier:
    """What rulebooks that have yet to run found at another moment: root causes, worst first."""

    at_ns: int | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Ended:
    """A root cause that a running job had, as it was seen last: from `since_ns` to `until_ns`, Unix
    ns; if `times` is more than 1, that was the last time, and those before took `earlier_ns`."""

    finding: Finding
    since_ns: int
    until_ns: int
    times: int = 1
    earlier_ns: int = 0

    @property
    def lasted_ns(self) -> int:
        return self.until_ns - self.since_ns + self.earlier_ns


@dataclass(frozen=True)
class Snapshot:
    """Everything the screens show at one moment. `version` rises with each new snapshot.

    Where the diagnosis still has rulebooks pending, `earlier` is what these found last.
    `lost_gateways`: why gateways failed whose nodes are asked directly since. `due`: of a running
    job newer evidence has come, which JudgeSnapshot judges; it stopped no other way since.
    """

    version: int
    moment: Moment
    job: str
    diagnosis: Diagnosis
    ranks: Ranks
    communicators: tuple[CommunicatorSummary, ...] = ()
    hosts: tuple[HostAnswer, ...] = ()
    origin: str = ""  # "recording /path", "12 nodes over SSH", ...
    timings_s: Mapping[str, float] = field(default_factory=dict)  # rulebook -> seconds
    earlier: Earlier | None = None
    lost_gateways: Mapping[str, str] = field(default_factory=dict)
    due: bool = False
    ended: tuple[Ended, ...] = ()


@dataclass(frozen=True)
class StepRows:
    """What lies behind one step of a story."""

    finding: str
    step: int
    fact: str
    sql: str
    params: Mapping[str, str]
    table: Table


@dataclass(frozen=True)
class RuleLine:
    """One rulebook in a list."""

    name: str
    title: str
    status: str
    path: str
    enabled: bool
    shipped: bool
    outcome: str  # "2 findings", "nothing", "no data", "not run", "off"; "" before a snapshot
    seconds: float | None
    broken: str = ""  # what is wrong with the file at `path`, which is not in force
    changed_by: tuple[str, ...] = ()  # the files and options that gave it other values
    written_ns: int = 0  # when the file was written, 0 if it is not there
    verdicts: tuple[str, ...] = ()  # H1, H2, ...: what it may find
    why_skipped: str = ""  # in full: "not recorded: NCCL transfers"
    worst: Severity | None = None  # of its findings


@dataclass(frozen=True)
class Problem:
    """An error in a rulebook being edited; 1-based."""

    line: int
    column: int
    message: str


@dataclass(frozen=True)
class DryRun:
    """What a changed rulebook would do: its problems, else which verdicts come and go."""

    problems: tuple[Problem, ...] = ()
    gained: tuple[str, ...] = ()  # sentences: "H1 rank 5 (new)"
    lost: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobLine:
    """One job of the start screen; once it was judged with its `verdict`, a headline after its
    glyph, the finding's severity if there is one, and how many ranks wait."""

    job: str
    nodes: int
    ranks: int
    last_ns: int | None
    state: str = ""
    verdict: str = ""
    severity: Severity | None = None
    waiting: int = 0

    def judged_as(self, before: JobLine | None) -> JobLine:
        """With the verdict that was found before, and the ranks where those are not known."""
        if before is None:
            return self
        return replace(
            self,
            ranks=self.ranks or before.ranks,
            nodes=self.nodes or before.nodes,
            verdict=before.verdict,
            severity=before.severity,
            waiting=before.waiting,
        )


@dataclass(frozen=True)
class Table:
    """Rows of evidence or of a fact, as far as they are shown; `total` counts all."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int

    def filled(self) -> Table:
        """Without the columns in which nothing stands, as nothing of them was recorded."""
        known = [at for at in range(len(self.columns)) if any(row[at] != "" for row in self.rows)]
        rows = tuple(tuple(row[at] for at in known) for row in self.rows)
        return Table(tuple(self.columns[at] for at in known), rows, self.total)


def job_line(incident: Incident, job: str) -> JobLine:
    """Its nodes, its ranks, and when it was seen last."""
    con = incident.con
    ((ranks,),) = con.execute(
        "SELECT greatest(count(DISTINCT rank), (SELECT coalesce(max(world_size), 0) FROM jobs "
        "WHERE job = $job)) FROM (SELECT rank FROM ranks WHERE job = $job "
        "UNION SELECT rank FROM comms WHERE job = $job "
        "UNION SELECT rank FROM ops WHERE job = $job)",
        {"job": job},
    ).fetchall()
    nodes = con.execute(
        "SELECT DISTINCT node FROM ranks WHERE job = ? AND node IS NOT NULL", [job]
    ).fetchall()
    ((last_ns,),) = con.execute(
        "SELECT max(greatest(ended_ns, observed_ns, enqueued_ns)) FROM ops WHERE job = ?", [job]
    ).fetchall()
    state = "recorded" + (f" on {clean(fold_hosts(n for (n,) in nodes))}" if nodes else "")
    return JobLine(clean(job), len(nodes), ranks, last_ns, state)
