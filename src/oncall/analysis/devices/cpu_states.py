"""Whether a host's CPU was short while its ranks sent: what Pulse cannot say of its groups (8.1).

"When using built-in collectives, a CPU bottleneck at a single node can introduce gaps across the
entire group": traffic names the group, the host's own readings name the host.
"""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "cpu_states",
    reads=["op_traffic|epochs"],
    optional=["hosts"],
    empty_without=["hosts"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("pressure", "DOUBLE", "ratio", "share of time some thread waited for a CPU"),
        ("clock", "DOUBLE", "ratio", "CPU clock as share of the maximum"),
        ("governor", "VARCHAR", "", "CPU frequency governor"),
        ("common_governor", "VARCHAR", "", "the governor of most hosts"),
    ],
    source="beyond Pulse 7.2.2",
)
def cpu_states() -> str:
    """CPU of each host in the second half of what was recorded."""
    return """
        WITH span AS (SELECT (min(at_ns) + max(at_ns)) // 2 AS middle_ns FROM hosts),
        each AS (
            SELECT node, avg(cpu_pressure) AS pressure, avg(cpu_mhz / cpu_max_mhz) AS clock,
                mode(governor ORDER BY governor) AS governor
            FROM hosts, span WHERE at_ns >= middle_ns GROUP BY node)
        SELECT *, mode(governor ORDER BY governor) OVER () AS common_governor FROM each
    """
