"""JSON Schemas from the types that the JSON is written with.

A TypedDict or a dataclass becomes an object; `Annotated[str, "its meaning"]` adds a description,
`Annotated[int, {"minimum": 0}]` any other keywords.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean"}

Schema = dict[str, Any]


def schema_of(kind: Any) -> Schema:
    """The schema of a type's values, nested types written in place."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if isinstance(kind, type) and kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return _optional(arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inner = schema_of(arguments[1])
        return {"type": "object", "additionalProperties": inner or True}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": schema_of(arguments[0])}
    if is_typeddict(kind):
        return _object(kind, kind.__required_keys__)
    if is_dataclass(kind):
        return _object(
            kind,
            {
                one.name
                for one in fields(kind)
                if one.default is MISSING and one.default_factory is MISSING
            },
        )
    raise TypeError(f"no JSON Schema for {kind!r}")


def _object(kind: Any, required: Any) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "properties": {name: schema_of(of) for name, of in hints.items()},
        "required": [name for name in hints if name in required],
    }


def _annotated(kind: Any, remarks: Sequence[Any]) -> Schema:
    schema = schema_of(kind)
    for remark in remarks:
        schema = schema | ({"description": remark} if isinstance(remark, str) else remark)
    return schema


def _optional(kinds: Sequence[Any]) -> Schema:
    """A type or null."""
    others = [schema_of(kind) for kind in kinds if kind is not NoneType]
    if len(others) == 1 and set(others[0]) == {"type"}:
        return {"type": [others[0]["type"], "null"]}
    return {"anyOf": [*others, {"type": "null"}]}
