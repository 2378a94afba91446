"""The C libraries of containers, and whether the hooks load with them.

A container has the C library of its image, not of its node, and the loader ends a process whose
glibc lacks a symbol that a preloaded library needs. The library of a process is read from its
memory map, so processes that are not recorded are checked too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.native.elf import ElfFile, read_elf
from oncall.native.portability import spell

# libc-2.31.so is what glibc called its file before 2.34, libc.so is musl's, its loader too.
_LIBC = r"libc\.so\.6|libc-\d[\d.]*\.so|libc\.so|ld-musl-[\w.-]+\.so\.1"
_MUSL = re.compile(r"libc\.so|ld-musl-.*")
_MAPPED = re.compile(rb"^\S+ \S+ \S+ (\S+) (\d+) +(/\S*/(?:%b))$" % _LIBC.encode(), re.MULTILINE)
_MOST_MAP_BYTES = 1 << 24
_NAMED = re.compile(r"libc-(\d{1,3})\.(\d{1,3})\.so")
_IN_FOLDER = tuple(
    f"{prefix}{place}"
    for prefix in ("", "usr/")
    for place in ("lib/*-linux-gnu/libc.so.6", "lib64/libc.so.6", "lib/libc.so.6", "lib/ld-musl-*")
)


@dataclass(frozen=True)
class CLibrary:
    """A C library; `glibc` is its version, None for musl."""

    path: str
    glibc: tuple[int, int] | None

    def __str__(self) -> str:
        return "musl" if self.glibc is None else spell(self.glibc)


@dataclass
class Found:
    """A C library and the processes that have it, of which one is named."""

    library: CLibrary
    example: str
    processes: int = 0


@dataclass
class Survey:
    """The C libraries of the processes here; `hidden` processes may not be looked into."""

    found: list[Found] = field(default_factory=list)
    hidden: int = 0


def survey(proc: Path = Path("/proc")) -> Survey:
    """Inspect every process that this user may inspect; changes nothing."""
    seen: dict[tuple[bytes, ...], Found | None] = {}
    result = Survey()
    for process in sorted(_processes(proc), key=lambda path: int(path.name)):
        try:
            with (process / "maps").open("rb") as maps:
                mapped = _MAPPED.search(maps.read(_MOST_MAP_BYTES))
        except PermissionError:
            result.hidden += 1
            continue
        except OSError:
            continue  # it has ended
        if mapped is None:
            continue  # a thread of the kernel, or a program without a C library
        key = mapped.groups()
        if key not in seen:
            seen[key] = _found(process, os.fsdecode(mapped[3]))
        if (found := seen[key]) is not None:
            found.processes += 1
    result.found = [found for found in seen.values() if found is not None]
    return result


def c_library_of_folder(root: Path) -> CLibrary:
    """That of an image whose file system is unpacked or mounted at `root`. Raises BadInput."""
    inside = root.resolve()
    for pattern in _IN_FOLDER:
        for path in sorted(inside.glob(pattern)):
            # A link out of the image would show this machine's; one of 32 bits is passed over.
            if path.resolve().is_relative_to(inside) and path.is_file():
                with suppress(BadInput):
                    name = path.name if _MUSL.fullmatch(path.name) else path.resolve().name
                    return _c_library(path.resolve(), name)
    raise BadInput(str(root), "holds no libc.so.6 and no musl: not the root folder of an image?")


def why_not_loaded(hooks: Iterable[ElfFile], library: CLibrary) -> str:
    """Why a process with this C library could not load the hooks; None if it could."""
    needed = max((each.glibc_needed for each in hooks), default=(0, 0))
    if library.glibc is None or needed <= library.glibc:
        return ""
    return (
        f"the hooks need {spell(needed)}: preloaded with {library}, every process ends as it starts"
    )


def _processes(proc: Path) -> Iterator[Path]:
    return (path for path in proc.iterdir() if path.name.isdecimal())


def _found(process: Path, mapped: str) -> Found | None:
    """The library that a process has mapped, as it lies in that process's image."""
    try:
        library = _c_library(Path(f"{process}/root{mapped}"), Path(mapped).name)
        name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except (BadInput, OSError):
        return None  # the process has ended, or the file was replaced
    return Found(library, f"process {process.name} ({name})")


def _c_library(path: Path, name: str) -> CLibrary:
    if _MUSL.fullmatch(name):
        return CLibrary(str(path), None)
    version = read_elf(path).glibc_defined
    if version == (0, 0):
        raise BadInput(str(path), "defines no version of glibc")
    # A release that brought no new symbol defines no version: glibc 2.31 defines 2.30 at most.
    named = _NAMED.fullmatch(name)
    return CLibrary(str(path), max(version, (int(named[1]), int(named[2]))) if named else version)
