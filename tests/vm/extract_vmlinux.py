"""The kernel inside a vmlinuz: extract_vmlinux.py VMLINUZ VMLINUX.

Unpacking it here takes half a second, and under emulation three.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

XZ = b"\xfd7zXZ\x00"


def extract(packed: bytes) -> bytes:
    """The ELF image in `packed`. Raises ValueError if there is none packed with XZ."""
    at = packed.find(XZ)
    while at >= 0:
        try:
            image = lzma.LZMADecompressor().decompress(packed[at:])
        except lzma.LZMAError:
            image = b""
        if image.startswith(b"\x7fELF"):
            return image
        at = packed.find(XZ, at + 1)
    raise ValueError("no kernel packed with XZ in it")


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(extract(Path(sys.argv[1]).read_bytes()))
