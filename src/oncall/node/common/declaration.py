"""How a source of evidence declares itself, and how a collector finds those that do.

    @source("gpus", every="1 s")
    def gpus(surroundings: Surroundings, options: Polled) -> Source:
        ...  # a docstring: what it collects
        return OwnThread(GpuSource(surroundings.root, surroundings.node, options.every_ns))

Its options are table [gpus] of the collector's file: the fields of the dataclass that `options`
is annotated with. The first line of the docstring says what it collects.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_type_hints

import oncall.node
from oncall.core.units import parse_duration_ns
from oncall.node.common.options import option
from oncall.node.common.source import Source
from oncall.node.store.bookmarks import Bookmark

T = TypeVar("T")
Bookmarks: TypeAlias = Mapping[str, Bookmark]


@dataclass(frozen=True)
class NoOptions:
    """Of a source that has nothing to configure."""


@dataclass(frozen=True)
class Polled:
    """Options of a source with a rate of its own: the default of `every` is in its declaration."""

    every_ns: int = option("duration", "how often it reads")


@dataclass(frozen=True)
class SourceOptions:
    """The options of all sources, by the sources' names."""

    by_source: Mapping[str, Any]

    def of(self, kind: type[T]) -> T:
        """Those of the source whose options are of this class; it must be its alone."""
        (found,) = (each for each in self.by_source.values() if type(each) is kind)
        return found

    def changed(self, source: str, **values: object) -> SourceOptions:
        """With other values of fields of one source."""
        changed = replace(self.by_source[source], **values)
        return SourceOptions({**self.by_source, source: changed})


@dataclass(frozen=True)
class Surroundings:
    """What a source is made in.

    rings          the folder in which training processes leave their rings
    ring_grace_ns  how long the files of a process that is gone are kept
    root           where the node's proc, sys and dev are
    options        of every source: one may do what another is configured for
    bookmarks      what the source's predecessor left, by the names that it gave them
    """

    node: str
    root: Path
    rings: Path
    ring_grace_ns: int
    options: SourceOptions
    bookmarks: Bookmarks = field(default_factory=dict)
    _shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def shared(self, make: Callable[[Surroundings], T]) -> T:
        """What several sources of one collector use together: `make` is called once, when the
        first of them asks."""
        if make not in self._shared:
            self._shared[make] = make(self)
        found: T = self._shared[make]
        return found


Make: TypeAlias = Callable[[Surroundings, Any], Source]
M = TypeVar("M", bound=Make)


@dataclass(frozen=True)
class Declaration:
    """A source as it declares itself; `options` are the defaults."""

    name: str
    collects: str
    on_by_default: bool
    options: Any
    make: Make


_DECLARED: dict[str, Declaration] = {}


def source(name: str, *, every: str | None = None, on_by_default: bool = True) -> Callable[[M], M]:
    """Declare the source `name`, made by what is decorated. `every`: how often it reads unless it
    is configured, such as "1 s"; only of a source whose options are `Polled`."""

    def declare(make: M) -> M:
        kind = get_type_hints(make)["options"]
        is_polled = any(each.name == "every_ns" for each in fields(kind))
        if is_polled != (every is not None):
            raise TypeError(
                f"source {name}: `every` is required if its options are Polled, else forbidden"
            )
        if name in _DECLARED:
            raise TypeError(f"source {name} is declared twice")
        options = kind(every_ns=parse_duration_ns(every)) if every is not None else kind()
        collects = (make.__doc__ or "").partition("\n")[0]
        _DECLARED[name] = Declaration(name, collects, on_by_default, options, make)
        return make

    return declare


@cache
def declared() -> Mapping[str, Declaration]:
    """Every source below oncall.node, by name, in the order of names."""
    for module in pkgutil.walk_packages(oncall.node.__path__, "oncall.node."):
        importlib.import_module(module.name)
    return dict(sorted(_DECLARED.items()))


def default_options() -> SourceOptions:
    """The options of all sources where nothing is configured."""
    return SourceOptions({each.name: each.options for each in declared().values()})


def on_by_default() -> tuple[str, ...]:
    """The names of the sources that are collected where nothing is configured."""
    return tuple(each.name for each in declared().values() if each.on_by_default)
