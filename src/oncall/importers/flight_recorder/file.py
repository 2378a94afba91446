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

_KEYS = (b"pg_config", b"pg_status", b"comm_lib_version", b"collective_seq_id", b"profiling_name")
# What the file's own bytes take beside what they are parsed to, which the parsers check.
_FACTOR = 2.0
# Shared references can make few bytes many entries; a real dump spends hundreds on each, and the
# references to the 14 keys of an entry alone are as many.
_LEAST_ENTRY_BYTES = 28


def looks_like_dump(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a Flight Recorder dump (pickle or JSON)."""
    if is_pickle(head):
        return any(key in head for key in _KEYS)
    return head.lstrip()[:1] == b"{" and any(b'"' + key + b'"' in head for key in _KEYS)


def load_dump(path: Path) -> dict[str, Any]:
    """The dump in `path` as plain containers, its `entries` a list, and added: its `size` in bytes
    and whether it is `pickled`.

    Raises Unreadable, with the reason, and nothing else.
    """
    data = files.whole(path, _FACTOR)
    if not data:
        raise Unreadable("empty file")
    dump = _parse(data)
    if not isinstance(dump, dict) or not any(key.decode() in dump for key in (*_KEYS, b"entries")):
        raise Unreadable("not a Flight Recorder dump")
    entries = dump.get("entries") or []
    if not isinstance(entries, list) or len(entries) * _LEAST_ENTRY_BYTES > len(data):
        raise Unreadable("not a Flight Recorder dump: its entries are not a list of operations")
    if len(entries) > DEFAULT.part_rows:
        raise Unreadable(f"more than {DEFAULT.part_rows:,} operations; set a smaller buffer")
    return dump | {"entries": entries, "size": len(data), "pickled": is_pickle(data)}


def _parse(data: bytes) -> Any:
    if is_pickle(data) or data[:1] == b"\x80":
        return parse_pickle(data)
    if data.lstrip()[:1] not in (b"{", b"["):
        raise Unreadable("neither a pickle nor JSON")
    return parse_json(data)
