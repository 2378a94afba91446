"""What a thread does, by its frames: the newest one that tells decides.

What the main thread of each process does, as its newest stack shows.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb

from oncall.evidence import relation

COLLECTIVE, DEVICE, RENDEZVOUS = "collective", "device", "rendezvous"
# Blocked until others come, or until the GPU has done what was launched.
WAITING = frozenset({COLLECTIVE, DEVICE, RENDEZVOUS})
# Kernels are launched ahead: a rank that waits for others may be blocked in any of these.
TOGETHER = "one place"
COMPUTING = frozenset({"forward", "backward", "optimizer", TOGETHER})
# Occupied with something of its own, which the others do not wait for in there.
OCCUPIED = frozenset({"data loader", "checkpoint", "compilation", "import", "debugger", "storage"})
# What is left where no frame tells: the program's own code, or a lock in it.
OTHER = frozenset({"user code", "lock"})
UNKNOWN = "unknown"
KERNEL = "the kernel"  # only the kernel's frames are known
# Processes beside the ranks: launchers, and the workers of data loaders.
_BESIDE = re.compile(
    r"torch/distributed/elastic/(?:agent/|multiprocessing/api\.py)|deepspeed/launcher/"
    r"|accelerate/commands/|torch/utils/data/_utils/worker\.py|multiprocessing/resource_tracker"
    r"|torch/_inductor/compile_worker"
)

# The order is that of one frame: a frame of a checkpoint library may be named `barrier`.
_REVEALING = tuple(
    (activity, re.compile(pattern))
    for activity, pattern in (
        ("debugger", r"\b(?:pdb|bdb|ipdb|debugpy|pydevd)\w*(?:\.py|/)|^breakpoint\b"),
        ("rendezvous", r"\b(?:_store_based_barrier|init_process_group|_rendezvous_helper"
         r"|next_rendezvous)\b|rendezvous\.py|c10d::(?:TCPStore|PrefixStore|FileStore)::"),
        ("collective", r"distributed_c10d\.py|_functional_collectives|torch/distributed/nn/"
         r"|deepspeed/comm/|/p2p_communication\.py|pipe/p2p\.py|^_wait_batch_p2p at|mpi4py|horovod"
         r"|^(?:\w+\.)?(?:all_reduce|all_gather\w*|reduce_scatter\w*|all_to_all\w*|barrier"
         r"|broadcast(?:_object_list|_data|_coalesced)?|batch_isend_irecv) at"
         r"|c10d::(?:Work|Reducer|ProcessGroup|verify_params|Logger)|c10d::ops::|\bnccl[A-Z]\w+"
         r"|at \S*libnccl|gloo::|_verify_param_shape_across_processes|_sync_module_states"),
        ("data loader", r"dataloader|data_loader|DataLoader|torch/utils/data/|data/_utils"
         r"|webdataset|streaming/base|datasets/iterable_dataset|nvidia/dali|megatron/\S{0,200}data_iter"),
        ("checkpoint", r"save_checkpoint|load_checkpoint|checkpoint(?:ing|er)?/|torch/serialization"
         r"|torch\.save|save_pretrained|dist_checkpointing|safetensors|torch/distributed/checkpoint"
         r"|checkpointing\.py"),
        ("compilation", r"torch/_(?:inductor|dynamo|functorch)/|triton/(?:compiler|runtime/jit)"
         r"|cpp_extension\.py|(?:torch)?inductor/codecache"),
        ("import", r"<frozen importlib|^_find_and_load|importlib/_bootstrap"),
        ("device", r"(?:cuda|cu)(?:Stream|Device|Event|Ctx)Synchronize|hip\w{1,40}Synchronize"
         r"|torch/cuda/(?:__init__|streams)\.py:|^synchronize at torch/|cudaMemcpy\b|cuMemcpy\w*"
         r"|at::native::_local_scalar_dense"),
        ("optimizer", r"torch/optim/|/optimizer/|/optimizers/|clip_grad|grad_scaler|amp/grad"),
        ("backward", r"^(?:\w+\.)?(?:_engine_run_backward|backward) at|torch/autograd/"
         r"|torch::autograd::Engine"),
        ("forward", r"torch/nn/modules/module\.py|^(?:\w+\.)?forward at|torch/nn/functional"),
    )
)  # fmt: skip
_KERNEL = re.compile(r"^(?:nfs|rpc_|ll_|cl_|gpfs|fuse_|ceph|lustre|ext4|xfs|io_schedule|blk_)\w*")
_LOCK = re.compile(
    r"^(?:\w+\.)?(?:acquire|wait|get|join|result|select|_wait_for_tstate_lock) at "
    r"(?:threading|queue|selectors|asyncio|concurrent|multiprocessing)|PyThread_acquire_lock"
    r"|^__lll_lock_wait|^pthread_mutex_lock"
)
# Frames of nobody's program: the interpreter, the C library, the standard library by its names.
_LIBRARY = re.compile(
    r" at (?:lib[\w+.-]*\.so|ld-linux|python3?[\d.]*$|\[)|^0x[0-9a-f]+ at |\.(?:c|cc|cpp|h|cu):\d+$"
    r"| at (?:threading|queue|selectors|socket|ssl|subprocess|contextlib|runpy|functools"
    r"|socketserver|concurrent|multiprocessing|asyncio|importlib|<frozen|<string)\b|/lib/python3"
    r"|\.so[.\d]*$| at kernel$"
)


@dataclass(frozen=True)
class Activity:
    """What a thread does, and the frame that tells it."""

    name: str
    frame: str


@lru_cache(maxsize=1 << 14)
def is_rank(frames: tuple[str, ...]) -> bool:
    """Whether the stack may be that of a rank: no launcher's, no data loader worker's."""
    return not any(_BESIDE.search(frame) for frame in frames)


@lru_cache(maxsize=1 << 14)
def activity_of(frames: tuple[str, ...]) -> Activity:
    """What a main thread with these frames, newest first, does."""
    for frame in frames:
        if frame.endswith(" at kernel") and _KERNEL.match(frame):
            return Activity("storage", frame)
        for name, pattern in _REVEALING:
            if pattern.search(frame):
                return Activity(name, frame)
    if frames and all(frame.endswith(" at kernel") for frame in frames):
        return Activity(KERNEL, frames[0])
    if any(_LOCK.search(frame) for frame in frames[:8]):
        return Activity("lock", _own(frames) or frames[0])
    own = _own(frames)
    return Activity("user code", own) if own else Activity(UNKNOWN, frames[0] if frames else "")


def _own(frames: Sequence[str]) -> str | None:
    """The newest frame of the program itself."""
    return next((frame for frame in frames if not _LIBRARY.search(frame)), None)


_COLUMNS = (
    "job",
    ("process", "VARCHAR", "", "its rank, else its host and process id, else its file and thread"),
    ("rank", "INTEGER", "", "global rank, if known"),
    "node pid",
    ("at_ns", "BIGINT", "ns", "when the newest stack was taken"),
    (
        "activity",
        "VARCHAR",
        "",
        "collective, device, rendezvous; forward, backward, optimizer; data loader, checkpoint, "
        "compilation, import, debugger, storage; user code, lock; the kernel (only its frames are "
        "known); unknown",
    ),
    ("frame", "VARCHAR", "", "the frame that tells it"),
    ("frames", "VARCHAR[]", "", "the stack, newest frame first"),
    ("busy", "BOOLEAN", "", "it ran on a CPU when it was looked at; NULL: not recorded"),
    ("looks", "INTEGER", "", "how often the process was looked at; 0: its recorder's own frames"),
    ("moved", "BOOLEAN", "", "its stack changed between looks that can be compared; NULL: none"),
)
_NATIVE = re.compile(r"\.so[\d.]*(?::\d+)?$|\.(?:c|cc|cpp|cxx|h|hpp|cu):\d+$")
# In a Flight Recorder dump the frames of a call that has not completed are the rank's own.
_CALLS = """
    SELECT s.job, s.rank, s.frames FROM stacks s
    JOIN ops o ON (o.job, o.rank, o.comm, o.seq, o.kind) = (s.job, s.rank, s.comm, s.seq, s.kind)
    WHERE len(s.frames) > 0 AND o.ended_ns IS NULL
      AND coalesce(NOT o.done, o.observed_ns IS NOT NULL, false)
    QUALIFY row_number() OVER (PARTITION BY s.job, s.rank ORDER BY o.enqueued_ns, s.seq) = 1
"""


@relation(
    "main_threads",
    reads=["thread_stacks"],
    optional=["stacks", "ranks", "ops", "log_events"],
    columns=_COLUMNS,
    source="stacks of all ranks: py-spy, faulthandler, gdb, pystack; Flight Recorder frames",
)
def main_threads(con: duckdb.DuckDBPyConnection) -> Mapping[str, Any]:
    """One row for each rank's process whose main thread's stack is known. Where some are, other
    ranks have the frames of their Flight Recorder's call in flight."""
    rows = _looked_at(con)
    if rows:
        seen = {(row["job"], row["rank"]) for row in rows}
        calls = con.execute(_CALLS).fetchall()
        rows += [_call(*one) for one in calls if (one[0], one[1]) not in seen]
    return {one.name: [row[one.name] for row in rows] for one in main_threads.columns}


def _looked_at(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    found = con.execute(
        """
        WITH homes AS (
            SELECT job, node, pid, min(rank) AS rank FROM (
                SELECT job, node, pid, rank FROM ranks
                UNION SELECT job, node, pid, rank FROM log_events)
            WHERE pid IS NOT NULL AND rank IS NOT NULL
            GROUP BY job, node, pid HAVING min(rank) = max(rank)),
        numbers AS (  -- which one process of the job has, on whatever host
            SELECT job, pid, min(rank) AS rank, any_value(node) AS node FROM homes
            GROUP BY job, pid HAVING min(rank) = max(rank))
        SELECT s.job, coalesce(s.rank, h.rank, n.rank) AS rank, s.node, s.pid, s.path, s.thread,
            s.at_ns, s.look, s.state LIKE 'active%' AS busy, s.frames
        FROM thread_stacks s LEFT JOIN homes h ON (h.job, h.node, h.pid) = (s.job, s.node, s.pid)
        LEFT JOIN numbers n ON (n.job, n.pid) = (s.job, s.pid)
            AND (n.node IS NULL OR s.node IS NULL)
        WHERE s.is_main AND len(s.frames) > 0
        ORDER BY s.at_ns NULLS FIRST, s.look NULLS FIRST, s.path, s.thread
        """
    ).fetchall()
    names = ("job", "rank", "node", "pid", "path", "thread", "at_ns", "look", "busy", "frames")
    rows = [dict(zip(names, values, strict=True)) for values in found]
    rows = [row for row in rows if is_rank(tuple(row["frames"]))]
    disputed = _disputed(rows)
    looks: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        row["process"] = _process(row)
        if (row["job"], row["rank"]) in disputed:
            row["process"] += f" ({_process({**row, 'rank': None})})"
        looks[row["job"], row["process"]].append(row)
    return [_row(each) for each in looks.values()]


def _disputed(rows: Sequence[Mapping[str, Any]]) -> set[tuple[str, int]]:
    """The ranks (job, rank) that stacks of several processes are said to be of."""
    known: dict[tuple[str, int], dict[str, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        if row["rank"] is not None:
            for name in ("node", "pid"):
                known[row["job"], row["rank"]][name] |= {row[name]} - {None}
    return {key for key, names in known.items() if any(len(one) > 1 for one in names.values())}


def _process(row: Mapping[str, Any]) -> str:
    if row["rank"] is not None:
        return f"rank {row['rank']}"
    if row["pid"] is not None:
        return f"{row['node'] + ' ' if row['node'] else ''}process {row['pid']}"
    file = (row["path"] or "").rpartition("/")[2]
    return f"{row['node'] or file} thread {row['thread']}"


def _row(looks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    newest = looks[-1]
    activity = activity_of(tuple(newest["frames"]))
    return {
        **newest,
        "activity": activity.name,
        "frame": activity.frame,
        "looks": len(looks),
        "moved": _moved([tuple(look["frames"]) for look in looks]),
    }


def _moved(stacks: Sequence[tuple[str, ...]]) -> bool | None:
    """Whether stacks of one kind differ: with native frames, without, of the kernel alone."""
    kinds: dict[tuple[bool, bool], list[tuple[str, ...]]] = defaultdict(list)
    for frames in stacks:
        kernel = all(frame.endswith(" at kernel") for frame in frames)
        kinds[kernel, any(_NATIVE.search(frame) for frame in frames)].append(frames)
    compared = [alike for alike in kinds.values() if len(alike) > 1]
    return any(len(set(alike)) > 1 for alike in compared) if compared else None


def _call(job: str, rank: int, frames: list[str]) -> dict[str, Any]:
    known = {"job": job, "rank": rank, "process": f"rank {rank}", "frames": frames}
    unknown = dict.fromkeys(("node", "pid", "at_ns", "busy", "moved"))
    return {**unknown, **known, "activity": COLLECTIVE, "frame": frames[0], "looks": 0}
