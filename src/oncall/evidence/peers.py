"""Who is on the other side: a node knows its peers only as rank within the communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def name_peers(con: duckdb.DuckDBPyConnection) -> None:
    """Fill `peer`, the global rank, in ops and transfers from `comm_peer` and all members.

    To be called when the memberships of all nodes are there; a peer that left none stays NULL.
    """
    for table in ("ops", "transfers"):
        con.execute(
            f"""
            UPDATE {table} SET peer = c.rank
            FROM (SELECT job, comm, comm_rank, any_value(rank) AS rank FROM comms
                  WHERE comm_rank IS NOT NULL GROUP BY ALL) c
            WHERE {table}.peer IS NULL AND {table}.comm_peer = c.comm_rank
                AND {table}.job = c.job AND {table}.comm = c.comm
            """
        )
