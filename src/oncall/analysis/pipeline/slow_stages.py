"""Which tasks made an iteration slow, and the rank or the transfer to blame (VenusTrace 3.3).

A task counts if it is on the critical path of one of the slowest pipelines, took longer than
expected, and its stage explains a good part of the lost time (Algorithm 2). In a tensor-parallel
group the others wait for the member that enters their calls later (Fig. 6) or that has more time of
its own, whichever shows more; of a transfer the slowest pair of ranks is named.

A slowness that happened once must stand out by itself; a lasting one counts by what it costs. Where
the account of lost time names a rank, its stage and task are added, and nobody else is accused.

Tasks of every rank and the trace graph of every iteration cost more than the rest of a diagnosis,
and of a sound job nobody asks. So a culprit's stage is looked for where a job with a pipeline has
one: the account of lost time names a rank or leaves a loss open, or the job rather stopped. A trace
that records tasks and no calls has no account: there the stages are the account.
"""

from __future__ import annotations

from oncall.analysis.pipeline.stage_expectation import PEERS
from oncall.analysis.pipeline.stage_vertices import VERTEX
from oncall.evidence import Param, relation


@relation(
    "stage_suspects",
    reads=["ranks|members|stage_tasks"],
    columns=[
        ("job", "VARCHAR", "", "a job that may have a pipeline"),
        ("rank", "INTEGER", "", "a rank that something else found at fault; NULL: none is named"),
        ("stopped", "BOOLEAN", "", "the job rather stopped; else it lost time"),
    ],
    source="VenusTrace 3.3: detection comes before location",
    params={"rather_stopped": "unmet_calls.rather_stopped"},
)
def stage_suspects() -> str:
    """The ranks at fault in jobs with a pipeline, whose stages are to be found."""
    return """
        WITH pipelined AS (
            SELECT job FROM operations WHERE kind = 'p2p'
            UNION SELECT job FROM jobs WHERE pp > 1
            UNION SELECT job FROM stage_tasks GROUP BY job HAVING count(DISTINCT stage) > 1)
        SELECT DISTINCT job, rank, stopped FROM (
            SELECT job, rank, false AS stopped FROM delay_causes
            UNION ALL SELECT job, rank, true FROM hang_roots
            ANTI JOIN (FROM job_progress WHERE stopped < $rather_stopped) USING (job)
            UNION ALL SELECT job, NULL, false FROM lost_time WHERE cause = 'open'
            -- Of tasks alone nothing else shows whether the job stopped.
            UNION ALL SELECT job, NULL, unnest([true, false]) FROM stage_tasks
            ANTI JOIN (SELECT job FROM operations WHERE kind = 'coll') USING (job))
        SEMI JOIN pipelined USING (job)
    """


_PLACE = ", ".join(VERTEX)


def _tasks() -> str:
    """Tasks and transfers beyond expectation that an iteration waited for, of stages that explain a
    good part of what it lost: what their tasks took too long, less what slack absorbed."""
    return f"""
        iterations AS (
            SELECT job, iteration, duration_ns AS iteration_ns,
                baseline_ns AS baseline_iteration_ns, greatest(excess_ns, 0) AS longer_ns
            FROM training_iterations WHERE NOT warm_up AND whole),
        -- A rank that is held by what it has sent is so by the transfer to who receives that.
        held AS (
            SELECT r.vertex, max(h.hold_ns - h.baseline_hold_ns - h.slack_ns) AS held_ns
            FROM stage_graph h JOIN stage_graph r ON r.source = h.previous
            WHERE h.hold_ns > h.baseline_hold_ns GROUP BY r.vertex),
        sides AS (
            SELECT g.*, network, CASE WHEN network THEN latency_ns ELSE duration_ns END AS took_ns,
                CASE WHEN network THEN baseline_latency_ns ELSE expected_ns END AS should_ns,
                took_ns - should_ns AS excess_ns,
                greatest(excess_ns - slack_ns, CASE WHEN network THEN held_ns END, 0) AS saves_ns,
                -- A link that was slow from the beginning is so for most of what it carries.
                CASE WHEN network THEN coalesce($others_below * median(latency_ns) OVER (
                        PARTITION BY job, iteration, replica, stage, chunk, task)
                        > baseline_latency_ns, false)
                    ELSE basis = '{PEERS}' END AS from_the_beginning,
                lead(started_ns) OVER (PARTITION BY job, iteration, replica, stage, network
                    ORDER BY started_ns) IS NULL AS closes, iterations.* EXCLUDE (job, iteration)
            FROM stage_graph g JOIN iterations USING (job, iteration)
            LEFT JOIN held USING (vertex) CROSS JOIN (VALUES (false), (true)) of_kind(network)),
        costs AS (
            SELECT *, sum(saves_ns) OVER (PARTITION BY job, iteration, replica, stage, network)
                AS cost_ns, cost_ns / sum(saves_ns) OVER (PARTITION BY job, iteration, replica)
                AS explained,
                -- What began later costs no more than the iteration is longer than others.
                least(cost_ns, CASE WHEN NOT from_the_beginning THEN longer_ns END)::BIGINT
                    AS saved_ns
            FROM sides),
        slow AS (
            FROM costs WHERE explained >= $explains AND cost_ns > $least_saved * iteration_ns
                AND excess_ns > greatest($spreads * spread_ns, $share * should_ns,
                    -- A transfer is judged across clocks: within their error nothing is concluded.
                    CASE WHEN network THEN coalesce(clock_error_ns, 0) ELSE 0 END)
                AND slack_ns < $on_path * excess_ns
            -- After their last task pipelines wait for one another: that is the late one's doing.
            QUALIFY coalesce(bool_or(NOT closes) OVER (PARTITION BY job, iteration, replica)
                OR NOT bool_or(NOT closes) OVER (PARTITION BY job, iteration), true))
    """


def _members() -> str:
    """Of each slow group, the member that the others wait for. Own time is the host's alone where
    hosts run ahead of their devices, and lateness in calls misses a delay before the first one."""
    beyond = "{0} - (sum({0}) OVER g - {0}) / nullif(count({0}) OVER g - 1, 0)"
    return f"""
        groups AS (
            SELECT job, replica, stage, sum(excess_ns) AS excess_ns FROM slow WHERE NOT network
            GROUP BY ALL),
        each AS (
            SELECT w.job, coalesce(w.replica, 0) AS replica, w.stage, w.rank,
                any_value(w.node) AS node, sum(own_ns) AS own_ns,
                sum(late_ns) AS late_ns
            FROM stage_work w SEMI JOIN (
                SELECT {_PLACE} FROM slow WHERE NOT network) s
                ON s.job = w.job AND s.iteration = w.iteration
                AND s.replica = coalesce(w.replica, 0) AND s.stage = w.stage
                AND s.chunk = coalesce(w.chunk, 0) AND s.micro_batch = w.micro_batch
                AND s.task = w.task
            GROUP BY ALL),
        compared AS (
            SELECT *, count(*) OVER g AS members,
                coalesce(min(node) OVER g = max(node) OVER g, false) AS one_host,
                greatest({beyond.format("own_ns")}, {beyond.format("late_ns")}) AS beyond_ns
            FROM each WINDOW g AS (PARTITION BY job, replica, stage)),
        members AS (
            -- Where no member stands out it is the group, on its host if it has one.
            SELECT c.* REPLACE (CASE WHEN stands_out THEN rank END AS rank,
                CASE WHEN stands_out OR one_host THEN node END AS node)
            FROM (SELECT *, members = 1 OR coalesce(beyond_ns >= $own_part * excess_ns, false)
                    AS stands_out
                FROM compared JOIN groups USING (job, replica, stage)) c
            QUALIFY row_number() OVER (
                PARTITION BY job, replica, stage
                ORDER BY beyond_ns DESC NULLS LAST, c.rank) = 1),
        pairs AS (
            SELECT p.* FROM stage_transfers p
            SEMI JOIN (FROM slow WHERE network) USING ({_PLACE})
            QUALIFY row_number() OVER (
                PARTITION BY {_PLACE} ORDER BY took_ns DESC NULLS LAST, receiver) = 1)
    """


@relation(
    "slow_stages",
    reads=["stage_graph", "training_iterations", "stage_work"],
    empty_without=["stage_graph"],
    columns=[
        *VERTEX,
        ("rank", "INTEGER", "", "the rank that its group waited for; NULL: no member stands out"),
        "node started_ns",
        ("duration_ns", "BIGINT", "ns", "what it took; of the network: the transfer to it"),
        ("expected_ns", "DOUBLE", "ns", "what that should take"),
        ("excess_ns", "DOUBLE", "ns", "beyond"),
        ("slack_ns", "BIGINT", "ns", "how much later it could have begun"),
        ("basis", "VARCHAR", "", "what it is compared with"),
        ("members", "INTEGER", "ranks", "size of its group"),
        ("network", "BOOLEAN", "", "the transfer was slow, not the computation"),
        ("from_stage", "INTEGER", "", "of a slow transfer, the stage that sends"),
        ("peer", "INTEGER", "", "of a slow transfer, the rank that receives; `rank` sends"),
        ("explained", "DOUBLE", "ratio", "share of the iteration's lost time, by its stage"),
        ("saved_ns", "BIGINT", "ns", "of the iteration, had the stage been as expected"),
        ("iteration_ns", "BIGINT", "ns", "what the iteration took"),
        ("baseline_iteration_ns", "DOUBLE", "ns", "the baseline of iterations"),
    ],
    source="VenusTrace 3.3, Algorithm 2 (lines 13-26), Fig. 6, Fig. 7",
    params={
        "others_below": "stage_paths.others_below",
        "spreads": "machine_symptoms.clearly",
        "share": "lost_time.least_gain",
        "explains": Param("20 %", "of an iteration's lost time: below, a stage is one of many"),
        "least_saved": "lost_time.negligible",
        "on_path": "lost_time.hardly",
        "own_part": "lost_time.mostly",
    },
)
def slow_stages() -> str:
    """Tasks that made an iteration slow, each with its culprit."""
    return f"""
        WITH {_tasks()}, {_members()},
        shape AS (SELECT job, max(stage) + 1 AS pp FROM stage_graph GROUP BY job)
        SELECT s.* EXCLUDE (rank, node, duration_ns, expected_ns),
            s.took_ns AS duration_ns, s.should_ns AS expected_ns,
            CASE WHEN network THEN x.sender ELSE m.rank END AS rank,
            CASE WHEN network THEN x.sender_node ELSE m.node END AS node, m.members,
            CASE WHEN network THEN
                (s.stage + CASE s.task WHEN 'forward' THEN -1 ELSE 1 END + pp) % pp END
                AS from_stage, x.receiver AS peer
        FROM slow s JOIN shape USING (job)
        LEFT JOIN members m ON NOT s.network
            AND m.job = s.job AND m.replica = s.replica AND m.stage = s.stage
        LEFT JOIN pairs x ON s.network AND x.job = s.job AND x.iteration = s.iteration
            AND x.replica = s.replica AND x.stage = s.stage AND x.chunk = s.chunk
            AND x.micro_batch = s.micro_batch AND x.task = s.task
    """


# What is one culprit, over all its tasks.
_ONE = "job, replica, stage, rank, network"


def _costs() -> str:
    """What each culprit cost, over all iterations that it made longer."""
    return f"""
        numbered AS (
            SELECT *, row_number() OVER (PARTITION BY job ORDER BY iteration) AS place
            FROM training_iterations WHERE NOT warm_up),
        total AS (SELECT job, sum(duration_ns) AS time_ns FROM numbered GROUP BY job),
        each AS (
            SELECT {_ONE}, place, max(saved_ns) AS cost_ns, min(s.started_ns) AS at_ns,
                place - lag(place) OVER (PARTITION BY {_ONE} ORDER BY place) AS since
            FROM slow_stages s JOIN numbered USING (job, iteration) GROUP BY {_ONE}, place),
        costs AS (
            SELECT {_ONE}, count(*) AS slow_iterations, min(at_ns) AS at_ns,
                count(*) FILTER (since IS NULL OR since > 1) AS episodes,
                sum(cost_ns)::BIGINT AS lag_ns, sum(cost_ns) / any_value(time_ns) AS share_of_time
            FROM each JOIN total USING (job) GROUP BY {_ONE})
    """


@relation(
    "stage_culprits",
    reads=["stage_suspects", "slow_stages", "training_iterations", "stage_work"],
    empty_without=["stage_suspects", "slow_stages"],
    columns=[
        *((one.name, one.type, one.unit, one.meaning) for one in slow_stages.columns),
        ("suspect", "VARCHAR", "", "the rank, or its stage, as a sentence names it"),
        ("slow_iterations", "INTEGER", "", "iterations that it made longer"),
        ("episodes", "INTEGER", "", "how many runs of successive iterations it slowed"),
        ("lag_ns", "BIGINT", "ns", "by how much it made them longer, in total"),
        ("share_of_time", "DOUBLE", "ratio", "of the time of all iterations"),
        ("at_ns", "BIGINT", "ns", "when it was first observed"),
    ],
    source="VenusTrace 3.3, Algorithm 2; OSDI '25: the share of the slow-down explained",
    params={
        "slow_iteration": "lost_time.hardly",
        "cost_share": "lost_time.negligible",
        "explains": Param("40 %", "of what the iteration lost: two culprits explain half each"),
        "lasts": "lost_time.few",
        "pause_share": "lost_time.least_gain",
        "turns": Param(4, "as many culprits, one after the other, are no machine"),
    },
)
def stage_culprits() -> str:
    """Each culprit with its worst task."""
    return f"""
        WITH {_costs()},
        seats AS (SELECT DISTINCT job, stage, rank FROM stage_work WHERE stage IS NOT NULL),
        pipelined AS (SELECT job FROM seats GROUP BY job HAVING count(DISTINCT stage) > 1),
        named AS (
            SELECT s.job, s.rank, p.stage FROM stage_suspects s LEFT JOIN seats p USING (job, rank)
            WHERE NOT stopped),
        found AS (
            SELECT s.*, slow_iterations, episodes, lag_ns, share_of_time, c.at_ns,
                CASE WHEN s.rank IS NOT NULL THEN 'rank ' || s.rank
                    ELSE 'stage ' || s.stage || ' of pipeline ' || s.replica END AS suspect
            FROM slow_stages s JOIN costs c
                ON c.job = s.job AND c.replica = s.replica AND c.stage = s.stage
                AND c.network = s.network AND c.rank IS NOT DISTINCT FROM s.rank
            WHERE s.explained >= $explains AND share_of_time >= $cost_share
                AND (slow_iterations >= $lasts OR share_of_time >= $pause_share
                    AND s.saved_ns >= $slow_iteration * s.baseline_iteration_ns)
                AND EXISTS (FROM named n WHERE n.job = s.job AND (n.rank IS NULL
                    OR n.rank = s.rank OR s.rank IS NULL AND n.stage = s.stage))
            QUALIFY row_number() OVER (
                PARTITION BY s.job, suspect ORDER BY s.saved_ns DESC, s.excess_ns DESC) = 1)
        SELECT * FROM found SEMI JOIN pipelined USING (job)
        -- In a job that stopped all wait for what stopped it.
        ANTI JOIN stopped_stages USING (job)
        QUALIFY count(*) OVER (PARTITION BY job) < $turns
    """
