"""Processes that are gone, which wait for no other, whatever they have in flight; and when each
rank last did anything: one that is gone was gone from then on.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "halted",
    reads=["launches"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "a rank whose process no longer runs"),
        ("state", "VARCHAR", "", "dead or stopped"),
    ],
    source="CCL-D 2.2: a rank that is gone is one that does not enter",
    params={
        "hang_after": Param(
            "5 min",
            "longer than the longest legal operation, a checkpoint; 97 % of longer waits never "
            "end (CCL-D 6.1)",
        ),
    },
)
def halted() -> str:
    """Ranks that the newest look found dead or stopped, and running on no communicator.

    A process that died after a long wait was ended because of a hang, by a watchdog or a person:
    what it waited for is the cause still, and it is not among them.
    """
    return """
        WITH newest AS (
            SELECT * FROM launches WHERE rank IS NOT NULL
            QUALIFY coalesce(at_ns, 0) = max(coalesce(at_ns, 0)) OVER (PARTITION BY job, rank)),
        ended AS (
            SELECT job, rank, min(state) FILTER (state IN ('dead', 'stopped')) AS state
            FROM newest GROUP BY job, rank
            HAVING bool_or(state IN ('dead', 'stopped'))
                AND NOT coalesce(bool_or(state IN ('running', 'init')), false))
        SELECT * FROM ended e WHERE state = 'stopped' OR NOT EXISTS (
            FROM in_flight i WHERE i.job = e.job AND i.rank = e.rank
                AND coalesce(i.waited_ns >= $hang_after, true))
    """


@relation(
    "last_acts",
    reads=["launches"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "a rank that is known to run, or to have run"),
        ("act_ns", "BIGINT", "ns", "when it last began or ended an operation; NULL: not recorded"),
    ],
    source="CCL-D 2.2: a rank that is gone is one that does not enter",
)
def last_acts() -> str:
    """Of each rank with a recorded process, the newest call or completion."""
    return """
        WITH acts AS (
            SELECT job, rank, max(greatest(enqueued_ns, started_ns, ended_ns)) AS act_ns
            FROM ops GROUP BY job, rank)
        SELECT l.job, l.rank, any_value(a.act_ns) AS act_ns
        FROM launches l LEFT JOIN acts a USING (job, rank)
        WHERE l.rank IS NOT NULL GROUP BY l.job, l.rank
    """
