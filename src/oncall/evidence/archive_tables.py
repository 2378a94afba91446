"""What an archive of former incidents recalls."""

from __future__ import annotations

from oncall.evidence.table import NODE, Table, table

ARCHIVE_TABLES: tuple[Table, ...] = (
    table(
        "archived_findings",
        "former incidents",
        "one fault at one component in former incidents",
        "oncall archive",
        ("cluster", "VARCHAR", "", "the cluster it was in"),
        ("past_job", "VARCHAR", "", "the job it was in"),
        ("rulebook", "VARCHAR", "", "rulebook of its root cause"),
        ("verdict", "VARCHAR", "", "its verdict"),
        ("title", "VARCHAR", "", "the verdict in words"),
        ("kind", "VARCHAR", "", "what was blamed: node, gpu, nic, link, rank ..."),
        NODE,
        ("component", "VARCHAR", "", "such as gpu017/mlx5_3; NULL: no hardware was blamed"),
        ("found_ns", "BIGINT", "ns", "since when, Unix time"),
        ("last_ns", "BIGINT", "ns", "since when, as the last look at the same fault says"),
        ("fixed_by", "VARCHAR", "", "what fixed it, as somebody noted"),
    ),
)
