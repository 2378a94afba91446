"""Options of the collector and of its sources: what a key of the file means and how its value is
read.

A field `every_ns` or `memory_bytes` of a dataclass of options is the key `every` or `memory`: the
value states its unit, as in `every = "30 s"`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from oncall.core.nodeset import expand_hosts
from oncall.core.units import parse_quantity

Kind = Literal[
    "duration", "bytes", "number", "truth", "path", "name", "names", "nodes", "port", "choice"
]


@dataclass(frozen=True)
class Option:
    """What one key means and holds.

    choices   the values of kind `choice`
    check     gets a value of the right kind, returns the one to store, raises ValueError that says
              what is wrong with it
    restart   a running collector keeps the value that it started with
    """

    kind: Kind
    meaning: str
    choices: tuple[str, ...] = ()
    check: Callable[[Any], Any] = lambda value: value
    restart: bool = False


def option(
    kind: Kind,
    meaning: str,
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], Any] = lambda value: value,
    restart: bool = False,
) -> Any:
    """A field that is an option; see `Option`."""
    metadata = {"option": Option(kind, meaning, choices, check, restart)}
    made: Any = field(default=default, default_factory=default_factory, metadata=metadata)
    return made


def key_of(name: str) -> str:
    """How a field is spelt in the file: its unit stands in the value instead."""
    # `keep_bytes` keeps its name, as `keep` is the time.
    return name if name == "keep_bytes" else re.sub("_(ns|bytes)$", "", name)


def options_of(kind: Any) -> dict[str, Field[Any]]:
    """The options of a dataclass, by their keys."""
    return {key_of(each.name): each for each in fields(kind) if "option" in each.metadata}


def hint(key: str, meant: Mapping[str, str], known: Iterable[str]) -> str:
    """What to write instead of an unknown key: the nearest of `meant`, else all `known`."""
    near = difflib.get_close_matches(key, meant, n=1, cutoff=0.7)
    return f"; did you mean {meant[near[0]]}?" if near else f"; known are {', '.join(known)}"


def read_value(declared: Field[Any], value: Any) -> Any:
    """A value of a TOML file as its field holds it. Raises ValueError or UsageError."""
    known: Option = declared.metadata["option"]
    return known.check(_of_kind(known, value))


def _of_kind(known: Option, value: Any) -> Any:
    kind = known.kind
    match kind:
        case "duration" | "bytes":
            quantity = parse_quantity(value) if isinstance(value, str) else None
            if quantity is None or quantity.dimension != kind:
                example = "30 s" if kind == "duration" else "1 GiB"
                raise ValueError(f'{value!r} is not a {_WORDS[kind]} such as "{example}"')
            if not isinstance(quantity.value, int) or quantity.value < 0:
                raise ValueError(f"{value!r} is below zero")
            return quantity.value
        case "number" if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        case "truth" if isinstance(value, bool):
            return value
        case "path" if isinstance(value, str):
            return Path(value)
        case "name" if isinstance(value, str):
            return value
        case "port" if type(value) is int and value in range(1, 65536):
            return value
        case "choice" if isinstance(value, str) and value in known.choices:
            return value
        case "choice":
            choices = " or ".join(f'"{choice}"' for choice in known.choices)
            raise ValueError(f"{value!r} is not {choices}")
        case "nodes" if isinstance(value, (str, list)):
            listed = [value] if isinstance(value, str) else value
            return tuple(node for text in listed for node in expand_hosts(str(text)))
        case "names" if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return tuple(value)
    raise ValueError(f"{value!r} is not {_WORDS[kind]}")


_WORDS = {
    "duration": "duration",
    "bytes": "size",
    "number": "a number above zero",
    "truth": "true or false",
    "path": "a path",
    "name": "a name",
    "names": "a list of names",
    "nodes": 'a node set such as "gpu[001-512]", or a list of them',
    "port": "a port from 1 to 65535",
}
