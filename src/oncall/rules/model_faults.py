"""The model's verdict on a file, in our words and placed by keys.

A file with faults is also repaired with stand-ins where that is possible, so that what depends
on the broken parts can still be checked and everything is reported at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from oncall.rules.positions import Fault
from oncall.rules.rulebook import Leaf, Path, Question
from oncall.rules.template import nearest

Model = TypeVar("Model", bound=BaseModel)

# pydantic puts the alternative it tried into an error's path; these are not keys of the file.
_TAGS = {"question", "leaf", "str", "bool", "int", "float", "list[str]", "[key]"}

_LEAF = {"verdict": "none", "say": "-"}
_STAND_INS: dict[str, Any] = {
    "format": 1,
    "status": "test",
    "sources": ["-"],
    "case": ["job"],
    "params": {},
    "verdicts": {},
    "tree": _LEAF,
    "if_yes": _LEAF,
    "if_no": _LEAF,
    "if_unknown": _LEAF,
    "test": "any(-)",
    "value": 0,
    "next": [],
    "class": "hang",
    "severity": "info",
}


def validate(model: type[Model], data: Any) -> tuple[Model | None, list[Fault], list[Path]]:
    """The file's model (repaired if need be, None if it cannot), its faults, and the repairs."""
    try:
        return model.model_validate(data), [], []
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    faults = [_fault(model, item, data) for item in found]
    repaired = deepcopy(data)
    for item, fault in zip(found, faults, strict=True):
        _repair(repaired, fault.where, item["type"], data)
    try:
        return model.model_validate(repaired), faults, [fault.where for fault in faults]
    except ValidationError:
        return None, faults, []


def _repair(data: Any, where: Sequence[Any], kind: str, written: Any) -> None:
    """Remove an unknown key; put a stand-in where something is missing or wrong."""
    if not where:
        return
    here: Any = data
    for step in where[:-1]:
        here = here[step]
    last = where[-1]
    if kind == "extra_forbidden":
        here.pop(last, None)
        return
    value: Any = _STAND_INS.get(str(last), "-")
    if last == "test" or last == "start_when":
        facts = written.get("facts")
        value = f"any({next(iter(facts))})" if isinstance(facts, dict) and facts else "any(_)"
    if isinstance(here, (dict, list)):
        here[last] = deepcopy(value)


def _fault(model: type[BaseModel], error: Any, data: Any) -> Fault:
    """One pydantic error as a fault."""
    where, parent = _written_path(error["loc"], data)
    kind, last = error["type"], where[-1] if where else ""
    if kind == "extra_forbidden" and " " in str(last) and parent[last] is None:
        return Fault(where, "text with a comma inside { } must be in quotes", on_key=True)
    if kind == "extra_forbidden":
        known = [key for key in _known_keys(model, where[:-1], parent) if key not in parent]
        return Fault(where, f"unknown key `{last}`{nearest(str(last), known)}", on_key=True)
    if kind == "missing":
        return Fault(where, f"`{last}` is missing", on_key=True)
    if kind == "string_pattern_mismatch":
        return Fault(where, _pattern_message(last, where), on_key="[key]" in error["loc"])
    if kind == "literal_error":
        return Fault(where, f"`{last}` must be {error['ctx']['expected']}")
    message = str(error["msg"]).removeprefix("Value error, ")
    message = message.replace("Input should be a valid", "must be a")
    message = message.replace("dictionary", "mapping")
    return Fault(where, f"`{last}`: {message[0].lower()}{message[1:]}" if last else message)


def _pattern_message(last: str | int, where: Path) -> str:
    if last == "test":
        return "a test is any(fact) or none(fact), and nothing else"
    if last == "start_when":
        return "`start_when` is any(fact), and nothing else"
    if where[:1] == ("rulebook",):
        return "a rulebook's name is lower-case letters, digits, `-` and `_`"
    return "a name is lower-case letters, digits and `_`"


def _written_path(loc: Sequence[Any], data: Any) -> tuple[Path, Any]:
    """The part of an error's path that is in the file, and what the last step is in."""
    where: list[str | int] = []
    parent, here = None, data
    for index, step in enumerate(loc):
        inside = isinstance(here, dict) and step in here
        if inside or (isinstance(here, list) and isinstance(step, int) and step < len(here)):
            parent, here = here, here[step]
            where.append(step)
        elif index == len(loc) - 1 and isinstance(here, dict) and step not in _TAGS:
            parent = here
            where.append(step)
    return tuple(where), parent


def _known_keys(model: type[BaseModel], where: Path, parent: Any) -> list[str]:
    """The keys that the model knows for the mapping at `where`."""
    models = _models_at(model, where)
    if Leaf in models and Question in models:
        models = [Leaf if "verdict" in parent else Question]
    return [field.alias or name for found in models for name, field in found.model_fields.items()]


def _models_at(model: Any, where: Path) -> list[type[BaseModel]]:
    """The models among the types that a value at `where` may have."""
    types = [model]
    for step in where:
        inner: list[Any] = []
        for one in _alternatives(types):
            if isinstance(one, type) and issubclass(one, BaseModel):
                fields = {field.alias or name: field for name, field in one.model_fields.items()}
                inner += [fields[str(step)].annotation] if str(step) in fields else []
            else:
                inner += get_args(one)[-1:]  # of dict[..., X] and list[X], the X
        types = inner
    return [
        one for one in _alternatives(types) if isinstance(one, type) and issubclass(one, BaseModel)
    ]


def _alternatives(types: Sequence[Any]) -> list[Any]:
    """The members of unions, without annotations."""
    found: list[Any] = []
    for one in types:
        origin = get_origin(one)
        if origin is Annotated:
            found += _alternatives(get_args(one)[:1])
        elif origin in (Union, UnionType):
            found += _alternatives(get_args(one))
        elif get_origin(one) in (dict, list) or isinstance(one, type):
            found.append(one)
    return found
