"""What the sealed shards of a node answer, kept until other shards are asked.

A sealed shard never changes, and a console that watches asks every few seconds for a window that
moves on: until another shard is sealed, the answer of the first time is that of all others. Who
joins it with what is not sealed yet cuts it to the window.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from oncall.core.errors import OncallError
from oncall.evidence.columns import create_table_sql
from oncall.evidence.schema import TABLES
from oncall.evidence.settle import settle_duplicates
from oncall.evidence.statements import reason
from oncall.fleet.endpoint.node import (
    LIMITS,
    MOST_SHARDS,
    AnswerFolder,
    Node,
    ask_collector,
    gaps_of,
    sealed_in_window,
)
from oncall.node.store.answer import answer, jobs_seen
from oncall.node.store.catalog import Shard
from oncall.node.store.database import connect
from oncall.node.store.labelled import OPERATIONS, LabelledTasks
from oncall.node.store.parts import load_parts
from oncall.node.store.reader import Shards, open_shards, read_shards
from oncall.node.store.shard_digest import CANDIDATES, shows
from oncall.node.store.wire import End, Part, Request

_TASKS = "stage_tasks"


@dataclass(frozen=True)
class _Kept:
    """An answer: to what, of which shards, and from when on it is whole."""

    request: Request  # without its window
    shards: Sequence[Shard]
    since_ns: int | None
    until_ns: int | None  # None: it ends after all of them
    parts: Sequence[Part]

    def answers(self, other: _Kept) -> bool:
        """Whether these are the rows that `other` asks for, and perhaps some from before."""
        return (
            (self.request, self.shards, self.until_ns)
            == (other.request, other.shards, other.until_ns)
        ) and (self.since_ns is None or self.since_ns <= (other.since_ns or 0))


class SealedAnswers:
    """The answers of one node's sealed shards, the last of each kind of request kept, and of the
    greeting."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, tuple[str, ...]], _Kept] = {}
        self._jobs: tuple[Sequence[Shard], dict[str, Any]] | None = None
        self._labelled = LabelledTasks()

    def jobs(self, sealed: Sequence[Shard]) -> tuple[dict[str, Any], list[str]]:
        """The jobs that the shards show, as `jobs_seen` has them, and what could not be read."""
        if self._jobs is not None and self._jobs[0] == sealed:
            return dict(self._jobs[1]), []
        with open_shards(sealed, LIMITS) as shards:
            gaps = []
            try:
                found = _together(read_shards(shards, _jobs_in))
            except (OncallError, duckdb.Error) as error:
                # A greeting must succeed: unreadable shards become a gap in it.
                found, gaps = {}, [f"jobs of the shards: {reason(error)}"]
            gaps = [*map(str, shards.gaps), *gaps]
        if not gaps:
            self._jobs = (sealed, dict(found))
        return found, gaps

    def write(self, sealed: Sequence[Shard], request: Request, into: AnswerFolder) -> list[str]:
        """Write the shards' answer into the folder; returns what could not be read."""
        gaps = []
        if len(sealed) > MOST_SHARDS:
            older = len(sealed) - MOST_SHARDS
            gaps.append(f"{older} older shards not read: use a shorter window (--since, --at)")
            sealed = sealed[-MOST_SHARDS:]
        if not sealed:
            return gaps
        end_ns = max(shard.end_ns for shard in sealed)
        until_ns = request.until_ns
        until_ns = None if until_ns is None or until_ns >= end_ns else until_ns
        asked = _Kept(
            replace(request, since_ns=None, until_ns=None), sealed, request.since_ns, until_ns, ()
        )
        kind = request.ask, request.tables
        kept = self._kept.get(kind)
        if kept is not None and kept.answers(asked):
            into.take(kept.parts)
            return gaps
        first = len(into.parts)
        new_gaps = self._read(sealed, replace(request, until_ns=until_ns), into)
        if not new_gaps:  # what could not be read is tried again
            parts = [Part(one.table, one.rows, one.path.read_bytes()) for one in into.parts[first:]]
            self._kept[kind] = replace(asked, parts=parts)
        return gaps + new_gaps

    def _read(self, sealed: Sequence[Shard], request: Request, into: AnswerFolder) -> list[str]:
        gaps = []
        newest: set[Shard] = set()
        for opened in _opened(sealed, request):
            gaps += _answer_into(opened, request, into)
            gaps += [str(gap) for gap in opened.gaps]
            newest.update(opened.newest("ops", OPERATIONS))
        if request.ask == "digest" and newest and (not request.tables or _TASKS in request.tables):
            gaps += self._label(sorted(newest), request, into)
        return gaps

    def _label(self, newest: Sequence[Shard], request: Request, into: AnswerFolder) -> list[str]:
        """Write the training tasks inferred from the shards' operations into the folder."""

        def read(opened: Shards) -> Part | None:
            return self._labelled.part(opened.con, opened.shards, request.job, into.folder)

        with open_shards(newest, LIMITS, into.folder) as opened:
            try:
                parts = read_shards(opened, read)
            except (OncallError, duckdb.Error) as error:
                return [f"training tasks: {reason(error)}"]
        into.take(part for part in parts if part)
        return []


def _opened(sealed: Sequence[Shard], request: Request) -> Iterator[Shards]:
    """The opened shards. For a digest, those with candidates and those without, which are read in
    full, are opened separately."""
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
    """The paths of the shards that hold candidates for a digest, or nothing to choose them of."""
    found = shards.con.execute(
        "SELECT path FROM shards WHERE list_has_all(tables, ?) OR NOT list_has_any(tables, ?)",
        [[*CANDIDATES.values()], [*CANDIDATES]],
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


def _jobs_in(shards: Shards) -> dict[str, Any]:
    source = CANDIDATES["ops"] if shows(shards.con, CANDIDATES["ops"]) else "ops"
    return jobs_seen(shards.con, source)


def _together(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the jobs of several groups of shards."""
    jobs: dict[str, Any] = {}
    for seen in found:
        for job, new in seen.items():
            old = jobs.get(job, new)
            instants = [each["last_ns"] for each in (old, new) if each["last_ns"] is not None]
            ranks = {*old["ranks"], *new["ranks"]}
            jobs[job] = {
                "last_ns": max(instants, default=None),
                "ranks": sorted(rank for rank in ranks if rank is not None),
            }
    return jobs


# The answer to a request for evidence.
#
# Reads the sealed shards and queries the collector for what it has not sealed yet. A source that
# cannot be read is named at the end of the answer; the others are read nevertheless.

_MOST_ASKED = 3  # a collector seals once a minute


def evidence_of(node: Node, request: Request, kept: SealedAnswers) -> Iterator[Part | End]:
    """Sealed and unsealed evidence in one answer; `kept` is what sealed shards answered before."""
    with tempfile.TemporaryDirectory(prefix="oncall-node-") as folder:
        into = AnswerFolder(Path(folder))
        sealed, gaps, collector = _unsealed_parts(node, request, into)
        gaps += kept.write(sealed, request, into)
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
        collector = ask_collector(node, request, into)
        before = set(sealed)
        sealed, gaps = sealed_in_window(node, request.until_ns, request.since_ns)
        if before.issuperset(sealed):
            break
    return sealed, gaps, collector
