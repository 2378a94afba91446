"""How much of a job was observed. Missing data never counts as healthy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from oncall.core.diagnosis import Coverage, Gap
from oncall.core.nodeset import fold_ranks

if TYPE_CHECKING:
    import duckdb

# A world size beyond this is a damaged recording, not a job.
_MOST_RANKS = 1_000_000
_MOST_NOTES = 8
_Homes = dict[int, list[str]]  # rank -> the nodes it ran on


def _ranks_in(*tables: str) -> str:
    return " UNION ".join(f"SELECT rank FROM {table}" for table in tables)


_RECORDED = _ranks_in("comms", "ops", "launches", "stage_tasks")
_IN_TEXTS = _ranks_in("log_events", "watchdog_reports", "logged_steps", "thread_stacks")
_NAMED = f"{_RECORDED} UNION {_IN_TEXTS} UNION {_ranks_in('ranks', 'recordings')}"
_SEEN = f"""
    SELECT src FROM flow_steps
    UNION SELECT rank FROM launches WHERE state IS NULL OR state NOT IN ('unresponsive', 'dead')
    UNION SELECT rank FROM recordings WHERE problem IS NULL
    UNION {_ranks_in("ops", "stage_tasks", "op_traffic", "epochs")}"""
_WITH_OPERATIONS = "(SELECT rank FROM ops UNION SELECT rank FROM launches)"
# A note of recordings that name processes and not ranks, and of no communicator of the whole job.
NUMBERED_BY_HOST = "the job's own rank numbers: ranks here are counted by host name and GPU"
COLLECTOR = "collector"  # the `source` of a node's word on its collector as a whole
GATHERED = "gather"  # the `source` of a console's own account of a node: asked, and with what
_NODES_OBSERVED = " UNION ".join(
    (
        *(
            f"SELECT node FROM {table}"
            for table in (
                *("qps", "nics", "gpus", "hosts", "epochs", "wr_windows"),
                *("log_events", "thread_stacks"),
            )
        ),
        # A scheduler lists the cluster's nodes, whose job or none.
        "SELECT node FROM host_events WHERE source IS DISTINCT FROM 'slurm'",
        f"SELECT node FROM collectors WHERE source = '{GATHERED}' AND error IS NULL",
    )
)


def measure(con: duckdb.DuckDBPyConnection, least: int = 0) -> tuple[Coverage, tuple[str, ...]]:
    """The coverage of the one job in this incident, and notes on what does not fit together.

    Expected ranks: the stated world size, and every rank that anything names, if only
    as dead; where only texts name some of them and none states the size, those up to the
    highest one named, and `least`. Seen: those with an operation or task, a count of their own
    or a sound recording; where nobody has any, those that wrote text. What a rank wrote once does
    not show what it does where the others' calls are recorded.
    """
    stated, notes = _world_size(con)
    named = _numbers(con, _NAMED)
    if stated and any(rank >= stated for rank in named):
        beyond = fold_ranks(rank for rank in named if rank >= stated)
        notes.append(f"the stated world size is {stated}, but there is evidence of rank {beyond}")
    inferred = con.execute(
        "SELECT coalesce(kind, 'recording'), note, count(*) < alike, "
        "list(DISTINCT rank) FILTER (rank IS NOT NULL) "
        "FROM (SELECT *, count(*) OVER (PARTITION BY kind) AS alike FROM recordings) "
        "WHERE note IS NOT NULL GROUP BY kind, note, alike "
        f"ORDER BY count(*) DESC, note LIMIT {_MOST_NOTES}"
    ).fetchall()
    for kind, note, is_of_some, ranks in inferred:
        of = f" of rank{'s'[: len(ranks) - 1]} {fold_ranks(ranks)}" if is_of_some and ranks else ""
        notes.append(f"{kind}{of}: {note}")
    recorded, in_texts = _numbers(con, _RECORDED), _numbers(con, _IN_TEXTS)
    seen = _numbers(con, _SEEN) | (set() if recorded else in_texts)
    at_least = not stated and bool(in_texts - recorded)
    bound = max(least, max(named) + 1) if at_least else stated
    expected = named | seen | set(range(min(bound, _MOST_RANKS)))
    homes = _homes(con)
    nodes, answered = _nodes(con, homes, seen)
    gaps = (
        *([Gap(NUMBERED_BY_HOST)] if NUMBERED_BY_HOST in "; ".join(notes) else []),
        *_silent_ranks(con, homes, expected, seen),
        *_bad_recordings(con, homes),
        *_bad_collectors(con),
        *_unequal_collectors(con),
    )
    coverage = Coverage(
        nodes=len(nodes),
        answered=len(answered),
        ranks=len(expected),
        ranks_seen=len(seen),
        gaps=gaps,
        at_least=at_least,
        placed=not homes or expected <= homes.keys(),
    )
    return coverage, tuple(notes)


def _world_size(con: duckdb.DuckDBPyConnection) -> tuple[int, list[str]]:
    rows = con.execute(
        "SELECT DISTINCT world_size FROM jobs WHERE world_size > 0 ORDER BY ALL"
    ).fetchall()
    sizes = [row[0] for row in rows if row[0] <= _MOST_RANKS]
    notes = [f"a world size of {row[0]} is not believed" for row in rows if row[0] > _MOST_RANKS]
    if len(sizes) > 1:
        notes.append(f"the recordings state different world sizes: {', '.join(map(str, sizes))}")
    return (sizes[-1] if sizes else 0), notes


def _homes(con: duckdb.DuckDBPyConnection) -> _Homes:
    rows = con.execute(
        "SELECT rank, list(DISTINCT node) FROM ranks "
        "WHERE node IS NOT NULL AND rank IS NOT NULL GROUP BY rank"
    ).fetchall()
    return dict(rows)


def _nodes(
    con: duckdb.DuckDBPyConnection, homes: _Homes, seen: set[int]
) -> tuple[set[str], set[str]]:
    """Nodes the job runs on, and those that left evidence of their own or through a rank."""
    observed = {row[0] for row in con.execute(_NODES_OBSERVED).fetchall() if row[0] is not None}
    rows = con.execute("SELECT DISTINCT node FROM collectors WHERE node IS NOT NULL").fetchall()
    nodes = observed | {row[0] for row in rows} | _of(homes, homes)
    return nodes, observed | _of(homes, seen)


def _of(homes: _Homes, ranks: Iterable[int]) -> set[str]:
    return {node for rank in ranks for node in homes.get(rank, ())}


def _silent_ranks(
    con: duckdb.DuckDBPyConnection, homes: _Homes, expected: set[int], seen: set[int]
) -> Iterable[Gap]:
    states = con.execute(
        "SELECT rank, max(state) FROM launches WHERE state IN ('unresponsive', 'dead') "
        "AND rank IS NOT NULL GROUP BY rank"
    ).fetchall()
    for state, reason in (("dead", "dead"), ("unresponsive", "did not answer")):
        if ranks := {rank for rank, said in states if said == state and rank not in seen}:
            yield _gap(homes, f"{reason}, says NCCL RAS", ranks, silent=True)
    broken = _numbers(con, "SELECT rank FROM recordings WHERE problem IS NOT NULL")
    absent = expected - seen - broken - {rank for rank, _ in states}
    if placed := {rank for rank in absent if rank in homes or not homes}:
        yield _gap(homes, "left no recording", placed, silent=True)
    if elsewhere := absent - placed:
        yield _gap(homes, "left no recording; on which node is not known", elsewhere, silent=True)
    empty = _numbers(
        con,
        "SELECT rank FROM recordings WHERE problem IS NULL AND coalesce(rows, 0) = 0 "
        f"AND rank NOT IN {_WITH_OPERATIONS}",
    )
    if empty:
        yield _gap(homes, "recorded no operation", empty, silent=True)


def _bad_recordings(con: duckdb.DuckDBPyConnection, homes: _Homes) -> Iterable[Gap]:
    rows = con.execute(
        "SELECT problem, list(rank) FILTER (rank IS NOT NULL), list(path ORDER BY path) "
        "FROM recordings WHERE problem IS NOT NULL GROUP BY problem ORDER BY count(*) DESC, problem"
    ).fetchall()
    for problem, ranks, paths in rows:
        names = tuple(PurePath(path or "a file").name for path in paths)
        files = f"{len(names)} files" if len(names) > 1 else names[0]
        yield replace(_gap(homes, f"{files}: {problem}", ranks or ()), files=names)
    holes = con.execute("SELECT rank, holes FROM recordings WHERE holes > 0").fetchall()
    if holes:
        lost = sum(count for _, count in holes)
        ranks = [rank for rank, _ in holes if rank is not None]
        yield _gap(homes, f"the recorder itself lost {lost:,} operations", ranks)


def _bad_collectors(con: duckdb.DuckDBPyConnection) -> Iterable[Gap]:
    for source, error, nodes in con.execute(
        "SELECT source, error, list(DISTINCT node) FILTER (node IS NOT NULL) FROM collectors "
        "WHERE error IS NOT NULL GROUP BY ALL ORDER BY ALL"
    ).fetchall():
        whole = source in (GATHERED, COLLECTOR)
        reason = error if whole else f"collector {source}: {error}"
        yield Gap(reason, nodes=_sorted(nodes))
    for source, dropped, nodes in con.execute(
        # A collector's row counts from its beginning on: the newest, largest one tells all.
        "SELECT source, sum(dropped), list(DISTINCT node) FILTER (node IS NOT NULL) FROM "
        "(SELECT node, source, max(dropped) AS dropped FROM collectors GROUP BY node, source) "
        "WHERE dropped > 0 GROUP BY source ORDER BY source"
    ).fetchall():
        yield Gap(f"collector {source} dropped {int(dropped):,} rows", nodes=_sorted(nodes))


def _unequal_collectors(con: duckdb.DuckDBPyConnection) -> Iterable[Gap]:
    """Nodes that have nothing of what others of the job have: a GPU, a NIC, a driver. What no node
    has is no gap: rules that need it are skipped."""
    for source, note, nodes in con.execute(
        """
        WITH newest AS (
            FROM collectors WHERE node IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY node, source ORDER BY at_ns DESC) = 1)
        SELECT source, note, list(DISTINCT node) FROM newest
        WHERE note IS NOT NULL AND rows = 0 AND source IN (SELECT source FROM newest WHERE rows > 0)
        GROUP BY ALL ORDER BY ALL
        """
    ).fetchall():
        yield Gap(f"collector {source}: {note}", nodes=_sorted(nodes))


def _gap(homes: _Homes, reason: str, ranks: Iterable[int], *, silent: bool = False) -> Gap:
    """A gap with the nodes its ranks live on, where that is known."""
    numbers = tuple(sorted(set(ranks)))
    return Gap(reason, nodes=tuple(sorted(_of(homes, numbers))), ranks=numbers, silent=silent)


def _sorted(names: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(sorted(names or ()))


def _numbers(con: duckdb.DuckDBPyConnection, sql: str) -> set[int]:
    rows: list[tuple[Any, ...]] = con.execute(sql).fetchall()
    return {row[0] for row in rows if row[0] is not None}
