"""Which recordings belong to the same job, and what the job is called."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from oncall.core.errors import SeveralJobs
from oncall.core.printable import named
from oncall.evidence.columns import storable
from oncall.importers.archives import SUFFIXES, stem
from oncall.importers.importers import Importer

_ATTEMPT = re.compile(r"(?:attempt|restart|retry|try)[-_ ]?(\d{1,6})", re.IGNORECASE)
# Of a file: how it is written and packed, not what it is of.
_ENDINGS = re.compile(
    r"(?<=.)(?:\.(?:log|out|err|txt|stdout|stderr|jsonl?|csv|parquet|pkl|pickle|gz|zst|xz|bz2)){1,9}$",
    re.IGNORECASE,
)
_MOST_SHOWN = 20  # names of jobs: one of them is to be typed
_EARLIER = "not used: a later attempt of the job is diagnosed (--job chooses this one)"


@dataclass(frozen=True)
class Recording:
    """The files of one kind in one folder."""

    importer: Importer
    folder: Path
    files: tuple[Path, ...]
    place: Path  # the folder, in terms of the paths given: an archive counts as one


@dataclass(frozen=True)
class Job:
    """A job's recordings, at most one copy of each, and the folders left out of it, with why."""

    name: str
    recordings: tuple[Recording, ...]
    left_out: Mapping[Path, str] = field(default_factory=dict)


def choose(recordings: Sequence[Recording], roots: Sequence[Path], wanted: str | None) -> Job:
    """The one job that the recordings are of, or of several the one named `wanted`.

    A single job is called `wanted`, else after the file, folder or archive given. Several are
    called after the folders that tell them apart; of a job's attempts in folders of their own the
    newest counts. Raises SeveralJobs if none of several is `wanted`.
    """
    found = _jobs(recordings)
    if _is_one_job(found):
        return Job(wanted or _name(roots), tuple(part for _, _, parts in found for part in parts))
    by_name = _named(found)
    if wanted is not None and (name := named(wanted, by_name)) is not None:
        return Job(name, tuple(by_name[name]))
    newest, earlier = _newest_attempts(found)
    if wanted is None and _is_one_job(newest):
        parts = tuple(part for _, _, parts in newest for part in parts)
        return Job(_name(roots), parts, {place: _EARLIER for _, place, _ in earlier})
    missing = f"no job named {wanted}" if wanted else f"recordings of {len(by_name)} jobs"
    names = ", ".join(sorted(by_name)[:_MOST_SHOWN])
    names += f" and {len(by_name) - _MOST_SHOWN:,} more" if len(by_name) > _MOST_SHOWN else ""
    said = f"{missing}; choose one with --job: {names}"
    raise SeveralJobs(str(_common(roots)), said, sorted(by_name))


_Found = tuple[str, Path, tuple[Recording, ...]]  # kind, the place that holds all, the best copies


def _is_one_job(found: Sequence[_Found]) -> bool:
    return max(Counter(kind for kind, _, _ in found).values()) == 1


def _newest_attempts(found: Sequence[_Found]) -> tuple[list[_Found], list[_Found]]:
    """What is left where of attempts with numbers (`attempt_0`, `attempt_1`) the last one counts,
    and what came before."""
    lanes: dict[tuple[str, str], list[tuple[int, _Found]]] = defaultdict(list)
    for one in found:
        kind, place, _ = one
        attempt = _ATTEMPT.search(str(place))
        number = int(attempt[1]) if attempt else 0
        lanes[kind, _ATTEMPT.sub("#", str(place))].append((number, one))
    for lane in lanes.values():
        lane.sort(key=lambda pair: pair[0])
    newest = [lane[-1][1] for lane in lanes.values()]
    return newest, [one for lane in lanes.values() for _, one in lane[:-1]]


def _jobs(recordings: Sequence[Recording]) -> list[_Found]:
    by_kind: dict[str, list[Recording]] = defaultdict(list)
    for recording in recordings:
        by_kind[recording.importer.KIND].append(recording)
    return [
        (kind, _common(r.place for copies in job for r in copies), _best(job))
        for kind, group in by_kind.items()
        for job in _related(group)
    ]


def _related(recordings: Sequence[Recording]) -> list[list[list[Recording]]]:
    """Jobs, each a list of parts, each a list of copies (the best one first)."""
    importer: Any = recordings[0].importer
    if getattr(importer, "OF_ONE_JOB", False):
        return [[[one] for one in sorted(recordings, key=lambda one: len(one.files), reverse=True)]]
    if len(recordings) == 1 or not hasattr(importer, "IDENTITY"):
        return [[[recording]] for recording in recordings]
    judge = import_module(importer.IDENTITY)
    identity = {recording: judge.identify(recording.files) for recording in recordings}
    jobs: list[list[list[Recording]]] = []
    for recording in sorted(recordings, key=lambda one: identity[one].worth, reverse=True):
        for job in jobs:
            ties = [judge.relate(identity[part[0]], identity[recording]) for part in job]
            if "copy" in ties:
                job[ties.index("copy")].append(recording)
                break
            if set(ties) == {"part"}:
                job.append([recording])
                break
        else:
            jobs.append([[recording]])
    return jobs


def _best(job: Sequence[Sequence[Recording]]) -> tuple[Recording, ...]:
    return tuple(copies[0] for copies in job)


def _named(found: Sequence[_Found]) -> dict[str, list[Recording]]:
    """Recordings by the name of their job: the step of the path that tells it from the others."""
    base = _common(folder for _, folder, _ in found)
    short = [(kind, _below(base, folder).parts[0]) for kind, folder, _ in found]
    unique = max(Counter(short).values()) == 1
    named: dict[str, list[Recording]] = defaultdict(list)
    for (_, folder, parts), (_, name) in zip(found, short, strict=True):
        named[storable(name if unique else str(_below(base, folder)))].extend(parts)
    return named


def _below(base: Path, folder: Path) -> Path:
    return folder.relative_to(base) if folder != base else Path(base.name)


def _name(roots: Sequence[Path]) -> str:
    """As evidence can hold it: a name on disk need not be UTF-8."""
    if len(roots) == 1 and roots[0].is_file():
        is_archive = roots[0].name.lower().endswith(SUFFIXES)
        name = stem(roots[0]) if is_archive else _ENDINGS.sub("", roots[0].name)
        return str(storable(name))
    folder = _common(root if root.is_dir() else root.parent for root in roots).resolve()
    return str(storable(folder.name)) if folder.is_dir() and folder.name else "job"


def _common(folders: Iterable[Path]) -> Path:
    return Path(os.path.commonpath([folder.absolute() for folder in folders]))
