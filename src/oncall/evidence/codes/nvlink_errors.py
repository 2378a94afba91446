"""What a line about an NVLink says beside its number: whether it is fatal, on which link, and what
the bits of its registers mean.

    Xid (PCI:0000:dc:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 ...)
    Xid (PCI:0000:3b:00): 74, pid=7, name=python, NVLink: fatal error detected on link 4(0x10, ...)

Source: NVIDIA's Xid catalogue, WORKFLOW_NVLINK_ERR (Xid 74) and "XID 144-150 Decode".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# The words of drivers: Fatal, Nonfatal, Non-fatal, "fatal error detected".
FATAL: Final = r"(?i)\b(?:non-?)?fatal\b"
LINK: Final = r"(?i)\blink (\d{1,3})\b"
REGISTER: Final = r"0x[0-9a-fA-F]{1,8}\b"
# They say that the GPU is gone, without the word.
GONE: Final = ("xid_79", "gpu_lost", "gpu_unreachable")


@dataclass(frozen=True)
class Bits:
    """Bits of the register `word`, 1 first: if those of `mask` are `value`, the error is `meant`,
    as in the event catalogue. `fatal` is None of what follows from an error elsewhere."""

    meant: str
    fatal: bool | None
    word: int
    mask: int
    value: int

    @property
    def code(self) -> str:
        """The event whose registers these are."""
        return self.meant.rpartition("_")[0]


def _any_of(meant: str, fatal: bool | None, word: int, *bits: int) -> tuple[Bits, ...]:
    return tuple(Bits(meant, fatal, word, 1 << bit, 1 << bit) for bit in bits)


_REASON = 0x3F << 20  # why a link went down
_OF_ITS_OTHER_END = (21, 32, 33, 34, 35, 36, 37)

# The gravest first: of several the first counts.
REGISTERS: Final = (
    *_any_of("xid_74_parity", True, 1, 4, 5),
    *_any_of("xid_74_parity", True, 3, 0, 1, 2, 6),
    *_any_of("xid_74_parity", True, 5, 18, 19, 21, 22, 24, 25, 27, 28),
    *_any_of("xid_74_contact", True, 1, 8, 9, 12, 16, 17, 24, 28),
    *_any_of("xid_74_signal", True, 1, 21, 22),
    *_any_of("xid_74_unexpected", True, 3, 13),
    *_any_of("xid_74_once", True, 1, 27, 29),
    *_any_of("xid_74_once", True, 3, 16, 17, 18, 19),
    *_any_of("xid_74_secondary", None, 1, 1, 20),
    *_any_of("xid_74_secondary", None, 4, 16, 17, 18),
    *_any_of("xid_74_corrected", False, 5, 20, 23, 26, 29),
    *_any_of("xid_74_ignored", False, 1, 0, 23, 30),
    *(Bits("xid_149_peer", None, 1, _REASON, why << 20) for why in _OF_ITS_OTHER_END),
)


def is_fatal(text: str | None) -> bool | None:
    """What a line says itself; None where it does not say."""
    found = re.search(FATAL, text or "")
    return None if found is None else not found[0].lower().startswith("non")


def nvlink_domain(uuid: str | None, clique: str | None) -> str | None:
    """The name of an NVLink domain that spans hosts, by its cluster UUID and clique; None within a
    host, whose UUID is zero."""
    digits = (uuid or "").replace("-", "").lower()
    if clique is None or not re.fullmatch("[0-9a-f]{32}", digits) or not digits.strip("0"):
        return None
    return f"{digits}/{clique}"
