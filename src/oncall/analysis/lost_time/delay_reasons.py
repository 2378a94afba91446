"""Why a rank is late, where a profile shows it: what takes longer on it than on its peers.

Like is compared with like: what ran in the same step, under the same name, with the same shape and
as often. Data loading, garbage collection and slow launches leave a device idle as well, so that
the narrower reason counts.
"""

from __future__ import annotations

from oncall.evidence import relation

# In names of kernels and operators that multiply matrices, which is most of what GPUs do.
_MATRIX = r"gemm|cutlass|xmma|wgmma|aten::(mm|addmm|bmm|baddbmm|matmul|linear)\b"


def _kinds() -> str:
    """How long each kind of work takes each rank, its peers, and the rank that it takes longest
    beside it."""
    return f"""
        alike AS (
            SELECT job, rank, iteration, kind, name, spent_ns,
                median(spent_ns) OVER peers AS peers_ns
            FROM profiled_work WHERE kind != 'wait'
            WINDOW peers AS (PARTITION BY job, iteration, kind, name, count
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)),
        summed AS (
            SELECT job, rank, kind, sum(spent_ns) AS spent_ns, sum(peers_ns) AS peers_ns,
                sum(spent_ns - peers_ns) AS excess_ns,
                sum(spent_ns - peers_ns) FILTER (regexp_matches(lower(name), '{_MATRIX}'))
                    >= $mostly * sum(spent_ns - peers_ns) AS of_matrices,
                max_by(name, spent_ns - peers_ns) AS example
            FROM alike WHERE peers_ns IS NOT NULL GROUP BY ALL),
        kinds AS (
            SELECT *, spent_ns / nullif(peers_ns, 0) AS times,
                max(excess_ns) OVER (PARTITION BY job, kind
                    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW
                ) AS next_ns,
                bool_or(kind = 'kernel') OVER rank AS device,
                max(times) FILTER (kind = 'launch') OVER rank AS launch_times,
                spent_ns / max(spent_ns) FILTER (kind = 'step') OVER rank AS part,
                peers_ns / max(peers_ns) FILTER (kind = 'step') OVER rank AS peers_part
            FROM summed WINDOW rank AS (PARTITION BY job, rank))
    """


def _sentence() -> str:
    """What takes a rank longer, and what that means."""
    return """
        CASE kind
            WHEN 'loader' THEN printf(
                'it waits for its data loader %.0f %% of the time, peers %.0f %%',
                100 * part, 100 * peers_part)
            WHEN 'garbage' THEN printf(
                'garbage collection takes %.0f %% of its time, of that of peers %.0f %%',
                100 * part, 100 * peers_part)
            WHEN 'launch' THEN printf(
                'it launches kernels in %.1f times the time of peers: its host is slow', times)
            WHEN 'kernel' THEN printf(
                'its %skernels, of the same shapes, take %.1f times as long as those of peers%s: '
                    || 'its GPU is slow',
                CASE WHEN of_matrices THEN 'matrix ' ELSE '' END, times,
                coalesce(printf(', their launches %.1f times', launch_times), ''))
            WHEN 'operator' THEN printf(
                'its %soperators, of the same shapes, take %.1f times as long as those of peers: '
                    || 'its CPU is slow, or others use it',
                CASE WHEN of_matrices THEN 'matrix ' ELSE '' END, times)
            ELSE printf(CASE WHEN device
                THEN 'its GPU is idle %.0f %% of the time, those of peers %.0f %%, and no kernel '
                    || 'takes longer: its host is late'
                ELSE 'it spends %.0f %% of the time outside of PyTorch''s operators, peers '
                    || '%.0f %%: in its Python code, reading data, collecting garbage or waiting '
                    || 'for a CPU'
                END, 100 * part, 100 * peers_part)
        END
    """


@relation(
    "delay_reasons",
    reads=["lost_time"],
    optional=["profiled_work"],
    columns=[
        ("job", "VARCHAR", "", "the job"),
        ("rank", "INTEGER", "", "a rank that the others wait for, or may wait for"),
        ("kind", "VARCHAR", "", "of work that takes it longer, as in profiled_work"),
        ("why", "VARCHAR", "", "what takes longer, and what that means, as a sentence says it"),
        ("example", "VARCHAR", "", "the kernel or operator that takes most of it"),
        ("part", "DOUBLE", "ratio", "of the rank's time"),
        ("peers_part", "DOUBLE", "ratio", "of its peers' time"),
        ("times", "DOUBLE", "ratio", "as long as on peers"),
    ],
    source="beyond the papers",
    params={"mostly": "lost_time.mostly", "stands_out": "lost_time.stands_out"},
)
def delay_reasons() -> str:
    """The narrowest kind of work that takes a rank longer than its peers by most of what it costs,
    and by far more than any other rank."""
    return f"""
        WITH {_kinds()},
        late AS (
            SELECT job, rank, max(gain_ns) AS gain_ns FROM lost_time
            WHERE cause IN ('own', 'perhaps') GROUP BY ALL),
        reasons AS (
            SELECT DISTINCT ON (job, rank) * FROM kinds JOIN late USING (job, rank)
            WHERE excess_ns >= $mostly * gain_ns AND excess_ns >= $stands_out * greatest(next_ns, 0)
            ORDER BY job, rank, list_position(
                ['loader', 'garbage', 'launch', 'kernel', 'operator', 'idle'], kind))
        SELECT job, rank, kind, {_sentence()} AS why, example, part, peers_part, times FROM reasons
    """
