"""The answer to a request for evidence.

Reads the sealed shards and queries the collector for what it has not sealed yet. A source that
cannot be read is named at the end of the answer; the others are read nevertheless.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from oncall.core.errors import OncallError
from oncall.evidence.columns import create_table_sql
from oncall.evidence.schema import TABLES
from oncall.evidence.settle import settle_duplicates
from oncall.fleet.endpoint.collector import AnswerFolder, ask_collector, gaps_of
from oncall.fleet.endpoint.node import LIMITS, MOST_SHARDS, Node, sealed_in_window
from oncall.node.store.answer import answer, shows
from oncall.node.store.catalog import Shard
from oncall.node.store.database import connect, reason
from oncall.node.store.labelled import OPERATIONS, LabelledTasks
from oncall.node.store.parts import load_parts
from oncall.node.store.reader import Shards, open_shards, read_shards
from oncall.node.store.shard_digest import CANDIDATES
from oncall.node.store.wire import End, Part, Request

_TASKS = "stage_tasks"
_MOST_ASKED = 3  # a collector seals once a minute


def evidence_of(node: Node, request: Request) -> Iterator[Part | End]:
    """Sealed and unsealed evidence in one answer."""
    with tempfile.TemporaryDirectory(prefix="oncall-node-") as folder:
        into = AnswerFolder(Path(folder))
        sealed, gaps, collector = _unsealed_parts(node, request, into)
        gaps += _sealed_parts(node, sealed, request, into)
        con = connect(LIMITS, Path(folder))
        try:
            con.execute(";".join(create_table_sql(table.name, table.columns) for table in TABLES))
            gaps += [f"{bad.part.sender}: {bad.problem}" for bad in load_parts(con, into.parts)]
            settle_duplicates(con)
            rows = 0
            for frame in answer(con, request):
                if isinstance(frame, Part):
                    rows += frame.rows
                    yield frame
                else:
                    gaps += gaps_of(frame)
        finally:
            con.close()
    yield End({"rows": rows, "gaps": gaps, "collector": collector})


def _unsealed_parts(
    node: Node, request: Request, into: AnswerFolder
) -> tuple[list[Shard], list[str], dict[str, Any]]:
    """Write the collector's answer into the folder; returns the shards that were sealed by then,
    what is wrong with them, and the state of the collector.

    A shard that is sealed while the collector answers may be in neither or in both: then it is
    asked again. At last rows may come twice, but none is left out.
    """
    sealed, gaps = sealed_in_window(node, request.until_ns, request.since_ns)
    for _ in range(_MOST_ASKED):
        into.clear()
        collector, _end = ask_collector(node, request, into)
        before = set(sealed)
        sealed, gaps = sealed_in_window(node, request.until_ns, request.since_ns)
        if before.issuperset(sealed):
            break
    return sealed, gaps, collector


def _sealed_parts(
    node: Node, sealed: Sequence[Shard], request: Request, into: AnswerFolder
) -> list[str]:
    """Write the sealed shards' answer into the folder; returns what could not be read."""
    gaps = []
    if len(sealed) > MOST_SHARDS:
        older = len(sealed) - MOST_SHARDS
        gaps.append(f"{older} older shards not read: use a shorter window (--since, --at)")
        sealed = sealed[-MOST_SHARDS:]
    newest: set[Shard] = set()
    for opened in _opened(sealed, request):
        gaps += _answer_into(opened, request, into)
        gaps += [str(gap) for gap in opened.gaps]
        newest.update(opened.newest("ops", OPERATIONS))
    if request.ask == "digest" and newest and (not request.tables or _TASKS in request.tables):
        gaps += _label(node, sorted(newest), request, into)
    return gaps


def _label(node: Node, sealed: Sequence[Shard], request: Request, into: AnswerFolder) -> list[str]:
    """Write the training tasks inferred from the shards' operations into the folder."""

    def read(opened: Shards) -> Part | None:
        return _labelled(node.data).part(opened.con, opened.shards, request.job, into.folder)

    with open_shards(sealed, LIMITS, into.folder) as opened:
        try:
            parts = read_shards(opened, read)
        except (OncallError, duckdb.Error) as error:
            return [f"training tasks: {reason(error)}"]
    into.take(part for part in parts if part)
    return []


@cache
def _labelled(data: Path) -> LabelledTasks:  # noqa: ARG001 - one for each folder
    """The tasks in the shards of that folder, cached for the life of the process."""
    return LabelledTasks()


def _opened(sealed: Sequence[Shard], request: Request) -> Iterator[Shards]:
    """The opened shards. For a digest, those with candidates and those without, which are read in
    full, are opened separately."""
    if not sealed:
        return
    with open_shards(sealed, LIMITS) as opened:
        prepared = {path for found in read_shards(opened, _prepared) for path in found}
        with_them = [shard for shard in sealed if str(shard.path) in prepared]
        without = [shard for shard in sealed if str(shard.path) not in prepared]
        if request.ask == "detail" or not with_them or not without:
            yield opened
            return
    for group in (with_them, without):
        with open_shards(group, LIMITS) as opened:
            yield opened


def _prepared(shards: Shards) -> set[str]:
    """The paths of the shards that hold candidates for a digest."""
    found = shards.con.execute(
        "SELECT path FROM shards WHERE list_has_all(tables, ?)", [[*CANDIDATES.values()]]
    ).fetchall()
    return {path for (path,) in found}


def _answer_into(shards: Shards, request: Request, into: AnswerFolder) -> list[str]:
    """Write the shards' answer into the folder; returns what could not be computed. Damaged shards
    are among the shards' gaps."""

    def read(opened: Shards) -> list[str]:
        con, already = opened.con, len(into.parts)
        if request.ask == "digest" and all(shows(con, name) for name in CANDIDATES.values()):
            for table, candidates in CANDIDATES.items():
                con.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS FROM memory.main.{candidates}")
        try:
            return into.take(answer(con, request))
        except duckdb.Error:
            del into.parts[already:]
            raise

    return [gap for gaps in read_shards(shards, read) for gap in gaps]
