"""The answer to a request for evidence.

Reads the sealed shards and queries the collector for what it has not sealed yet. A source that
cannot be read is named at the end of the answer; the others are read nevertheless.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oncall.evidence.columns import create_table_sql
from oncall.evidence.schema import TABLES
from oncall.evidence.settle import settle_duplicates
from oncall.fleet.endpoint.collector import AnswerFolder, ask_collector, gaps_of
from oncall.fleet.endpoint.node import LIMITS, Node, sealed_in_window
from oncall.fleet.endpoint.sealed import SealedAnswers
from oncall.node.store.answer import answer
from oncall.node.store.catalog import Shard
from oncall.node.store.database import connect
from oncall.node.store.parts import load_parts
from oncall.node.store.wire import End, Part, Request

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
        collector, _end = ask_collector(node, request, into)
        before = set(sealed)
        sealed, gaps = sealed_in_window(node, request.until_ns, request.since_ns)
        if before.issuperset(sealed):
            break
    return sealed, gaps, collector
