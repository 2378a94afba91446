"""From paths to evidence: what kind of recording each file is, judged by its content."""

from __future__ import annotations

import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oncall.core.errors import BadInput, SeveralJobs, Unreadable
from oncall.evidence.columns import storable
from oncall.evidence.incident import Incident
from oncall.importers import files, strange
from oncall.importers.archives import Unpacked, unpacked
from oncall.importers.bounds import Meter, of_one_job
from oncall.importers.files import kind, walk
from oncall.importers.importers import ASKING_LIVE_JOBS, READABLE, Importer, importers, reads
from oncall.importers.jobs import Job, Recording, choose
from oncall.importers.one_job import OneKind, keep_one_job, keep_one_recorder, rows_so_far
from oncall.importers.so_far import ReadSoFar, counted, will_read

_HEAD_BYTES = 16384
_MOST_SHOWN = 3
_UNKNOWN = "not a recording that oncall knows"
# What people write, and programs draw, beside evidence. Text and tables may be evidence.
_BESIDE_EVIDENCE = {
    *(".cfg", ".ini", ".md", ".oncall", ".png", ".py", ".rst", ".sh", ".svg", ".toml", ".yaml"),
    ".yml",
}

_NOTES = {".md", ".rst"}


@dataclass(frozen=True)
class _File:
    path: Path
    head: bytes
    explicit: bool
    importer: Importer | None
    is_file: bool = True
    problem: str | None = None

    @property
    def alike(self) -> tuple[Path, str]:
        """What files of one series share: the folder, and the name without its numbers."""
        return self.path.parent, _unnumbered(self.path.name)


def _unnumbered(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def load(
    paths: Sequence[Path],
    incident: Incident,
    job: str | None = None,
    *,
    risk_the_job: bool = False,
    so_far: ReadSoFar | None = None,
) -> None:
    """Read recordings, files or folders, of one job into the incident.

    Kinds are detected from content; archives are looked into. The job is called `job`, else after
    the folder; if several jobs are found, `job` chooses one of them. What cannot be read beside
    what can becomes a recording with its problem, and so does what is over a bound (`bounds`).
    `risk_the_job`: a live job is asked even where that may end it. `so_far` counts. Raises BadInput
    if nothing can be read or a file given by name is no evidence, SeveralJobs if it is not clear
    which is meant.
    """
    with of_one_job(), counted(so_far), unpacked(paths) as found:
        try:
            name = _load(found, incident, job, risk_the_job)
        except SeveralJobs as error:
            placed = _placed(error, found)
            raise SeveralJobs(placed.place, placed.problem, error.jobs) from error
        except BadInput as error:
            raise _placed(error, found) from error
        for folder, archive in found.origin.items():
            incident.con.execute(
                "UPDATE recordings SET path = replace(path, ?, ?)",
                [storable(str(folder)), storable(str(archive))],
            )
        _note(found.problems, incident, name)


def _placed(error: BadInput, found: Unpacked) -> BadInput:
    """The error in terms of the archives, and of what was wrong with them."""
    place, problem = error.place, error.problem
    for folder, archive in found.origin.items():
        place = place.replace(str(folder), str(archive))
        problem = problem.replace(str(folder), str(archive))
    if len(found.problems) == 1 and len(found.paths) == 1:
        return BadInput(place, next(iter(found.problems.values())))
    said = [f"{archive}: {problem}" for archive, problem in found.problems.items()]
    return BadInput(place, "; ".join([problem, *said[:_MOST_SHOWN]]))


def _load(given: Unpacked, incident: Incident, job: str | None, risk_the_job: bool) -> str:
    """Read what lies at the paths; returns the name of the job that it is of."""
    paths, archives = given.paths, set(given.origin.values())
    looked = [file for path in paths for file in _look(path) if file.path not in archives]
    found_files = _adopt([file for file in looked if file.is_file])
    recordings = _recordings(found_files, given)
    if not recordings:
        given_by_name = next((file for file in found_files if file.explicit), None)
        if given_by_name is not None:
            raise BadInput(str(given_by_name.path), _with_readable(_problem(given_by_name)))
        if looked and not found_files:
            raise BadInput(str(looked[0].path), f"{looked[0].problem}; give files or folders")
        where = ", ".join(map(str, paths[:_MOST_SHOWN]))
        where += f" and {len(paths) - _MOST_SHOWN:,} more" if len(paths) > _MOST_SHOWN else ""
        raise BadInput(
            where, f"no recording here{_found_instead(found_files)}; oncall reads {READABLE}"
        )
    chosen = choose(recordings, given.given, job)
    by_kind: dict[str, list[Recording]] = defaultdict(list)
    for recording in chosen.recordings:
        by_kind[recording.importer.KIND].append(recording)
    will_read([path for one in chosen.recordings for path in one.files])
    read: list[OneKind] = []
    for group in by_kind.values():
        importer = group[0].importer
        found = [path for one in group for path in one.files]
        since = rows_so_far(incident)
        if importer.KIND in ASKING_LIVE_JOBS:
            importer.read(found, incident, chosen.name, risk_the_job=risk_the_job)
        else:
            importer.read(found, incident, chosen.name)
        read.append(OneKind(importer.KIND, tuple(found), since, rows_so_far(incident)))
    if len(read) > 1:
        left_out = keep_one_job(incident, read, job)
        _note(left_out, incident, chosen.name)
        keep_one_recorder(incident, [one for one in read if not {*one.files} & {*left_out}])
    _note_unknown(_beside(looked, found_files, chosen), incident, chosen.name)
    _note(chosen.left_out, incident, chosen.name)
    _refuse_nothing_read(incident, chosen.name)
    return chosen.name


# --------------------------------------------------------------------- files


def _look(path: Path) -> Iterator[_File]:
    """The files at a path, and what a shell's pattern gave beside them.

    PyTorch leaves named pipes beside its dumps, so `fr_trace_rank_*` names pipes as well.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        yield _sniff(path, explicit=True)
        return
    if stat.S_ISDIR(mode):
        # Pipes in a folder are nobody's words: they are passed over without one.
        yield from (_sniff(inside, explicit=False) for inside in walk(path) if _is_file(inside))
    elif stat.S_ISREG(mode):
        yield _sniff(path, explicit=True)
    else:
        yield _File(path, b"", True, None, False, f"{kind(mode)}, neither a file nor a folder")


def _is_file(path: Path) -> bool:
    """Whether it is a file, or a folder that may not be read."""
    return path.is_file() or path.is_dir()


def _sniff(path: Path, explicit: bool) -> _File:
    head, importer, problem = b"", None, None
    try:
        head = files.head(path, _HEAD_BYTES)
    except Unreadable as error:
        problem = str(error)
    try:
        # Who gives notes by name means what is pasted in them.
        is_note = explicit and path.suffix.lower() in _NOTES
        importer = _recognised(path.with_suffix(".txt") if is_note else path, head)
    except Unreadable as error:
        problem = str(error)
    # An address (ras://host:port) is not a file, but an importer may know it.
    if explicit and importer is None and problem is not None:
        raise BadInput(str(path), problem)
    return _File(path, head, explicit, importer, problem=problem)


def what_it_is(path: Path) -> str | None:
    """What a file is, in an engineer's words, by how it begins; None: nothing that oncall knows, or
    can read."""
    try:
        importer = _recognised(path, files.head(path, _HEAD_BYTES))
    except Unreadable:
        return None
    return None if importer is None else reads(importer)


def _recognised(path: Path, head: bytes) -> Importer | None:
    """The first importer that knows a file that begins so. Raises Unreadable if it takes longer to
    say than a file may take."""
    if path.suffix.lower() in _BESIDE_EVIDENCE:
        return None
    meter = Meter()
    meter.take(len(head))
    head = files.uncoloured(head)
    for importer in importers():
        if importer.recognises(path, head):
            return importer
        meter.check_time()
    return None


def _adopt(files: Sequence[_File]) -> list[_File]:
    """Give a file of no known kind to the importer of its series, which can say what is wrong."""
    series = {file.alike: file.importer for file in files if file.importer is not None}
    return [replace(file, importer=file.importer or series.get(file.alike)) for file in files]


def _recordings(files: Sequence[_File], given: Unpacked) -> list[Recording]:
    groups: dict[tuple[str, Path], dict[Path, Importer]] = defaultdict(dict)
    for file in files:
        if file.importer is not None:
            groups[file.importer.KIND, file.path.parent][file.path] = file.importer
    return [
        Recording(next(iter(group.values())), folder, tuple(group), given.place(folder))
        for (_, folder), group in groups.items()
    ]


# ---------------------------------------------------------------- what is left


def _beside(looked: Sequence[_File], found_files: Sequence[_File], chosen: Job) -> Iterator[_File]:
    """The files in the folders of the job's recordings, and in those numbered as they are: a rank
    may have a folder of its own."""
    read = {path for recording in chosen.recordings for path in recording.files}
    folders = {path.parent for path in read}
    series = {_unnumbered(str(path)) for path in read}
    for file in found_files:
        near = file.path.parent in folders or _unnumbered(str(file.path)) in series
        if file.explicit or near:
            yield file
    yield from (file for file in looked if not file.is_file)


def _note_unknown(files: Iterable[_File], incident: Incident, job: str) -> None:
    """Say what lies beside the evidence and was not read, unless it is plainly something else."""
    unknown = [
        file for file in files if file.importer is None and (file.explicit or not _is_note(file))
    ]
    _note({file.path: _problem(file) for file in unknown}, incident, job)


def _note(problems: Mapping[Path, str], incident: Incident, job: str) -> None:
    rows = ({"path": str(path), "problem": problem} for path, problem in problems.items())
    incident.append_rows("recordings", rows, job=job)


def _is_note(file: _File) -> bool:
    """Notes, configuration and results, which people keep beside recordings."""
    plain_json = file.path.suffix == ".json" and file.head.lstrip()[:1] in (b"{", b"[")
    named = file.path.suffix.lower() in _BESIDE_EVIDENCE or file.path.stem.isupper()
    return named or plain_json


def _problem(file: _File) -> str:
    if file.problem is not None:
        return file.problem
    if not file.head:
        return "empty file" if _is_empty(file.path) else "nothing in it can be unpacked"
    return strange.described(file.head) or _UNKNOWN


def _with_readable(problem: str) -> str:
    """The problem, and what oncall reads where that says what the file is not."""
    return f"{problem}; oncall reads {READABLE}" if problem == _UNKNOWN else problem


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


def _found_instead(files: Sequence[_File]) -> str:
    """` (3 files, none readable: a: empty file ...)`, to see a wrong path at once."""
    if not files:
        return " (no file at all)"
    shown = ", ".join(f"{file.path.name}: {_problem(file)}" for file in files[:_MOST_SHOWN])
    more = f" and {len(files) - _MOST_SHOWN:,} more" if len(files) > _MOST_SHOWN else ""
    return f" ({shown}{more})"


def _refuse_nothing_read(incident: Incident, job: str) -> None:
    rows = incident.con.execute(
        "SELECT path, problem, problem IS NULL OR coalesce(rows, 0) > 0 AS of_use FROM recordings "
        "WHERE job = ? ORDER BY of_use DESC, path",
        [job],
    ).fetchall()
    if not rows:
        raise BadInput(job, f"nothing in its recordings can be read; oncall reads {READABLE}")
    if not rows[0][2]:
        more = f" (with {len(rows) - 1} more, none readable)" if len(rows) > 1 else ""
        raise BadInput(rows[0][0], rows[0][1] + more)
