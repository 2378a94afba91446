"""Traces of the straggler what-if study: tasks of every rank in some steps, named by the recorder.

CSV (also gzipped) or Parquet, a row a task: dp_rank, stage, rank, step, optype, start_ts and
duration in seconds, seq_id, mc (chunk on the rank), mb_id (micro-batch), gmc (chunk in the model).
The sizes of the parallel groups are in a YAML file beside it. Format: ByteDance-Seed,
StragglerAnalysis; the study: "Understanding Stragglers in Large Model Training Using What-if
Analysis", OSDI '25.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from oncall.core.errors import BadInput, Unreadable
from oncall.evidence.incident import Incident
from oncall.importers import files
from oncall.importers.documents import parse_yaml
from oncall.importers.recordings import append_recording
from oncall.importers.straggler import tasks as straggler_tasks
from oncall.importers.straggler.tasks import NEEDED, TraceSummary
from oncall.importers.tables import PARQUET, Database, csv_columns, reason

KIND = "straggler_analysis"

_SIZES = ("dp_size", "pp_size", "tp_size", "dsp_size", "vpp_size", "world_size")
_MOST_META_BYTES = 64 * 1024


@dataclass(frozen=True)
class _Meta:
    """The YAML file beside a trace: sizes by name, empty where there is no such file."""

    path: Path | None
    sizes: dict[str, int]


def recognises(path: Path, head: bytes) -> bool:
    """Whether it is such a trace, or the file with its configuration."""
    if head.startswith(PARQUET):
        with Database() as db:
            return set(db.parquet_columns(path)) >= NEEDED
    return _is_meta(head) or csv_columns(head) >= NEEDED


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add the tasks of a trace as evidence of `job`; fills jobs, ranks, comms, stage_tasks.

    Raises BadInput for several traces in one folder, which are of several jobs.
    """
    traces = _one_of_each(path for path in paths if not _is_meta(_head(path)))
    if len(traces) > 1:
        names = ", ".join(path.name for path in traces[:4])
        raise BadInput(
            str(traces[0].parent),
            f"{len(traces)} traces, each of another job; name one of them: {names}",
        )
    for path in traces:
        meta = _meta_of(path, paths)
        with Database() as db:
            summary, problem = _load(db, path)
            notes = []
            if summary.rows:
                try:
                    with db.deadline(path):
                        notes = _write(db, incident, job, meta, summary)
                except (Unreadable, duckdb.Error) as error:
                    problem = reason(error)
        append_recording(incident, job, KIND, path, summary.rows, problem, notes)


# ------------------------------------------------------------------- finding


def _is_meta(head: bytes) -> bool:
    return all(re.search(rb"^%s:" % name.encode(), head, re.M) for name in _SIZES[:3])


def _head(path: Path) -> bytes:
    try:
        return files.head(path, _MOST_META_BYTES)
    except Unreadable:
        return b""


def _one_of_each(paths: Any) -> list[Path]:
    """A trace kept in several forms (CSV, Parquet) counts once."""
    return list({path.name.split(".")[0]: path for path in sorted(paths)}.values())


def _meta_of(trace: Path, given: Sequence[Path]) -> _Meta:
    """Of the YAML files given, or beside it, the one that shares its name, else the only one."""
    beside = files.files_in(trace.parent, ("yaml", "yml"))
    found = [path for path in dict.fromkeys((*given, *beside)) if _is_meta(_head(path))]
    called = trace.name.split(".")[0].removeprefix("trace")
    mine = [path for path in found if path.stem.removeprefix("meta") == called]
    for path in mine or (found if len(found) == 1 else []):
        content = parse_yaml(_head(path))
        sizes = {name: content.get(name) for name in _SIZES} if isinstance(content, dict) else {}
        return _Meta(path, {k: v for k, v in sizes.items() if isinstance(v, int) and v > 0})
    return _Meta(None, {})


# ------------------------------------------------------------------- reading


def _load(db: Database, path: Path) -> tuple[TraceSummary, str | None]:
    """Put the file's rows into its tables; what they are, and what could not be read."""
    try:
        cut = db.load("file", path)
        with db.deadline(path):
            summary = straggler_tasks.load(db.con)
    except Unreadable as error:
        return TraceSummary(), str(error)
    except duckdb.Error as error:
        return TraceSummary(), reason(error)
    lost = summary.lines - summary.rows
    bad = f"{lost:,} of {summary.lines:,} rows lack a value they need" if lost else None
    return summary, "; ".join(filter(None, (cut, bad))) or None


# ------------------------------------------------------------------- writing


def _write(
    db: Database, incident: Incident, job: str, meta: _Meta, summary: TraceSummary
) -> list[str]:
    """All tables; returns what was inferred on the way."""
    sizes = meta.sizes
    tp, cp = sizes.get("tp_size"), sizes.get("dsp_size")
    chunks = sizes.get("vpp_size", summary.chunks)
    incident.append(
        "jobs",
        {
            "job": [job],
            "world_size": [sizes.get("world_size")],
            "tp": [tp],
            "pp": [sizes.get("pp_size", summary.stages)],
            "dp": [sizes.get("dp_size", summary.replicas)],
            "cp": [cp],
            "micro_batches": [summary.micro_batches],
            "chunks": [chunks],
            "schedule": ["interleaved" if chunks > 1 else None],
            "distributed_optimizer": [True if summary.sharded else None],
            "origin": [meta.path.name if meta.path else "the trace's rows"],
        },
    )
    incident.append("ranks", {"job": job, **_columns(db, "SELECT rank FROM places ORDER BY rank")})
    role = {tp: "tp", cp: "cp"}.get(summary.slots) if summary.slots > 1 and 1 in (tp, cp) else None
    incident.append("comms", {"job": job, **_columns(db, straggler_tasks.comms_sql(role))})
    alone = tp == cp == 1
    incident.append(
        "stage_tasks",
        {"job": job, "source": "recorded", "whole": True, **_columns(db, straggler_tasks.TASKS)}
        | ({"calls": 0} if alone else {"own_ns": None}),
    )
    return _notes(meta, summary)


def _columns(db: Database, sql: str) -> dict[str, Any]:
    """A query's columns, NULL masked; texts as lists, whose None is NULL."""
    columns: dict[str, np.ndarray[Any, Any]] = db.columns(sql)
    return {k: v.tolist() if v.dtype.kind == "O" else v for k, v in columns.items()}


def _notes(meta: _Meta, summary: TraceSummary) -> list[str]:
    notes = ["the nodes of the ranks are not in the trace"]
    if summary.relative:
        notes.append("its times begin anew with each step: steps are laid one after another")
    if meta.sizes.get("dsp_size", 1) > 1:
        notes.append("its sequence parallelism (dsp) is taken for context parallelism")
    if meta.path is None:
        notes.append("no meta YAML beside it: sizes of the parallel groups are those of its rows")
    world = meta.sizes.get("world_size")
    if world and summary.ranks < world:
        notes.append(f"{summary.ranks} of {world} ranks are in the trace")
    if summary.no_transfers:
        notes.append(
            f"{summary.no_transfers:,} sends and receives at the pipeline's ends moved nothing"
        )
    return notes
