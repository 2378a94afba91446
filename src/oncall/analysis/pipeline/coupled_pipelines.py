"""Which pipelines meet inside their tasks: those that share experts, or the context of a sample.

Their ranks exchange tokens or keys in every layer, so none of them gets through a task without the
others. Replicas that share gradients alone meet at the end of an iteration, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np

from oncall.analysis.pipeline.critical_path import Integers
from oncall.evidence import relation

# Communicators that tasks call, with the replicas in them; where none is recorded, the layout of
# Megatron-LM, in which neighbours share experts and contexts. Of a smaller group within all
# replicas it is not known whether it shares contexts, or only its experts' gradients.
_MEETINGS = """
    WITH placed AS (
        SELECT m.job, m.comm, l.stage, l.replica, coalesce(p.recorded, p.parallelism) AS role,
            m.comm = l.dp_comm AS of_all
        FROM members m JOIN stage_layout l USING (job, rank) JOIN parallelism p USING (job, comm)
        WHERE l.replica IS NOT NULL),
    sizes AS (SELECT job, max(greatest(ep, cp)) AS size FROM jobs GROUP BY job),
    of_stage AS (
        SELECT job, comm, any_value(role) AS role, count(DISTINCT replica) AS replicas,
            bool_or(of_all) AS of_all
        FROM placed WHERE role IN ('tp', 'ep', 'cp', 'dp')
        GROUP BY ALL HAVING count(DISTINCT stage) = 1),
    unclear AS (
        SELECT job, replica FROM placed SEMI JOIN (
            FROM of_stage WHERE role = 'dp' AND replicas > 1 AND NOT coalesce(of_all, false))
            USING (job, comm))
    SELECT DISTINCT job, comm::HUGEINT AS meeting, replica
    FROM placed SEMI JOIN (FROM of_stage WHERE role <> 'dp') USING (job, comm)
    ANTI JOIN unclear USING (job, replica)
    UNION ALL
    SELECT DISTINCT job, -1 - replica // size, replica FROM stage_layout JOIN sizes USING (job)
    WHERE size > 1 AND replica IS NOT NULL AND job NOT IN (SELECT job FROM placed)
"""


@relation(
    "coupled_pipelines",
    reads=["stage_layout"],
    optional=["members", "parallelism", "jobs"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("replica", "INTEGER", "", "a pipeline whose tasks are known to meet others"),
        (
            "pipeline_group",
            "INTEGER",
            "",
            "the first pipeline of its group: those that meet it, maybe through others",
        ),
    ],
    source="VenusTrace 3.3 (dependencies within parallel groups)",
)
def coupled_pipelines(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """Each pipeline with the first of its group; its own number where it meets no other."""
    found = con.execute(
        f"""SELECT job, replica, dense_rank() OVER (ORDER BY job, replica) - 1 AS pipeline,
            dense_rank() OVER (ORDER BY job, meeting) - 1 AS meeting FROM ({_MEETINGS})"""
    ).fetchnumpy()
    pipeline, meeting = (np.asarray(found[k], np.int64) for k in ("pipeline", "meeting"))
    pipelines, first = np.unique(pipeline, return_index=True)
    job, replica = (np.ma.getdata(found[k])[first] for k in ("job", "replica"))
    pipeline_group = meeting_groups(pipeline, meeting) if len(pipelines) else pipelines
    return {"job": job, "replica": replica, "pipeline_group": replica[pipeline_group]}


def meeting_groups(pipeline: Integers, meeting: Integers) -> Integers:
    """The first pipeline (p,) that each meets, directly or through others; both arguments (n,)
    state which pipeline 0..p-1 comes to which meeting."""
    first = np.arange(int(pipeline.max()) + 1)
    while True:
        of_meeting = np.full(int(meeting.max()) + 1, len(first))
        np.minimum.at(of_meeting, meeting, first[pipeline])
        nearer = first.copy()
        np.minimum.at(nearer, pipeline, of_meeting[meeting])
        if (nearer == first).all():
            return first
        first = nearer
