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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from oncall.importers.megatrace.layout import Layout, Lines

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# What differs from line to line: numbers, with the most digits they have, and words.
_NUMBERS = {"save": 9, "seconds": 10, "nanoseconds": 9, "rank": 6, "count": 18, "op_count": 18}
_WORDS = {
    "op": re.compile(rb"\w{1,40}+"),
    "stream": re.compile(rb"0x[0-9a-fA-F]{1,16}+|\(nil\)"),
    "comm": re.compile(rb"0x[0-9a-fA-F]{1,16}+|-?\d{1,20}+"),
}
# Most quantifiers are possessive (`{1,9}+`): what they take never belongs to what follows.
_LINE = re.compile(
    rb"^(?P<before>(?:\[(?!save_count )[^\]\r\n]{0,128}+\] ){0,16})"
    rb"(?:\[save_count (?P<save>\d{1,9}+)\] )?+"
    rb"\[(?P<seconds>\d{1,10}+)\.(?P<nanoseconds>\d{9})\] \[Rank (?P<rank>\d{1,6}+)\]"
    rb"(?: \[PCI (?P<pci>[^\]\r\n]{0,40}+)\])?+"
    rb" \[?Func? (?P<op>%b)\]? \[?Data (?P<count>\d{1,18}+)\]? \[?stream (?P<stream>%b)\]?"
    rb"(?: \[?opCount (?P<op_count>-?\d{1,18}+)\]?| \[?groupHash (?P<comm>%b)\]?"
    rb"| \[?(?!opCount |groupHash )\w{1,40}+ [^\s\]]{1,80}+\]?)*+"
    rb"\r?\n" % tuple(word.pattern for word in _WORDS.values()),
    re.MULTILINE,
)
_SECOND_NS = 1_000_000_000
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
    first = _LINE.search(data)
    if first is None:
        return None
    lines = Lines.of(data)
    read = _read(lines, first)
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
        torn=lines.written - len(read.rank),
        counts_streams=exported,
        hosts=_named(read.rank, read.before, lambda text: text.rstrip(b"] ").rpartition(b"[")[2]),
        pci_buses=_named(read.rank, read.pci, lambda text: text),
    )


@dataclass(frozen=True)
class _Read:
    """What whole lines say: numbers as int64 (n,), words as they are written, n of each. `line`
    counts into all lines; `op_count` is -1, a word empty, where a line has none."""

    line: Array
    rank: Array
    at_ns: Array
    count: Array
    op_count: Array
    op: list[bytes]
    stream: list[bytes]
    comm: list[bytes]
    before: list[bytes]
    pci: list[bytes]


def _read(lines: Lines, first: re.Match[bytes]) -> _Read:
    """All whole lines: those laid out as the first of them together, then the others."""
    alike = _alike(lines, first)
    rest = np.ones(len(lines), dtype=np.bool_)
    rest[alike.line] = False
    found = {
        line: match
        for line in np.flatnonzero(rest).tolist()
        if (match := _LINE.match(lines.data, lines.begin[line])) is not None
    }
    if not found:
        return alike
    others = _matched(found)
    order = np.argsort(np.append(alike.line, others.line))
    joined: dict[str, Any] = {}
    for each in fields(_Read):
        first_part, second = getattr(alike, each.name), getattr(others, each.name)
        if isinstance(second, list):
            both = first_part + second
            joined[each.name] = [both[place] for place in order.tolist()]
        else:
            joined[each.name] = np.append(first_part, second)[order]
    return _Read(**joined)


def _alike(lines: Lines, first: re.Match[bytes]) -> _Read:
    """The lines that differ from the first in what `_NUMBERS` and `_WORDS` names, and no more."""
    named = [name for name in (*_NUMBERS, *_WORDS) if first[name] is not None]
    layout = Layout(lines, first, named)
    numbers = {name: layout.number(name, _NUMBERS[name]) for name in named if name in _NUMBERS}
    words = {name: layout.texts(name, _WORDS[name]) for name in named if name in _WORDS}
    mine = np.flatnonzero(layout.alike)
    if len(mine) < len(layout.at):
        numbers = {name: values[mine] for name, values in numbers.items()}
        words = {name: [texts[n] for n in mine.tolist()] for name, texts in words.items()}
    return _Read(
        line=layout.at[mine],
        rank=numbers["rank"],
        at_ns=numbers["seconds"] * _SECOND_NS + numbers["nanoseconds"],
        count=numbers["count"],
        op_count=numbers.get("op_count", np.full(len(mine), -1)),
        op=words["op"],
        stream=words["stream"],
        comm=words.get("comm", [b""] * len(mine)),
        before=[first["before"]] * len(mine),
        pci=[first["pci"] or b""] * len(mine),
    )


def _matched(found: Mapping[int, re.Match[bytes]]) -> _Read:
    """The lines that were matched one by one."""
    texts = {
        name: [match[name] or b"" for match in found.values()]
        for name in ("before", "pci", *_NUMBERS, *_WORDS)
    }
    return _Read(
        line=np.fromiter(found, dtype=np.int64, count=len(found)),
        rank=_integers(texts["rank"]),
        at_ns=_integers(texts["seconds"]) * _SECOND_NS + _integers(texts["nanoseconds"]),
        count=_integers(texts["count"]),
        op_count=_integers([text or b"-1" for text in texts["op_count"]]),
        **{name: texts[name] for name in ("op", "stream", "comm", "before", "pci")},
    )


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


def _integers(texts: Sequence[bytes]) -> Array:
    """int64 (n,)."""
    return np.fromiter(map(int, texts), dtype=np.int64, count=len(texts))


def _each(texts: Sequence[bytes], number: Any) -> Array:
    """`number` of each distinct text, as uint64 (n,)."""
    numbers = {text: number(text) for text in set(texts)}
    return np.fromiter(map(numbers.__getitem__, texts), dtype=np.uint64, count=len(texts))
