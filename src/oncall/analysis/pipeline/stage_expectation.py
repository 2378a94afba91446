"""What a forward or backward of a stage should take.

There are two expectations side by side: the paper's, a value that follows its own past within 5 %,
and a robust one, the median over the iterations that were not slow. A stage that was slow from the
beginning has no past to compare with: then the same stage of the other pipelines is the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.pipeline.critical_path import Integers, Times
from oncall.evidence import Param, relation

ITS_PAST, PEERS = "its own past", "other pipelines"

_KIND = [
    ("job", "VARCHAR", "", "the job"),
    ("replica", "INTEGER", "", "the pipeline"),
    ("stage", "INTEGER", "", "pipeline stage"),
    ("chunk", "INTEGER", "", "model chunk on the stage"),
    ("task", "VARCHAR", "", "forward or backward"),
]


def _of_others(name: str) -> str:
    """SQL: the value in the other pipelines; NULL where there are none."""
    return f"""CASE WHEN count(*) OVER same = 2 THEN sum({name}) OVER same - {name}
                WHEN count(*) OVER same > 2 THEN median({name}) OVER same END"""


@relation(
    "stage_expectation",
    reads=["stage_vertices", "training_iterations"],
    empty_without=["stage_vertices"],
    columns=[
        *_KIND,
        ("baseline_ns", "DOUBLE", "ns", "what the task is expected to take"),
        ("spread_ns", "DOUBLE", "ns", "median deviation from its own median"),
        ("own_ns", "DOUBLE", "ns", "its median in iterations that were not slow"),
        ("peers_ns", "DOUBLE", "ns", "the same in the other pipelines; NULL: there are none"),
        ("basis", "VARCHAR", "", "its own past, or other pipelines"),
        ("baseline_own_ns", "DOUBLE", "ns", "the same of its member with the most time of its own"),
        ("tasks", "INTEGER", "tasks", "number of tasks that it is computed from"),
    ],
    source="VenusTrace 3.3; median and MAD, comparison of replicas: beyond the paper",
    params={
        "peers_below": Param(
            "90 %", "of its own past: pipelines of one model differ by a few percent"
        ),
    },
)
def stage_expectation() -> str:
    """The robust expectation of each pipeline's stages, chunks and directions."""
    return f"""
        WITH calm AS (
            SELECT v.job, v.replica, v.stage, v.chunk, v.task, v.duration_ns, v.own_ns AS busy_ns
            FROM stage_vertices v JOIN training_iterations i USING (job, iteration)
            WHERE v.duration_ns IS NOT NULL AND v.whole AND NOT i.slow AND NOT i.warm_up),
        own AS (
            SELECT job, replica, stage, chunk, task, median(duration_ns) AS own_ns,
                median(busy_ns) AS busy_ns, count(*) AS tasks
            FROM calm GROUP BY ALL),
        spread AS (
            SELECT job, replica, stage, chunk, task,
                median(abs(duration_ns - own_ns)) AS spread_ns
            FROM calm JOIN own USING (job, replica, stage, chunk, task) GROUP BY ALL),
        beside AS (
            SELECT *, {_of_others("own_ns")} AS peers_ns, {_of_others("busy_ns")} AS peers_busy_ns
            FROM own JOIN spread USING (job, replica, stage, chunk, task)
            WINDOW same AS (PARTITION BY job, stage, chunk, task))
        SELECT *, CASE WHEN peers_ns < $peers_below * own_ns THEN '{PEERS}' ELSE '{ITS_PAST}' END
                AS basis,
            CASE WHEN peers_ns < $peers_below * own_ns THEN peers_ns ELSE own_ns END AS baseline_ns,
            CASE WHEN peers_busy_ns < $peers_below * busy_ns THEN peers_busy_ns ELSE busy_ns END
                AS baseline_own_ns
        FROM beside
    """


@relation(
    "paper_expectation",
    reads=["stage_vertices"],
    empty_without=["stage_vertices"],
    columns=[
        *_KIND,
        ("iteration", "BIGINT", "", "training iteration"),
        ("mean_ns", "DOUBLE", "ns", "what its tasks took in the iteration"),
        ("paper_ns", "DOUBLE", "ns", "what was expected; NULL before the third iteration"),
    ],
    source="VenusTrace 3.3, Algorithm 2 (lines 2-10)",
    params={"alpha": Param("5 %", "within this the expectation follows (VenusTrace 3.3)")},
)
def paper_expectation(con: duckdb.DuckDBPyConnection, *, alpha: float) -> Mapping[str, Any]:
    """The paper's expectation of each kind of task, iteration by iteration."""
    found = con.execute(
        """WITH means AS (
            SELECT job, replica, stage, chunk, task, iteration, avg(duration_ns) AS mean_ns
            FROM stage_vertices WHERE duration_ns IS NOT NULL AND whole
            GROUP BY job, replica, stage, chunk, task, iteration)
        SELECT *, dense_rank() OVER (ORDER BY job, replica, stage, chunk, task) - 1 AS kind,
            dense_rank() OVER (PARTITION BY job ORDER BY iteration) - 1 AS place
        FROM means"""
    ).fetchnumpy()
    kind, place = (np.asarray(found.pop(name), np.int64) for name in ("kind", "place"))
    expected = followed(kind, place, np.asarray(found["mean_ns"], np.float64), alpha)
    return {**found, "paper_ns": np.ma.masked_invalid(expected)}


def followed(kind: Integers, place: Integers, mean: Times, alpha: float) -> Times:
    """What is expected of each (kind, place in the recording): the newest mean before it that was
    within `alpha` of the expectation then, or below: what was reached can be expected, though the
    first iterations be slow. The second iteration is the first expectation."""
    table = np.full((int(place.max(initial=-1)) + 1, int(kind.max(initial=-1)) + 1), np.nan)
    table[place, kind] = mean
    expectations = np.full_like(table, np.nan)
    expected = np.full(table.shape[1], np.nan)
    for number, row in enumerate(table[1:], start=1):
        expectations[number] = expected
        follows = np.isnan(expected) | (row < (1 + alpha) * expected)
        expected = np.where(follows & ~np.isnan(row), row, expected)
    return expectations[place, kind]
