"""What a YAML file may hold, written once: it reads the file and generates its JSON Schema.

A record is a frozen dataclass whose fields say their shape:

    @dataclass(frozen=True, kw_only=True)
    class Param:
        value: Scalar = key(SCALAR, "With its unit.")
        why: str = key(TEXT, "Why this value and no other.")

Nothing is converted and unknown keys are faults. Reading never stops at a fault: a stand-in takes
the place of what is wrong, so that everything else can still be checked.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar

from oncall.rules.language.positions import Fault, Path
from oncall.rules.language.template import nearest

Schema = dict[str, Any]
Defs = dict[str, Schema]


class Shape(ABC):
    """A kind of value. `wanted` completes "must be ..."."""

    wanted: ClassVar[str] = "something else"

    @abstractmethod
    def read(self, value: Any, where: Path, faults: list[Fault]) -> Any:
        """The value in the form it is used, or a stand-in and a fault."""

    @abstractmethod
    def stand_in(self) -> Any:
        """A value of this shape that means nothing."""

    @abstractmethod
    def schema(self, defs: Defs) -> Schema:
        """JSON Schema; named parts are put into `defs`."""

    def refuse(self, where: Path, faults: list[Fault], message: str = "") -> Any:
        """Note a fault and give a stand-in."""
        faults.append(Fault(where, message or f"`{named(where)}` must be {self.wanted}"))
        return self.stand_in()


def named(where: Path) -> str:
    """The last key of a path; a list's items go by the name of the list."""
    return next((step for step in reversed(where) if isinstance(step, str)), "file")


@dataclass(frozen=True)
class Text(Shape):
    """Text that is not empty, of a pattern if one is given."""

    pattern: str = ""
    message: str = ""
    example: str = "-"
    wanted: ClassVar[str] = "text; in quotes if YAML reads it as something else"

    def read(self, value: Any, where: Path, faults: list[Fault]) -> Any:
        if not isinstance(value, str) or not value.strip():
            return self.refuse(where, faults)
        if self.pattern and not re.fullmatch(self.pattern, value.strip()):
            return self.refuse(where, faults, self.message)
        return value.strip()

    def stand_in(self) -> Any:
        return self.example

    def schema(self, defs: Defs) -> Schema:  # noqa: ARG002
        return {"type": "string", "pattern": f"^(?:{self.pattern})$" if self.pattern else r"\S"}


@dataclass(frozen=True)
class Choice(Shape):
    """One of a few values."""

    values: tuple[Any, ...]

    def read(self, value: Any, where: Path, faults: list[Fault]) -> Any:
        for one in self.values:
            if value == one and type(value) is type(one):
                return one
        near = nearest(value, self.values) if isinstance(value, str) else ""
        known = ", ".join(map(str, self.values[:-1]))
        known = f"{known} or {self.values[-1]}" if known else str(self.values[-1])
        return self.refuse(where, faults, f"`{named(where)}` must be {known}{near}")

    def stand_in(self) -> Any:
        return self.values[0]

    def schema(self, defs: Defs) -> Schema:  # noqa: ARG002
        return {"enum": list(self.values)}


@dataclass(frozen=True)
class OneType(Shape):
    """A value of one of these Python types, as it is; no types: anything."""

    types: tuple[type, ...]
    json: tuple[str, ...]
    wanted: ClassVar[str] = "a number or text"

    def read(self, value: Any, where: Path, faults: list[Fault]) -> Any:
        if self.types and not isinstance(value, self.types):
            return self.refuse(where, faults)
        return value

    def stand_in(self) -> Any:
        return self.types[0]() if self.types else None

    def schema(self, defs: Defs) -> Schema:  # noqa: ARG002
        return {"type": list(self.json)} if self.json else {}


@dataclass(frozen=True)
class Items(Shape):
    """Several values, read as a tuple; with `or_one` a single one need not be in a list."""

    item: Shape
    least: int = 0
    or_one: bool = False
    wanted: ClassVar[str] = "a list"

    def read(self, value: Any, where: Path, faults: list[Fault]) -> Any:
        if self.or_one and not isinstance(value, list):
            return (self.item.read(value, where, faults),)
        if not isinstance(value, list):
            return self.refuse(where, faults)
        if len(value) < self.least:
            return self.refuse(where, faults, f"`{named(where)}` must not be empty")
        return tuple(self.item.read(one, (*where, n), faults) for n, one in enumerate(value))

    def stand_in(self) -> Any:
        return (self.item.stand_in(),) * self.least

    def schema(self, defs: Defs) -> Schema:
        one = self.item.schema(defs)
        several = {"type": "array", "items": one, **({"minItems": 1} if self.least else {})}
        return {"anyOf": [one, several]} if self.or_one else several


@dataclass(frozen=True)
class Named(Shape):
    """Values under names of the author's choice, in order."""

    value: Shape
    name: Text = Text()
    least: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    wanted: ClassVar[str] = "a mapping of names"

    def read(self, value: Any, where: Path, faults: list[Fault]) -> Any:
        if not isinstance(value, dict):
            return self.refuse(where, faults)
        if len(value) < self.least:
            return self.refuse(where, faults, f"`{named(where)}` must not be empty")
        found: dict[str, Any] = {}
        for name, one in value.items():
            place = (*where, str(name))
            if not isinstance(name, str) or not re.fullmatch(self.name.pattern or ".+", name):
                faults.append(Fault(place, self.name.message or "a name must be text", True))
            elif name in self.refused:
                faults.append(Fault(place, self.refused[name], True))
            found[str(name)] = self.value.read(one, place, faults)
        return found

    def stand_in(self) -> Any:
        return {}

    def schema(self, defs: Defs) -> Schema:
        pattern = {"pattern": f"^(?:{self.name.pattern})$"} if self.name.pattern else {}
        refused = {"not": {"enum": list(self.refused)}} if self.refused else {}
        names = {"propertyNames": {**pattern, **refused}} if pattern or refused else {}
        least = {"minProperties": self.least} if self.least else {}
        values = {"additionalProperties": self.value.schema(defs)}
        return {"type": "object", **values, **names, **least}


@dataclass(frozen=True)
class Record(Shape):
    """A mapping with fixed keys: a dataclass, or the one of several that `choose` takes."""

    choose: Callable[[Any], type]
    kinds: tuple[Callable[[], type], ...]
    wanted: ClassVar[str] = "a mapping"

    def read(self, value: Any, where: Path, faults: list[Fault]) -> Any:
        if not isinstance(value, dict):
            return self.refuse(where, faults)
        return read_record(self.choose(value), value, where, faults)

    def stand_in(self) -> Any:
        return read_record(self.kinds[-1](), {}, (), [])

    def schema(self, defs: Defs) -> Schema:
        refs = [record_schema(kind(), defs) for kind in self.kinds]
        return refs[0] if len(refs) == 1 else {"anyOf": refs}


def record(kind: type) -> Record:
    """The shape of one dataclass."""
    return Record(lambda _: kind, (lambda: kind,))


NAME_PATTERN = r"[a-z_][a-z0-9_]*"
TEXT = Text()
NAME = Text(NAME_PATTERN, "a name is lower-case letters, digits and `_`")
SCALAR = OneType((bool, int, float, str), ("string", "number", "boolean"))
BOOLEAN = OneType((bool,), ("boolean",))
ANYTHING = OneType((), ())
Scalar = bool | int | float | str


def key(shape: Shape, doc: str = "", *, name: str = "", default: Any = MISSING) -> Any:
    """A field of a record; one without a default must be written."""
    about = {"shape": shape, "doc": doc, "name": name}
    if default is MISSING:
        return field(metadata=about)
    if isinstance(default, (dict, list)):
        return field(default_factory=default.copy, metadata=about)
    return field(default=default, metadata=about)


def read_record(kind: type, data: Mapping[Any, Any], where: Path, faults: list[Fault]) -> Any:
    """An instance of the dataclass; what is missing or wrong is noted and stood in for."""
    known = {_written(one): one for one in fields(kind)}
    for name, value in data.items():
        if name not in known:
            absent = [one for one in known if one not in data]
            faults.append(_unknown_key((*where, name), str(name), value, absent))
    values: dict[str, Any] = {}
    for name, one in known.items():
        place, shape = (*where, name), one.metadata["shape"]
        if name in data:
            values[one.name] = shape.read(data[name], place, faults)
        elif _required(one):
            faults.append(Fault(place, f"`{name}` is missing", True))
            values[one.name] = shape.stand_in()
    return kind(**values)


def _unknown_key(where: Path, name: str, value: Any, known: Sequence[str]) -> Fault:
    if " " in name and value is None:
        return Fault(where, "text with a comma inside { } must be in quotes", True)
    return Fault(where, f"unknown key `{name}`{nearest(name, known)}", True)


def record_schema(kind: type, defs: Defs) -> Schema:
    """A reference to the dataclass's schema, which is put into `defs`."""
    name = kind.__name__
    if name not in defs:
        defs[name] = {}  # a branch of a tree holds branches
        properties = {}
        for one in fields(kind):
            doc = {"description": one.metadata["doc"]} if one.metadata["doc"] else {}
            properties[_written(one)] = {**one.metadata["shape"].schema(defs), **doc}
        defs[name] |= {
            "type": "object",
            "description": (kind.__doc__ or "").split("\n")[0],
            "properties": properties,
            "required": [_written(one) for one in fields(kind) if _required(one)],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _written(one: Field[Any]) -> str:
    return one.metadata["name"] or one.name


def _required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING
