"""Relations: computed once, only if required, and declared as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.evidence.shipped import SHIPPED

from oncall.core.errors import Interrupted, MissingEvidence, RelationFailed
from oncall.evidence.incident import Incident
from oncall.evidence.registry import all_relations, base_tables, checked, found_below
from oncall.evidence.relations import Relation
from oncall.evidence.relations import relation as declared
from oncall.evidence.schema import BY_NAME, TABLES, Column

RANK = [("rank", "INTEGER", "", "a rank")]


@pytest.fixture(autouse=True)
def registry() -> Iterator[dict[str, Relation]]:
    """What a test adds to the relations is gone after it."""
    yield all_relations()
    for name in all_relations().keys() - {entry.name for entry in SHIPPED}:
        del all_relations()[name]


def relation(name: str, **what: Any) -> Callable[[Callable[..., Any]], Relation]:
    """As `relation`, and the relation is one of those that incidents know."""

    def add(function: Callable[..., Any]) -> Relation:
        return all_relations().setdefault(name, declared(name, **what)(function))

    return add


def exists(incident: Incident, name: str) -> bool:
    sql = "SELECT count(*) FROM duckdb_columns() WHERE table_name = ?"
    ((columns,),) = incident.con.execute(sql, [name]).fetchall()
    return bool(columns)


def test_a_relation_is_computed_once_and_only_if_required(incident: Incident) -> None:
    computed: list[str] = []

    @relation("doubled", reads=["ops"], columns=RANK, source="test")
    def doubled(con: duckdb.DuckDBPyConnection) -> dict[str, np.ndarray]:
        computed.append("doubled")
        return {"rank": 2 * con.execute("SELECT rank FROM ops").fetchnumpy()["rank"]}

    @relation("first", reads=["doubled"], columns=RANK, source="test")
    def first() -> str:
        return "SELECT min(rank) AS rank, 'not declared' AS more FROM doubled"

    @relation("unused", reads=["ops"], columns=RANK, source="test")
    def unused(con: duckdb.DuckDBPyConnection) -> dict[str, list[int]]:
        computed.append("unused")
        return {"rank": [incident.rows("ops") if con is incident.con else 0]}

    incident.append("ops", {"rank": [3, 5]})
    assert not exists(incident, "first")
    incident.require(["first"])
    incident.require(["first", "doubled", "ops"])
    assert incident.con.execute("FROM first").fetchall() == [(6,)]
    assert computed == ["doubled"]
    assert not exists(incident, "unused")


def test_a_view_of_evidence_that_is_complete_may_be_stored(incident: Incident) -> None:
    @relation("seen", reads=["ops"], columns=RANK, source="test", view=True)
    def seen() -> str:
        return "SELECT rank FROM ops"

    incident.append("ops", {"rank": [1]})
    incident.stores_views = True
    incident.require(["seen"])
    kinds = incident.con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert ("seen",) in kinds
    assert incident.rows("seen") == 1


def failing(error: BaseException) -> list[str]:
    """Register `broken`, which raises, and `above` and `beside` that read it; what is computed."""
    computed: list[str] = []

    @relation("broken", reads=["ops"], columns=RANK, source="test")
    def broken(con: duckdb.DuckDBPyConnection) -> dict[str, list[int]]:  # noqa: ARG001
        computed.append("broken")
        raise error

    @relation("above", reads=["broken"], columns=RANK, source="test")
    def above(con: duckdb.DuckDBPyConnection) -> dict[str, list[int]]:  # noqa: ARG001
        computed.append("above")
        return {"rank": [1]}

    @relation("beside", reads=["ops"], optional=["above"], columns=RANK, source="test")
    def beside() -> str:
        return "SELECT rank FROM ops"

    return computed


def test_of_a_relation_that_fails_in_its_second_part_nothing_is_kept(incident: Incident) -> None:
    errors: list[BaseException] = [KeyboardInterrupt(), ValueError("broken")]

    @relation("parts", reads=["ops"], columns=RANK, source="test")
    def parts(con: duckdb.DuckDBPyConnection) -> Iterator[dict[str, list[int]]]:  # noqa: ARG001
        yield {"rank": [1, 2]}
        raise errors.pop(0)

    incident.append("ops", {"rank": [3]})
    with pytest.raises(KeyboardInterrupt):
        incident.require(["parts"])
    with pytest.raises(RelationFailed):  # it was tried again
        incident.require(["parts"])
    assert incident.rows("parts") == 0


@pytest.mark.parametrize(
    "error",
    [
        duckdb.OutOfRangeException("Overflow in subtraction of INT64"),
        FloatingPointError("overflow"),
        IndexError("out of bounds"),
        MemoryError(),
        ZeroDivisionError("division by zero"),
    ],
)
def test_a_failure_is_everybodys_who_reads_it_and_tried_once(
    incident: Incident, error: Exception
) -> None:
    computed = failing(error)
    incident.append("ops", {"rank": [3]})
    for name in ("broken", "above", "beside", "broken"):
        with pytest.raises(RelationFailed) as reported:
            incident.require([name])
        assert reported.value.relation == "broken"
        assert str(error) in reported.value.reason
    with pytest.raises(RelationFailed):
        incident.is_empty("above")
    with pytest.raises(RelationFailed):
        incident.provide(["beside"])
    assert computed == ["broken"]
    [failure] = incident.failures
    assert "raise error" in failure.details


def test_who_shows_what_is_there_gets_empty_tables(incident: Incident) -> None:
    failing(ValueError("no"))
    incident.append("ops", {"rank": [3]})
    incident.provide_what_can_be(["beside", "broken"])
    assert [incident.rows(name) for name in ("broken", "above", "beside")] == [0, 0, 0]
    assert [failure.relation for failure in incident.failures] == ["broken"]
    with pytest.raises(RelationFailed):
        incident.require(["beside"])


@pytest.mark.parametrize("stop", [duckdb.InterruptException("stopped"), Interrupted()])
def test_what_was_stopped_has_not_failed(incident: Incident, stop: Exception) -> None:
    computed = failing(stop)
    incident.append("ops", {"rank": [3]})
    for _ in range(2):
        with pytest.raises(type(stop)):
            incident.require(["above"])
    assert computed == ["broken", "broken"]
    assert incident.failures == ()


def test_numbers_that_numpy_would_only_warn_of_are_a_failure(incident: Incident) -> None:
    @relation("shares", reads=["ops"], columns=[("n", "DOUBLE", "", "n")], source="test")
    def shares(con: duckdb.DuckDBPyConnection) -> dict[str, np.ndarray]:
        return {"n": 1.0 / con.execute("SELECT seq FROM ops").fetchnumpy()["seq"]}

    incident.append("ops", {"seq": [0]})
    with pytest.raises(RelationFailed, match=r"shares \(FloatingPointError: divide by zero"):
        incident.require(["shares"])


def test_sql_that_overflows_is_a_failure_with_duckdbs_words(incident: Incident) -> None:
    @relation("sums", reads=["ops"], columns=[("n", "BIGINT", "", "n")], source="test")
    def sums() -> str:
        return "SELECT seq * 9223372036854775807 AS n FROM ops"

    incident.append("ops", {"seq": [2]})
    with pytest.raises(RelationFailed, match=r"sums \(.*[Oo]verflow"):
        incident.require(["sums"])


def test_a_relation_rests_on_the_tables_below_it() -> None:
    failing(ValueError())
    assert base_tables(["beside", "nics"]) == {"ops", "nics"}


def test_missing_evidence_names_the_tables(incident: Incident) -> None:
    @relation("either", reads=["ops|comms", "nics"], columns=RANK, source="test")
    def either() -> str:
        return "SELECT 1 AS rank"

    @relation("above", reads=["either", "gpus"], columns=RANK, source="test")
    def above() -> str:
        return "SELECT rank FROM either"

    @relation("any_will_do", reads=["either|gpus"], columns=RANK, source="test")
    def any_will_do() -> str:
        return "SELECT 1 AS rank"

    assert incident.missing("above") == ("ops or comms", "nics", "gpus")
    assert incident.missing("any_will_do") == ("ops or comms or gpus", "nics or gpus")
    with pytest.raises(MissingEvidence, match=r"above needs .*: ops or comms, nics, gpus"):
        incident.require(["above"])
    incident.append("comms", {"rank": [0]})
    incident.append("nics", {"port": [1]})
    assert incident.missing("either") == ()
    assert incident.missing("above") == ("gpus",)
    assert not exists(incident, "above") and not exists(incident, "either")


def test_what_is_certain_to_be_empty_is_not_computed(incident: Incident) -> None:
    computed: list[int] = []

    @relation("waiting", reads=["ops"], columns=RANK, source="test")
    def waiting() -> str:
        return "SELECT rank FROM ops WHERE NOT done"

    @relation(
        "late", reads=["waiting|nics"], empty_without=["waiting|nics"], columns=RANK, source="test"
    )
    def late(con: duckdb.DuckDBPyConnection) -> dict[str, list[int]]:
        computed.extend(row[0] for row in con.execute("FROM waiting").fetchall())
        return {"rank": computed}

    incident.append("ops", {"rank": [1, 2], "done": True})
    incident.require(["late"])
    assert incident.is_empty("late") and incident.rows("late") == 0
    assert computed == []
    with Incident.empty() as stuck:
        stuck.append("ops", {"rank": [1, 2], "done": [True, False]})
        assert not stuck.is_empty("late")
    assert computed == [2]


def selecting(name: str, *reads: str, **more: Any) -> Relation:
    return declared(name, reads=reads, columns=RANK, source="test", **more)(lambda: "")


def test_what_is_wrong_with_relations_names_both_ends() -> None:
    here = __name__
    wrong = (
        selecting("odd", "ops|opps", "arrivls"),
        selecting("arrivals", "ops", empty_without=["nics"]),
        selecting("ops"),
        selecting("odd"),
    )
    with pytest.raises(ValueError) as raised:
        checked(wrong)
    assert str(raised.value).splitlines() == [
        f"ops ({here}) has the name of an evidence table",
        f"odd is declared twice: {here}, {here}",
        f"odd ({here}) reads opps, which is neither a table nor a relation; did you mean ops?",
        f"odd ({here}) reads arrivls, which is neither a table nor a relation; "
        "did you mean arrivals?",
        f"arrivals ({here}) is empty without nics, which it does not read",
    ]


def test_a_cycle_of_relations_is_named_in_order() -> None:
    cycle = [selecting("a", "b"), selecting("b", "ops", "c"), selecting("c", "a"), selecting("d")]
    with pytest.raises(ValueError) as raised:
        checked(cycle)
    names = re.findall(r"(\w) \(", str(raised.value))
    assert len(names) == 4
    assert set(pairwise(names)) == {("a", "b"), ("b", "c"), ("c", "a")}


def test_columns_named_alone_are_as_the_first_that_is_read_declares_them() -> None:
    size = ("bytes", "BIGINT", "bytes", "all of it")
    summed = declared("summed", reads=["ops"], columns=["job rank", size], source="")(lambda: "")
    above = declared("above", reads=["summed", "ops"], columns=["bytes op"], source="")(lambda: "")
    found = checked([above, summed])
    ops = {column.name: column for column in BY_NAME["ops"].columns}
    assert found["summed"].columns == (ops["job"], ops["rank"], Column(*size))
    assert found["above"].columns == (Column(*size), ops["op"])
    lacking = declared("lacking", reads=["ops"], columns=["rank sise"], source="")(lambda: "")
    with pytest.raises(ValueError, match=r"lacking \(.*\): nothing that it reads has sise"):
        checked([lacking])


def test_relations_are_declared_in_any_order_and_found_however_deep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "house" / "room"
    room.mkdir(parents=True)
    for folder in (room, room.parent):
        (folder / "__init__.py").touch()
    head = "from oncall.evidence import relation\n"
    form = "@relation('{}', reads=['{}'], columns=[], source='')\ndef {}(): return ''\n"
    (room / "above.py").write_text(head + form.format("above", "below", "above"))
    below = form.format("below", "ops", "below")
    (room / "below.py").write_text(f"{head}from house.room.above import above\n{below}")
    monkeypatch.syspath_prepend(tmp_path)
    found = list(found_below("house"))
    assert [one.name for one in found] == ["above", "below"]
    assert list(checked(found)) == ["below", "above"]


def test_each_shipped_relation_comes_after_what_it_reads() -> None:
    before = {table.name for table in TABLES}
    for entry in SHIPPED:
        assert before >= set(entry.inputs)
        before.add(entry.name)
