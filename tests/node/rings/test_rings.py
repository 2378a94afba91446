"""Several rings of a node, drained together."""

from __future__ import annotations

from pathlib import Path

import pytest
from ring_writer import RingWriter, operations

from oncall.evidence.columns import create_table_sql, insert
from oncall.evidence.schema import BY_NAME
from oncall.node.common.source import Collected, read_clock
from oncall.node.rings import rings as rings_module
from oncall.node.rings.rings import RingSource
from oncall.node.store.batch import Batch
from oncall.node.store.database import connect

COMM = 0xC0FFEE


def _drained(folder: Path) -> list[Batch]:
    source = RingSource(folder, "node", 10**9, {})
    batches: list[Batch] = []
    collected = Collected(more=True)
    while collected.more or collected.batches:
        collected = source.collect(read_clock())
        batches += [batch for batch in collected.batches if batch.table == "ops"]
    source.close()
    return batches


@pytest.mark.parametrize("most", [12, 40, 100])
def test_each_row_tells_its_own_job_and_rank(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings_module, "_MOST_RECORDS", most)
    for rank, job, count in ((0, "llama", 5), (3, "llama", 3), (1, "gpt", 4)):
        ring = RingWriter(tmp_path, rank, job=job)
        ring.communicator(0, COMM + rank)
        ring.append(operations(1, count))
    batches = _drained(tmp_path)
    assert len(batches) == {12: 6, 40: 2, 100: 1}[most]
    con = connect()
    con.execute(create_table_sql("ops", BY_NAME["ops"].columns))
    for batch in batches:
        insert(con, "ops", BY_NAME["ops"].columns, batch.columns)
    found = con.execute("SELECT job, rank, comm, list(seq ORDER BY seq) FROM ops GROUP BY ALL")
    assert sorted(found.fetchall()) == [
        ("gpt", 1, COMM + 1, [1, 2, 3, 4]),
        ("llama", 0, COMM, [1, 2, 3, 4, 5]),
        ("llama", 3, COMM + 3, [1, 2, 3]),
    ]
