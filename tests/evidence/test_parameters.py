"""Parameters of relations: declared once, shared by name, replaced before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest

from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S, parse_quantity
from oncall.evidence.incident import Incident
from oncall.evidence.parameters import all_parameters, replacement, select_of, values_of
from oncall.evidence.registry import all_relations, checked
from oncall.evidence.relations import Param, Relation, decides, params_of, relation

RANK = [("rank", "INTEGER", "", "a rank")]
SHIPPED = frozenset(all_relations())
LONG = Param("5 min", "as in the paper")


@pytest.fixture(autouse=True)
def declared() -> Iterator[dict[str, Relation]]:
    """`late` of `ops`, in SQL; `later` reads it and shares its parameter; `counted` computes."""

    @relation("late", reads=["ops"], columns=RANK, source="test", params={"long": LONG})
    def late() -> str:
        return "SELECT rank FROM ops WHERE bytes > $long"

    @relation("later", reads=["late"], columns=RANK, source="test", params={"as_long": "late.long"})
    def later() -> str:
        return "SELECT $as_long // 1e9 AS rank FROM late"

    @relation("counted", reads=["ops"], columns=RANK, source="test", params={"share": Param(2, "")})
    def counted(con: duckdb.DuckDBPyConnection, *, share: int) -> dict[str, Any]:  # noqa: ARG001
        return {"rank": [share]}

    @relation("there", reads=["ops"], columns=RANK, source="test", at="node", params={"long": LONG})
    def there() -> str:
        return "SELECT rank FROM ops WHERE bytes > $long"

    known = {one.name: one for one in (late, later, counted, there)}
    all_relations().update(known)
    yield known
    for name in all_relations().keys() - SHIPPED:
        del all_relations()[name]


def ranks(incident: Incident, name: str) -> list[int]:
    incident.require([name])
    return [rank for (rank,) in incident.con.execute(f"FROM {name} ORDER BY ALL").fetchall()]


def test_a_replaced_value_reaches_all_that_read_it(declared: dict[str, Relation]) -> None:
    minute_ns = 60 * 10**9
    with Incident.empty() as incident:
        incident.append("ops", {"rank": [1, 2], "bytes": [2 * minute_ns, 6 * minute_ns]})
        assert [ranks(incident, name) for name in ("late", "later", "counted")] == [[2], [300], [2]]
        incident.replace_parameters({"late.long": parse_quantity("1 min")})
        assert ranks(incident, "late") == [1, 2]
        assert ranks(incident, "later") == [60, 60]
        incident.replace_parameters({"counted.share": parse_quantity(7)})
        assert [ranks(incident, name) for name in ("late", "later", "counted")] == [[2], [300], [7]]
    assert values_of(declared["later"], {}) == {"as_long": 5 * minute_ns}
    assert select_of(declared["late"], {}).endswith("bytes > 300000000000")


def test_a_value_of_another_dimension_or_for_nodes_is_refused() -> None:
    assert replacement("late.long", "`x`", "30 s").value == 30 * 10**9
    with pytest.raises(UsageError, match="`x` is a duration such as 5 min, `3 GB` is a bytes"):
        replacement("late.long", "`x`", "3 GB")
    with pytest.raises(UsageError, match=r"`x` cannot be changed here: .* computed on the nodes"):
        replacement("there.long", "`x`", "30 s")


def test_parameters_are_declared_where_they_are_used(declared: dict[str, Relation]) -> None:
    @relation("odd", reads=["ops"], columns=RANK, source="", params={"much": "late.lung"})
    def odd() -> str:
        return "SELECT $such AS rank"

    @relation("takes", reads=["ops"], columns=RANK, source="")
    def takes(con: duckdb.DuckDBPyConnection, *, limit: int) -> dict[str, Any]:  # noqa: ARG001
        return {"rank": [limit]}

    with pytest.raises(ValueError) as raised:
        checked([*declared.values(), odd, takes])
    here = f"({__name__})"
    assert str(raised.value).splitlines() == [
        f"odd {here}: its parameter much is late.lung, which no relation declares",
        f"odd {here} does not use the parameter much",
        f"odd {here} does not declare the parameter such",
        f"takes {here} does not declare the parameter limit",
    ]


def test_every_shipped_parameter_has_a_reason_and_a_number() -> None:
    for name, param in all_parameters().items():
        if name.partition(".")[0] in SHIPPED:
            assert len(param.why) > 10, name
            assert isinstance(param.quantity.value, int | float), name


def test_a_dataclass_of_thresholds_declares_parameters() -> None:
    @dataclass(frozen=True)
    class Thresholds:
        long_ns: int = decides("5 min", "longer than a checkpoint")

    @relation("slow", reads=["ops"], columns=RANK, source="test", params=params_of(Thresholds))
    def slow(con: object, **params: int) -> dict[str, list[int]]:
        """Its threshold, as a rank."""
        assert con is not None
        return {"rank": [Thresholds(**params).long_ns]}

    assert Thresholds().long_ns == 5 * 60 * NS_PER_S
    assert slow.params["long_ns"] == Param("5 min", "longer than a checkpoint")
    assert slow.params_used == {"long_ns"}
    assert params_of(Thresholds, of="slow") == {"long_ns": "slow.long_ns"}
