"""Read the requirements of a shared library or program from its ELF headers.

Reads only what the loader uses: program headers and what the dynamic section points to. Files of
container images are untrusted: every offset is checked and every chain is bounded.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import BadInput

MACHINES = {62: "x86_64", 183: "aarch64"}

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")
_VERDAUX = struct.Struct("<II")

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_PF_EXECUTE, _PF_WRITE = 1, 2
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SONAME = 1, 4, 5, 6, 10, 14
_DT_TEXTREL, _DT_FLAGS, _DT_GNU_HASH = 22, 30, 0x6FFFFEF5
_DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_DF_TEXTREL = 4
_SHN_UNDEF, _STB_GLOBAL = 0, 1

_MOST_ENTRIES = 1 << 16  # of any table or chain; glibc's own longest has 3,000
_MOST_NAMES_BYTES = 1 << 24  # names in a C++ program reach megabytes
_GLIBC = re.compile(r"GLIBC_(\d{1,3})\.(\d{1,3})(?:\.\d{1,3})?")


@dataclass(frozen=True)
class ElfFile:
    """A 64-bit ELF file: `versions` are pairs of library and symbol version that it needs."""

    path: str
    machine: str
    soname: str
    needed: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    defined_versions: tuple[str, ...]
    undefined: tuple[str, ...]  # symbols without which it cannot be loaded
    executable_stack: bool
    text_relocations: bool
    writable_code: bool
    alignment_bytes: int  # the least of its loaded segments

    @property
    def glibc_needed(self) -> tuple[int, int]:
        """The newest version of glibc that it asks for; (0, 0) if none."""
        asked = (glibc_version(version) for _, version in self.versions)
        return max((version for version in asked if version), default=(0, 0))

    @property
    def glibc_defined(self) -> tuple[int, int]:
        """The version of glibc that this is the libc.so.6 of; (0, 0) if it is none."""
        given = (glibc_version(version) for version in self.defined_versions)
        return max((version for version in given if version), default=(0, 0))


def glibc_version(name: str) -> tuple[int, int] | None:
    """GLIBC_2.17 as (2, 17); None for names that say no version of glibc."""
    found = _GLIBC.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def read_elf(path: Path) -> ElfFile:
    """Read a library or program. Raises BadInput, also for what is not a regular file."""
    try:
        # Not to wait for the other end of a FIFO that lies there.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput(str(path), "is not a regular file")
        return _Reader(str(path), descriptor).read()
    except (struct.error, UnicodeDecodeError):
        raise BadInput(str(path), "is damaged: its ELF headers contradict each other") from None
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Segment:
    kind: int
    flags: int
    offset: int
    address: int
    size: int
    alignment: int


class _Reader:
    """One open file, and what was found in it so far."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._segments: list[_Segment] = []
        self._dynamic: dict[int, list[int]] = {}
        self._names = b""

    def read(self) -> ElfFile:
        machine = self._read_header()
        self._read_dynamic()
        flags = self._one(_DT_FLAGS)
        loaded = [segment for segment in self._segments if segment.kind == _PT_LOAD]
        stacks = [segment for segment in self._segments if segment.kind == _PT_GNU_STACK]
        both = _PF_WRITE | _PF_EXECUTE
        return ElfFile(
            path=self._path,
            machine=machine,
            soname=self._name(self._one(_DT_SONAME)),
            needed=tuple(map(self._name, self._dynamic.get(_DT_NEEDED, []))),
            versions=tuple(self._needed_versions()),
            defined_versions=tuple(self._defined_versions()),
            undefined=tuple(self._undefined()),
            # Without a word about it the kernel makes the stack executable.
            executable_stack=not stacks or any(each.flags & _PF_EXECUTE for each in stacks),
            text_relocations=_DT_TEXTREL in self._dynamic or bool(flags & _DF_TEXTREL),
            writable_code=any(each.flags & both == both for each in loaded),
            alignment_bytes=min((each.alignment for each in loaded), default=0),
        )

    def _read_header(self) -> str:
        head = self._at(0, _HEADER.size)
        if head[:4] != b"\x7fELF":
            raise BadInput(self._path, "is no ELF file")
        _, _, number, _, _, start, _, _, _, size, count, *_ = _HEADER.unpack(head)
        if head[4:6] != b"\x02\x01" or number not in MACHINES:
            raise BadInput(self._path, f"is not for {' or '.join(MACHINES.values())}")
        if size != _SEGMENT.size:
            raise struct.error
        for kind, flags, offset, address, _, stored, _, alignment in _SEGMENT.iter_unpack(
            self._at(start, count * size)
        ):
            self._segments.append(_Segment(kind, flags, offset, address, stored, alignment))
        return MACHINES[number]

    def _read_dynamic(self) -> None:
        for segment in self._segments:
            if segment.kind == _PT_DYNAMIC:
                size = min(segment.size, _MOST_ENTRIES * _DYNAMIC.size) // _DYNAMIC.size
                for tag, value in _DYNAMIC.iter_unpack(
                    self._at(segment.offset, size * _DYNAMIC.size)
                ):
                    if tag == 0:
                        break
                    self._dynamic.setdefault(tag, []).append(value)
        if self._one(_DT_STRTAB):
            size = min(self._one(_DT_STRSZ), _MOST_NAMES_BYTES)
            self._names = self._at(self._offset(self._one(_DT_STRTAB)), size)

    def _needed_versions(self) -> Iterator[tuple[str, str]]:
        for at in self._chain(_DT_VERNEED, _DT_VERNEEDNUM, _VERNEED, after=4):
            _, count, library, first, _ = _VERNEED.unpack(self._at(at, _VERNEED.size))
            entry = at + first
            for _ in range(count):
                _, _, _, name, onward = _VERNAUX.unpack(self._at(entry, _VERNAUX.size))
                yield self._name(library), self._name(name)
                if not onward:
                    break
                entry += onward

    def _defined_versions(self) -> Iterator[str]:
        for at in self._chain(_DT_VERDEF, _DT_VERDEFNUM, _VERDEF, after=6):
            first = _VERDEF.unpack(self._at(at, _VERDEF.size))[5]
            name, _ = _VERDAUX.unpack(self._at(at + first, _VERDAUX.size))
            yield self._name(name)

    def _chain(self, tag: int, count: int, entry: struct.Struct, after: int) -> Iterator[int]:
        """Where the entries of a chain lie, each of which says how far the next one is."""
        if not self._one(tag):
            return
        at = self._offset(self._one(tag))
        for _ in range(min(self._one(count), _MOST_ENTRIES)):
            yield at
            onward = entry.unpack(self._at(at, entry.size))[after]
            if not onward:
                return
            at += onward

    def _undefined(self) -> Iterator[str]:
        """Symbols that another library must define, those that may be missing left out."""
        if not self._one(_DT_SYMTAB):
            return
        table = self._at(self._offset(self._one(_DT_SYMTAB)), self._symbols() * _SYMBOL.size)
        for name, kind, _, section, _, _ in _SYMBOL.iter_unpack(table):
            if name and section == _SHN_UNDEF and kind >> 4 == _STB_GLOBAL:
                yield self._name(name)

    def _symbols(self) -> int:
        """How many symbols to look at: a GNU hash table holds none of those undefined."""
        if self._one(_DT_GNU_HASH):
            at = self._offset(self._one(_DT_GNU_HASH))
            _, count = struct.unpack("<II", self._at(at, 8))
        elif self._one(_DT_HASH):
            _, count = struct.unpack("<II", self._at(self._offset(self._one(_DT_HASH)), 8))
        else:
            count = 0
        return min(int(count), _MOST_ENTRIES)

    # ------------------------------------------------------------- bytes

    def _one(self, tag: int) -> int:
        return self._dynamic.get(tag, [0])[0]

    def _name(self, offset: int) -> str:
        if not offset or offset >= len(self._names):
            return ""
        return self._names[offset : self._names.find(b"\0", offset)].decode()

    def _offset(self, address: int) -> int:
        """Where in the file lies what is loaded at an address."""
        for segment in self._segments:
            if segment.kind == _PT_LOAD and 0 <= address - segment.address < segment.size:
                return address - segment.address + segment.offset
        raise struct.error

    def _at(self, offset: int, size: int) -> bytes:
        if offset >= 1 << 62 or size > _MOST_NAMES_BYTES:
            raise struct.error
        read = os.pread(self._descriptor, size, offset)
        if len(read) != size:
            raise struct.error
        return read
