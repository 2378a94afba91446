"""What a library may ask for that is loaded into every process of a job, in whatever image.

    python -m oncall.native.portability LIBRARY...

The loader ends a process that it cannot load a preloaded library's symbols for: so the build
itself runs this on each library, and fails where one asks for more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.native.elf import ElfFile, glibc_version, read_elf

OLDEST_GLIBC = (2, 17)  # of 2012: CentOS 7, manylinux2014, and the first with aarch64
_LIBC_FAMILY = frozenset({"libc.so.6", "libdl.so.2", "libpthread.so.0"})
# In libibverbs' place the real one is behind it; it is never preloaded.
_STAND_IN, _REAL = "libibverbs.so", "libibverbs.so.1"
# Nodes of aarch64 may have pages of 64 KiB (Grace with RHEL's or NVIDIA's kernel).
_PAGE_BYTES = {"x86_64": 4096, "aarch64": 65536}
# Of the C library's own names, those that musl has too.
_NAMES_OF_EVERY_LIBC = frozenset(
    {
        *("__errno_location", "__stack_chk_fail", "__stack_chk_guard", "__cxa_finalize"),
        "__tls_get_addr",
    }
)


def unportable(library: ElfFile) -> Iterator[str]:
    """What keeps a library from being loaded everywhere, one short sentence each."""
    stand_in = library.soname == _STAND_IN
    allowed = _LIBC_FAMILY | ({_REAL} if stand_in else frozenset())
    for name in library.needed:
        if name not in allowed:
            yield f"needs {name}, which an image may not have"
    for source, version in library.versions:
        known = glibc_version(version)
        if source in _LIBC_FAMILY and (known is None or known > OLDEST_GLIBC):
            yield f"needs {version} of {source}; {spell(OLDEST_GLIBC)} is the newest allowed"
    if not stand_in:
        for name in library.undefined:
            if name.startswith("__") and name not in _NAMES_OF_EVERY_LIBC:
                yield f"needs {name}, which musl lacks: its processes would end at their start"
    if library.executable_stack:
        yield "asks for an executable stack"
    if library.text_relocations:
        yield "has relocations in its code (TEXTREL)"
    if library.writable_code:
        yield "has a segment both writable and executable"
    page = _PAGE_BYTES[library.machine]
    if library.alignment_bytes < page:
        yield f"is aligned to {library.alignment_bytes} bytes, pages may have {page}"


def spell(version: tuple[int, int]) -> str:
    """As people write it: glibc 2.17."""
    return f"glibc {version[0]}.{version[1]}"


def main(paths: Sequence[str]) -> int:
    """Check libraries; what is wrong goes to stderr."""
    wrong = 0
    for path in paths:
        try:
            problems = [*unportable(read_elf(Path(path)))]
        except BadInput as error:
            problems = [error.problem]
        for problem in problems:
            print(f"{path}: {problem}", file=sys.stderr)
        wrong += bool(problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
