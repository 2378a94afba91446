"""A job's configuration: as stated, else from the recording, and what contradicts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from oncall.evidence import relation

_STATED = (
    *("tp", "pp", "dp", "ep", "cp", "chunks", "micro_batches", "schedule"),
    *("distributed_optimizer", "sequence_parallel", "layers"),
)
_COLUMNS = [
    ("job", "VARCHAR", "", "the job"),
    ("tp", "INTEGER", "ranks", "tensor-parallel size"),
    ("pp", "INTEGER", "stages", "pipeline-parallel size"),
    ("dp", "INTEGER", "replicas", "data-parallel size"),
    ("ep", "INTEGER", "ranks", "expert-parallel size"),
    ("cp", "INTEGER", "ranks", "context-parallel size"),
    ("chunks", "INTEGER", "", "model chunks on each rank"),
    ("micro_batches", "INTEGER", "", "micro-batches in an iteration"),
    ("schedule", "VARCHAR", "", "1F1B, interleaved or GPipe"),
    ("distributed_optimizer", "BOOLEAN", "", "optimizer state is split over the replicas"),
    ("sequence_parallel", "BOOLEAN", "", "activations are split along the sequence within TP"),
    ("layers", "INTEGER", "", "layers of the whole model"),
    ("is_stated", "BOOLEAN", "", "a part of it was stated"),
    (
        "inferred",
        "VARCHAR",
        "",
        "what was not stated, and from what it was inferred; NULL: nothing",
    ),
    ("contradicted", "VARCHAR", "", "stated values that the recording contradicts; NULL: none"),
]

# What the recording shows, each with where from. Sizes of groups whose every member is known.
_SEEN = """
    WITH tasks AS (SELECT * FROM stage_tasks UNION ALL
                   SELECT * FROM labelled_tasks
                   ANTI JOIN (SELECT DISTINCT job, rank FROM stage_tasks) USING (job, rank)),
    groups AS (
        SELECT l.job, count(DISTINCT l.rank) AS ranks, l.tp_comm AS comm
        FROM stage_layout l WHERE l.tp_comm IS NOT NULL GROUP BY l.job, l.tp_comm),
    whole AS (
        SELECT job, rank, iteration, max(micro_batch) + 1 AS micro_batches
        FROM tasks WHERE task = 'forward' AND whole GROUP BY ALL),
    -- How many forwards come before the first backward; and 1F1B would have as many as stages
    -- follow, and one.
    begun AS (
        SELECT job, rank, iteration, any_value(stage) AS stage, max(chunk) + 1 AS chunks,
            count(*) FILTER (task = 'forward') AS forwards,
            list(coalesce(started_ns, first_call_ns)) FILTER (task = 'forward') AS starts,
            min(coalesce(started_ns, first_call_ns)) FILTER (task = 'backward') AS turns_ns
        FROM tasks WHERE task IN ('forward', 'backward') AND whole GROUP BY ALL),
    turned AS (
        SELECT b.*, len(list_filter(starts, lambda s: s < turns_ns)) AS before, p.pp FROM begun b
        JOIN (SELECT job, max(stage) + 1 AS pp FROM tasks GROUP BY job) p USING (job)),
    schedules AS (
        SELECT job, mode(looks ORDER BY looks) AS schedule
        FROM (SELECT *, CASE WHEN chunks > 1 THEN 'interleaved' WHEN before = forwards THEN 'GPipe'
                ELSE '1F1B' END AS looks FROM turned)
        WHERE pp > 1 AND (chunks > 1 OR forwards > pp - stage) GROUP BY job),
    sizes AS (
        SELECT job, comm, greatest(max(size), count(*)) AS size
        FROM members WHERE comm IS NOT NULL GROUP BY ALL)
    SELECT j.job,
        (SELECT mode(s.size ORDER BY s.size) FROM groups g JOIN sizes s USING (job, comm)
            WHERE g.job = j.job) AS tp,
        (SELECT max(stage) + 1 FROM tasks t WHERE t.job = j.job) AS pp,
        (SELECT mode(p.size ORDER BY p.size) FROM parallelism p
            WHERE p.job = j.job AND p.parallelism = 'dp') AS dp,
        (SELECT mode(p.size ORDER BY p.size) FROM parallelism p
            WHERE p.job = j.job AND p.parallelism = 'ep') AS ep,
        (SELECT mode(p.size ORDER BY p.size) FROM parallelism p
            WHERE p.job = j.job AND p.parallelism = 'cp') AS cp,
        (SELECT max(chunk) + 1 FROM tasks t WHERE t.job = j.job) AS chunks,
        (SELECT schedule FROM schedules s WHERE s.job = j.job) AS schedule,
        (SELECT mode(micro_batches ORDER BY micro_batches) FROM whole w
            WHERE w.job = j.job) AS micro_batches,
        (SELECT count(DISTINCT micro_batches) > 1 FROM whole w WHERE w.job = j.job) AS varies
    FROM (SELECT DISTINCT job FROM jobs UNION SELECT DISTINCT job FROM members) j
"""
_FROM = {
    "tp": "members of the groups that tasks call in",
    "pp": "stages that ranks are on",
    "dp": "members of the groups that reduce gradients",
    "ep": "members of the groups that exchange tokens",
    "cp": "members of the groups that pass keys around",
    "chunks": "chunks in the schedule",
    "micro_batches": "forwards in an iteration",
    "schedule": "forwards before the first backward",
}
_BY_SCHEDULE = {
    "1F1B": "before the first backward come as many forwards as stages follow, and one",
    "GPipe": "all forwards come before the first backward",
    "interleaved": "ranks take turns with several chunks",
}


@relation(
    "job_configuration",
    reads=["jobs|members"],
    optional=["parallelism", "labelled_tasks", "stage_tasks", "stage_layout", "members"],
    columns=_COLUMNS,
    source="VenusTrace 3.3; Pulse 5.2",
)
def job_configuration(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """One row for each job."""
    cursor = con.execute(_SEEN)
    names = [column[0] for column in cursor.description or ()]
    seen = {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
    picked = ", ".join(f"any_value({name})" for name in _STATED)
    stated = {
        job: dict(zip(_STATED, values, strict=True))
        for job, *values in con.execute(f"SELECT job, {picked} FROM jobs GROUP BY job").fetchall()
    }
    rows = [
        _configuration(job, stated.get(job, {}), shown)
        for job, shown in sorted(seen.items(), key=lambda one: (one[0] is None, one[0] or ""))
    ]
    return {name: [row.get(name) for row in rows] for name, *_ in _COLUMNS}


def _configuration(job: str, stated: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a job."""
    settings = {name: stated.get(name) for name in _STATED}
    inferred, contradicted = [], []
    for name, because in _FROM.items():
        reported_value, seen_value = settings[name], seen[name]
        if seen_value is None:
            continue
        if name == "schedule":
            because = _BY_SCHEDULE[seen_value]
        if reported_value is None:
            settings[name] = seen_value
            inferred.append(f"{name} {seen_value}: {because}")
        elif reported_value != seen_value and not _is_explained(name, settings, seen):
            contradicted.append(f"{name} {reported_value}, but {because}: {seen_value}")
    return {
        "job": job,
        **settings,
        "is_stated": any(value is not None for value in stated.values()),
        "inferred": "; ".join(inferred) or None,
        "contradicted": "; ".join(contradicted) or None,
    }


def _is_explained(name: str, stated: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether a setting may differ from what the calls show: batches grow; gradients are also
    reduced over context-parallel ranks, and those of experts over a part of the replicas."""
    if name == "micro_batches":
        return bool(seen["varies"])
    if name == "schedule":  # interleaved is 1F1B, too, with chunks
        return (seen["schedule"], stated["schedule"]) == ("interleaved", "1F1B")
    if name == "dp":
        dp, cp, ep = (stated.get(one) or 1 for one in ("dp", "cp", "ep"))
        return seen["dp"] in (dp * cp, dp * cp // ep, max(1, dp // ep))
    # Without its pipeline's other end less is seen than there is.
    return name == "pp" and bool(seen["pp"] < stated["pp"])
