"""Batches: joined, nothing changes."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.evidence.columns import Words, create_table_sql, insert
from oncall.evidence.schema import BY_NAME
from oncall.node.store.batch import Batch, joined, one_row

TABLE = BY_NAME["stacks"]
WORDS = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0")))
NUMBERS = st.one_of(st.none(), st.integers(0, 2**31 - 1))


def _words(values: list[str | None]) -> Any:
    vocabulary = sorted({v for v in values if v is not None})
    codes = [-1 if v is None else vocabulary.index(v) for v in values]
    return Words(np.array(codes, np.int32), vocabulary)


def _masked(values: list[int | None]) -> Any:
    return np.ma.MaskedArray([v or 0 for v in values], mask=[v is None for v in values])


@st.composite
def _batch(draw: st.DrawFn) -> tuple[Batch, list[tuple[Any, ...]]]:
    """A batch in one of the forms a column may take, and its rows."""
    rows = draw(st.integers(1, 4))
    jobs: list[str | None] = [draw(WORDS)] * rows
    job: Any = jobs[0]
    if draw(st.booleans()):
        jobs = draw(st.lists(WORDS, min_size=rows, max_size=rows))
        job = draw(st.sampled_from([jobs, _words(jobs)]))
    ranks = draw(st.lists(NUMBERS, min_size=rows, max_size=rows))
    rank = draw(st.sampled_from([ranks, _masked(ranks)]))
    comm = draw(st.integers(0, 2**64 - 1))
    frames = draw(
        st.lists(st.one_of(st.none(), st.just(["f at a:1"])), min_size=rows, max_size=rows)
    )
    batch = Batch("stacks", rows, {"job": job, "rank": rank, "comm": comm, "frames": frames})
    return batch, [(jobs[n], ranks[n], comm, frames[n]) for n in range(rows)]


@settings(deadline=None, max_examples=50)
@given(st.lists(_batch(), min_size=1, max_size=4))
def test_joined_batches_hold_the_same_rows(
    made: list[tuple[Batch, list[tuple[Any, ...]]]],
) -> None:
    (whole,) = joined(batch for batch, _ in made)
    con = duckdb.connect()
    con.execute(create_table_sql("stacks", TABLE.columns))
    insert(con, "stacks", TABLE.columns, whole.columns)
    found = con.execute("SELECT job, rank, comm, frames FROM stacks").fetchall()
    con.close()
    assert found == [row for _, rows in made for row in rows]


def test_a_column_that_only_some_batches_have_is_null_in_the_others() -> None:
    (whole,) = joined([one_row("ops", job="a", seq=1), one_row("ops", job="b", sends=2)])
    assert whole.rows == 2
    assert whole.columns["seq"] == [1, None]
    assert whole.columns["sends"] == [None, 2]
