"""Where in the job each rank is: stage, replica, place in its tensor-parallel group.

Stated first: what a communicator is for by its name or role, and the rank's place in it. Then what
its use shows. Where no communicator shows it, the order of ranks in which Megatron-LM lays out its
groups (`initialize_model_parallel`): tensor, context, expert, data, pipeline, the last outermost.
"""

from __future__ import annotations

from oncall.evidence import relation


def _roles() -> str:
    """What each communicator is for: by its name, else by how it is used."""
    return """
        named AS (
            -- PyTorch describes the group of a device mesh's dimension as mesh_ and its name.
            SELECT job, comm, rank, comm_rank,
                regexp_replace(lower(coalesce(role, name, '')), '^mesh_', '') AS said
            FROM members WHERE comm IS NOT NULL),
        used AS (
            SELECT n.job, n.comm, n.rank, coalesce(n.comm_rank, row_number() OVER (
                    PARTITION BY n.job, n.comm ORDER BY n.rank) - 1) AS place,
                count(*) OVER (PARTITION BY n.job, n.comm) AS members,
                CASE WHEN said IN ('tp', 'pp', 'dp') THEN said
                     WHEN said LIKE '%embd%' OR said LIKE '%embedding%' THEN NULL
                     WHEN said LIKE '%expert%' OR said IN ('ep', 'cp', 'world') THEN NULL
                     WHEN said LIKE '%pipeline%' THEN 'pp'
                     WHEN said LIKE '%tensor_and%' THEN NULL
                     WHEN said LIKE '%tensor%' THEN 'tp'
                     WHEN said LIKE '%data_parallel%' THEN 'dp'
                     ELSE p.parallelism END AS role
            FROM named n LEFT JOIN parallelism p ON p.job = n.job AND p.comm = n.comm)
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
                min(u.comm) FILTER (u.role = 'pp') AS pp_comm,
                arg_min(u.place, u.comm) FILTER (u.role = 'pp') AS stage,
                -- Experts' gradients have smaller groups; all replicas are in the largest.
                arg_max(u.comm, (u.members, u.comm)) FILTER (u.role = 'dp') AS dp_comm,
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
    ("job", "VARCHAR", "", "the job"),
    ("rank", "INTEGER", "", "global rank"),
    ("node", "VARCHAR", "", "host"),
    ("stage", "INTEGER", "", "pipeline stage, 0 first"),
    ("replica", "INTEGER", "", "which pipeline: its place among the replicas"),
    ("tensor_rank", "INTEGER", "", "place in the tensor-parallel group"),
    ("tp_comm", "UBIGINT", "", "communicator of the tensor-parallel group"),
    ("pp_comm", "UBIGINT", "", "communicator of the pipeline"),
    ("dp_comm", "UBIGINT", "", "communicator of the replicas"),
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
            coalesce(tensor_rank, m.place, c.rank % tp) AS tensor_rank,
            coalesce(tp_comm, labelled_comm) AS tp_comm, pp_comm, dp_comm
        FROM counted c LEFT JOIN (
            SELECT job, comm, rank, row_number() OVER (
                PARTITION BY job, comm ORDER BY coalesce(comm_rank, rank)) - 1 AS place
            FROM members) m ON m.job = c.job AND m.comm = c.labelled_comm AND m.rank = c.rank
        WINDOW peers AS (PARTITION BY c.job, c.labelled_stage)
    """


@relation(
    "stage_layout",
    reads=["ranks|members"],
    optional=["jobs", "parallelism", "stage_tasks", "processes"],
    columns=_COLUMNS,
    source="VenusTrace 3.3; Megatron-LM parallel_state",
)
def stage_layout() -> str:
    """Where each rank is, by what is stated and by its communicators."""
    return _layout("stage_tasks")


@relation(
    "task_layout",
    reads=["ranks|members"],
    optional=["jobs", "parallelism", "labelled_tasks", "stage_tasks", "processes"],
    columns=_COLUMNS,
    source="VenusTrace 3.3; Megatron-LM parallel_state",
)
def task_layout() -> str:
    """The same, and by the tasks that a rank's calls show: dear, for pictures and culprits."""
    names = "job, rank, stage, task, comm"
    return _layout(
        f"(SELECT {names} FROM labelled_tasks UNION ALL SELECT {names} FROM stage_tasks)"
    )
