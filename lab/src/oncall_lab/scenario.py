"""What every simulated scenario is: a job with a seed, how it is seen, and what breaks in it.

Written as a small YAML mapping (docs/guide/simulate.md) or made in Python. A key is a field's
name without its unit: `forward: 60 ms` sets `forward_ns`. Nothing here knows a rule.
"""

from __future__ import annotations

import difflib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from oncall.core.errors import BadInput, UsageError
from oncall.core.nodeset import expand_ranks
from oncall.core.units import Dimension, parse_quantity

T = TypeVar("T")

_UNIT_SUFFIXES = ("_bytes_per_s", "_ns", "_bytes")
_EXAMPLES: Mapping[Dimension, str] = {
    "duration": "60 ms",
    "bytes": "32 MiB",
    "rate": "40 GB/s",
    "ratio": "3 %",
}


def quantity(text: str | None, dimension: Dimension = "duration", key: str = "") -> Any:
    """A field whose default is a quantity such as `60 ms`; None: unset, of that dimension.

    `key` is its name in YAML, where that is not the field's name without the unit.
    """
    metadata: dict[str, str] = {"key": key} if key else {}
    if text is None:
        return field(default=None, metadata={**metadata, "dimension": dimension})
    read = parse_quantity(text)
    return field(default=read.value, metadata={**metadata, "dimension": read.dimension})


@dataclass(frozen=True)
class Fault:
    """One cause: what breaks. Each kind of scenario says where, when and how badly."""

    KINDS: ClassVar[Iterable[str]] = ()
    # For which kinds each field means something; one that is absent does for all.
    USED_BY: ClassVar[Mapping[str, Iterable[str]]] = {}

    kind: str = field(metadata={"key": "fault"})

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise UsageError(f"faults: `{self.kind}` is none of {', '.join(self.KINDS)}")
        for item in fields(self):
            means = self.kind in self.USED_BY.get(item.name, self.KINDS)
            if not means and getattr(self, item.name) != item.default:
                raise UsageError(f"faults: `{key_of(item)}` means nothing for {self.kind}")
        for problem in self.problems():
            raise UsageError(f"faults: {problem}")

    def problems(self) -> Iterable[str]:
        """What cannot be, first things first."""
        return ()

    @classmethod
    def from_mapping(cls, mapping: Any) -> Self:
        """A fault from its YAML. Raises UsageError naming the key."""
        if not isinstance(mapping, Mapping):
            example = next(iter(cls.KINDS))
            raise UsageError(f"faults: each one is a mapping such as {{fault: {example}}}")
        return cls(**read_fields(cls, mapping, place="faults"))


@dataclass(frozen=True)
class Scenario(ABC):
    """One simulated job. Equal scenarios give equal evidence, bit for bit."""

    FAULT: ClassVar[type[Fault]] = Fault
    DICE: ClassVar[str] = ""  # what keeps its random numbers apart from those of other kinds

    job: str = "simulated"
    seed: int = 0
    faults: tuple[Any, ...] = ()  # of FAULT

    def __post_init__(self) -> None:
        for problem in self.problems():
            raise UsageError(f"scenario: {problem}")

    def problems(self) -> Iterable[str]:
        """What cannot be simulated, first things first."""
        return ()

    def rng(self, purpose: str) -> np.random.Generator:
        """Random numbers for one purpose, so that a change of one purpose moves no other."""
        return np.random.default_rng([self.seed, zlib.crc32((self.DICE + purpose).encode())])

    @property
    @abstractmethod
    def world_size(self) -> int:
        """How many ranks it has."""

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """A scenario from the keys and quantities of its YAML. Raises UsageError naming the key."""
        values = read_fields(cls, mapping, place="scenario", skip=("faults",))
        listed = mapping.get("faults") or ()
        if not isinstance(listed, (list, tuple)):
            raise UsageError("scenario: `faults` is a list, one mapping a fault")
        return cls(**values, faults=tuple(map(cls.FAULT.from_mapping, listed)))


def unknown_words(scenario: Scenario, choices: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """A problem for each field, one word or several, that is none of its choices."""
    for name, known in choices.items():
        value = getattr(scenario, name)
        for word in (value,) if isinstance(value, str) else value:
            if word not in known:
                yield f"`{name}: {word}` is none of {', '.join(known)}"


def below(scenario: Scenario, least: float, *names: str) -> Iterable[str]:
    """A problem for each field that is below `least`."""
    for name in names:
        if (value := getattr(scenario, name)) < least:
            yield f"`{name}: {value}` must be at least {least:g}"


def unknown_nodes(missing_nodes: Iterable[int], nodes: int) -> Iterable[str]:
    """A problem for each node that does not exist."""
    for node in missing_nodes:
        if not 0 <= node < nodes:
            yield f"`missing_nodes: {node}`: the nodes are 0-{nodes - 1}"


def load_mapping(path: Path, read: Callable[[Mapping[str, Any]], T]) -> T:
    """What `read` makes of the mapping in a YAML file. Raises BadInput naming the file, and the
    line or what `read` refuses."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        content = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {error}") from error
    except YAMLError as error:
        raise BadInput(str(path), f"is not YAML: {_one_line(error)}") from error
    if not isinstance(content, Mapping):
        raise BadInput(str(path), "a scenario is a mapping such as `tp: 4`")
    try:
        return read(content)
    except UsageError as error:
        raise BadInput(str(path), str(error)) from error


def read_fields(
    cls: type[Any], mapping: Mapping[str, Any], place: str, skip: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Keyword arguments of dataclass `cls` from YAML keys; unknown keys are refused by name."""
    known = {key_of(item): item for item in fields(cls)}
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        if key in skip:
            continue
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            hint = f" (did you mean `{near[0]}`?)" if near else f"; known: {', '.join(known)}"
            raise UsageError(f"{place}: unknown key `{key}`{hint}")
        values[known[key].name] = _read(known[key], key, value, place)
    required = [
        key
        for key, item in known.items()
        if item.default is MISSING and item.default_factory is MISSING and item.name not in values
    ]
    if required:
        raise UsageError(f"{place}: `{required[0]}` is missing")
    return values


def key_of(item: Field[Any]) -> str:
    """The YAML key of a field: its name without the unit, or the name its metadata gives."""
    if "key" in item.metadata:
        return str(item.metadata["key"])
    for suffix in _UNIT_SUFFIXES:
        if item.name.endswith(suffix) and "dimension" in item.metadata:
            bare = item.name.removesuffix(suffix)
            # `tp_bytes` would become `tp`, which is the size of the group.
            return item.name if suffix == "_bytes" else bare
    return item.name


def _read(item: Field[Any], key: str, value: Any, place: str) -> Any:
    dimension: Dimension | None = item.metadata.get("dimension")
    if dimension is not None:
        return _read_quantity(dimension, key, value, place)
    kind = str(item.type)
    if kind.startswith("tuple[int"):
        return _read_numbers(key, value, place)
    if kind.startswith("tuple[str"):
        return (value,) if isinstance(value, str) else tuple(str(part) for part in value or ())
    types: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "bool": bool}
    wanted = types.get(kind, str)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool"):
        article = {"int": "a whole number", "float": "a number", "bool": "true or false"}
        raise UsageError(f"{place}: `{key}: {value}` is not {article.get(kind, 'a word')}")
    return value


def _read_quantity(dimension: Dimension, key: str, value: Any, place: str) -> int | float:
    quantity = parse_quantity(value) if isinstance(value, (str, int, float)) else None
    if quantity is not None and not isinstance(quantity.value, str):
        if quantity.dimension == dimension:
            return quantity.value
        # Zero needs no unit, and a ratio is a number.
        if quantity.dimension == "number" and (dimension == "ratio" or quantity.value == 0):
            return quantity.value
    raise UsageError(f"{place}: `{key}: {value}` is not such as `{key}: {_EXAMPLES[dimension]}`")


def _read_numbers(key: str, value: Any, place: str) -> tuple[int, ...]:
    if isinstance(value, str):
        return expand_ranks(value)
    listed = [value] if isinstance(value, int) else value
    if isinstance(listed, (list, tuple)) and all(isinstance(part, int) for part in listed):
        return tuple(listed)
    raise UsageError(f"{place}: `{key}: {value}` is not numbers such as 5 or 0-2,4")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
