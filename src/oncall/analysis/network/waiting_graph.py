"""The waits in a collective, step by step, and the chain of steps that made it last so long.

A vertex is the start or the end of a step of a flow. A step's start waits for the end of the
sender's previous step (the sender is still busy) or for the end of the step that brings the data to
send on; the one that ended last is the one that it really waited for (Vedrfolnir Table I). So every
step waits for at most one other, the graph is an array of predecessors, and its longest path is a
walk along that array. Everything is O(steps).

The steps that made a collective late are those that the network analysis starts from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from oncall.analysis.common.quantiles import quantile_of_alike
from oncall.evidence import Param, decides, params_of, relation
from oncall.evidence.columns import Words

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NONE = -1
_WAITED_FOR = ("previous", "data")


@dataclass(frozen=True)
class Thresholds:
    """What a step may take, and by when it may have been waited for."""

    overhead: float = decides(
        1.1, "times its bytes' time alone, with headers and the way there and back: beyond, it lags"
    )
    late: float = decides("5 %", "of what a step should take: beyond the scatter of equal steps")
    return_ns: int = decides(
        "50 us",
        "half a round trip through full queues: a sender knows of its last byte that much later "
        "than its receiver, which may have gone on",
    )
    most_return: float = decides("10 %", "of the step that went on: the return takes no more of it")


_STEP_COLUMNS = [
    "job comm seq flow src dst step bytes started_ns",
    ("ended_ns", "BIGINT", "ns", "last byte; of a running step: the newest instant known"),
    ("over", "BOOLEAN", "", "it has ended"),
    ("expected_ns", "DOUBLE", "ns", "its time alone on the wire, with the baseline overhead"),
    ("excess_ns", "DOUBLE", "ns", "its time beyond that; NULL: no expectation"),
    ("late", "BOOLEAN", "", "beyond the scatter of equal steps"),
    "traced",
    ("waited_for", "VARCHAR", "", "data: what it sends on; previous: its sender; NULL: no step"),
    ("after_src", "INTEGER", "", "the sender of the step it waited for"),
    ("after_dst", "INTEGER", "", "the receiver of that step"),
    ("after_step", "INTEGER", "", "the number of that step"),
    ("gap_ns", "BIGINT", "ns", "from that step's end to its start: time that is not the network's"),
    ("waiters", "INTEGER", "steps", "how many steps waited for this one"),
    ("kept", "BOOLEAN", "", "left when steps that no other waits for are pruned"),
    ("critical", "BOOLEAN", "", "on the longest path"),
]


@relation(
    "step_waits",
    reads=["collective_steps"],
    optional=["switch_pauses", "switch_ports"],
    columns=_STEP_COLUMNS,
    source="Vedrfolnir III-B, III-D1 (waiting graph), Table I",
    params=params_of(Thresholds),
)
def step_waits(con: duckdb.DuckDBPyConnection, **params: Any) -> Mapping[str, Any]:
    """The waiting graph of each collective: each step with the one it waited for."""
    thresholds = Thresholds(**params)
    steps = con.execute(
        """SELECT *, dense_rank() OVER (ORDER BY job, comm, seq) - 1 AS collective
        FROM collective_steps ORDER BY collective, step, src, dst"""
    ).fetchnumpy()
    started = _whole(steps["started_ns"])
    over = ~np.ma.getmaskarray(steps["ended_ns"])
    # What goes on ends after all that is known to have ended.
    ended = np.where(over, _whole(steps["ended_ns"]), _newest(con) + 1)
    returning = np.minimum(
        thresholds.return_ns, (thresholds.most_return * (ended - started)).astype(np.int64)
    )
    begun = started + np.maximum(_whole(steps["within_ns"]), returning)
    before, by_data = predecessors(steps, begun, ended)
    collective = _whole(steps["collective"])
    expected, excess = _beyond_expectation(steps, collective, ended - started, thresholds.overhead)
    has = before != NONE
    none = np.ma.masked_array
    return {
        **{name: steps[name] for name in ("job", "comm", "seq", "flow", "src", "dst", "step")},
        "bytes": steps["bytes"],
        "traced": steps["traced"],
        "started_ns": started,
        "ended_ns": ended,
        "over": over,
        "expected_ns": expected,
        "excess_ns": excess,
        "late": excess > thresholds.late * expected,
        "waited_for": Words(np.where(has, by_data, NONE).astype(np.int32), _WAITED_FOR),
        "after_src": none(_whole(steps["src"])[before], ~has),
        "after_dst": none(_whole(steps["dst"])[before], ~has),
        "after_step": none(_whole(steps["step"])[before], ~has),
        "gap_ns": none(np.maximum(started - ended[before], 0), ~has),
        "waiters": np.bincount(before[has], minlength=len(before)),
        "kept": walked(before, _finals(steps, collective)),
        "critical": walked(before, _last_ended(collective, ended)),
    }


@relation(
    "critical_steps",
    reads=["step_waits"],
    columns=[
        *_STEP_COLUMNS[:-3],
        ("position", "INTEGER", "", "place on the path, the first step is 1"),
        ("of", "INTEGER", "steps", "steps on the path"),
        ("share", "DOUBLE", "", "of what all late steps on the path lost (equation 3)"),
        ("lost_ns", "DOUBLE", "ns", "what all of them lost"),
        ("took_ns", "BIGINT", "ns", "the collective, from its first start to its last end"),
        ("worst", "BOOLEAN", "", "the collective lost most of its communicator's, and enough"),
        ("src_node", "VARCHAR", "", "host of the sender"),
        ("dst_node", "VARCHAR", "", "host of the receiver"),
    ],
    source="Vedrfolnir III-B, III-D1 (critical path), equation 3",
    params={"least_lost": "lost_time.negligible"},
)
def critical_steps() -> str:
    """The steps whose time is the collective's time, with what each lost.

    Most late collectives of a communicator are late for the same reason; the one that lost most
    shows it best.
    """
    return """
        WITH spans AS (
            SELECT job, comm, seq, max(ended_ns) - min(started_ns) AS took_ns
            FROM step_waits GROUP BY ALL),
        losses AS (
            SELECT job, comm, seq, coalesce(sum(greatest(excess_ns, 0)) FILTER (late), 0) AS lost_ns
            FROM step_waits WHERE critical GROUP BY ALL)
        SELECT w.*, row_number() OVER p AS position, count(*) OVER c AS of,
            CASE WHEN w.late THEN greatest(w.excess_ns, 0) ELSE 0 END / nullif(l.lost_ns, 0)
                AS share,
            l.lost_ns, s.took_ns, a.node AS src_node, b.node AS dst_node,
            l.lost_ns > $least_lost * s.took_ns AND l.seq = first_value(l.seq) OVER most AS worst
        FROM step_waits w JOIN spans s USING (job, comm, seq) JOIN losses l USING (job, comm, seq)
        LEFT JOIN processes a ON a.job = w.job AND a.rank = w.src
        LEFT JOIN processes b ON b.job = w.job AND b.rank = w.dst
        WHERE w.critical
        WINDOW c AS (PARTITION BY w.job, w.comm, w.seq), p AS (c ORDER BY w.started_ns, w.step),
            most AS (PARTITION BY w.job, w.comm
                ORDER BY l.lost_ns > $least_lost * s.took_ns DESC, l.lost_ns DESC, l.seq)
    """


def _newest(con: duckdb.DuckDBPyConnection) -> int:
    """The newest instant known: until then, a step that has not ended goes on."""
    ((newest,),) = con.execute(
        """SELECT greatest((SELECT max(greatest(started_ns, ended_ns)) FROM collective_steps),
            (SELECT max(at_ns) FROM switch_pauses), (SELECT max(at_ns) FROM switch_ports), 0)"""
    ).fetchall()
    return int(newest)


# ------------------------------------------------------------------- graph


def predecessors(
    steps: Mapping[str, Any], started: Integers, ended: Integers
) -> tuple[Integers, Flags]:
    """For each step the one it waited for (or NONE), and whether for its data.

    The step that brings the data is recorded (`waits_for_flow`), else it is the one of the step
    before that arrives at the sender. A step that ended after this one began was not waited for;
    `started` is the latest that this may have been.
    """
    collective, step = _whole(steps["collective"]), _whole(steps["step"])
    src, dst = _whole(steps["src"]), _whole(steps["dst"])
    own = _latest(ended, (collective, src, step), (collective, src, step - 1))
    data = _latest(ended, (collective, dst, step), (collective, src, step - 1))
    flow, reported = _whole(steps["flow"]), ~np.ma.getmaskarray(steps["waits_for_flow"])
    if reported.any():
        wanted = (collective, _whole(steps["waits_for_flow"]), step - 1)
        named = _latest(ended, (collective, flow, step), wanted)
        data = np.where(reported & (named != NONE), named, data)
    ends = np.where(own == NONE, np.iinfo(np.int64).min, ended[own])
    data_ends = np.where(data == NONE, np.iinfo(np.int64).min, ended[data])
    ends[ends > started] = np.iinfo(np.int64).min
    data_ends[data_ends > started] = np.iinfo(np.int64).min
    by_data = data_ends >= ends
    before = np.where(by_data, data, own)
    before[np.maximum(ends, data_ends) == np.iinfo(np.int64).min] = NONE
    return before, by_data


def walked(before: Integers, ends: Integers) -> Flags:
    """Every step on the way back from any of `ends`; all ways are walked at once."""
    on_way = np.zeros(len(before), np.bool_)
    front = ends
    while len(front):
        on_way[front] = True
        front = before[front]
        front = np.unique(front[front != NONE])
        front = front[~on_way[front]]
    return on_way


def _latest(ended: Integers, key: tuple[Integers, ...], wanted: tuple[Integers, ...]) -> Integers:
    """For each `wanted` key the step of that key that ended last, or NONE."""
    size = len(ended)
    if size == 0:
        return np.zeros(0, np.int64)
    codes = _codes([np.concatenate(pair) for pair in zip(key, wanted, strict=True)])
    order = np.lexsort((ended, codes[:size]))
    present = codes[:size][order]
    place = np.searchsorted(present, codes[size:], side="right") - 1
    found = (place >= 0) & (present[place] == codes[size:])
    return np.where(found, order[place], NONE)


def _codes(columns: list[Integers]) -> Integers:
    """One number for each different row of `columns`."""
    code = np.zeros(len(columns[0]), np.int64)
    width = 1
    for column in columns:
        low = int(column.min(initial=0))
        span = int(column.max(initial=0)) - low + 1
        if width * span >= 1 << 62:  # wide numbers: count those that occur
            code, column = (np.unique(c, return_inverse=True)[1] for c in (code, column))
            width, low, span = int(code.max(initial=0)) + 1, 0, int(column.max(initial=0)) + 1
        code = code * span + (column - low)
        width *= span
    return code


def _finals(steps: Mapping[str, Any], collective: Integers) -> Integers:
    """The last step of each sender: where the graph begins."""
    sender = _codes([collective, _whole(steps["src"])])
    order = np.lexsort((_whole(steps["step"]), sender))
    return order[np.r_[sender[order][1:] != sender[order][:-1], True]] if len(order) else order


def _last_ended(collective: Integers, ended: Integers) -> Integers:
    """The step of each collective that ended last."""
    order = np.lexsort((ended, collective))
    later = collective[order]
    return order[np.r_[later[1:] != later[:-1], True]] if len(order) else order


def _beyond_expectation(
    steps: Mapping[str, Any], collective: Integers, took: Integers, most_overhead: float
) -> tuple[Any, Any]:
    """What each step should take and what it took beyond.

    Alone on the wire a step takes its expected time; where that is not recorded, the lower quartile
    of the collective's steps of as many bytes stands for it, as one flow may hold up half of them.
    Overhead is what most steps have.
    """
    expected = np.ma.filled(np.ma.masked_array(steps["expected_ns"], dtype=float), np.nan)
    alike = _codes([collective, _whole(steps["bytes"])])
    baseline = quantile_of_alike(alike, took.astype(float), 0.25)[0]
    expected = np.where(expected > 0, expected, baseline)
    with np.errstate(divide="ignore", invalid="ignore"):
        overhead = quantile_of_alike(collective, took / expected, 0.25)[0]
    overhead = np.clip(overhead, 1.0, most_overhead)
    expected = expected * overhead
    known = np.isfinite(expected) & (expected > 0)
    return (
        np.ma.masked_array(expected, ~known),
        np.ma.masked_array(took - expected, ~known),
    )


def _whole(column: Any) -> Integers:
    """A column of whole numbers; NULL is far below any."""
    return np.ma.filled(np.ma.masked_array(column), NONE).astype(np.int64)


@relation(
    "late_steps",
    reads=["step_waits"],
    columns=[
        ("id", "INTEGER", "", "number of the step among these"),
        "job comm seq flow src dst step started_ns ended_ns",
        ("excess_ns", "DOUBLE", "ns", "its excess time"),
        "critical over",
        ("src_host", "VARCHAR", "", "host of the sender, as the topology calls it"),
        ("dst_host", "VARCHAR", "", "host of the receiver"),
        "traced bytes",
    ],
    source="Vedrfolnir III-D1",
    params={
        "most_steps": Param(
            200,
            "late steps of a collective that are followed, those of the critical path first, "
            "then the worst: others show nothing new",
        ),
        "most_collectives": Param(32, "of a communicator are followed, those that lost most"),
    },
)
def late_steps() -> str:
    """The late steps of each communicator's worst collectives that are late by them."""
    return """
        WITH named AS (
            SELECT flow, any_value(src_host) AS src_host, any_value(dst_host) AS dst_host
            FROM flows GROUP BY flow),
        ranked AS (
            SELECT w.*, row_number() OVER (PARTITION BY job, comm, seq
                ORDER BY critical DESC, over, excess_ns DESC NULLS LAST, src, step) AS worst
            FROM step_waits w WHERE late),
        followed AS (
            SELECT job, comm, seq FROM ranked WHERE critical GROUP BY job, comm, seq
            QUALIFY row_number() OVER (PARTITION BY job, comm
                ORDER BY sum(greatest(excess_ns, 0)) DESC NULLS LAST, seq) <= $most_collectives)
        SELECT row_number() OVER (ORDER BY w.job, comm, seq, worst) AS id, w.job, comm, seq, flow,
            src, dst, step, started_ns, ended_ns,
            greatest(coalesce(excess_ns, ended_ns - started_ns), 0) AS excess_ns, critical, over,
            coalesce(a.node, f.src_host) AS src_host, coalesce(b.node, f.dst_host) AS dst_host,
            traced, bytes
        FROM ranked w SEMI JOIN followed USING (job, comm, seq)
        LEFT JOIN processes a ON a.job = w.job AND a.rank = w.src
        LEFT JOIN processes b ON b.job = w.job AND b.rank = w.dst
        LEFT JOIN named f USING (flow)
        WHERE worst <= $most_steps
    """
