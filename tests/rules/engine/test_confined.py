"""The process that computes facts: what it is given, what it gives back, and how it dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import oncall.rules.engine.engine  # noqa: F401  (registers the relations)
from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations
from oncall.evidence.schema import BY_NAME
from oncall.rules.engine.confined import Confined
from oncall.rules.engine.engine import run
from oncall.rules.engine.sandbox import QueryFailed, close_sandbox
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.rules.language.rulebook import Rulebook

Make = Callable[..., Rulebook]
SMALL_BYTES = 256 * 2**20
BOMB = "SELECT length(repeat('x', 3000000000)) AS n"


@pytest.fixture
def confined(hang: Incident) -> Iterator[Confined]:
    close_sandbox(hang.con)
    one = Confined(hang, memory_limit_bytes=SMALL_BYTES)
    yield one
    one.close()


def test_evidence_arrives_as_it_is(hang: Incident) -> None:
    """Every type that a table or relation has, unknown values, and the order of rows."""
    stacks = {"job": "j", "rank": [0, 1, 2], "frames": [["ü", "b"], None, []]}
    hang.append("stacks", stacks)
    hang.append("ops", {"job": None, "comm": 2**64 - 1, "seq": -(2**62), "rank": None})
    hang.append(
        "ranks", {"job": ["it's", '"', "\\"], "rank": [0, 1, 2], "node": [None, "", "a\0b"]}
    )
    hang.append("gpus", {"node": "n", "gpu": 0, "at_ns": 1, "temp_c": np.array([np.nan])})
    hang.append("jobs", {"job": [None, None]})
    close_sandbox(hang.con)
    confined = Confined(hang)
    for name in ("ops", "jobs", "stacks", "ranks", "gpus", "in_flight"):
        confined.provide([name])
        query = f'SELECT * FROM "{name}"'
        assert repr(confined.query(query)) == repr(hang.con.execute(query).fetchall()), name
    confined.close()


def test_every_type_of_the_schema_can_be_handed_over() -> None:
    """A type that a column is given later has to be thought of here too."""
    entries = (*BY_NAME.values(), *all_relations().values())
    types = {column.type for entry in entries for column in entry.columns}
    plain = {"BIGINT", "UBIGINT", "INTEGER", "UINTEGER", "DOUBLE", "BOOLEAN", "VARCHAR", "HUGEINT"}
    assert types <= plain | {f"{name}[]" for name in plain}


def test_what_was_there_is_there_again_after_a_death(confined: Confined, hang: Incident) -> None:
    confined.provide(["ops"])
    assert confined.compute("many", "SELECT rank FROM ops WHERE rank > $least", {"least": 0}) == (
        ("rank",),
        hang.con.execute("SELECT count(*) FROM ops WHERE rank > 0").fetchall()[0][0],
    )
    before = confined.query("SELECT * FROM many ORDER BY ALL")
    with pytest.raises(QueryFailed, match="more than 256 MiB of memory"):
        confined.compute("bomb", BOMB, {})
    assert confined.query("SELECT * FROM many ORDER BY ALL") == before


def test_time_is_kept_by_the_kernel(hang: Incident) -> None:
    close_sandbox(hang.con)
    confined = Confined(hang, time_limit_s=0.3)
    long = "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000)) AS n"
    with pytest.raises(QueryFailed, match="longer than 300 ms and was stopped"):
        confined.compute("long", long, {})
    assert confined.query("SELECT 1") == [(1,)]
    confined.close()


def test_who_interrupts_the_incident_ends_the_fact(hang: Incident) -> None:
    close_sandbox(hang.con)
    confined = Confined(hang, time_limit_s=120)
    confined.query("SELECT 1")
    ended = threading.Event()

    def interrupt() -> None:
        while not ended.wait(0.05):
            hang.interrupt()

    worker = threading.Thread(target=interrupt)
    worker.start()
    began = time.monotonic()
    with pytest.raises(QueryFailed):
        confined.compute("long", "SELECT sum(sqrt(range)) AS n FROM range(1000000000000)", {})
    ended.set()
    worker.join()
    assert time.monotonic() - began < 100
    confined.close()
    hang.interrupt()  # nobody computes any more: it harms nothing


def test_nothing_is_left_for_the_next_who_asks(hang: Incident) -> None:
    close_sandbox(hang.con)
    for _ in range(2):  # the second one gets the first one's process
        confined = Confined(hang)
        with pytest.raises(QueryFailed, match="ops does not exist"):
            confined.query("FROM ops")
        confined.provide(["ops"])
        confined.compute("mine", "SELECT 1 AS a", {})
        confined.close()


def test_the_process_writes_no_file(confined: Confined) -> None:
    for sql in ("COPY (SELECT 1) TO '/tmp/oncall-escape.csv'", "ATTACH '/tmp/oncall-escape.db'"):
        with pytest.raises(QueryFailed, match="disabled"):
            confined.query(sql)


def test_shipped_rulebooks_say_the_same_in_a_process(hang: Incident) -> None:
    (hangs,) = [one for one in load_rulebooks([shipped_folder()]) if one.name == "hang"]
    here = run(hang, [hangs]).findings
    apart = run(hang, [replace(hangs, text=hangs.text + "\n")]).findings
    assert here and here == apart
