"""Reports of NCCL's diagnostics (2.31): `ncclras -D`, or NCCL_RUN_RAS_DIAGNOSTICS=1.

    node042:12345 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 8 ranks in comm 0x1234
    node042:12345 NCCL DIAG [INFO] NCCL environment: NCCL_ALGO=Ring on rank(s) {4,5,6,7}

The host is the one that asked. What is wrong is tagged as information; ranks are listed in
braces, and a long list is cut off.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.recordings import append_recording

KIND = "nccl_diagnostics"

_MARK = "NCCL DIAG "
_LEAST_SHARE = 0.5  # of the lines; a job's log that holds a report is a log
_INFO = re.compile(r"NCCL DIAG \[INFO\] (?P<check>[A-Za-z][\w ]{0,40}): (?P<text>.*)")
_RANKS = re.compile(r"\brank\(s\) \{(?P<ranks>[\d, ]{1,4000})")
# What hardware or software is unlike, or does not do all that it could: worth a note.
_NOTED = re.compile(
    r"NCCL DIAG \[INFO\] (?P<text>(?:NVLink: (?:inactive|inconsistent) .{0,300}"
    r"|(?:NVLink|GPU inventory|[\w ]{0,40}version|Net device [\w:.-]{1,64}): "
    r".{0,200}differ from .{0,200}"
    r"|Net device .{0,300}\(port is not active\)))"
)
_XID = re.compile(
    r"NCCL DIAG \[INFO\] (?P<kind>S?Xid) (?P<code>\d{1,6}) detected .{0,200}? on host "
    r"(?P<node>[\w.-]{1,64})\."
)
_VALUE = re.compile(r"^(?>.*?\b(?P<name>NCCL_\w++)=)(?P<value>.*?) on rank")
# What may differ between ranks and changes nothing but what is printed.
_OF_PRINTING = re.compile(r"NCCL_DEBUG|NCCL_WARN|NCCL_RAS|NCCL_RUN|NCCL_\w*(?:FILE|DUMP)")
_FACTOR = 10.0  # bytes of memory for each of the text
_MOST_TEXT = 600
_MOST_RANKS = 1 << 17
_MOST_NOTES = 8
_Row = dict[str, Any]


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001 - content alone decides
    """Whether most lines of `head` are of such a report."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    return bool(lines) and sum(_MARK in line for line in lines) >= _LEAST_SHARE * len(lines)


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add what the reports find as events of logs, by rank where they name ranks."""
    for path in sorted(paths):
        rows: list[_Row] = []
        notes: list[str] = []
        problem, written_ns = None, None
        try:
            written_ns = files.modified_ns(path)
            text = files.text(path, _FACTOR)
            lines = text.splitlines()
            rows, notes = list(_rows(lines)), list(_notes(lines))
        except Unreadable as error:
            problem = str(error)
        incident.append_rows("log_events", rows, job=job, path=str(path), attempt=1)
        if not (rows or notes or problem):
            notes = ["NCCL's diagnostics report no fault at their moment"]
        append_recording(
            incident, job, KIND, path, len(rows), problem, notes, written_ns=written_ns
        )


def _rows(lines: Sequence[str]) -> Iterator[_Row]:
    settings: dict[str, list[_Row]] = defaultdict(list)
    for place, line in enumerate(metered(lines), start=1):
        if xid := _XID.search(line):
            about = {"kind": xid["kind"].lower(), "code": xid["code"], "node": xid["node"]}
            yield {**about, "line": place, "text": xid[0].removeprefix("NCCL DIAG [INFO] ")}
        found = _INFO.search(line)
        if found is None:
            continue
        ranks = _ranks(found["text"])
        row = {"line": place, "text": f"{found['check']}: {found['text']}"[:_MOST_TEXT]}
        value = _VALUE.search(found["text"])
        if value is not None and not _OF_PRINTING.match(value["name"]):
            settings[value["name"]].append({**row, "ranks": ranks})
        elif found["check"].startswith("ECC") and "uncorrected" in found["text"] and ranks:
            yield from ({**row, "kind": "cuda", "code": "ecc", "rank": rank} for rank in ranks)
    for sides in settings.values():
        yield from _odd(sides)


def _notes(lines: Sequence[str]) -> Iterator[str]:
    """What may slow a job and stops none: nothing here shows what it costs."""
    found = (_NOTED.search(line) for line in metered(lines))
    yield from islice((one["text"][:_MOST_TEXT] for one in found if one), _MOST_NOTES)


def _ranks(text: str) -> list[int]:
    found = _RANKS.search(text)
    numbers = re.findall(r"\d{1,7}", found["ranks"]) if found else []
    return [int(number) for number in numbers if int(number) < _MOST_RANKS]


def _odd(sides: Sequence[_Row]) -> Iterator[_Row]:
    """The side of fewer ranks than the others; of equal sides nobody is named."""
    about = {"kind": "version", "code": "setting"}
    most = max(len(side["ranks"]) for side in sides)
    fewer = [side for side in sides if 0 < len(side["ranks"]) < most]
    said = " | ".join(side["text"] for side in sides)[:_MOST_TEXT]
    for side in fewer or sides[:1]:
        for rank in side["ranks"] if fewer else (None,):
            yield {**about, "line": side["line"], "text": said, "rank": rank}
