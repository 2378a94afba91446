"""Reading one Flight Recorder file without trusting it: no global is loaded, no size believed.

PyTorch writes plain containers only (pickle protocol 2 or JSON), so anything that asks for a
class, a persistent object or unreasonable memory is refused, not interpreted.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

try:
    import resource
except ImportError:  # no such limits on this platform
    resource = None  # type: ignore[assignment]

MAX_FILE_BYTES = 512 * 1024**2
_SLACK_BYTES = 1024**3  # what a reader may allocate beyond a multiple of the file's own size
_BYTES_PER_FILE_BYTE = 64  # dictionaries in memory against their pickled size, generously

_KEYS = (b"pg_config", b"pg_status", b"comm_lib_version", b"collective_seq_id", b"profiling_name")


class Unreadable(Exception):
    """This file is no Flight Recorder dump that can be read; the message says why."""


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler of containers, strings and numbers, and of nothing else."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise Unreadable(f"refused: the pickle asks for {module_name}.{global_name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:  # noqa: ARG002
        raise Unreadable("refused: the pickle asks for a persistent object")


def looks_like_dump(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a Flight Recorder dump (pickle or JSON)."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return any(key in head for key in _KEYS)
    return head.lstrip()[:1] == b"{" and any(b'"' + key + b'"' in head for key in _KEYS)


def load_dump(path: Path) -> dict[str, Any]:
    """The dump in `path` as plain containers, its `entries` a list and its `size` in bytes added.

    Raises Unreadable, with the reason, and nothing else.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise Unreadable(f"larger than {MAX_FILE_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    if not data:
        raise Unreadable("empty file")
    dump = _parse(data)
    if not isinstance(dump, dict) or not any(key.decode() in dump for key in (*_KEYS, b"entries")):
        raise Unreadable("not a Flight Recorder dump")
    entries = dump.get("entries") or []
    # Shared references can make few bytes many entries; a real dump spends bytes on each.
    if not isinstance(entries, list) or len(entries) > len(data):
        raise Unreadable("not a Flight Recorder dump: its entries are no list of operations")
    return dump | {"entries": entries, "size": len(data)}


def _parse(data: bytes) -> Any:
    try:
        if data[0] == pickle.PROTO[0]:
            # The buffer lets the unpickler read ahead: five times faster than a bare BytesIO.
            file = io.BufferedReader(io.BytesIO(data), len(data) + 1)
            with _bounded_memory(len(data)):
                return _PlainUnpickler(file).load()
        if data.lstrip()[:1] not in (b"{", b"["):
            raise Unreadable("neither a pickle nor JSON")
        return json.loads(data)
    except Unreadable:
        raise
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise Unreadable(f"truncated or damaged JSON at {at}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"damaged: {error}") from error
    except RecursionError as error:
        raise Unreadable("refused: nested too deeply") from error
    except MemoryError as error:
        raise Unreadable("refused: it asks for more memory than its size explains") from error
    except Exception as error:  # the pickle machine raises nearly any type on damaged input
        raise Unreadable(f"truncated or damaged pickle: {error}") from error


@contextmanager
def _bounded_memory(file_bytes: int) -> Iterator[None]:
    """Limit what reading may allocate: one opcode of a hostile pickle can ask for gigabytes."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    except OSError:
        pages = 0
    if resource is None or not pages:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = pages * resource.getpagesize() + file_bytes * _BYTES_PER_FILE_BYTE + _SLACK_BYTES
    if soft != resource.RLIM_INFINITY:
        bound = min(bound, soft)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
