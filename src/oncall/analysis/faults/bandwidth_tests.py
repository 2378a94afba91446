"""Runs of nccl-tests, each size against the best that another run of the same test reached.

What a cluster should reach nobody states, so one run alone is no verdict. Of several, hosts that
took part only in slow ones are suspects: what each pair of hosts reaches names the one of them.
"""

from __future__ import annotations

_RUNS = """
    tested AS (
        SELECT job, attempt, path, line, code, seq AS size, max(number) AS mb_per_s
        FROM log_events WHERE kind = 'bandwidth' AND seq IS NOT NULL GROUP BY ALL),
    tables AS (SELECT job, attempt, path, line,
            array_to_string(list((mb_per_s / 1000)::DECIMAL(12, 1) || ' GB/s at '
                || format_bytes(size) ORDER BY size DESC)[:3], ', ') AS largest
        FROM tested GROUP BY ALL),
    -- The hosts stand above their table.
    members AS (
        SELECT t.job, t.path, t.line, count(*) AS ranks,
            list(DISTINCT h.node ORDER BY h.node) AS nodes
        FROM log_events h ASOF JOIN tables t
            ON h.job = t.job AND h.path = t.path AND h.line < t.line
        WHERE h.kind = 'bandwidth' AND h.code = 'host' GROUP BY ALL),
    runs AS (FROM tables LEFT JOIN members USING (job, path, line))"""
# Like is compared with like: the same test of as many GPUs on as many hosts.
_SHARES = """
    peers AS (
        SELECT job, path, line, size, mb_per_s,
            max(mb_per_s) OVER alike AS best, count(*) OVER alike AS runs
        FROM tested JOIN runs USING (job, path, line)
        WHERE size >= $large AND NOT starts_with(code, '- ')
        WINDOW alike AS (PARTITION BY job, code, size, ranks, len(nodes))),
    compared AS (
        SELECT job, path, line, median(mb_per_s / nullif(best, 0)) AS share, count(*) AS compared,
            arg_max(mb_per_s, size) AS reached, arg_max(best, size) AS best, max(size) AS at_size,
            max(runs) AS of_runs
        FROM peers WHERE runs > 1 GROUP BY ALL HAVING count(*) >= $several_sizes),
    judged AS (
        SELECT *, coalesce(share < $low, false) AS is_low
        FROM runs LEFT JOIN compared USING (job, path, line))"""


def bandwidths() -> str:
    """CTE `bandwidths`: the slow runs by whom they point to, the slowest of each; without any, what
    one run shows. A row a suspect."""
    share = "(100 * share)::INTEGER"
    speed = "({} / 1000)::DECIMAL(12, 1)"
    return f"""
        bandwidths AS (
        WITH {_RUNS}, {_SHARES},
        sound AS (
            SELECT job, list(DISTINCT node) AS fast
            FROM (SELECT job, unnest(nodes) AS node FROM judged WHERE NOT is_low AND share > 0)
            GROUP BY job),
        suspected AS (
            SELECT *, if(is_low, list_filter(nodes, lambda node: NOT list_contains(fast, node)),
                NULL) AS suspects
            FROM judged LEFT JOIN sound USING (job)),
        of_tests AS (
            SELECT *, split_part(path, '/', -1) || ':' || line AS place,
                bool_or(is_low) OVER (PARTITION BY job) AS any_low,
                count(*) OVER (PARTITION BY job, is_low, suspects) AS looks
            FROM suspected
            QUALIFY is_low = any_low AND row_number() OVER (
                PARTITION BY job, is_low, suspects ORDER BY share, path, line) = 1)
        SELECT job, attempt, place, looks, of_runs AS of_reports, share IS NULL AS is_alone,
            -- The same hosts may have been tried with other settings.
            if(len(suspects) > 0, 'low_bandwidth', 'bandwidth') AS code,
            if(len(suspects) > 0, array_to_string(suspects, ', '), place) AS about,
            unnest(if(len(suspects) > 0, suspects, [NULL])) AS node,
            if(is_low, {speed.format("reached")} || ' GB/s at ' || format_bytes(at_size)
                || ', the best run ' || {speed.format("best")} || ' GB/s; ' || {share}
                || ' % in the median of ' || compared || ' sizes', largest) AS text
        FROM of_tests)"""
