"""A node's side of `oncall stacks` and `oncall doctor --job`: answers about living processes."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oncall.core.errors import UsageError
from oncall.evidence.columns import create_table_sql, insert
from oncall.evidence.schema import BY_NAME
from oncall.importers.stacks.dump import stack_rows
from oncall.node.processes.recorder_pipe import DumpAsked, ask_for_dumps
from oncall.node.processes.take_stacks import Look, take_stacks
from oncall.node.processes.training_processes import TrainingProcess, training_processes
from oncall.node.processes.versions import loaded_versions
from oncall.node.store.batch import Batch, of_rows
from oncall.node.store.database import connect
from oncall.node.store.wire import End, Part, Request, WireError

_MOST_PROBLEMS = 8
_MOST_JOBS = 8
_OF_ONE_RANK = {"ONCALL_NODE", "TORCHELASTIC_ERROR_FILE"}  # differ between processes


def answer_stacks(name: str, run: Path | None, request: Request) -> Iterator[Part | End]:
    """The stacks of the job's processes on this node, as rows of `thread_stacks` and `ranks`."""
    processes = _processes(run, request.job)
    yield from parts_of(_ranks(name, processes))
    # First: a process dumps within a second, and the stacks take longer.
    recorder = dumps_status(ask_for_dumps(processes)) if request.recorder else None
    problems: dict[str, list[int]] = defaultdict(list)
    for look in take_stacks(processes, name, native=request.native, looks=request.looks):
        if look.problem is not None and look.process.pid not in problems[look.problem]:
            problems[look.problem].append(look.process.pid)
        yield from parts_of(look_rows(look))
    yield End(
        {
            "stacks": {
                "processes": len(processes),
                "problems": [
                    {"problem": problem, "pids": pids}
                    for problem, pids in list(problems.items())[:_MOST_PROBLEMS]
                ],
            },
            **({"recorder": recorder} if recorder is not None else {}),
        }
    )


def dumps_status(asked: Sequence[DumpAsked]) -> list[dict[str, Any]]:
    """The outcome of requests to dump: equal ones together."""
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in asked:
        alike[one.files, one.problem].append(-1 if one.rank is None else one.rank)
    return [
        {"files": files, "problem": problem, "ranks": [rank for rank in ranks if rank >= 0]}
        for (files, problem), ranks in list(alike.items())[:_MOST_PROBLEMS]
    ]


def answer_processes(run: Path | None, request: Request) -> Iterator[Part | End]:
    """What the job's processes on this node are set to record."""
    yield End({"processes": set_processes(_processes(run, request.job))})


def set_processes(processes: Sequence[TrainingProcess]) -> list[dict[str, Any]]:
    """What processes are set to record and the versions they have loaded: equal ones together. The
    settings are None where they may not be read."""
    alike: dict[tuple[Any, ...], list[TrainingProcess]] = defaultdict(list)
    for one in processes:
        settings = None
        if one.settings is not None:
            common = one.settings.keys() - _OF_ONE_RANK
            settings = tuple(sorted((key, one.settings[key]) for key in common))
        versions = tuple(sorted(loaded_versions(one.pid).items()))
        alike[one.job, settings, versions].append(one)
    return [
        {
            "job": job,
            "settings": None if settings is None else dict(settings),
            "versions": dict(versions),
            "ranks": [one.rank for one in group if one.rank is not None],
            "pids": [one.pid for one in group],
        }
        for (job, settings, versions), group in alike.items()
    ]


def _processes(run: Path | None, job: str | None) -> Sequence[TrainingProcess]:
    """The processes of the job, or of the only one. Raises WireError if there are none."""
    if run is None:
        raise WireError("a recording: no process of it runs here", "job")
    try:
        return processes_of(run, job)
    except UsageError as error:
        raise WireError(str(error), "job") from error


def processes_of(run: Path, job: str | None) -> Sequence[TrainingProcess]:
    """The processes of `job` (None: the only one) on this machine. Raises UsageError."""
    found = training_processes(run)
    jobs = sorted({one.job for one in found})
    listed = ", ".join(jobs[:_MOST_JOBS])
    if job is None and len(jobs) > 1:
        raise UsageError(f"several jobs run here; choose one with --job: {listed}")
    chosen = [one for one in found if job in (None, one.job)]
    if not chosen:
        what = "" if job is None else f"of job {job} "
        seen = f"; there are those of {listed}" if jobs else ""
        raise UsageError(f"no training process {what}runs here{seen}")
    return chosen


def _ranks(name: str, processes: Sequence[TrainingProcess]) -> Batch:
    rows = [(one.job, one.rank, name, one.pid) for one in processes if one.rank is not None]
    return of_rows("ranks", ("job", "rank", "node", "pid"), rows)


def look_rows(look: Look) -> Batch:
    """One look at a process as rows of `thread_stacks`."""
    columns: Mapping[str, Any] = stack_rows([look.stacks] if look.stacks else [])
    same = {"job": look.process.job, "at_ns": look.at_ns, "look": look.look}
    return Batch("thread_stacks", len(columns["frames"]), {**columns, **same})


def parts_of(batch: Batch) -> Iterator[Part]:
    """The rows as Parquet; none if there are none."""
    if not batch.rows:
        return
    table = BY_NAME[batch.table]
    with tempfile.TemporaryDirectory(prefix="oncall-rows-") as folder:
        path = Path(folder, "part.parquet")
        con = connect()
        try:
            con.execute(create_table_sql(table.name, table.columns))
            insert(con, table.name, table.columns, batch.columns)
            con.execute(f"COPY {table.name} TO '{path}' (FORMAT parquet)")
        finally:
            con.close()
        yield Part(table.name, batch.rows, path.read_bytes())
