"""All relations by name: found below `oncall.analysis`, checked together, sorted by what they read.

Nothing is imported before the first use, as a node that only records needs none of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from graphlib import CycleError, TopologicalSorter

from oncall.evidence.relations import Param, Relation
from oncall.evidence.schema import BY_NAME

_PACKAGE = "oncall.analysis"  # by its name: evidence is imported by it, and must not import it


@cache
def all_relations() -> dict[str, Relation]:
    """Every relation by name, each after those that it reads."""
    return checked(found_below(_PACKAGE))


def base_tables(names: Iterable[str]) -> frozenset[str]:
    """The tables of evidence that tables and relations rest on, however indirectly."""
    known = all_relations()
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += known[name].inputs if name in known else ()
    return frozenset(name for name in seen if name in BY_NAME)


def found_below(package: str) -> Iterator[Relation]:
    """The relations that the modules of a package declare, however deep, by module."""
    folders = importlib.import_module(package).__path__
    for found in pkgutil.walk_packages(folders, f"{package}."):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, Relation) and value.module == found.name:
                yield value


def checked(declared: Iterable[Relation]) -> dict[str, Relation]:
    """The relations by name, sorted. Raises ValueError with everything that is wrong with them."""
    known: dict[str, Relation] = {}
    problems: list[str] = []
    for one in declared:
        if one.name in BY_NAME:
            problems.append(f"{_place(one)} has the name of an evidence table")
        elif one.name in known:
            problems.append(f"{one.name} is declared twice: {known[one.name].module}, {one.module}")
        known.setdefault(one.name, one)
    problems += (problem for one in known.values() for problem in _problems(one, known))
    if problems:
        raise ValueError("\n".join(problems))
    reads = {name: [read for read in one.inputs if read in known] for name, one in known.items()}
    try:
        order = list(TopologicalSorter(reads).static_order())
    except CycleError as error:
        cycle = " reads ".join(_place(known[name]) for name in reversed(error.args[1]))
        raise ValueError(f"a cycle of relations: {cycle}") from None
    found: dict[str, Relation] = {}
    for name in order:
        found[name] = _with_types(known[name], found)
    return found


def _with_types(one: Relation, known: Mapping[str, Relation]) -> Relation:
    """The relation, its columns that pass through as what it reads declares them."""
    above = {
        column.name: column
        for read in reversed(one.inputs)
        for column in (known[read] if read in known else BY_NAME[read]).columns
    }
    lacking = [each.name for each in one.columns if not each.type and each.name not in above]
    if lacking:
        raise ValueError(f"{_place(one)}: nothing that it reads has {', '.join(lacking)}")
    columns = tuple(each if each.type else above[each.name] for each in one.columns)
    return replace(one, columns=columns)


def _problems(one: Relation, known: Mapping[str, Relation]) -> Iterator[str]:
    for read in one.inputs:
        if read not in BY_NAME and read not in known:
            near = get_close_matches(read, [*BY_NAME, *known], n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield f"{_place(one)} reads {read}, which is neither a table nor a relation{meant}"
    for name in (name for clause in one.empty_without for name in clause.split("|")):
        if name not in one.inputs:
            yield f"{_place(one)} is empty without {name}, which it does not read"
    for name in one.inputs if one.at == "node" else ():
        if name in known and known[name].at != "node":
            yield f"{_place(one)} runs on nodes and reads {_place(known[name])}, which does not"
    yield from _wrong_params(one, known)


def _wrong_params(one: Relation, known: Mapping[str, Relation]) -> Iterator[str]:
    for name, param in one.params.items():
        relation, _, other = (
            param.partition(".") if isinstance(param, str) else (one.name, "", name)
        )
        owner = known.get(relation)
        if owner is None or not isinstance(owner.params.get(other), Param):
            yield f"{_place(one)}: its parameter {name} is {param}, which no relation declares"
    for name in sorted(one.params_used ^ one.params.keys()):
        lacks = "does not use" if name in one.params else "does not declare"
        yield f"{_place(one)} {lacks} the parameter {name}"


def _place(one: Relation) -> str:
    return f"{one.name} ({one.module})"
