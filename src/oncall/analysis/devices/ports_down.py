"""Ports whose link is down at the end: which of the two ends of a stopped transfer it was."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "ports_down",
    reads=["op_traffic|epochs"],
    optional=["nics"],
    empty_without=["nics"],
    columns=[
        ("node", "VARCHAR", "", "host"),
        ("nic", "VARCHAR", "", "RDMA device"),
        ("at_ns", "BIGINT", "ns", "when its link was last seen, and was down"),
    ],
    source="beyond Pulse 7.2.3",
)
def ports_down() -> str:
    """NICs whose newest reading says that their link is down."""
    return """
        SELECT node, nic, max(at_ns) AS at_ns FROM nics WHERE link_up IS NOT NULL
        GROUP BY node, nic HAVING NOT arg_max(link_up, (at_ns, link_up)) FILTER (at_ns IS NOT NULL)
    """
