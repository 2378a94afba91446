"""What somebody who typed `oncall` alone may have meant: recordings in the folder they are in, and
training processes on this machine, each with the command to type."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.core.printable import typed
from oncall.core.units import counted
from oncall.importers.detect import what_it_is
from oncall.importers.files import walk
from oncall.node.processes.training_processes import training_processes
from oncall.use_case.recordings import is_incident

_MOST_ENTRIES = 64  # of the folder, looked at
_MOST_FILES = 64  # of a folder in it
_MOST_OFFERS = 8


@dataclass(frozen=True)
class Offer:
    """A command, and what it would show."""

    command: str
    what: str


def offers(folder: Path, run: Path | None) -> tuple[Offer, ...]:
    """Saved incidents, then recordings, of which those in one folder are one; then jobs that run
    here, by their processes or by their rings in `run`."""
    entries = sorted(islice(folder.iterdir(), _MOST_ENTRIES))
    incidents = [one for one in entries if _is_file(one) and is_incident(one)]
    found = [Offer(typed("oncall open {path}", path=one.name), "a saved incident")
             for one in incidents]  # fmt: skip
    here = Counter(_kinds(one for one in entries if _is_file(one) and one not in incidents))
    if here:
        alone = [one for one in entries if _is_file(one) and what_it_is(one)]
        path = alone[0].name if len(alone) == 1 else "."
        found.append(_of_recordings(path, here))
    for one in entries:
        if one.is_dir() and not one.name.startswith("."):
            try:
                kinds = Counter(_kinds(islice(walk(one), _MOST_FILES)))
            except BadInput:  # more files than a recording has
                continue
            if kinds:
                found.append(_of_recordings(one.name, kinds))
    jobs = Counter(one.job for one in training_processes(run))
    running = [
        Offer(
            typed("oncall stacks --job {job}", job=job),
            f"{counted(number, 'process')} of a job that runs on this machine",
        )
        for job, number in jobs.items()
    ]
    return (*found[:_MOST_OFFERS], *running[:_MOST_OFFERS])


def _of_recordings(path: str, kinds: Counter[str]) -> Offer:
    shortly = ", ".join(words.partition(" (")[0] for words in kinds)
    number = counted(kinds.total(), "file")
    return Offer(typed("oncall diagnose {path}", path=path), f"{number}: {shortly}")


def _kinds(paths: Iterator[Path]) -> Iterator[str]:
    return (what for one in paths if _is_file(one) and (what := what_it_is(one)) is not None)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
