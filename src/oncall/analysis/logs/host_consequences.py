"""What a fault that a host reports brings about: failures of the same host after it, and on any
host of the job what waits for it or lost its connection to it."""

from __future__ import annotations

from oncall.analysis.common.same_host import may_be_same_host
from oncall.evidence import Param, relation

# Which causes in logs a fault reaches, and what finding shows them. Here: on its own host only.
_CAUSES = (
    ("xid", "logs", "GPU_XID", "here"),
    ("ecc", "logs", "GPU_ECC", "here"),
    ("gpu_error", "logs", "GPU_ERROR", "here"),
    ("oom_host", "logs", "OOM_HOST", "here"),
    ("error", "logs", "FIRST_ERROR", "here"),
    ("data_loader", "logs", "DATA_LOADER", "here"),
    ("node_failed", "logs", "NODE_FAILED", "here"),
    ("terminated", "logs", "TERMINATED", "anywhere"),
    ("not_joined", "logs", "NOT_JOINED", "anywhere"),
    ("all_waiting", "logs", "ALL_WAITING", "anywhere"),
    ("heartbeat", "logs", "HEARTBEAT_STUCK", "anywhere"),
    ("long_phase", "logs", "CHECKPOINT_OR_EVALUATION", "anywhere"),
    ("link_down", "setup", "LINK_DOWN", "here"),
    ("nvls", "setup", "NVLS", "here"),
    ("fabric_manager", "setup", "FABRIC_MANAGER", "here"),
    ("ib_error", "setup", "IB_COMPLETION", "anywhere"),
    ("init_hang", "setup", "INIT_HANG", "anywhere"),
)
# What else shows that the job waits; NULL: every finding of the rulebook.
_WAITS = (
    ("logs", "'NO_PROGRESS'"),
    ("logs", "'SLOW_ITERATIONS'"),
    *((book, "NULL") for book in ("hang", "process", "stages", "waits", "slow")),
)


@relation(
    "host_consequences",
    reads=["reported_faults"],
    optional=["log_causes", "ranks"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("suspect", "VARCHAR", "", "the faulty device, as in reported_faults"),
        ("rank", "INTEGER", "", "the rank that failed; NULL: any"),
        ("rulebook", "VARCHAR", "", "the rulebook of the finding"),
        ("verdict", "VARCHAR", "", "the finding; NULL: any of the rulebook"),
    ],
    source="PyTorch and NCCL: what ranks print when another rank's host fails",
    params={
        "early": Param("2 min", "that stamps of `dmesg -T` and clocks of hosts may be off"),
    },
)
def host_consequences() -> str:
    """Findings that follow from each fault. What was logged before it does not, nor does memory of
    a GPU that ran out."""
    causes = ", ".join(f"('{a}', '{b}', '{c}', '{d}')" for a, b, c, d in _CAUSES)
    waits = ", ".join(f"('{book}', {verdict})" for book, verdict in _WAITS)
    return f"""
        WITH known(cause, rulebook, verdict, reach) AS (VALUES {causes}),
        waits(rulebook, verdict) AS (VALUES {waits}),
        faults AS (
            SELECT * FROM reported_faults WHERE NOT is_old AND (code = 'oom' OR (
                weight = 'fault' AND part <> 'pcie' AND NOT is_up))),
        -- An error that only shows that another process is gone is no failure of its host's own.
        logged AS (
            SELECT DISTINCT c.job, c.cause, c.rank, coalesce(c.node, r.node) AS node, c.at_ns,
                k.rulebook, k.verdict,
                k.reach = 'here' AND c.reason NOT IN ('echo', 'warning', 'exit') AS is_own
            FROM log_causes c JOIN known k USING (cause) LEFT JOIN ranks r USING (job, rank)
            WHERE NOT c.outlived)
        SELECT DISTINCT f.job, suspect, NULL::INTEGER AS rank, w.* FROM faults f, waits w
        UNION
        SELECT f.job, f.suspect, l.rank, l.rulebook, l.verdict FROM faults f JOIN logged l
            ON NOT coalesce(l.at_ns < f.at_ns - $early, false)
            AND (l.cause <> 'oom_host' OR f.code = 'oom')
            AND (f.part <> 'storage' OR NOT l.is_own OR l.cause = 'data_loader')
            AND (NOT l.is_own OR {may_be_same_host("l.node", "f.node")})
            -- Of one process the rank says more than its host.
            AND NOT coalesce(l.is_own AND f.part = 'process' AND l.rank <> f.rank, false)
        UNION
        SELECT job, suspect, NULL, 'setup', 'SOCKET_FALLBACK' FROM faults WHERE part = 'nic'
    """
