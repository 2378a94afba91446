"""One Megatrace log as columns: the calls a rank made, in the order it made them.

    v1  [1746686438.086068203] [Rank 0] Fun AllReduce Data 1 stream 0x55f615683660
    v2  [save_count 3] [1755590104.254021144] [Rank 2] Fun Send Data 8 stream 0x5 opCount 0
        groupHash 7  (on the same line)
    v3  [10.0.0.1] [node1] [save_count 7] [1768121799.082548236] [Rank 0] [PCI 0000:18:00.0]
        [Func ncclSend] [Data 8] [stream (nil)] [opCount 16932] [groupHash 0x8e]  (the same)

Data counts elements; the time is the host's at the call; groupHash and opCount may be absent, come
in either order, and other fields beside them. Of the words before save_count the last names the
host. opCount counts the calls of a communicator, or, by the recorder that is preloaded and names
functions as NCCL exports them, those of a stream.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Most quantifiers are possessive (`{1,9}+`): what they take never belongs to what follows.
_LINE = re.compile(
    rb"^((?:\[(?!save_count )[^\]\r\n]{0,128}+\] ){0,16})"
    rb"(?:\[save_count \d{1,9}+\] )?+\[(\d{1,10}+)\.(\d{9})\] \[Rank (\d{1,6}+)\]"
    rb"(?: \[PCI ([^\]\r\n]{0,40}+)\])?+ \[?Func? (\w{1,40}+)\]?"
    rb" \[?Data (\d{1,18}+)\]? \[?stream (0x[0-9a-fA-F]{1,16}+|\(nil\))\]?"
    rb"(?: \[?opCount (-?\d{1,18}+)\]?| \[?groupHash (0x[0-9a-fA-F]{1,16}+|-?\d{1,20}+)\]?"
    rb"| \[?(?!opCount |groupHash )\w{1,40}+ [^\s\]]{1,80}+\]?)*+"
    rb"\r?\n",
    re.MULTILINE,
)
_EXPORTED = b"nccl"
_NOT_STATED = ("", "unknown")


@dataclass(frozen=True)
class Calls:
    """Calls of one or more ranks; every array (n,), in the order of the log.

    `op_code` counts into `ops`; `op_count` is -1 where the log has none; `comm` is NULL (masked)
    where the log has no groupHash. `counts_streams`: opCount numbers the calls of a stream, from 1.
    `hosts` and `pci_buses` by rank, where the log names them.
    """

    version: str
    rank: Array
    at_ns: Array
    op_code: Array
    ops: tuple[str, ...]
    count: Array
    stream: Array
    op_count: Array
    comm: np.ma.MaskedArray[Any, np.dtype[Any]]
    torn: int
    counts_streams: bool
    hosts: dict[int, str]
    pci_buses: dict[int, str]

    def __len__(self) -> int:
        return len(self.rank)


def looks_like_log(head: bytes) -> bool:
    """Whether a complete line of a Megatrace log is among the first bytes of a file."""
    return _LINE.search(head) is not None


def parse(data: bytes) -> Calls | None:
    """The calls in a log; lines torn in writing are counted. None if not one line is whole.

    A last line without its newline counts as torn: its last number may be cut short.
    """
    found = _LINE.findall(data)
    if not found:
        return None
    before, seconds, nanoseconds, rank_text, pci, op, count, stream, op_count, comm = zip(
        *found, strict=True
    )
    ops, op_code = np.unique(np.array(op), return_inverse=True)
    exported = all(name.startswith(_EXPORTED) for name in ops.tolist())
    rank = _integers(rank_text)
    return Calls(
        version=_version(op_count, before, exported),
        rank=rank,
        at_ns=_integers(seconds) * 1_000_000_000 + _integers(nanoseconds),
        op_code=op_code,
        ops=tuple(name.decode().removeprefix(_EXPORTED.decode()) for name in ops.tolist()),
        count=_integers(count),
        stream=_each(stream, lambda text: 0 if text == b"(nil)" else int(text, 16)),
        op_count=_integers([text or b"-1" for text in op_count] if b"" in op_count else op_count),
        # groupHash is printed signed or in hexadecimal; its bits unsigned are NCCL's commHash.
        comm=np.ma.MaskedArray(_each(comm, _hash), mask=np.array([not text for text in comm])),
        torn=_written_lines(data) - len(rank),
        counts_streams=exported,
        hosts=_named(rank, before, lambda text: text.rstrip(b"] ").rpartition(b"[")[2]),
        pci_buses=_named(rank, pci, lambda text: text),
    )


def _version(op_count: Sequence[bytes], before: Sequence[bytes], exported: bool) -> str:
    if exported or any(before):
        return "v3"
    return "v2" if any(op_count) else "v1"


def _hash(text: bytes) -> int:
    return int(text, 16) if text.startswith(b"0x") else int(text or b"0") % (1 << 64)


def _named(rank: Array, texts: Sequence[bytes], name: Any) -> dict[int, str]:
    """What lines of each rank name, by the first of them that does."""
    if not any(texts):
        return {}
    found: dict[int, str] = {}
    named = np.array(texts)
    for each in np.unique(rank).tolist():
        mine = named[rank == each]
        for text in np.unique(mine[mine != b""]).tolist()[:1]:
            found[each] = name(text).decode("utf-8", "replace")
    return {rank: text for rank, text in found.items() if text not in _NOT_STATED}


def _integers(texts: Sequence[bytes]) -> Array:
    """int64 (n,)."""
    return np.fromiter(map(int, texts), dtype=np.int64, count=len(texts))


def _each(texts: Sequence[bytes], number: Any) -> Array:
    """`number` of each distinct text, as uint64 (n,)."""
    numbers = {text: number(text) for text in set(texts)}
    return np.fromiter(map(numbers.__getitem__, texts), dtype=np.uint64, count=len(texts))


def _written_lines(data: bytes) -> int:
    """The lines that are not empty."""
    text = np.frombuffer(data, dtype=np.uint8)
    begins = np.append(0, np.flatnonzero(text[:-1] == ord("\n")) + 1)
    return int(np.isin(text[begins], (ord("\n"), ord("\r")), invert=True).sum())
