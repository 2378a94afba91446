"""Reading one Flight Recorder file without trusting it: no global is loaded, no size believed.

PyTorch writes plain containers only (pickle protocol 2 or JSON), so anything that asks for a
class, a persistent object or unreasonable memory is refused, not interpreted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oncall.core.errors import Unreadable
from oncall.importers import files
from oncall.importers.bounds import DEFAULT
from oncall.importers.documents import is_pickle, parse_json, parse_pickle
from oncall.importers.flight_recorder.objects import rows_of
from oncall.importers.flight_recorder.opcodes import read_opcodes
from oncall.importers.flight_recorder.rows import Dump, Rows

_KEYS = (b"pg_config", b"pg_status", b"comm_lib_version", b"collective_seq_id", b"profiling_name")
# What the file's own bytes take beside what they are parsed to, which the parsers check.
_FACTOR = 2.0
# Shared references can make few bytes many entries; a real dump spends hundreds on each, and the
# references to the 14 keys of an entry alone are as many.
_LEAST_ENTRY_BYTES = 28
_NO_ENTRIES = "not a Flight Recorder dump: its entries are not a list of operations"


def looks_like_dump(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a Flight Recorder dump (pickle or JSON)."""
    if is_pickle(head):
        return any(key in head for key in _KEYS)
    return head.lstrip()[:1] == b"{" and any(b'"' + key + b'"' in head for key in _KEYS)


def load_dump(path: Path) -> Dump:
    """The dump in `path`. Raises Unreadable, with the reason, and what `rows_of` raises where an
    entry is not what PyTorch writes."""
    data = files.whole(path, _FACTOR)
    if not data:
        raise Unreadable("empty file")
    head, rows = read_opcodes(data) or parsed(data)
    _check_count(len(rows), len(data))
    return Dump(head, rows, len(data), is_pickle(data))


def parsed(data: bytes) -> tuple[dict[str, Any], Rows]:
    """All of a dump but its entries, and its entries, by way of Python's objects."""
    dump = _parse(data)
    if not isinstance(dump, dict) or not any(key.decode() in dump for key in (*_KEYS, b"entries")):
        raise Unreadable("not a Flight Recorder dump")
    entries = dump.pop("entries", None) or []
    if not isinstance(entries, list):
        raise Unreadable(_NO_ENTRIES)
    _check_count(len(entries), len(data))
    return dump, rows_of(entries, budget=len(data))


def _check_count(entries: int, size: int) -> None:
    if entries * _LEAST_ENTRY_BYTES > size:
        raise Unreadable(_NO_ENTRIES)
    if entries > DEFAULT.part_rows:
        raise Unreadable(f"more than {DEFAULT.part_rows:,} operations; set a smaller buffer")


def _parse(data: bytes) -> Any:
    if is_pickle(data) or data[:1] == b"\x80":
        return parse_pickle(data)
    if data.lstrip()[:1] not in (b"{", b"["):
        raise Unreadable("neither a pickle nor JSON")
    return parse_json(data)
