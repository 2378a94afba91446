"""The judge of the kills sees what is lost, doubled or not counted; the stream knows its places."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from .collector import Node
from .evidence import Archive, Rows, duplicates, joined, key
from .kills import Life, Run, _cut_off, expected, judge, missing, wrong_pairs
from .outcome import Outcome, table, timed
from .stream import COLLECTIVES, EACH, Stream, Written


def rows(*seqs: int, pair_seq: int = 0) -> Rows:
    numbers = np.array(seqs, np.int64)
    comm = np.full(len(numbers), COLLECTIVES)
    return Rows(comm, numbers, numbers > 0, np.full(len(numbers), pair_seq))


def written(*spans: tuple[int, int]) -> Written:
    """Operations 1, 2, ... by their first and last position."""
    first, last = np.array(spans, np.int64).T
    return Written(np.full(len(spans), COLLECTIVES), np.arange(1, len(spans) + 1), first, last)


def test_missing_and_doubled_rows_are_seen() -> None:
    assert missing(rows(1, 2, 3), rows(1, 3)) == 1
    assert missing(rows(1, 1), rows(1)) == 0
    assert duplicates(rows(1, 2, 2, 2)) == 2
    assert wrong_pairs(rows(1, 2, pair_seq=7)) == 1


def test_an_operation_must_be_stored_if_all_of_it_was_read_before_a_commit() -> None:
    lives = [Life(0, 0, committed=10), Life(0, 12, committed=None), Life(0, 12, committed=30)]
    of = written((0, 4), (5, 9), (8, 11), (10, 13), (12, 20), (25, 30))
    assert expected(of, lives).tolist() == key(of.comm, of.seq)[[0, 1, 4]].tolist()


def test_what_was_cut_off_is_counted_behind_the_last_commit() -> None:
    lives = [
        Life(0, 0, committed=10),
        Life(0, 12, committed=None),
        Life(0, 17, committed=30),
        Life(0, 30, committed=31),
    ]
    assert sum(_cut_off(lives)) == 7


def test_a_stream_knows_where_each_record_stands(tmp_path: Path) -> None:
    stream = Stream(tmp_path, rate=1, seed=5, records=4096)
    for _ in range(40):
        stream.write(33)
        stream.ring.header["tail"] = stream.head  # whoever reads keeps up
    stream._leave.set()
    while len(stream._pending):
        stream.write(100)
    of = stream.written()
    assert stream.head == len(of) * EACH
    assert sorted(of.first) == sorted(set(of.first)) and (of.first < of.last).all()
    records = stream.ring._records
    assert set(records["stamp"][: stream.head].tolist()) == set(range(1, stream.head + 1))


def test_the_judge_finds_fault(tmp_path: Path) -> None:
    node = Node.make(tmp_path / "node")
    stream = Stream(node.rings, 1, seed=1)
    stream.write(10 * 64 * EACH)
    run = Run(node, Archive(node.data, tmp_path / "kept"), stream, random.Random(1))
    run.lives.append(Life(0, 0, committed=stream.head, dropped=3))
    outcome = judge(run, 1)
    assert not outcome.kept
    text = " ".join(outcome.failures)
    assert "are not stored" in text and "0 records were cut off, and 3 reported" in text
    run.committed.append(joined([rows(1)]))
    assert judge(run, 1).lost > outcome.lost


def test_the_table_shows_what_was_broken() -> None:
    outcomes = [
        timed("fine", lambda: Outcome("fine", 3)),
        timed("bad", lambda: 1 // 0),  # type: ignore[arg-type, return-value]
    ]
    text = table(outcomes)
    assert "| fine | 3 | 0 | 0 |" in text and "BROKEN bad: ZeroDivisionError" in text
