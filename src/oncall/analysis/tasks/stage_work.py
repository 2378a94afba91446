"""What every rank did in every iteration, on one clock: the input of all analyses of stages.

Where in the job each rank is: stage, replica, place in its tensor-parallel group.

Stated first: what a communicator is for by its name or role, and the rank's place in it. Then what
its use shows. Where no communicator shows it, the order of ranks in which Megatron-LM lays out its
groups (`initialize_model_parallel`): tensor, context, expert, data, pipeline, the last outermost.
"""

from __future__ import annotations

from oncall.analysis.common.group_names import role_named
from oncall.analysis.tasks.task_rows import TASK_COLUMNS
from oncall.evidence import relation


def _roles() -> str:
    """What each communicator is for: by its name, else by how it is used."""
    return f"""
        used AS (
            SELECT n.job, n.comm, n.rank, coalesce(n.comm_rank, row_number() OVER (
                    PARTITION BY n.job, n.comm ORDER BY n.rank) - 1) AS place,
                count(*) OVER (PARTITION BY n.job, n.comm) AS members,
                coalesce({role_named("n")}, p.parallelism) AS role
            FROM members n LEFT JOIN parallelism p USING (job, comm) WHERE n.comm IS NOT NULL)
    """


def _seats(tasks: str) -> str:
    """Each rank's place in its groups, and its stage where its tasks are labelled."""
    return f"""
        labelled AS (
            SELECT job, rank, any_value(stage) AS stage,
                mode(comm ORDER BY comm) FILTER (task IN ('forward', 'backward')) AS tp_comm
            FROM {tasks} GROUP BY job, rank),
        seats AS (
            SELECT k.job, k.rank, k.node,
                min(u.comm) FILTER (u.role = 'tp') AS tp_comm,
                arg_min(u.place, u.comm) FILTER (u.role = 'tp') AS tensor_rank,
                count(DISTINCT u.comm) FILTER (u.role = 'pp') AS chains,
                arg_min(u.place, u.comm) FILTER (u.role = 'pp') AS stage,
                -- Experts' gradients have smaller groups; all replicas are in the largest.
                arg_max(u.place, (u.members, u.comm)) FILTER (u.role = 'dp') AS replica
            FROM processes k
            LEFT JOIN used u ON u.job = k.job AND u.rank = k.rank AND u.role IS NOT NULL
            GROUP BY ALL)
    """


def _sized() -> str:
    """The same with the sizes of the job and of its tensor-parallel groups."""
    return """
        sizes AS (
            SELECT k.job, coalesce(any_value(j.world_size), max(k.rank) + 1) AS world,
                any_value(j.tp) AS tp,
                -- Where the tasks of every rank are labelled they tell it, else who knows the job.
                CASE WHEN count(l.stage) >= coalesce(any_value(j.world_size), max(k.rank) + 1)
                    THEN max(l.stage) + 1
                    ELSE coalesce(any_value(j.pp), max(l.stage) + 1) END AS pp
            FROM processes k LEFT JOIN jobs j USING (job)
            LEFT JOIN labelled l ON l.job = k.job AND l.rank = k.rank GROUP BY k.job),
        counted AS (
            SELECT s.*, l.stage AS labelled_stage, l.tp_comm AS labelled_comm,
                coalesce(z.tp, t.size) AS tp, z.world, z.pp
            FROM seats s LEFT JOIN labelled l USING (job, rank) LEFT JOIN sizes z ON z.job = s.job
            LEFT JOIN (SELECT job, comm, count(*) AS size FROM members GROUP BY ALL) t
                ON t.job = s.job AND t.comm = coalesce(s.tp_comm, l.tp_comm))
    """


_COLUMNS = [
    "job rank node stage",
    ("replica", "INTEGER", "", "which pipeline: its place among the replicas"),
    ("tensor_rank", "INTEGER", "", "place in the tensor-parallel group"),
]


def _layout(tasks: str) -> str:
    """One row for each rank; NULL where unknown. `tasks` say which stages ranks are on."""
    stages = (_roles(), _seats(tasks), _sized())
    return f"""
        WITH {",".join(stages)}
        SELECT c.job, c.rank, c.node,
            CASE WHEN chains = 1 THEN stage ELSE coalesce(labelled_stage,
                CASE WHEN world % pp = 0 THEN c.rank // (world // pp) END,
                CASE WHEN pp = 1 THEN 0 END) END AS stage,
            coalesce(replica, CASE WHEN world % (pp * coalesce(tp, 1)) = 0
                -- Pipelines keep their order from stage to stage, in whatever order ranks are laid.
                THEN CASE WHEN count(labelled_stage) OVER peers = world // pp
                    THEN row_number() OVER (peers ORDER BY c.rank) - 1
                    ELSE c.rank % (world // pp) END // coalesce(tp, 1) END) AS replica,
            coalesce(tensor_rank, m.place, c.rank % tp) AS tensor_rank
        FROM counted c LEFT JOIN (
            SELECT job, comm, rank, row_number() OVER (
                PARTITION BY job, comm ORDER BY coalesce(comm_rank, rank)) - 1 AS place
            FROM members) m ON m.job = c.job AND m.comm = c.labelled_comm AND m.rank = c.rank
        WINDOW peers AS (PARTITION BY c.job, c.labelled_stage)
    """


@relation(
    "stage_layout",
    reads=["ranks|members"],
    columns=_COLUMNS,
    source="VenusTrace 3.3; Megatron-LM parallel_state",
)
def stage_layout() -> str:
    """Where each rank is, by what is stated and by its communicators."""
    return _layout("stage_tasks")


@relation(
    "task_layout",
    reads=["ranks|members"],
    columns=_COLUMNS,
    source="VenusTrace 3.3; Megatron-LM parallel_state",
)
def task_layout() -> str:
    """The same, and by the tasks that a rank's calls show: dear, for pictures and culprits."""
    names = "job, rank, stage, task, comm"
    return _layout(
        f"(SELECT {names} FROM labelled_tasks UNION ALL SELECT {names} FROM stage_tasks)"
    )


_INSTANTS = ("started_ns", "ended_ns", "first_call_ns", "last_call_ns")


_NAMES = ", ".join(name for name, *_ in TASK_COLUMNS)


def _tasks(names: str) -> str:
    """Tasks as recorded, else as labelled."""
    return f"""
        SELECT {names} FROM stage_tasks
        UNION ALL SELECT {names} FROM labelled_tasks
        ANTI JOIN (SELECT DISTINCT job, rank FROM stage_tasks) USING (job, rank)
    """


@relation(
    "iteration_shifts",
    reads=["stage_tasks|labelled_tasks"],
    empty_without=["stage_tasks|labelled_tasks"],
    columns=[
        "job",
        ("node", "VARCHAR", "", "a host that counts iterations differently"),
        ("iterations", "BIGINT", "", "what its numbers lack to those of the job"),
    ],
    source="VenusTrace 3.3",
)
def iteration_shifts() -> str:
    """Each node counts from the first iteration that it saw whole, which may be another one."""
    return f"""
        WITH tasks AS ({_tasks("job, rank, iteration, task, started_ns, ended_ns, whole, source")}),
        own AS (
            SELECT job, rank, iteration, min(started_ns) AS started_ns, max(ended_ns) AS ended_ns
            FROM tasks WHERE source = 'calls' AND whole AND task IN ('forward', 'backward')
            GROUP BY ALL),
        spans AS (
            SELECT o.job, l.node, iteration,
                min(started_ns - coalesce(c.offset_ns, 0)) AS started_ns,
                max(ended_ns - coalesce(c.offset_ns, 0)) AS ended_ns
            FROM own o LEFT JOIN task_layout l USING (job, rank)
            LEFT JOIN clock_offsets c ON c.job = o.job AND c.node = l.node
            GROUP BY ALL),
        counting AS (
            SELECT job, arg_max(node, (iterations, node)) AS node
            FROM (SELECT job, node, count(*) AS iterations FROM spans GROUP BY ALL) GROUP BY job)
        SELECT s.job, s.node,
            mode(r.iteration - s.iteration ORDER BY r.iteration - s.iteration) AS iterations
        FROM spans s JOIN counting c ON c.job = s.job
        JOIN spans r ON r.job = c.job AND r.node = c.node
            AND (s.started_ns + s.ended_ns) // 2 BETWEEN r.started_ns AND r.ended_ns
        GROUP BY ALL HAVING iterations != 0
    """


@relation(
    "stage_work",
    view=True,
    reads=["stage_tasks|labelled_tasks"],
    empty_without=["stage_tasks|labelled_tasks"],
    columns=[
        *TASK_COLUMNS,
        "node",
        ("replica", "INTEGER", "", "place in the data-parallel group: which pipeline"),
        "tensor_rank",
        ("clock_error_ns", "BIGINT", "ns", "the error of its instants; NULL: unknown"),
    ],
    source="VenusTrace 3.3",
)
def stage_work() -> str:
    """Tasks as recorded or labelled, with the rank's place in the job. Instants are common time."""
    moved = ", ".join(f"t.{name} - coalesce(p.offset_ns, 0) AS {name}" for name in _INSTANTS)
    return f"""
        WITH tasks AS ({_tasks(_NAMES)}),
        places AS (
            SELECT l.job, l.rank, l.node, l.stage, l.replica, l.tensor_rank, c.offset_ns,
                c.error_ns, coalesce(s.iterations, 0) AS iterations
            FROM task_layout l LEFT JOIN clock_offsets c USING (job, node)
            LEFT JOIN iteration_shifts s USING (job, node))
        SELECT t.* REPLACE ({moved}, coalesce(t.stage, p.stage) AS stage,
                t.iteration + CASE WHEN t.source = 'calls' THEN coalesce(p.iterations, 0) ELSE 0 END
                    AS iteration),
            p.node, p.replica, p.tensor_rank, p.error_ns AS clock_error_ns
        FROM tasks t LEFT JOIN places p USING (job, rank)
    """
