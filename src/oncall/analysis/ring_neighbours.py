"""Where the members of a communicator are: on one node or many, and who is next to whom."""

from __future__ import annotations

from oncall.evidence import relation


@relation(
    "group_places",
    reads=["members"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("role", "VARCHAR", "", "what it is for"),
        ("name", "VARCHAR", "", "its name"),
        ("size", "INTEGER", "ranks", "its size"),
        ("nodes", "INTEGER", "", "nodes that its members run on; NULL if some are unknown"),
        ("across", "BOOLEAN", "", "its data crosses the network; NULL if unknown"),
    ],
    source="TFD 2.1-2.2",
)
def group_places() -> str:
    """Each communicator, and whether it stays within a node."""
    return """
        SELECT job, comm, any_value(role) AS role, any_value(name) AS name,
            coalesce(any_value(size), count(*)) AS size,
            CASE WHEN count(node) = count(*) THEN count(DISTINCT node) END AS nodes,
            -- Two known nodes are enough; one is only if all members are known to be there.
            CASE WHEN count(DISTINCT node) > 1 THEN true
                 WHEN count(node) = count(*) AND count(*) >= coalesce(any_value(size), 1)
                 THEN false END AS across
        FROM members GROUP BY job, comm
    """


@relation(
    "ring_neighbours",
    reads=["members"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("comm", "UBIGINT", "", "communicator"),
        ("rank", "INTEGER", "", "global rank"),
        ("previous", "INTEGER", "", "the rank that sends to it"),
        ("following", "INTEGER", "", "the rank that it sends to"),
        ("enters", "BOOLEAN", "", "what it receives comes over the network; NULL if unknown"),
        ("leaves", "BOOLEAN", "", "what it sends goes over the network; NULL if unknown"),
    ],
    source="TFD 3.3: other GPUs in the same ring",
)
def ring_neighbours() -> str:
    """The ring of each communicator in the order of its ranks, as NCCL builds it when nothing
    else is known: members of one node are neighbours."""
    return """
        WITH placed AS (
            SELECT *, coalesce(comm_rank, rank) AS place, min(coalesce(comm_rank, rank)) OVER (
                PARTITION BY job, comm, coalesce(node, rank::VARCHAR)) AS node_place
            FROM members),
        around AS (
            SELECT *, coalesce(lag(rank) OVER w, last_value(rank) OVER g) AS previous,
                coalesce(lag(node) OVER w, last_value(node) OVER g) AS previous_node,
                coalesce(lead(rank) OVER w, first_value(rank) OVER g) AS following,
                coalesce(lead(node) OVER w, first_value(node) OVER g) AS following_node
            FROM placed
            WINDOW w AS (PARTITION BY job, comm ORDER BY node_place, place),
                g AS (PARTITION BY job, comm ORDER BY node_place, place
                      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING))
        SELECT job, comm, rank, previous, following, previous_node <> node AS enters,
            following_node <> node AS leaves
        FROM around
    """
