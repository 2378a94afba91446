"""What every relation that oncall ships keeps to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest
from tests.evidence.shipped import SHIPPED

from oncall.core.errors import MissingEvidence
from oncall.evidence.incident import Incident
from oncall.evidence.parameters import select_of, values_of
from oncall.evidence.registry import all_relations
from oncall.evidence.relations import Relation
from oncall.evidence.schema import TABLES


@pytest.fixture(scope="module")
def unknown() -> Iterator[Incident]:
    """Every table holds one row of which nothing is known; every relation is required."""
    with Incident.empty() as made:
        for table in TABLES:
            made.append(table.name, {table.columns[0].name: None})
        made.require(entry.name for entry in SHIPPED)
        yield made


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_every_relation_is_reported_in_full(entry: Relation) -> None:
    assert entry.doc and entry.source and entry.columns
    assert entry.at in ("node", "console")
    assert (entry.sql is None) != (entry.compute is None)
    for column in entry.columns:
        assert column.meaning
        timed = re.fullmatch(r".*_ns", column.name)
        assert column.unit == "ns" if timed else column.unit != "ns", column


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_every_relation_yields_the_columns_it_declares(entry: Relation, unknown: Incident) -> None:
    declared = [(column.name, column.type) for column in entry.columns]
    table = unknown.con.execute(f'DESCRIBE "{entry.name}"').fetchall()
    assert [row[:2] for row in table] == declared
    names = {name for name, _ in declared}
    if entry.sql is not None:
        yielded = [
            row[0] for row in unknown.con.execute(f"DESCRIBE {select_of(entry, {})}").fetchall()
        ]
    else:
        assert entry.compute is not None
        computed = entry.compute(unknown.con, **values_of(entry, {}))
        yielded = list(computed if isinstance(computed, Mapping) else next(iter(computed), names))
    assert set(yielded) >= names


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_every_relation_reads_only_what_it_names(entry: Relation) -> None:
    named = {table.name for table in TABLES} | {one.name for one in SHIPPED}
    words = set(re.findall(r"\b(?:FROM|JOIN)\s+([a-z_]+)", entry.sql or ""))
    own = set(re.findall(r"\b([a-z_]+)\s+AS\s+(?:MATERIALIZED\s+)?\(", entry.sql or ""))
    assert words & named - own <= set(entry.inputs)


LATER_NS = 3_600 * 10**9


@pytest.fixture(scope="module")
def stuck() -> Iterator[Incident]:
    """Ranks 0-2 wait for 3, which left one open; 4 for 5 to send; 6, by its counter, for 7."""
    common = {"job": "j", "op": "AllReduce", "enqueued_ns": 10, "observed_ns": LATER_NS}
    ended = {"enqueued_ns": 1, "ended_ns": [5, 5, 5, None]}
    with Incident.empty() as made:
        made.append("ops", common | {"comm": 1, "seq": 7, "rank": [0, 1, 2, 3]} | ended)
        made.append("ops", common | {"comm": 1, "seq": 8, "rank": [0, 1, 2], "bytes": [8, 8, 4]})
        receive = {"comm": 2, "seq": 8, "rank": 4, "kind": "p2p", "op": "Recv", "peer": 5}
        made.append("ops", common | receive)
        made.append("comms", {"job": "j", "comm": [2, 2, 3, 3], "rank": [4, 5, 6, 7], "size": 2})
        made.append("launches", {"job": "j", "comm": 3, "rank": [6, 7], "launched": [5, 4]})
        waits = {"comm": 1, "seq": [7, 8], "kind": "coll", "rank": 0, "channel": 0, "peer": 3}
        waits |= {
            "direction": "recv",
            "waits_for": "recv_wire",
            "since_ns": 20,
            "observed_ns": LATER_NS,
        }
        made.append("transfers", {"job": "j"} | waits)
        made.require(entry.name for entry in SHIPPED if not made.missing(entry.name))
        yield made


RECORDED = ("ops", "comms", "launches", "transfers")  # what `stuck` holds
# Though it has what they are made of: no iteration, no slow round, too few rounds for a baseline
# and no two transfers alike are in it, and it knows what has ended.
NOT_RECORDED = (
    *("labelled_tasks", "joint_calls", "slow_rounds", "round_baselines", "mirrored_calls"),
    "delay_witnesses",
    "shared_waits",  # it is seen for how long the job has been quiet
    "hang_proofs",  # not all of its ranks wait
)


def is_recorded(name: str) -> bool:
    """Whether `stuck` has what a table or relation is made of."""
    if name not in all_relations():
        return name in RECORDED
    entry = all_relations()[name]
    if name in NOT_RECORDED:
        return False
    return all(any(is_recorded(one) for one in read.split("|")) for read in entry.reads)


@pytest.mark.parametrize(
    ("entry", "read"),
    [
        (entry, read)
        for entry in SHIPPED
        for read in entry.empty_without
        if is_recorded(entry.name) and any(is_recorded(one) for one in read.split("|"))
    ],
    ids=lambda part: part if isinstance(part, str) else part.name,
)
def test_a_relation_is_empty_without_what_it_says(
    entry: Relation, read: str, stuck: Incident
) -> None:
    def yielded() -> int:
        if entry.sql is not None:
            return len(stuck.con.execute(select_of(entry, {})).fetchall())
        assert entry.compute is not None
        computed = entry.compute(stuck.con, **values_of(entry, {}))
        parts = [computed] if isinstance(computed, Mapping) else computed
        return sum(len(next(iter(part.values()))) for part in parts)

    stuck.con.execute("BEGIN")
    try:
        assert yielded() > 0
        gone = set(read.split("|"))
        for other in SHIPPED:
            gone |= {other.name} & {
                other.name for needs in other.empty_without if set(needs.split("|")) <= gone
            }
        for name in gone:
            stuck.con.execute(f"DELETE FROM {name}").fetchall()
        assert yielded() == 0
    finally:
        stuck.con.execute("ROLLBACK")


def test_every_relation_of_empty_evidence_is_missing_it() -> None:
    with Incident.empty() as incident:
        for entry in SHIPPED:
            with pytest.raises(MissingEvidence):
                incident.require([entry.name])


def test_a_job_that_is_healthy_has_empty_relations_not_failures() -> None:
    with Incident.empty() as incident:
        incident.append(
            "ops",
            {"job": "j", "comm": 1, "seq": 1, "rank": [0, 1], "kind": "coll", "op": "AllReduce"}
            | {"started_ns": 1, "ended_ns": 2, "observed_ns": 2},
        )
        incident.require(entry.name for entry in SHIPPED if not incident.missing(entry.name))
        waits = (
            "in_flight",
            "blocked_operations",
            "holders",
            "hang_roots",
            "hang_members",
            "odd_calls",
        )
        assert {name: incident.rows(name) for name in waits} == dict.fromkeys(waits, 0)
        assert incident.rows("operations") == 2
