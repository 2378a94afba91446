"""What shows that a job is stopped, or that it was still moving when it was recorded.

A wait for a call that was never made looks the same in a hang and in a step of a running job. What
tells them apart is time: since when nothing has ended, against the job's own gaps. Recordings
seldom state when they were made, so each symptom here is one observation with its weight in log
odds: above 0 for stopped, below 0 for moving.
"""

from __future__ import annotations

from oncall.evidence import Param, relation


def spoken(ns: str) -> str:
    """SQL of a duration, an expression in ns, as people say it: `10 min 4 s`, `2.1 s`, `35 ms`."""
    return f"""
        CASE WHEN {ns} >= 60 * 1e9 THEN concat_ws(' ', ({ns} / 1e9)::BIGINT // 60 || ' min',
                nullif(({ns} / 1e9)::BIGINT % 60, 0) || ' s')
            WHEN {ns} >= 1e9 THEN round({ns} / 1e9, 1) || ' s'
            WHEN {ns} >= 1e6 THEN round({ns} / 1e6)::BIGINT || ' ms'
            ELSE 'less than 1 ms' END
    """


def _stillness() -> str:
    """For how long nothing has completed in jobs with waiting ranks, and how long is normal."""
    return """
        jobs AS (SELECT DISTINCT job FROM hang_roots),
        oldest AS (
            SELECT job, min(coalesce(entered_ns, called_ns)) AS since_ns FROM blocked_operations
            GROUP BY job),
        -- A stop is no older than the oldest wait: what was called after a long pause is progress.
        quiet AS (
            SELECT q.* REPLACE (least(quiet_ns, looked_ns - since_ns) AS quiet_ns),
                greatest(longest_gap_ns, $blink) AS normal_ns
            FROM job_quiet q SEMI JOIN jobs USING (job) LEFT JOIN oldest USING (job)),
        joined AS (
            SELECT job, bool_and(how = 'together' AND kind = 'coll') AS all_called
            FROM hang_roots GROUP BY job),
        -- In an AllReduce of next to nothing ranks rightly wait for one another. Once all have
        -- called, only the transfer is left.
        patience AS (
            SELECT job, bool_and(op = 'Barrier' OR (op = 'AllReduce' AND bytes < $barrier_below))
                    AS barrier,
                CASE WHEN any_value(all_called) THEN least(2 * $standstill_after, $hang_after)
                     WHEN barrier THEN $barrier_after ELSE $hang_after END AS patience_ns
            FROM hang_members JOIN joined USING (job) WHERE state = 'waiting' GROUP BY job),
        -- What cannot go on is judged by the normal rest of who is waited for; else age
        -- decides. A site that calls shorter waits a hang has less patience with a standstill, too.
        timed AS (
            SELECT q.* REPLACE (least(quiet_ns, p.still_ns) AS quiet_ns,
                    coalesce(p.normal_ns, q.normal_ns) AS normal_ns),
                least(coalesce(patience_ns, $hang_after), 2 * p.normal_ns) AS patience_ns,
                least($standstill_after, coalesce(patience_ns, $hang_after) / 2, p.normal_ns)
                    AS pause_ns, p.why AS proof
            FROM quiet q LEFT JOIN patience USING (job) LEFT JOIN hang_proofs p USING (job)
            WHERE quiet_ns IS NOT NULL)
    """


def _recorded() -> str:
    """What recordings that state no time show of it: the times of files, the watchdog's looks."""
    return """
        polled AS (
            SELECT job FROM launches WHERE source = 'nccl_ras' AND launched IS NOT NULL
            GROUP BY job HAVING count(DISTINCT at_ns) > 1),
        -- A moment in which nothing moves shows nothing in a job that pauses now and then, nor of
        -- ranks in a barrier.
        pausing AS (
            SELECT job FROM quiet WHERE quiet_ns IS NULL AND longest_gap_ns > $pause
            UNION SELECT job FROM patience WHERE barrier),
        -- A watchdog looks every so often: what ended in between shows one stamp, and what ended
        -- since its last look is completed and not yet retired.
        looks AS (
            SELECT job, rank, count(*) / count(DISTINCT ended_ns // 1000000) - 1 AS more
            FROM operations WHERE ended_ns IS NOT NULL AND observed_ns IS NULL AND done
            GROUP BY job, rank),
        expected AS (
            SELECT job, $unretired * sum(more) / 2 AS completions FROM looks
            SEMI JOIN (SELECT job FROM quiet WHERE quiet_ns IS NULL) USING (job)
            ANTI JOIN pausing USING (job) GROUP BY job),
        -- A small ring loses what the watchdog retires next to calls made since.
        fronts AS (
            SELECT o.job, min(o.seq) = any_value(l.completed) + 1 AND NOT bool_or(o.done) AS alone
            FROM operations o JOIN launches l ON l.job = o.job AND l.comm = o.comm
                AND l.rank = o.rank AND l.source = 'flight_recorder'
            WHERE o.kind = 'coll' GROUP BY o.job, o.comm, o.rank),
        active AS (
            SELECT job FROM fronts SEMI JOIN (SELECT job FROM quiet WHERE quiet_ns IS NULL)
                USING (job)
            GROUP BY job HAVING bool_and(alone))
    """


def _contradictions() -> str:
    """Members that were recorded before others of their communicator completed more."""
    return """
        contradicted AS (
            SELECT f.job, count(*) AS members FROM frontier f
            JOIN (SELECT job, comm, max(seq) AS seq FROM operations
                  WHERE done AND kind = 'coll'
                      AND op IN ('AllReduce', 'AllGather', 'ReduceScatter', 'AllToAll', 'Barrier')
                  GROUP BY ALL) c USING (job, comm)
            SEMI JOIN witnesses w ON w.job = f.job AND w.rank = f.rank
            SEMI JOIN jobs ON jobs.job = f.job
            WHERE f.entered_seq < c.seq GROUP BY f.job)
    """


def _waits() -> str:
    """The wait for a root that is the longest against the waits for it before."""
    return """
        -- Else for how long others went on without a root's call, or it made none though all had
        -- joined its last; and for how long before.
        lapses AS (
            SELECT job, rank, 'others went on without its call' AS what, waited_ns, longest_ns
            FROM overdue_calls
            UNION ALL
            SELECT job, rank, 'it called nothing after all had joined its last call', silent_ns,
                longest_silent_ns
            FROM overdue_calls),
        waits AS (
            SELECT job, what, waited_ns, longest_ns,
                greatest($times * longest_ns, $hiccup) AS normal_ns
            FROM lapses l SEMI JOIN hang_roots r
                ON r.job = l.job AND coalesce(r.rank = l.rank, true) AND r.how <> 'cycle'
            WHERE waited_ns IS NOT NULL AND longest_ns IS NOT NULL
            QUALIFY row_number() OVER (
                PARTITION BY job ORDER BY waited_ns / normal_ns DESC, rank, what) = 1)
    """


def _spread() -> str:
    """In how many places the waiting of ranks ends."""
    return """
        spread AS (
            SELECT job, count(DISTINCT (comm, kind, seq, ends)) AS roots,
                count(DISTINCT rank) AS culprits
            FROM hang_roots GROUP BY job)
    """


def _all_wait() -> str:
    """How many ranks wait, and how often as many did before."""
    return """
        -- In logs of calls: all others wait for one, as in a stopped job. In a running job that
        -- happens, too, as often as it did before, and more often the fewer ranks it may wait for.
        all_wait AS (
            SELECT job, 'all others wait for one call' AS what, before,
                least(greatest(before, 1 / ranks), 1) AS share, $sure + $weak AS most
            FROM (SELECT job, count(DISTINCT rank) AS ranks FROM last_calls GROUP BY job)
            JOIN (SELECT a.job, max(o.share) AS before
                  FROM awaited_callers a LEFT JOIN overdue_calls o USING (job, rank)
                  GROUP BY a.job HAVING count(DISTINCT a.place) = 1 AND max(a.others) = 0)
                USING (job)
            UNION ALL
            -- Most stopped jobs wait for one call. Two are a step of a running job, or two faults.
            SELECT job, w.waiting || ' of ' || w.ranks || ' ranks wait at once', before,
                least(share, 1),
                -- Counters show little: who is ahead may wait, or the others be about to call.
                CASE WHEN roots = 1 AND job IN (SELECT job FROM operations) THEN $sure + $weak
                    ELSE $weak END
            FROM shared_waits w JOIN spread USING (job) ANTI JOIN last_calls USING (job)
            ANTI JOIN (FROM patience WHERE barrier) USING (job)  -- there all rightly wait for one
            WHERE roots <= 2)
    """


def _time_symptoms() -> str:
    """Symptoms from times: how long nothing has ended, and when the recording was made."""
    return f"""
        SELECT job, 'time' AS name,
            CASE WHEN quiet_ns <= normal_ns THEN -$certain
                 WHEN quiet_ns <= pause_ns THEN -$likely
                 ELSE least($certain, $sure * ln(quiet_ns / greatest(normal_ns, pause_ns))
                     / ln(greatest(patience_ns, 2 * normal_ns)
                          / greatest(normal_ns, pause_ns))) END AS weight,
            'nothing completed for ' || {spoken("quiet_ns")} || coalesce(
                ', before for at most ' || CASE WHEN longest_gap_ns IS NOT NULL
                    THEN {spoken("longest_gap_ns")} END, '') || coalesce(', and ' || proof, '')
                AS why
        FROM timed ANTI JOIN polled USING (job)
        UNION ALL
        -- RAS writes no time in its text: looks without one are a nanosecond apart here.
        SELECT job, 'same place', CASE WHEN quiet_ns = 0 THEN -$sure
                WHEN quiet_ns BETWEEN 1000 AND $blink THEN $likely ELSE $sure + $weak END,
            CASE WHEN quiet_ns = 0 THEN 'ranks launched more between two looks'
                WHEN quiet_ns < 1000 THEN 'no rank launched anything between two looks'
                ELSE 'no rank launched anything for ' || {spoken("quiet_ns")} END
        FROM timed SEMI JOIN polled USING (job)
        UNION ALL
        SELECT job, CASE WHEN dated THEN 'file times' ELSE 'undated' END,
            CASE WHEN NOT dated THEN 0 WHEN later_ns <= normal_ns THEN -$certain
                WHEN later_ns <= $written_by THEN 0 ELSE $weak END,
            CASE WHEN dated THEN 'the files were written ' || {spoken("later_ns")}
                || ' after the last operation' ELSE 'nothing shows when the dumps were made' END
        FROM dump_times SEMI JOIN (FROM quiet WHERE quiet_ns IS NULL) USING (job)
        UNION ALL
        -- Its last interval is a tenth of a second: a running job may pause for as long.
        SELECT job, 'watchdog', least($likely, completions),
            'the watchdog had retired all completed operations: none completed just before the dump'
        FROM expected WHERE completions > 0
        UNION ALL
        SELECT job, 'watchdog', $likely, 'only operations in flight were kept, and none of them '
            || 'completed before the dump' FROM active
        UNION ALL
        SELECT c.job, 'contradiction', -$certain,
            CASE members WHEN 1 THEN '1 member was' ELSE members || ' members were' END
                || ' recorded earlier than the others, which completed more since: the job went on'
        FROM contradicted c LEFT JOIN timed t USING (job)
        WHERE coalesce(t.quiet_ns <= $standstill_after, true)
        UNION ALL
        -- Few calls of a program are barriers, but a running job may spend long in one.
        SELECT job, 'barrier', -$likely,
            'ranks wait in a barrier, as they do while another rank saves a checkpoint'
        FROM patience SEMI JOIN quiet USING (job) ANTI JOIN timed USING (job)
        ANTI JOIN (FROM hang_roots WHERE how = 'cycle') USING (job) WHERE barrier
    """


def _place_symptoms() -> str:
    """Symptoms from the places where ranks wait, and from processes that stopped or called
    something else there."""
    return """
        SELECT job, 'spread', -$sure, 'ranks wait in ' || roots || ' unrelated places'
        FROM spread ANTI JOIN timed USING (job) WHERE roots > 2 AND culprits > 0
        UNION ALL
        SELECT job, 'mismatch', $sure + $weak, 'members call different operations under one number'
        FROM odd_calls SEMI JOIN jobs USING (job) GROUP BY job
        UNION ALL
        SELECT job, 'process', $sure + $weak,
            CASE count(*) WHEN 1 THEN 'a process is' ELSE count(*) || ' processes are' END
                || ' dead or stopped'
        FROM halted SEMI JOIN jobs USING (job) GROUP BY job
        UNION ALL
        SELECT job, 'no data', $likely, count(DISTINCT rank)
            || CASE count(DISTINCT rank) WHEN 1 THEN ' rank' ELSE ' ranks' END || ' left no data'
        -- A recording that cannot be read was left by a process that lived.
        FROM hang_roots ANTI JOIN recordings USING (job, rank) WHERE how = 'silent' GROUP BY job
        UNION ALL
        SELECT job, 'cycle', $sure + $weak, 'ranks wait for one another'
        FROM hang_roots ANTI JOIN timed USING (job) WHERE how = 'cycle' GROUP BY job
        UNION ALL
        SELECT job, 'all wait', least(most, ln($end_so / share)),
            what || CASE WHEN round(100 * before, 1) > 0 THEN ' (before: at most '
                || round(100 * least(before, 1), 1) || ' % of the time)' ELSE '' END
        FROM all_wait
    """


def _call_symptoms() -> str:
    """Symptoms from logs of calls: how long others have gone on without a call, and how the logs
    end."""
    return f"""
        SELECT job, 'wait', CASE WHEN waited_ns > longest_ns
                THEN least($sure + $weak, ln(greatest(waited_ns / normal_ns, 1)))
                WHEN a.share IS NULL THEN -$sure ELSE 0 END,
            waits.what || ' for ' || {spoken("greatest(waited_ns, 0)")}
                || ', before for up to ' || {spoken("longest_ns")}
        FROM waits LEFT JOIN all_wait a USING (job)
        UNION ALL
        SELECT job, 'all wait', CASE WHEN places > 2 THEN -$sure ELSE ln(1 - $end_so) END,
            CASE WHEN places > 2 THEN 'ranks wait for ' || places || ' unrelated calls'
                ELSE 'not all others wait for one call' END
        FROM waits SEMI JOIN last_calls USING (job) ANTI JOIN all_wait USING (job)
            JOIN (SELECT job, count(DISTINCT place) AS places FROM awaited_callers GROUP BY job)
                USING (job)
            ANTI JOIN odd_calls USING (job)
            ANTI JOIN (FROM hang_roots WHERE how = 'cycle') USING (job)
        WHERE waited_ns > longest_ns
        UNION ALL
        -- Groups of a running job end at one call often enough: that confirms a wait, no more.
        SELECT job, 'log end', greatest(-$certain,
                least($sure, evenness, $confirming * ln(greatest(waited_ns / normal_ns, 1)))),
            CASE WHEN ragged THEN 'the logs of ranks that call together end at different calls'
                ELSE (groups - lagging) || ' of ' || groups || ' groups that call most together '
                    || 'end at one call' END
        FROM log_ends LEFT JOIN waits USING (job) ANTI JOIN odd_calls USING (job)
            ANTI JOIN (FROM hang_roots WHERE how = 'cycle') USING (job)
        WHERE ragged OR waited_ns > normal_ns
    """


def _reported_symptom() -> str:
    """What the engineer reports."""
    return """
        SELECT job, 'symptom', $sure * $symptom, CASE WHEN $symptom > 0 THEN 'reported as hung'
            ELSE 'reported as slow' END
        FROM jobs WHERE $symptom <> 0
    """


@relation(
    "progress_symptoms",
    reads=["hang_roots"],
    empty_without=["hang_roots"],
    columns=[
        "job",
        ("name", "VARCHAR", "", "the symptom"),
        ("weight", "DOUBLE", "", "log odds: above 0 it says stopped, below 0 moving"),
        ("why", "VARCHAR", "", "what was observed"),
    ],
    source="beyond CCL-D",
    params={
        "hang_after": "halted.hang_after",
        "barrier_below": Param(
            "4 B",
            "an AllReduce of fewer bytes is a barrier, where waiting is no fault (CCL-D 4.2.1)",
        ),
        "barrier_after": Param(
            "10 min", "PyTorch's limit for NCCL since 2.2: a job that waits longer has set its own"
        ),
        "standstill_after": Param(
            "30 s", "operations take seconds: shorter pauses of a job are not worth a warning"
        ),
        "blink": Param("2 s", "what any job may take between two of its operations, or sends"),
        "sure": Param(2.2, "the log odds of 0.9: at hang_after 97 % of waits never end"),
        "certain": Param(
            5.2, "log odds of what cannot be otherwise: no sign of waiting outweighs it"
        ),
        "likely": Param(1.8, "log odds of what is seen six times as often in one case"),
        "weak": Param(0.7, "log odds of what is seen twice as often in one case"),
        "unretired": Param(0.2, "of completions expected in the watchdog's last interval"),
        "pause": Param("200 ms", "two looks of PyTorch's watchdog: in between nothing ends"),
        "written_by": Param("15 s", "PyTorch waits so long for a dump that is being written"),
        "times": "overdue_calls.times",
        "hiccup": "lost_time.hiccup",
        "confirming": Param(2, "times as much as a wait itself weighs an even end of the logs"),
        "end_so": Param(0.7, "of stopped jobs: all others wait for one call (or two stopped)"),
        "symptom": Param(0, "what the engineer reports: 1 hung, -1 slow, 0 unknown"),
    },
)
def progress_symptoms() -> str:
    """The symptoms that a job with waiting ranks is stopped, and the symptoms that it moves."""
    stages = (
        _stillness(),
        _recorded(),
        _contradictions(),
        _waits(),
        _spread(),
        _all_wait(),
    )
    symptoms = (_time_symptoms(), _place_symptoms(), _call_symptoms(), _reported_symptom())
    return f"WITH {','.join(stages)} {' UNION ALL '.join(symptoms)}"
