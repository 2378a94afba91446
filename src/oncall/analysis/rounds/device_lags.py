"""How far devices are behind their hosts, where only hosts' times are recorded.

A host that enqueues work and goes on shows neither when its device does the work nor how long that
takes: a slow GPU or link is hidden behind the queue until the host waits for it.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "device_lags",
    reads=["operations"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("lag_ns", "DOUBLE", "ns", "median time from a collective's last call to its first end"),
        ("hidden", "BOOLEAN", "", "no durations are recorded, and calls do not show the devices"),
    ],
    source="beyond the papers",
    params={
        "timed": Param("10 %", "of the operations with a duration: then devices are seen"),
        "poll": Param(
            "100 ms", "within which a watchdog notices an end: a longer lag is the device's"
        ),
    },
)
def device_lags() -> str:
    """Each job's lag of devices behind hosts."""
    return """
        WITH rounds AS (
            SELECT job, comm, seq, op, min(ended_ns) - max(called_ns) AS lag_ns,
                count(duration_ns) AS timed, count(*) AS calls
            FROM operations
            WHERE kind = 'coll' AND NOT on_device AND called_ns IS NOT NULL GROUP BY ALL)
        SELECT job, median(lag_ns) AS lag_ns,
            sum(timed) < $timed * sum(calls) AND coalesce(median(lag_ns) > $poll, false) AS hidden
        FROM rounds GROUP BY job
    """
