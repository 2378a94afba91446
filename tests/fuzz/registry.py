"""The targets: every module in `targets/` declares its own with `@target`."""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .mutate import mutated, mutated_json

FOUND = Path(__file__).parent / "found"


@dataclass(frozen=True)
class Target:
    """What reads foreign bytes. `run` returns for every input, or it has found a defect."""

    name: str
    run: Callable[[bytes], object]
    make: Callable[[int], bytes]  # the input of a seed

    @cached_property
    def found(self) -> list[Path]:
        """Inputs that once broke it."""
        return sorted((FOUND / self.name).glob("*.bin"))


_TARGETS: dict[str, Target] = {}


def target(
    corpus: Callable[[], Sequence[bytes]] | None = None,
    *,
    documents: Callable[[], Sequence[Any]] | None = None,
    make: Callable[[int], bytes] | None = None,
) -> Callable[[Callable[[bytes], object]], Callable[[bytes], object]]:
    """Declare a target: its inputs are mutated members of `corpus`, mutated JSON `documents`, or
    what `make` makes of a seed."""
    known: dict[str, Sequence[Any]] = {}

    def of_seed(seed: int) -> bytes:
        if make is not None:
            return make(seed)
        if documents is not None:
            return mutated_json(known.setdefault("json", documents()), seed)
        assert corpus is not None
        return mutated(known.setdefault("bytes", corpus()), seed)

    def declare(run: Callable[[bytes], object]) -> Callable[[bytes], object]:
        name = run.__name__
        assert name not in _TARGETS, name
        _TARGETS[name] = Target(name, run, of_seed)
        return run

    return declare


def targets() -> dict[str, Target]:
    """All targets by name, in alphabetical order."""
    from . import targets as folder

    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    return dict(sorted(_TARGETS.items()))


@contextmanager
def file_of(data: bytes, name: str) -> Iterator[Path]:
    """A file with the input, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="oncall-fuzz-", dir=_memory()) as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        yield path


def _memory() -> str | None:
    """A folder in memory where there is one: a million files are no work for a disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
