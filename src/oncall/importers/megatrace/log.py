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
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_NUMBERS = ("seconds", "nanoseconds", "rank", "count", "op_count")
_TEXTS = ("op", "stream", "comm", "before", "pci")
# Most quantifiers are possessive (`{1,9}+`): what they take never belongs to what follows.
_LINE = re.compile(
    rb"^(?P<before>(?:\[(?!save_count )[^\]\r\n]{0,128}+\] ){0,16})"
    rb"(?:\[save_count \d{1,9}+\] )?+"
    rb"\[(?P<seconds>\d{1,10}+)\.(?P<nanoseconds>\d{9})\] \[Rank (?P<rank>\d{1,6}+)\]"
    rb"(?: \[PCI (?P<pci>[^\]\r\n]{0,40}+)\])?+"
    rb" \[?Func? (?P<op>\w{1,40}+)\]? \[?Data (?P<count>\d{1,18}+)\]?"
    rb" \[?stream (?P<stream>0x[0-9a-fA-F]{1,16}+|\(nil\))\]?"
    rb"(?: \[?opCount (?P<op_count>-?\d{1,18}+)\]?"
    rb"| \[?groupHash (?P<comm>0x[0-9a-fA-F]{1,16}+|-?\d{1,20}+)\]?"
    rb"| \[?(?!opCount |groupHash )\w{1,40}+ [^\s\]]{1,80}+\]?)*+"
    rb"\r?\n",
    re.MULTILINE,
)
_BEGUN = re.compile(rb"^[^\r\n]", re.MULTILINE)  # a line that is not empty, torn or not
_SECOND_NS = 1_000_000_000
_LINES_AT_ONCE = 1 << 16
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
    if not looks_like_log(data):
        return None
    read = _read(data)
    codes = {name: code for code, name in enumerate(sorted(set(read.op)))}
    exported = all(name.startswith(_EXPORTED) for name in codes)
    return Calls(
        version=_version(read, exported),
        rank=read.rank,
        at_ns=read.at_ns,
        op_code=np.fromiter(map(codes.__getitem__, read.op), dtype=np.int64, count=len(read.op)),
        ops=tuple(name.decode().removeprefix(_EXPORTED.decode()) for name in codes),
        count=read.count,
        stream=_each(read.stream, lambda text: 0 if text == b"(nil)" else int(text, 16)),
        op_count=read.op_count,
        # groupHash is printed signed or in hexadecimal; its bits unsigned are NCCL's commHash.
        comm=np.ma.MaskedArray(
            _each(read.comm, _hash), mask=np.array([not text for text in read.comm])
        ),
        torn=sum(1 for _ in _BEGUN.finditer(data)) - len(read.rank),
        counts_streams=exported,
        hosts=_named(read.rank, read.before, lambda text: text.rstrip(b"] ").rpartition(b"[")[2]),
        pci_buses=_named(read.rank, read.pci, lambda text: text),
    )


@dataclass(frozen=True)
class _Read:
    """What whole lines say: numbers as int64 (n,), words as they are written, n of each. `op_count`
    is -1, a word empty, where a line has none."""

    rank: Array
    at_ns: Array
    count: Array
    op_count: Array
    op: Sequence[bytes]
    stream: Sequence[bytes]
    comm: Sequence[bytes]
    before: Sequence[bytes]
    pci: Sequence[bytes]


def _read(data: bytes) -> _Read:
    """All whole lines, some at a time: equal words are kept once."""
    words: dict[bytes | None, bytes] = {None: b""}
    columns: dict[str, list[Any]] = {name: [] for name in (*_NUMBERS, *_TEXTS)}
    matches = _LINE.finditer(data)
    while some := [match.group(*columns) for match in islice(matches, _LINES_AT_ONCE)]:
        for name, column in zip(columns, zip(*some, strict=True), strict=True):
            if name in _NUMBERS:
                columns[name].append(_integers(column))
            else:
                columns[name] += map(words.setdefault, column, column)
    found: dict[str, Any] = columns | {name: np.concatenate(columns[name]) for name in _NUMBERS}
    at_ns = found.pop("seconds") * _SECOND_NS + found.pop("nanoseconds")
    return _Read(at_ns=at_ns, **found)


def _version(read: _Read, exported: bool) -> str:
    if exported or any(read.before):
        return "v3"
    return "v2" if (read.op_count >= 0).any() else "v1"


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


def _integers(texts: Sequence[bytes | None]) -> Array:
    """int64 (n,); -1 where there is none."""
    return np.array([-1 if text is None else int(text) for text in texts], dtype=np.int64)


def _each(texts: Sequence[bytes], number: Any) -> Array:
    """`number` of each distinct text, as uint64 (n,)."""
    numbers = {text: number(text) for text in set(texts)}
    return np.fromiter(map(numbers.__getitem__, texts), dtype=np.uint64, count=len(texts))
