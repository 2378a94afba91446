"""From paths to evidence: what kind of recording each file is, judged by its content."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncall.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.ingest.archives import unpacked
from oncall.ingest.importers import READABLE, Importer, importers
from oncall.ingest.jobs import Recording, choose
from oncall.ingest.printable import printable

_HEAD_BYTES = 16384
_MOST_TOLD = 3
_BESIDE_EVIDENCE = {
    *(".cfg", ".csv", ".html", ".ini", ".log", ".md", ".oncall", ".pdf", ".png", ".py", ".rst"),
    *(".sh", ".svg", ".toml", ".txt", ".yaml", ".yml"),
}


@dataclass(frozen=True)
class _File:
    path: Path
    head: bytes
    explicit: bool
    importer: Importer | None

    @property
    def alike(self) -> tuple[Path, str]:
        """What files of one series share: the folder, and the name without its numbers."""
        return self.path.parent, re.sub(r"\d+", "#", self.path.name)


def load(paths: Sequence[Path], incident: Incident, job: str | None = None) -> None:
    """Read recordings, files or folders, of one job into the incident.

    Kinds are detected from content; archives are looked into. The job is called `job`, else after
    the folder; if several jobs are found, `job` chooses one of them. What cannot be read beside
    what can becomes a recording with its problem. Raises BadInput if nothing can be read, if a
    file given by name is no evidence, or if it is not clear which job is meant.
    """
    with unpacked(paths) as (found, origin):
        _load(found, incident, job)
        for folder, archive in origin.items():
            incident.con.execute(
                "UPDATE recordings SET path = replace(path, ?, ?)", [str(folder), str(archive)]
            )


def _load(paths: Sequence[Path], incident: Incident, job: str | None) -> None:
    files = _adopt([file for path in paths for file in _look(path)])
    for file in files:
        if file.explicit and file.importer is None:
            raise BadInput(str(file.path), f"{_problem(file)}; oncall reads {READABLE}")
    recordings = _recordings(files)
    if not recordings:
        where = ", ".join(map(str, paths))
        raise BadInput(where, f"no recording here{_found_instead(files)}; oncall reads {READABLE}")
    chosen = choose(recordings, paths, job)
    by_kind: dict[str, list[Recording]] = defaultdict(list)
    for recording in chosen.recordings:
        by_kind[recording.importer.KIND].append(recording)
    for group in by_kind.values():
        group[0].importer.read([path for one in group for path in one.files], incident, chosen.name)
    folders = {recording.folder for recording in chosen.recordings}
    _note_unknown([file for file in files if file.path.parent in folders], incident, chosen.name)
    _refuse_nothing_read(incident, chosen.name)


# --------------------------------------------------------------------- files


def _look(path: Path) -> Iterator[_File]:
    if path.is_dir():
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                inside = Path(folder, name)
                # PyTorch leaves named pipes beside its dumps: opening one would wait for ever.
                if not name.startswith(".") and inside.is_file():
                    yield _sniff(inside, explicit=False)
    elif path.exists() and not path.is_file():
        raise BadInput(str(path), "neither a file nor a folder")
    else:
        yield _sniff(path, explicit=True)


def _sniff(path: Path, explicit: bool) -> _File:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        head = b""
        # An address (ras://host:port) is no file, but an importer may know it.
        if explicit and not any(importer.recognises(path, head) for importer in importers()):
            raise BadInput(str(path), error.strerror or str(error)) from error
    found = (importer for importer in importers() if importer.recognises(path, head))
    return _File(path, head, explicit, next(found, None))


def _adopt(files: Sequence[_File]) -> list[_File]:
    """Give a file of no known kind to the importer of its series, which can say what is wrong."""
    series = {file.alike: file.importer for file in files if file.importer is not None}
    return [
        _File(file.path, file.head, file.explicit, file.importer or series.get(file.alike))
        for file in files
    ]


def _recordings(files: Sequence[_File]) -> list[Recording]:
    groups: dict[tuple[str, Path], dict[Path, Importer]] = defaultdict(dict)
    for file in files:
        if file.importer is not None:
            groups[file.importer.KIND, file.path.parent][file.path] = file.importer
    return [
        Recording(next(iter(group.values())), folder, tuple(group))
        for (_, folder), group in groups.items()
    ]


# ---------------------------------------------------------------- what is left


def _note_unknown(files: Sequence[_File], incident: Incident, job: str) -> None:
    """Say what lies beside the evidence and was not read, unless it is plainly something else."""
    unknown = [file for file in files if file.importer is None and not _is_company(file)]
    if unknown:
        incident.append(
            "recordings",
            {
                "job": job,
                "path": [printable(str(file.path)) for file in unknown],
                "problem": [_problem(file) for file in unknown],
            },
        )


def _is_company(file: _File) -> bool:
    """Notes, configuration and results, which people keep beside recordings."""
    plain_json = file.path.suffix == ".json" and file.head.lstrip()[:1] in (b"{", b"[")
    named = file.path.suffix.lower() in _BESIDE_EVIDENCE or file.path.stem.isupper()
    return named or plain_json


def _problem(file: _File) -> str:
    if not file.head:
        return "empty or unreadable file"
    if file.head[:1] == b"\x80" and file.head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a pickle, but not one of the Flight Recorder"
    return "not a recording that oncall knows"


def _found_instead(files: Sequence[_File]) -> str:
    """` (3 files, none readable: a: empty or unreadable file ...)`, to see a wrong path at once."""
    if not files:
        return " (no file at all)"
    told = ", ".join(f"{file.path.name}: {_problem(file)}" for file in files[:_MOST_TOLD])
    more = f" and {len(files) - _MOST_TOLD:,} more" if len(files) > _MOST_TOLD else ""
    return f" ({told}{more})"


def _refuse_nothing_read(incident: Incident, job: str) -> None:
    rows = incident.con.execute(
        "SELECT path, problem, problem IS NULL OR coalesce(rows, 0) > 0 AS of_use FROM recordings "
        "WHERE job = ? ORDER BY of_use DESC, path",
        [job],
    ).fetchall()
    if rows and not rows[0][2]:
        more = f" (with {len(rows) - 1} more, none readable)" if len(rows) > 1 else ""
        raise BadInput(rows[0][0], rows[0][1] + more)
