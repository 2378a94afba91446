"""What relations declare, kept from one run to the next: of two hundred modules a diagnosis calls
the functions of some twenty, and importing all of them takes longer than reading a recording.

The index holds for exactly the files that it was made from, by their names, sizes and times of
change. What it declares is what the modules declare; a function is imported when it is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from oncall.core.kept_files import KeptFiles
from oncall.evidence.relations import Computed, Param, Relation
from oncall.evidence.table import Column

_INDEX = KeptFiles("relations", most=8)  # of 0.4 MB; while one develops, each edit makes one
_BELOW = ("oncall.evidence", "oncall.core")  # what relations may be made of, beside their own


def indexed(package: str, find: Callable[[], Mapping[str, Relation]]) -> dict[str, Relation]:
    """The relations of a package in their order, as `find` finds them by importing it."""
    made_from = _files_of(package, *_BELOW)
    if made_from is None:
        return dict(find())
    if (kept := _INDEX.get(made_from)) is not None:
        return {one.name: one for one in map(_read, kept)}
    found = dict(find())
    if _files_of(package, *_BELOW) == made_from:  # nobody installed while they were imported
        _INDEX.keep(made_from, [_written(one) for one in found.values()])
    return found


@dataclass(frozen=True)
class Imported:
    """The function of a relation, its module imported by the first call."""

    module: str
    relation: str

    def __call__(self, *arguments: Any, **params: Any) -> Computed:
        for value in vars(import_module(self.module)).values():
            if isinstance(value, Relation) and value.name == self.relation and value.compute:
                return value.compute(*arguments, **params)
        raise ImportError(f"{self.module} no longer declares the relation {self.relation}")


def _files_of(*packages: str) -> str | None:
    """Every file below the packages with its size and time of change; None if they are no files."""
    found = [sys.version]
    try:
        for package in packages:
            for folder in import_module(package).__path__:
                found += _below(folder)
    except OSError:
        return None
    return "\n".join(found)


def _below(folder: str) -> Iterator[str]:
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _below(entry.path)
        else:
            status = entry.stat()
            yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"


def _written(one: Relation) -> dict[str, Any]:
    """A relation as JSON."""
    return {
        "name": one.name,
        "module": one.module,
        "columns": [[each.name, each.type, each.unit, each.meaning] for each in one.columns],
        "reads": list(one.reads),
        "optional": list(one.optional),
        "empty_without": list(one.empty_without),
        "at": one.at,
        "source": one.source,
        "doc": one.doc,
        "view": one.view,
        "sql": one.sql,
        "params": {
            name: param if isinstance(param, str) else [param.written, param.why]
            for name, param in one.params.items()
        },
    }


def _read(written: dict[str, Any]) -> Relation:
    for name in ("reads", "optional", "empty_without"):
        written[name] = tuple(written[name])
    written["columns"] = tuple(Column(*each) for each in written["columns"])
    written["params"] = {
        name: param if isinstance(param, str) else Param(*param)
        for name, param in written["params"].items()
    }
    by_call = written["sql"] is None
    compute = Imported(written["module"], written["name"]) if by_call else None
    return Relation(**written, compute=compute)
