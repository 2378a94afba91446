"""Tables of what logs say in text: events, watchdog reports, steps."""

from __future__ import annotations

from oncall.evidence.table import AT, JOB, NODE, RANK, Table, table

_PATH = ("path", "VARCHAR", "", "the file")
_LINE = ("line", "BIGINT", "", "line of the file, 1 first")
_ATTEMPT = ("attempt", "INTEGER", "", "start of the job that it belongs to, 1 first")
_SORT = ("sort_ns", "BIGINT", "ns", "the line's stamp, else that of the stamped line before it")
_BEFORE = (
    "before_ns",
    "BIGINT",
    "ns",
    "of a line without a stamp: that of the next line which has one",
)
_COMM_RANK = ("comm_rank", "INTEGER", "", "rank within the communicator or process group")
_GROUP = ("process_group", "VARCHAR", "", "the process group or communicator, as the line names it")

LOG_TABLES: tuple[Table, ...] = (
    table(
        "log_events",
        "log lines",
        "a line of a log that says something of the job",
        "job logs: launchers, schedulers, PyTorch, NCCL, Python, the kernel",
        JOB,
        _PATH,
        _LINE,
        _ATTEMPT,
        AT,
        _SORT,
        _BEFORE,
        RANK,
        ("local_rank", "INTEGER", "", "rank within its node, or CUDA device, as the prefix says"),
        NODE,
        ("pid", "BIGINT", "", "process id"),
        (
            "kind",
            "VARCHAR",
            "",
            "error, cuda, memory, exit, crash, signal, scheduler, xid, sxid, ib, port, mismatch, "
            "desync, version, nvls, sharp, fabric, init, net, nccl_init, nccl_version, phase, "
            "reported (an error in no known form), loss, world, work (a batch is said to change), "
            "heartbeat, attempt, echo, bandwidth (a size of a test, or a host of it), "
            "process (it writes to the log), served, server (it waits for its workers)",
        ),
        ("code", "VARCHAR", "", "which of its kind: an exception's type, a status, an exit code"),
        _COMM_RANK,
        _GROUP,
        ("seq", "BIGINT", "", "number of the collective, or the size in bytes that was tested"),
        ("peer_host", "VARCHAR", "", "the other end, as a host name or address"),
        ("device", "VARCHAR", "", "PCI address, RDMA device or network interface"),
        ("number", "BIGINT", "", "the number it states: a world size, ranks of a communicator"),
        ("thread", "VARCHAR", "", "thread id, of a stack"),
        ("text", "VARCHAR", "", "the line, or the part of it that says it"),
    ),
    table(
        "watchdog_reports",
        "watchdog reports",
        "a line of PyTorch's watchdog or heartbeat monitor",
        "job logs (ProcessGroupNCCL)",
        JOB,
        _PATH,
        _LINE,
        _ATTEMPT,
        AT,
        _SORT,
        RANK,
        NODE,
        _COMM_RANK,
        _GROUP,
        (
            "kind",
            "VARCHAR",
            "",
            "timeout, status (of the group after one), remote_dump (another rank timed out), "
            "local_dump, stuck (the watchdog itself), heartbeat",
        ),
        ("seq", "BIGINT", "", "number of the operation on its group, 1 first"),
        ("op", "VARCHAR", "", "ALLREDUCE, _ALLGATHER_BASE, ... as PyTorch names it"),
        ("elements_in", "BIGINT", "elements", "elements of the input"),
        ("elements_out", "BIGINT", "elements", "elements of the output"),
        ("timeout_ns", "BIGINT", "ns", "the timeout of the group"),
        ("waited_ns", "BIGINT", "ns", "how long the operation ran, or the watchdog was stuck"),
        ("enqueued", "BIGINT", "operations", "operations enqueued so far; -1: none yet"),
        ("started", "BIGINT", "operations", "operations started so far; NULL: not recorded"),
        ("started_op", "VARCHAR", "", "the operation started last"),
        ("completed", "BIGINT", "operations", "operations completed so far; -1: none yet"),
        ("pending", "BIGINT", "operations", "operations waiting in the watchdog's list"),
    ),
    table(
        "logged_steps",
        "logged steps",
        "a progress line of a training framework",
        "job logs (Megatron, NeMo, torchtitan, DeepSpeed, Transformers, Lightning, ...)",
        JOB,
        _PATH,
        _LINE,
        _ATTEMPT,
        AT,
        RANK,
        ("process", "VARCHAR", "", "who wrote it, where no rank is stated: a device"),
        ("iteration", "BIGINT", "", "iteration or step; NULL: the line has none"),
        ("of_iterations", "BIGINT", "", "iterations in all, if stated"),
        ("duration_ns", "BIGINT", "ns", "time of one iteration, as stated"),
        ("rate", "DOUBLE", "1/s", "tokens or samples a second, as stated"),
        (
            "work",
            "DOUBLE",
            "",
            "samples or tokens of the iteration, as far as stated: only ratios mean something",
        ),
        ("flops", "DOUBLE", "", "TFLOP/s a GPU, or the share of its peak (MFU), as stated"),
    ),
)
