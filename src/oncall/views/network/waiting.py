"""The waiting graph of a collective as it is drawn: lanes of steps, and the path through them.

A step began when the one it waited for had ended; the path back from the step that ended last is
what made the collective take its time (Vedrfolnir III-D1). Of a thousand hosts some are drawn:
those on the path near where it lost most, and those that waited for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from oncall.core.diagnosis import Finding, Picture
from oncall.core.errors import NotRecorded, UsageError
from oncall.core.printable import clean
from oncall.evidence.incident import Incident

Key = tuple[int, int, int]  # src, dst, step


@dataclass(frozen=True)
class Collective:
    """One collective of a list. `took_ns` is until the newest instant known where it is not over;
    `lost_ns` is what its critical path took too long."""

    job: str
    comm: int
    seq: int
    op: str | None
    ranks: int
    started_ns: int
    took_ns: int
    lost_ns: float
    over: bool

    @property
    def key(self) -> tuple[int, int]:
        return self.comm, self.seq

    @property
    def parameters(self) -> dict[str, Any]:
        """The key, of a query with $comm and $seq."""
        return {"comm": self.comm, "seq": self.seq}

    @property
    def name(self) -> str:
        """`AllReduce 14 of 0x1f2e`."""
        return f"{self.op or 'collective'} {self.seq} of {self.comm:#x}"


@dataclass(frozen=True)
class Step:
    """What one rank sent another. Instants are Unix ns; `expected_ns` is None where nothing tells,
    `after` is the step it waited for, `gap_ns` from that one's end to its start."""

    src: int
    dst: int
    step: int
    started_ns: int
    ended_ns: int
    over: bool = True
    expected_ns: float | None = None
    excess_ns: float = 0.0
    late: bool = False
    critical: bool = False
    waited_for: str | None = None
    after: Key | None = None
    gap_ns: int | None = None
    waiters: int = 0
    src_node: str = ""
    dst_node: str = ""

    @property
    def key(self) -> Key:
        return self.src, self.dst, self.step

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.started_ns

    @property
    def pair(self) -> str:
        return f"{self.src}->{self.dst}"


@dataclass(frozen=True)
class Lane:
    """What one rank sent, by time."""

    rank: int
    node: str
    steps: tuple[Step, ...]

    @property
    def blamed(self) -> bool:
        return any(step.late and step.critical for step in self.steps)


@dataclass(frozen=True)
class WaitingGraph:
    """`path`: the critical steps in order, all of them. `lanes`: the senders that are drawn, of the
    time `shown_ns`; `left_out` others sent meanwhile."""

    collective: Collective
    path: tuple[Step, ...]
    lanes: tuple[Lane, ...]
    shown_ns: tuple[int, int]
    left_out: int = 0

    @property
    def worst(self) -> Step | None:
        """The critical step that lost most: from there on it is a matter of the network."""
        late = [step for step in self.path if step.late]
        return max(late, key=lambda step: step.excess_ns, default=None)

    @property
    def before(self) -> int:
        """Steps of the path that ended before what is shown begins."""
        return sum(step.ended_ns <= self.shown_ns[0] for step in self.path)

    @property
    def after(self) -> int:
        """Steps of the path that begin after what is shown."""
        return sum(step.started_ns >= self.shown_ns[1] for step in self.path)

    def arrows(self) -> Iterator[tuple[int, Step, int, Step]]:
        """Where the path goes on in another lane: (lane, step, lane after it, step after it)."""
        places = {step.key: place for place, lane in enumerate(self.lanes) for step in lane.steps}
        for one, then in pairwise(self.path):
            here, there = places.get(one.key), places.get(then.key)
            if here is not None and there is not None and here != there:
                yield here, one, there, then


@dataclass(frozen=True)
class Link:
    """A part of the chain: a late step alone, or all steps between two of those."""

    steps: tuple[Step, ...]

    @property
    def late(self) -> bool:
        return self.steps[0].late

    @property
    def took_ns(self) -> int:
        return self.steps[-1].ended_ns - self.steps[0].started_ns


def chain(path: Sequence[Step], most: int = 12) -> tuple[Link, ...]:
    """The path with its ordinary steps folded; of more late ones than `most` the worst stand
    alone."""
    late = sorted((step for step in path if step.late), key=lambda step: -step.excess_ns)
    alone = {step.key for step in late[:most]}
    links = []
    for is_alone, group in groupby(path, lambda step: step.key in alone):
        steps = tuple(group)
        links += [Link((step,)) for step in steps] if is_alone else [Link(steps)]
    return tuple(links)


def window(path: Sequence[Step], most: int) -> tuple[int, int]:
    """First and last instant of the `most` steps in a row that lost most, centred on them."""
    if len(path) <= most:
        return path[0].started_ns, path[-1].ended_ns
    lost = [max(step.excess_ns, 0.0) if step.late else 0.0 for step in path]
    sums = [sum(lost[at : at + most]) for at in range(len(path) - most + 1)]
    best = [at for at, total in enumerate(sums) if total >= max(sums) * (1 - 1e-9)]
    first = best[len(best) // 2]
    return path[first].started_ns, path[first + most - 1].ended_ns


NO_STEPS = (
    "no steps of collectives recorded; host agents, telemetry files, or the hooks together with "
    "switch data record them"
)
PICTURE: Picture = "network"
MOST_LANES = 16
PATH_STEPS = 14  # of the path that are drawn to scale; in a picture of more, steps look alike
_MOST_COLLECTIVES = 400
_STEP = """w.src, w.dst, w.step, w.started_ns, w.ended_ns, w.over, w.expected_ns,
    coalesce(w.excess_ns, 0), coalesce(w.late, false), w.critical, w.waited_for, w.after_src,
    w.after_dst, w.after_step, w.gap_ns, w.waiters"""
_HOMES = "(SELECT rank, any_value(node) AS node FROM ranks GROUP BY rank)"
_NODES = f"LEFT JOIN {_HOMES} a ON a.rank = w.src LEFT JOIN {_HOMES} b ON b.rank = w.dst"


def has_steps(incident: Incident) -> bool:
    """Whether any collective's steps are known; makes ready what is read here."""
    incident.provide(("step_waits", "critical_steps"))
    return incident.rows("step_waits") > 0


def collectives(incident: Incident) -> tuple[Collective, ...]:
    """Those whose steps are known, by time; of very many the ones that lost most. `has_steps`
    comes first."""
    rows = incident.con.execute(
        f"""
        WITH calls AS (
            SELECT job, comm, seq, any_value(op) AS op FROM ops WHERE kind = 'coll' GROUP BY ALL),
        steps AS (
            SELECT job, comm, seq, count(DISTINCT src) AS ranks, min(started_ns) AS started_ns,
                max(ended_ns) - min(started_ns) AS took_ns, bool_and(over) AS over
            FROM step_waits GROUP BY ALL),
        lost AS (
            SELECT job, comm, seq, any_value(lost_ns) AS lost_ns FROM critical_steps GROUP BY ALL),
        worst AS (
            SELECT s.job, s.comm, s.seq, t.op, s.ranks, s.started_ns, s.took_ns,
                coalesce(l.lost_ns, 0) AS lost_ns, s.over
            FROM steps s LEFT JOIN lost l USING (job, comm, seq)
            LEFT JOIN calls t USING (job, comm, seq)
            ORDER BY lost_ns DESC LIMIT {_MOST_COLLECTIVES})
        FROM worst ORDER BY started_ns, comm, seq
        """
    ).fetchall()
    return tuple(Collective(clean(row[0] or ""), *row[1:]) for row in rows)


def find_collective(
    incident: Incident, comm: int | None = None, seq: int | None = None
) -> Collective:
    """That one; without `seq` the one that lost most. Raises UsageError where it is not there."""
    if not has_steps(incident):
        raise NotRecorded(NO_STEPS)
    found = [
        one for one in collectives(incident) if comm in (None, one.comm) and seq in (None, one.seq)
    ]
    if not found:
        number = "" if seq is None else f" {seq}"
        of = "" if comm is None else f" of {comm:#x}"
        raise UsageError(f"no steps recorded for collective{number}{of}")
    return max(found, key=lambda one: (one.lost_ns, one.took_ns))


def waiting_graph(
    incident: Incident, collective: Collective, most: int = MOST_LANES
) -> WaitingGraph:
    """Its critical path, and at most `most` senders around where the path lost most."""
    path = tuple(
        _step(row)
        for row in incident.con.execute(
            f"""
            SELECT {_STEP}, a.node, b.node FROM step_waits w {_NODES}
            WHERE w.comm = $comm AND w.seq = $seq AND w.critical
            ORDER BY w.started_ns, w.step
            """,
            collective.parameters,
        ).fetchall()
    )
    if not path:
        raise UsageError(f"no steps recorded for {collective.name}")
    first, last = window(path, PATH_STEPS)
    if len(path) <= PATH_STEPS:
        first, last = collective.started_ns, collective.started_ns + collective.took_ns
    lanes, senders = _lanes(incident, collective, first, last, most)
    return WaitingGraph(collective, path, lanes, (first, last), senders - len(lanes))


def _lanes(
    incident: Incident, collective: Collective, first: int, last: int, most: int
) -> tuple[tuple[Lane, ...], int]:
    """The senders that tell most of that time: of late critical steps, those on the path, those
    that waited for a late one, those that were late beside it."""
    rows = incident.con.execute(
        f"""
        WITH shown AS (
            FROM step_waits WHERE comm = $comm AND seq = $seq
                AND started_ns < $last AND ended_ns > $first),
        blocked AS (
            SELECT w.src, max(l.excess_ns) AS lost_ns FROM shown w JOIN shown l
                ON (w.after_src, w.after_dst, w.after_step) = (l.src, l.dst, l.step)
            WHERE l.late AND l.critical GROUP BY w.src),
        calls AS (
            SELECT s.src, max(excess_ns) FILTER (late AND critical) AS lost_ns,
                bool_or(critical) AS critical, any_value(b.lost_ns) AS waited_ns,
                max(excess_ns) FILTER (late) AS late_ns, count(*) OVER () AS senders
            FROM shown s LEFT JOIN blocked b USING (src) GROUP BY s.src),
        senders AS (
            -- Of many, those that have nothing to do with it would only be in the way.
            FROM calls WHERE senders <= $most OR critical OR waited_ns > 0 OR late_ns > 0
            ORDER BY lost_ns DESC NULLS LAST, critical DESC, waited_ns DESC NULLS LAST,
                late_ns DESC NULLS LAST, src LIMIT {int(most)})
        SELECT {_STEP}, a.node, b.node, n.senders FROM shown w JOIN senders n USING (src) {_NODES}
        ORDER BY w.src, w.started_ns, w.step, w.dst
        """,
        {**collective.parameters, "first": first, "last": last, "most": most},
    ).fetchall()
    steps: dict[int, list[Step]] = {}
    for row in rows:
        steps.setdefault(row[0], []).append(_step(row[:-1]))
    lanes = tuple(Lane(rank, own[0].src_node, tuple(own)) for rank, own in steps.items())
    return lanes, rows[0][-1] if rows else 0


def _step(row: tuple[Any, ...]) -> Step:
    """Of a row of _STEP and the nodes of both ends."""
    *own, after_src, after_dst, after_step, gap_ns, waiters, src_node, dst_node = row
    after = None if after_src is None else (after_src, after_dst, after_step)
    nodes = (clean(src_node or ""), clean(dst_node or ""))
    values: list[Any] = [*own, after, gap_ns, waiters, *nodes]
    return Step(*values)


# ------------------------------------------------------------------- findings


def reported_collective(incident: Incident, finding: Finding) -> Collective | None:
    """The collective a finding of a rulebook is about: of its communicator the one that lost
    most."""
    comm = finding.case.get("comm")
    if comm is None:
        return None
    seq = finding.case.get("seq")
    number = int(comm, 16) if isinstance(comm, str) else int(comm)
    return find_collective(incident, number, None if seq is None else int(seq))
