"""Text of hosts: what their kernels logged and their tools print, one file or many, of one job.

The rows are those of the live collectors: `host_events`, `gpus`, `nics`, `devices`. A file that
could not have shown a fault is no evidence of health; its note says what it is a snapshot of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME
from oncall.importers import files
from oncall.importers.host_names import hosts_of
from oncall.importers.host_text import (
    dcgm,
    fabric_logs,
    kernel_log,
    nvidia_smi,
    process_list,
    rdma_ports,
    rocm_smi,
    slurm_nodes,
)
from oncall.importers.host_text.page import Page
from oncall.importers.host_text.sections import sections
from oncall.importers.recordings import append_recording

KIND = "host_text"
OF_ONE_JOB = True  # in several folders: of several hosts

_FORMATS = (nvidia_smi, rocm_smi, dcgm, rdma_ports, slurm_nodes, process_list, fabric_logs)
_JOB = re.compile(r"\[rank\d+\]:|NCCL (?:INFO|WARN)|ProcessGroupNCCL|torch\.distributed")
_HEAD_BYTES = 16384
_TEXT = 600  # characters kept of a value
_LINE = 1000  # characters of a line; those of these tools are shorter
_FACTOR = 60.0  # bytes of memory for each of the text, at worst
_LARGEST = {"INTEGER": 2**31 - 1, "BIGINT": 2**62, "UBIGINT": 2**63}


def recognises(path: Path, head: bytes) -> bool:
    """Whether the beginning is that of one of these."""
    text = _text(head[:_HEAD_BYTES])
    if not text or _JOB.search(text):
        return False  # a job's own log, which may begin with what such a tool prints
    parts = ("\n".join(one.lines) for one in sections(files.lines(text)))
    return any(_format(part) or kernel_log.recognises(part, path.name) for part in parts)


def _text(head: bytes) -> str:
    return "" if b"\0" in head else head.decode("utf-8", "replace")


def _lines(text: str) -> list[str]:
    return [line[:_LINE].rstrip("\r") for line in text.split("\n")]


def _format(text: str) -> ModuleType | None:
    return next((one for one in _FORMATS if one.recognises(text)), None)


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add what hosts say as evidence. A file that cannot be read becomes a recording with its
    problem."""
    hosts = hosts_of(paths)
    for path in sorted(paths):
        page, problem = _read(path, hosts[path])
        for table, rows in page.rows.items():
            _write(incident, table, rows)
        append_recording(
            incident,
            job,
            KIND,
            path,
            sum(map(len, page.rows.values())),
            problem,
            [None if problem or "host_events" in page.rows else page.note],
            written_ns=page.written_ns,
            undated=page.stated_ns is None,
        )


def _read(path: Path, node: str | None) -> tuple[Page, str | None]:
    page = Page(path, node, 0)
    try:
        page.at_ns = page.written_ns = files.modified_ns(path)
        with files.Stream(path) as stream:
            head = files.uncoloured(stream.read(_HEAD_BYTES))
        if not head:
            return page, "empty file"
        hosts = [one.host for one in sections(_lines(_text(head)))]
        if hosts == [None] and _format(_text(head)) is None:
            return page, kernel_log.read(path, page)
        text = files.text(path, _FACTOR)
        _read_sections(_lines(text), page)
    except Unreadable as error:
        return page, str(error)
    return page, None


def _read_sections(lines: list[str], page: Page) -> None:
    """Read what each host printed as what it is, and number its lines as the file has them."""
    for section in sections(lines):
        part = replace(page, node=section.host or page.node, rows={})
        form = _format("\n".join(section.lines)[:_HEAD_BYTES])
        (form.read if form else kernel_log.read_lines)(section.lines, part)
        for table, rows in part.rows.items():
            for row in rows:
                if "line" in row:
                    row["line"] = section.numbers[row["line"] - 1]
            page.rows.setdefault(table, []).extend(rows)
        page.note, page.stated_ns = part.note, part.stated_ns or page.stated_ns


def _write(incident: Incident, table: str, rows: Sequence[dict[str, Any]]) -> None:
    types = {column.name: column.type for column in BY_NAME[table].columns}
    kept = [{name: _kept(value, types[name]) for name, value in row.items()} for row in rows]
    incident.append_rows(table, kept)


def _kept(value: Any, kind: str) -> Any:
    """A value that fits its column, text without what could steer a terminal."""
    if isinstance(value, str):
        return "".join(one if one.isprintable() else " " for one in value[:_TEXT])
    if isinstance(value, int) and not isinstance(value, bool) and kind in _LARGEST:
        return value if abs(value) <= _LARGEST[kind] else None
    return value
