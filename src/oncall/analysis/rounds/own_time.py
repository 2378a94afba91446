"""Late of its own making, or late because it waited elsewhere?

A rank that comes last to one communicator may only have been held up in another. Between two
rounds of a communicator, a rank's time splits into time inside other operations and its own
time (computing, loading data, collecting garbage). A rank is itself the cause when its own time
exceeds its peers' by about as much as it came late.

Operations that a rank has in flight while it computes (gradients reduced during the backward, Sends
that no rank waits for) hold it up only some time after the last operation that began meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from oncall.analysis.common.ordering import Ints, sorted_by
from oncall.evidence import relation

MEANWHILE = 0.9  # of an operation: what begins later may do so only by inexact clocks


@relation(
    "computed_own_times",
    reads=["operations"],
    optional=["heads", "arrivals", "ops"],
    columns=[
        ("ops_row", "BIGINT", "", "the call: its row in ops"),
        ("own_ns", "BIGINT", "ns", "as in own_time"),
    ],
    source="beyond CCL-D: separates late ranks from their victims",
)
def computed_own_times(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """For each collective of each rank: its own time since its previous one on that communicator.

    Ranks of which only a part of the operations was kept are left out: what lies between two rows
    is not known. Where the end on the device is not recorded, an operation is taken to last for
    its duration, or until the last member arrived. Where only the call is recorded and the host
    ran ahead of its device, nothing is known. All times are one rank's own: clocks do not matter.
    """
    found = con.execute(
        """SELECT o.ops_row, m.rank_number, m.member, o.kind = 'coll', o.seq, o.on_device,
               o.entered_ns, o.entered_ns + coalesce(o.duration_ns, a.wait_ns, 0)
           FROM operations o
           JOIN (SELECT job, comm, rank, row_number() OVER () AS member,
                     dense_rank() OVER (ORDER BY job, rank) AS rank_number FROM heads
                 ANTI JOIN (SELECT DISTINCT job, rank FROM ops WHERE stands_for IS NOT NULL)
                     USING (job, rank)) m
               USING (job, comm, rank)
           LEFT JOIN arrivals a USING (ops_row)
           WHERE o.seq IS NOT NULL AND o.entered_ns IS NOT NULL AND coalesce(o.done, true)"""
    ).fetchnumpy()
    row, own_ns = since_last_round(timeline(np.array([*found.values()], dtype=np.int64)))
    return {"ops_row": row, "own_ns": own_ns}


@dataclass(frozen=True)
class Timeline:
    """Calls (8, n) in order of process and start, with the own time of the process up to each
    and how often by then something was lost (n,)."""

    calls: Ints
    own_ns: Ints
    holes: Ints


def timeline(calls: Ints) -> Timeline:
    """Order calls (8, n): row, rank, membership, whether a collective, seq, whether its times are
    the device's, start and end."""
    calls = calls[:, sorted_by(calls[1], calls[6])]
    _, rank, member, collective, seq, on_device, start, end = calls
    if not len(rank):
        return Timeline(calls, start, start)
    # The time of an operation that the recorder lost would pass for the rank's own.
    group = 2 * member + collective
    unknown = _after_hole(group, seq) | _ran_ahead(rank, on_device, start, end)
    number, start, end = _in_line(rank, start, end)
    held = np.where(on_device == 1, _held_since(number, group, start, end), start)
    return Timeline(calls, _own_until(start, end, held), np.cumsum(unknown))


def since_last_round(line: Timeline) -> tuple[Ints, np.ma.MaskedArray[Any, Any]]:
    """Rows (m,) of collectives that follow another of their membership, and own time before each;
    masked where an operation in between was lost."""
    row, _, member, collective = line.calls[:4]
    rounds = np.flatnonzero(collective)
    rounds = rounds[np.argsort(member[rounds], kind="stable")]
    follows = np.diff(member[rounds], prepend=-1) == 0  # a first round has none to count from
    since = np.diff(line.own_ns[rounds], prepend=0)[follows]
    torn = np.diff(line.holes[rounds], prepend=0)[follows] > 0
    return row[rounds][follows], np.ma.MaskedArray(since, mask=torn)


def left_off(line: Timeline) -> Ints:
    """Calls (8, m) that stand for all of these where later ones go on from them: each membership's
    last, as an instant so long before the process's last end as it has had own time since.
    Collectives since which something was lost are left out. Their row is -1.
    """
    _, rank, member, collective, seq, _, _, end = line.calls
    if not len(rank):
        return line.calls
    _, process = np.unique(rank, return_inverse=True)
    ends = np.flatnonzero(np.diff(rank, append=rank[-1] + 1))  # each process's last call
    last_end = np.maximum.reduceat(end, np.concatenate([[0], ends[:-1] + 1]))
    group = 2 * member + collective
    _, backward = np.unique(group[::-1], return_index=True)
    last = len(group) - 1 - backward
    newest = np.full(int(group.max()) + 1, -1)
    np.maximum.at(newest, group, seq)
    p2p = collective[last] == 0
    since = np.where(p2p, 0, line.own_ns[ends][process[last]] - line.own_ns[last])
    whole = p2p | (line.holes[ends][process[last]] == line.holes[last])
    at = last_end[process[last]] - since
    row, on_device = np.full(len(last), -1), np.ones(len(last), dtype=np.int64)
    table = (
        row,
        rank[last],
        member[last],
        collective[last],
        newest[group[last]],
        on_device,
        at,
        at,
    )
    return np.array(table, dtype=np.int64)[:, whole]


@relation(
    "own_time",
    reads=["computed_own_times", "operations"],
    columns=[
        "job comm seq rank",
        (
            "own_ns",
            "BIGINT",
            "ns",
            "time outside all operations since the last round here",
        ),
    ],
    source="beyond CCL-D: separates late ranks from their victims",
    view=True,
)
def own_time() -> str:
    """Each rank's own time before each collective: as the node measured it, else computed here."""
    return """
        SELECT o.job, o.comm, o.seq, o.rank, coalesce(o.own_ns, t.own_ns) AS own_ns
        FROM operations o LEFT JOIN computed_own_times t USING (ops_row)
        WHERE o.own_ns IS NOT NULL OR t.ops_row IS NOT NULL
    """


def _in_line(rank: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Numbers (n,) of the ranks from zero, and starts and ends, each rank's after those of the one
    before; rows are sorted by rank and start. Each clock counts from zero, as one may use Unix
    time and the next the time since boot."""
    new = np.diff(rank, prepend=-1) != 0
    number = np.cumsum(new) - 1
    origin = start[new][number]
    apart = number * (int((end - origin).max()) + 1)
    return number, start - origin + apart, end - origin + apart


def _held_since(number: Ints, group: Ints, start: Ints, end: Ints) -> Ints:
    """When each operation (n,) began to hold its rank up; times are in line.

    At once, but for groups of calls that go on beside others: more begin while one of these lasts
    than these begin while one of the others does. That is decided for the group as a whole, as
    either may begin during the other. From the last that began the rank goes on as long as its
    median pause between calls.
    """
    meanwhile = start + (MEANWHILE * (end - start)).astype(np.int64)
    first = np.searchsorted(start, start, side="right")
    beyond = np.maximum(first, np.searchsorted(start, meanwhile, side="left"))
    last = len(start) + 1
    lasting = np.cumsum(np.bincount(first, minlength=last) - np.bincount(beyond, minlength=last))
    surplus = np.bincount(group, weights=beyond - first - lasting[:-1])
    beside = (surplus[group] > 0) & (beyond > first)
    begins = np.diff(number, prepend=-1) != 0
    pause = np.where(beside | begins, 0, _idle(start, np.where(beside, start, end)))
    goes_on = end[beyond - 1] + _median_pause(number, pause)[number]
    return np.where(beside, np.maximum(start, goes_on), start)


def _median_pause(number: Ints, pause: Ints) -> Ints:
    """Each rank's median pause between calls: half of its own time is in pauses this long or
    longer. `number` (n,) counts ranks from zero."""
    order = sorted_by(number, pause)
    sums = np.cumsum(pause[order])
    after = sums[np.flatnonzero(np.diff(number, append=number[-1] + 1))]
    before = np.append(0, after[:-1])
    half = pause[order][np.searchsorted(sums, (before + after + 1) // 2)]
    return np.where(after > before, half, 0)


def _own_until(start: Ints, end: Ints, held: Ints) -> Ints:
    """Own time (n,) up to the start of each operation, which counts from `held` (n,) on; times are
    in line. Sums run on from rank to rank: differences are meant."""
    beside = held > start
    tails = beside & (held < end)
    starts = np.append(start, held[tails])
    ends = np.append(np.where(beside, start, end), end[tails])
    order = np.argsort(starts, kind="stable")
    own = np.empty_like(starts)
    own[order] = np.cumsum(_idle(starts[order], ends[order]))
    return own[: len(start)]


def _idle(start: Ints, end: Ints) -> Ints:
    """Time (n,) outside all operations before each one; times are in line."""
    return np.maximum(start - np.roll(np.maximum.accumulate(end), 1), 0)


def _ran_ahead(rank: Ints, on_device: Ints, start: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    """Whether the host made this call well before the operation before it was over (n,)."""
    overlap = np.roll(end, 1) - start
    before = np.roll(end - start, 1)
    follows = np.diff(rank, prepend=-1) == 0
    return np.asarray(follows & (on_device == 0) & (2 * overlap > before), dtype=np.bool_)


def _after_hole(group: Ints, seq: Ints) -> npt.NDArray[np.bool_]:
    """Whether operations between this one and the one before it in its group are missing (n,)."""
    order = sorted_by(group, seq)
    gaps = (np.diff(seq[order], prepend=0) > 1) & (np.diff(group[order], prepend=-1) == 0)
    found = np.zeros(len(seq), dtype=np.bool_)
    found[order] = gaps
    return found
