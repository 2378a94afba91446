"""What a log's step lines show: how fast a job went, whether it went on to a normal end, when its
iterations became longer for good, and losses that became no number and stayed so.

Single iterations vary with their samples, and a slow GPU or link may cost all of them a fifth. Over
many iterations that shows: of all places to cut a log in two, one has the most different sides.
Where a log states how much an iteration is, or its rate, these must show the change, too: a larger
batch takes longer and is no slowdown.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


@relation(
    "step_times",
    reads=["logged_steps"],
    columns=[
        "job attempt iteration",
        ("cost", "DOUBLE", "", "time of the slowest process, in ns, or the inverse of a rate"),
        ("costs", "DOUBLE[]", "", "every measure of it: the cost, that of its work, ..."),
        ("at_ns", "BIGINT", "ns", "when it was logged"),
        ("nth", "BIGINT", "", "which of the attempt's logged iterations, 1 first"),
        ("processes", "BIGINT", "", "processes that logged it"),
        ("regime", "BIGINT", "", "how many lines before it say that the batch changes"),
    ],
    source="step lines of training frameworks",
)
def step_times() -> str:
    """Each iteration that states a time or a rate, once. `costs` are that, the time of a sample or
    token, the inverse of the rate of these, and of the floating-point operations: an iteration of a
    larger batch takes longer, and is no slower by the others. A change that a line announces begins
    a regime: iterations of one are compared with one another alone."""
    return """
        WITH stated AS (
            SELECT job, attempt, iteration, duration_ns IS NULL AS untimed,
                max(coalesce(duration_ns, 1 / nullif(rate, 0))) AS cost,
                max(duration_ns / nullif(work, 0)) AS of_work, max(1 / nullif(rate, 0)) AS of_rate,
                max(1 / nullif(flops, 0)) AS of_flops, min(at_ns) AS at_ns, min(line) AS line,
                arg_min(path, line) AS path,
                count(DISTINCT coalesce(rank::VARCHAR, process, path)) AS processes
            FROM logged_steps WHERE iteration IS NOT NULL AND (duration_ns > 0 OR rate > 0)
            GROUP BY ALL),
        changes AS (SELECT job, path, line FROM log_events WHERE kind = 'work')
        SELECT job, attempt, iteration, cost, [cost, of_work, of_rate, of_flops] AS costs, at_ns,
            row_number() OVER (PARTITION BY job, attempt ORDER BY line) AS nth, processes,
            (SELECT count(*) FROM changes c
                WHERE c.job = s.job AND c.path = s.path AND c.line < s.line) AS regime
        FROM stated s"""


def _lasting_changes() -> str:
    """The one lasting change of each attempt between announced ones, if there is one: of all places
    to cut in two, that with the most different sides, if all of it comes there and stays."""
    alike = "PARTITION BY job, attempt, regime"
    rows = f"{alike} ORDER BY nth ROWS BETWEEN"
    return f"""
        heights AS (
            SELECT *, abs(ln(times / lag(times) OVER (alike ORDER BY nth))) AS step,
                least(times, $slow * median(times) OVER alike) AS evened,  -- checkpoints
                row_number() OVER (alike ORDER BY nth DESC) <= $side AS closes
            FROM ratios WHERE nth > $warm_up WINDOW alike AS ({alike})),
        sides AS (
            SELECT *, median(step) OVER ({alike}) AS noise,
                count(*) OVER before AS earlier, count(*) OVER since AS later,
                avg(evened) OVER before AS low, avg(evened) OVER since AS high,
                median(times) OVER before AS past, median(times) OVER since / past AS lasting,
                median(times) FILTER (closes) OVER ({alike}) / past AS still,
                median(times) OVER ({rows} CURRENT ROW AND $side - 1 FOLLOWING)
                    / median(times) OVER ({rows} $side PRECEDING AND 1 PRECEDING) AS at_once
            FROM heights
            WINDOW before AS ({rows} UNBOUNDED PRECEDING AND 1 PRECEDING),
                since AS ({rows} CURRENT ROW AND UNBOUNDED FOLLOWING)),
        cuts AS (
            FROM sides WHERE earlier >= $side AND later >= $side
            QUALIFY row_number() OVER ({alike}
                ORDER BY earlier * later * pow(greatest(high - low, 0), 2) DESC) = 1),
        changes AS (
            SELECT job, attempt, regime, nth, lasting AS times FROM cuts
            WHERE lasting >= $lasting AND ln(lasting) >= $scatter * noise
                AND ln(least(at_once, still)) >= $at_once * ln(lasting))
    """


@relation(
    "slow_steps",
    reads=["log_events|logged_steps|watchdog_reports"],
    columns=[
        "job attempt",
        ("first_iteration", "BIGINT", "", "first iteration of the slow span"),
        ("last_iteration", "BIGINT", "", "last one"),
        ("steps", "BIGINT", "", "logged iterations in it"),
        ("times", "DOUBLE", "", "their median against the baseline's, by its least measure"),
        ("processes", "BIGINT", "", "processes that logged them"),
        ("at_ns", "BIGINT", "ns", "when the first was logged"),
        ("spread", "VARCHAR", "", "the timer that differs most between ranks, and by how much"),
    ],
    source="step lines of training frameworks",
    params={
        "slow": Param(2, "times the baseline: lengths of samples make iterations vary"),
        "span": "lost_time.few",
        "warm_up": Param(5, "the first ones logged compile kernels, tune them and fill caches"),
        "quick": Param("20 %", "the share of iterations that the baseline is the slowest of"),
        "lasting": "pausing_ranks.late",
        "side": Param(10, "iterations before and after: fewer have no median that holds"),
        "scatter": Param(3, "times what iterations scatter by from one to the next"),
        "at_once": Param("70 %", "of the change comes at one place: else it is a drift"),
    },
)
def slow_steps() -> str:
    """Spans of at least `$span` consecutive iterations that are slow by every measure that their
    lines state; or all since they became slower for good."""
    return f"""
        WITH measures AS (
            SELECT job, attempt, regime, nth, unnest(costs) AS cost,
                generate_subscripts(costs, 1) AS which
            FROM step_times),
        ratios AS (
            SELECT job, attempt, regime, nth, min(m.cost / b.cost) AS times
            FROM measures m JOIN (
                SELECT job, attempt, regime, which, quantile_cont(cost, $quick) AS cost
                FROM measures GROUP BY ALL) b USING (job, attempt, regime, which)
            GROUP BY ALL),
        {_lasting_changes()},
        timers AS (
            SELECT job, attempt, arg_max(text, number) AS spread FROM log_events
            WHERE kind = 'timer' AND NOT regexp_matches(code, 'setup|checkpoint|interval')
            GROUP BY ALL),
        marked AS (
            SELECT t.*, c.nth AS since, r.times, c.times AS lasting,
                coalesce(t.nth >= since, r.times >= $slow) AS is_slow,
                t.nth - row_number() OVER (
                    PARTITION BY t.job, t.attempt, coalesce(t.nth >= since, r.times >= $slow)
                    ORDER BY t.nth) AS span_key
            FROM step_times t JOIN ratios r USING (job, attempt, nth)
            LEFT JOIN changes c ON c.job = t.job AND c.attempt = t.attempt AND c.regime = t.regime)
        SELECT job, attempt, min(iteration) AS first_iteration, max(iteration) AS last_iteration,
          count(*) AS steps, coalesce(any_value(lasting), median(times)) AS times,
          max(processes) AS processes, min(at_ns) AS at_ns, any_value(spread) AS spread
        FROM marked LEFT JOIN timers USING (job, attempt) WHERE is_slow
        GROUP BY job, attempt, span_key
        -- From the job's own first iteration on, not from where an excerpt begins.
        HAVING count(*) >= $span AND NOT (count(*) <= $warm_up
          AND min(nth) = 1 AND min(iteration) <= max(iteration) - min(iteration))"""


def slow_timers() -> str:
    """The rank that computes slowest in report after report. Timers of communication are left out:
    there the others wait, and the slow rank has the shortest time."""
    return """
        slow_timers AS (
        WITH reported AS (
            SELECT job, attempt, rank, code AS timer, number / 100 AS times, at_ns, text,
                row_number() OVER same AS nth, count(*) OVER same_timer AS of_reports
            FROM log_events WHERE kind = 'slowest'
                AND regexp_matches(code,
                    'stated|compute|batch-generator|^(forward|backward)$|inner-step')
            WINDOW same AS (PARTITION BY job, attempt, code ORDER BY path, line),
                same_timer AS (PARTITION BY job, attempt, code)),
        slow AS (
            SELECT job, attempt, rank, timer, count(*) AS reports,
                any_value(of_reports) AS of_reports, any_value(of_reports) + 1 - min(nth) AS since,
                median(times) AS times, min(at_ns) AS at_ns, arg_max(text, nth) AS text
            FROM reported WHERE times >= $beyond OR timer = 'stated'
            GROUP BY job, attempt, rank, timer)
        SELECT s.* EXCLUDE (since), r.node FROM slow s
        LEFT JOIN processes r USING (job, rank)
        WHERE timer = 'stated' OR (reports > $few_reports AND 2 * reports > since)
        QUALIFY row_number() OVER (
            PARTITION BY job, attempt, rank ORDER BY times DESC NULLS LAST, timer) = 1)
    """


@relation(
    "log_progress",
    reads=["log_events|logged_steps|watchdog_reports"],
    columns=[
        "job",
        ("steps", "BIGINT", "", "iterations logged"),
        ("last_iteration", "BIGINT", "", "the last of them"),
        ("of_iterations", "BIGINT", "", "how many were wanted, if stated"),
        ("finished", "BOOLEAN", "", "training is said to be done, or the last step was logged"),
        ("silence_ns", "BIGINT", "ns", "how long other lines went on after the last step"),
        ("stopped", "BOOLEAN", "", "other lines went on much longer than an iteration takes"),
        ("at_ns", "BIGINT", "ns", "the last stamp"),
        ("phase", "VARCHAR", "", "the checkpoint or evaluation in which its logs end, if they do"),
        ("phase_path", "VARCHAR", "", "the file that says so"),
        ("phase_line", "BIGINT", "", "its line"),
    ],
    source="step lines of training frameworks",
    params={
        "silence": Param("30 min", "longer than most checkpoints and evaluations"),
        "iterations": Param(10, "and this many times the longest iteration"),
        "went_on": Param(3, "steps after a line that training is done: a bar is drawn once more"),
    },
)
def log_progress() -> str:
    """How far each job came by its logs."""
    return """
        WITH steps AS (
          SELECT job, count(*) AS steps, max(iteration) AS last_iteration,
            max(of_iterations) AS of_iterations, max(duration_ns) AS step_ns
          FROM logged_steps GROUP BY job),
        done AS (  -- of several trainings in a log, the last one counts
          SELECT e.job FROM log_events e LEFT JOIN logged_steps s
            ON s.job = e.job AND (s.attempt > e.attempt
              OR s.attempt = e.attempt AND s.path = e.path AND s.line > e.line)
          WHERE e.kind = 'phase' AND e.code IN ('finished', 'passed')
          GROUP BY e.job, e.attempt, e.path, e.line HAVING count(s.line) < $went_on),
        said AS (
          SELECT job, job IN (FROM done) AS finished,
            max(number) FILTER (kind = 'silence') AS silence_ns, max(at_ns) AS at_ns
          FROM log_events GROUP BY job),
        jobs_logged AS (SELECT job FROM steps UNION SELECT job FROM said),
        logged AS (
          SELECT job, attempt, path, line, code, text FROM log_events WHERE kind = 'phase'
          UNION ALL BY NAME SELECT job, attempt, path, line, 'step' AS code FROM logged_steps),
        phases AS (  -- the last that each file states; all of them are in one
          SELECT job, any_value(text) AS phase, any_value(path) AS phase_path,
            any_value(line) AS phase_line
          FROM (FROM logged QUALIFY row_number() OVER (
            PARTITION BY job, path ORDER BY attempt DESC, line DESC) = 1)
          GROUP BY job HAVING bool_and(code IN ('checkpoint', 'evaluation')))
        SELECT job, coalesce(steps, 0) AS steps, last_iteration, of_iterations,
          coalesce(finished, false) OR coalesce(last_iteration >= of_iterations, false) AS finished,
          silence_ns, step_ns,
          coalesce(silence_ns > greatest($silence, $iterations * coalesce(step_ns, 0)), false)
            AND NOT coalesce(finished, false) AS stopped,
          at_ns, phase, phase_path, phase_line
        FROM jobs_logged LEFT JOIN steps USING (job) LEFT JOIN said USING (job)
        LEFT JOIN phases USING (job)"""


def nan_losses() -> str:
    """Attempts whose loss is NaN or infinite from some step on, the first such iteration and the
    last before it whose loss is a number."""
    return """
        nan_losses AS (
        WITH lost AS (
            SELECT job, attempt, path, line, any_value(text) AS text FROM log_events
            WHERE kind = 'loss' GROUP BY ALL),
        steps AS (
            SELECT s.*, l.line IS NOT NULL AS is_lost, l.text,
                min(s.line) FILTER (l.line IS NOT NULL) OVER (
                    PARTITION BY s.job, s.attempt, s.path) AS since
            FROM logged_steps s LEFT JOIN lost l
                ON l.job = s.job AND l.attempt IS NOT DISTINCT FROM s.attempt
                AND l.path = s.path AND l.line = s.line)
        SELECT DISTINCT ON (job, attempt) * FROM (
            SELECT job, attempt, any_value(rank) AS rank,
                min(iteration) FILTER (is_lost) AS iteration,
                max(iteration) FILTER (line < since) AS last_finite,
                count(*) FILTER (is_lost) AS steps,
                split_part(path, '/', -1) || ':' || min(since) AS place,
                min(at_ns) FILTER (is_lost) AS at_ns,
                arg_min(text, line) FILTER (is_lost) AS text
            FROM steps WHERE since IS NOT NULL GROUP BY job, attempt, path
            HAVING count(*) FILTER (is_lost) >= $several
                AND count(*) FILTER (is_lost) >= $most * count(*) FILTER (line >= since))
        ORDER BY job, attempt, iteration, place)
    """
