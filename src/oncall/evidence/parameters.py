"""The parameters of relations by name, `pausing_ranks.late`, and the values they are computed with.

Each is declared by one relation; others, and rulebooks, refer to it by that name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from oncall.core.errors import UsageError
from oncall.core.units import Quantity, parse_quantity
from oncall.evidence.registry import all_relations
from oncall.evidence.relations import USED, Param, Relation

Replaced = Mapping[str, Quantity]


@cache
def all_parameters() -> Mapping[str, Param]:
    """What relations declare, by `relation.parameter`."""
    return {
        f"{entry.name}.{name}": param
        for entry in all_relations().values()
        for name, param in entry.params.items()
        if isinstance(param, Param)
    }


def values_of(entry: Relation, replaced: Replaced) -> dict[str, Any]:
    """Parameter -> value in its base unit, as a site or the command line replaced it."""
    values = {}
    for name, param in entry.params.items():
        target = param if isinstance(param, str) else f"{entry.name}.{name}"
        if target in replaced:
            values[name] = replaced[target].value
        else:
            values[name] = _declared(target).quantity.value
    return values


def select_of(entry: Relation, replaced: Replaced) -> str:
    """The SELECT of a SQL relation with the values in place: a view cannot bind any."""
    values = values_of(entry, replaced)
    return USED.sub(lambda used: _literal(values[used[1]]), entry.sql or "")


def replacement(target: str, what: str, written: bool | int | float | str) -> Quantity:
    """The new value of a relation's parameter; `what` names it for the reader.

    Raises UsageError if its dimension is another one, or if the relation is computed on nodes,
    which use their own values.
    """
    relation = target.partition(".")[0]
    if all_relations()[relation].at == "node":
        raise UsageError(
            f"{what} cannot be changed here: `{relation}` is computed on the nodes, "
            "with the value that is installed there"
        )
    return same_dimension(what, written, _declared(target).quantity)


def same_dimension(what: str, written: bool | int | float | str, present: Quantity) -> Quantity:
    """The value that replaces `present`. Raises UsageError if its dimension is another one."""
    value = parse_quantity(written)
    if value.dimension != present.dimension:
        raise UsageError(
            f"{what} is a {present.dimension} such as {present}, `{written}` is a {value.dimension}"
        )
    return value


def _declared(target: str) -> Param:
    relation, _, name = target.partition(".")
    param = all_relations()[relation].params[name]
    assert isinstance(param, Param)  # oncall.evidence.registry has checked it
    return param


def _literal(value: float | str) -> str:
    return "'" + re.sub("'", "''", value) + "'" if isinstance(value, str) else repr(value)
