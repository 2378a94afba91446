"""What a fault that a host reports brings about: failures of the same host after it, and on any
host of the job what waits for it or lost its connection to it."""

from __future__ import annotations

from collections.abc import Sequence

from oncall.analysis.common.same_host import may_be_same_host
from oncall.evidence import Param, relation

# Which causes in logs a fault reaches, and what finding shows them. Here: on its own host only.
# What a device's failure makes a process there report: parts, NULL where any of them may.
_CAUSES = (
    ("xid", "logs", "GPU_XID", "here", "gpu fabric cpu"),
    ("ecc", "logs", "GPU_ECC", "here", "gpu"),
    ("gpu_error", "logs", "GPU_ERROR", "here", "gpu fabric cpu"),
    ("oom_host", "logs", "OOM_HOST", "here", "process"),
    ("error", "logs", "FIRST_ERROR", "here", None),
    ("data_loader", "logs", "DATA_LOADER", "here", "storage memory cpu process"),
    ("node_failed", "ended", "NODE_FAILED", "here", None),
    ("terminated", "ended", "TERMINATED", "anywhere", None),
    ("not_joined", "logs", "NOT_JOINED", "anywhere", None),
    ("all_waiting", "logs", "ALL_WAITING", "anywhere", None),
    ("server_hung", "serving", "SERVER_HUNG", "anywhere", None),
    ("heartbeat", "logs", "HEARTBEAT_STUCK", "anywhere", None),
    ("long_phase", "logs", "CHECKPOINT_OR_EVALUATION", "anywhere", None),
    ("link_down", "setup", "LINK_DOWN", "here", "nic"),
    ("nvls", "setup", "NVLS", "here", "gpu fabric"),
    ("fabric_manager", "setup", "FABRIC_MANAGER", "here", "gpu fabric"),
    ("ib_error", "setup", "IB_COMPLETION", "anywhere", None),
    ("init_hang", "setup", "INIT_HANG", "anywhere", None),
)
# The words of an error, its type first, that a program raises because such a part failed. Any
# other is the program's own: no link and no GPU makes an index leave its range.
_CRASH = r"^crash:|[Ss]egmentation fault|[Bb]us error|SIG(?:SEGV|BUS|ILL)"
_SAYS = (
    (
        "gpu",
        rf"{_CRASH}|CUDA|CUBLAS|CUDNN|CUSOLVER|NVML|\bGPU|HIP|HSA|Accelerator|^(?:busy|other):",
    ),
    ("fabric", r"CUDA|NVML|NVLS|[Ff]abric|\bGPU|^(?:busy|other):"),
    ("nic", r"[Nn]etwork|[Ss]ocket|[Cc]onnect|[Uu]nreachable|RDMA|UCX|OFI|[Ii]bv"),
    ("storage", r"^OSError|I/O error|Input/output|[Ss]tale file|[Bb]us error|[Tt]imed? ?out"),
    ("memory", rf"{_CRASH}|[Cc]orrupt|[Cc]hecksum"),
    ("cpu", rf"{_CRASH}|[Cc]orrupt|[Cc]hecksum|[Tt]imed? ?out"),
    ("process", rf"{_CRASH}|[Kk]illed|[Mm]emory|DataLoaderWorker"),
)
# What else shows that the job waits; NULL: every finding of the rulebook.
_WAITS = (
    ("logs", "NO_PROGRESS"),
    ("logs", "SLOW_ITERATIONS"),
    *((book, None) for book in ("hang", "process", "stages", "waits", "slow", "rounds")),
)


def _values(rows: Sequence[Sequence[str | None]]) -> str:
    """Rows of text as SQL."""

    def quoted(one: str | None) -> str:
        return "NULL" if one is None else f"'{one}'"

    return ", ".join(f"({', '.join(map(quoted, row))})" for row in rows)


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
    """Findings that follow from each fault. What was logged before it does not, nor what a fault of
    this part does not bring about."""
    causes, waits, says = _values(_CAUSES), _values(_WAITS), _values(_SAYS)
    return f"""
        WITH known(cause, rulebook, verdict, reach, parts) AS (VALUES {causes}),
        waits(rulebook, verdict) AS (VALUES {waits}),
        says(part, words) AS (VALUES {says}),
        faults AS (
            SELECT * FROM reported_faults WHERE NOT is_old AND (code = 'oom' OR (
                weight = 'fault' AND part <> 'pcie' AND NOT (is_up OR is_elsewhere)))),
        -- An error that only shows that another process is gone is no failure of its host's own.
        logged AS (
            SELECT DISTINCT c.job, c.cause, c.rank, coalesce(c.node, r.node) AS node,
                coalesce(c.at_ns, c.before_ns) AS before_ns, k.rulebook, k.verdict, k.parts,
                k.reach = 'here' AND c.reason NOT IN ('echo', 'warning', 'exit') AS is_own,
                concat_ws(': ', c.reason, c.text) AS said
            FROM log_causes c JOIN known k USING (cause) LEFT JOIN ranks r USING (job, rank)
            WHERE NOT c.outlived)
        SELECT DISTINCT f.job, suspect, NULL::INTEGER AS rank, w.* FROM faults f, waits w
        UNION
        SELECT f.job, f.suspect, l.rank, l.rulebook, l.verdict
        FROM faults f JOIN logged l
            ON NOT coalesce(l.before_ns < f.at_ns - $early, false)
            AND (l.cause <> 'oom_host' OR f.code = 'oom')
            AND (NOT l.is_own OR {may_be_same_host("l.node", "f.node")})
            AND (NOT l.is_own OR l.parts IS NULL OR contains(l.parts, f.part))
            -- Of one process the rank says more than its host.
            AND NOT coalesce(l.is_own AND f.part = 'process' AND l.rank <> f.rank, false)
        LEFT JOIN says s USING (part)
        WHERE NOT l.is_own OR l.cause <> 'error' OR coalesce(regexp_matches(l.said, s.words), false)
        UNION
        SELECT job, suspect, NULL, 'setup', 'SOCKET_FALLBACK' FROM faults WHERE part = 'nic'
    """
