"""Finds the few lines of a large log that any recogniser reads.

Each word is reduced to its rarest four bytes. All four-byte windows of a block are looked up in a
table by numpy, so the time does not grow with the number of words; only windows that match are
compared with the whole word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_GRAM = 4
_HASH_BITS = 16
_MULTIPLIER = np.uint32(0x9E3779B1)  # of the golden ratio: spreads neighbouring values
_CHUNK_BYTES = 1 << 18  # with what is computed from it, fits in a core's cache
# Bytes of log text, commonest first; what is not listed is rare.
_COMMON = b" etaoinrsdlc0m.pu1/gh_f2-:b"


class Needles:
    """Words, each with the bits of those who want the lines that hold it."""

    def __init__(self, words: Mapping[bytes, int]) -> None:
        self._words: dict[int, list[tuple[int, bytes, int]]] = defaultdict(list)
        for word, bits in words.items():
            at = _rarest(word)
            gram = int.from_bytes(word[at : at + _GRAM], "little")
            self._words[gram].append((at, word, bits))
        self._grams = np.array(sorted(self._words), dtype=np.uint32)
        self._table = np.zeros(1 << _HASH_BITS, dtype=np.bool_)
        self._table[_hash(self._grams)] = True

    def find(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Where words begin in the block, in order, and the bits of each."""
        view = np.frombuffer(block, dtype=np.uint8)
        starts, bits = [], []
        for gram, places in self._candidates(block).items():
            for at, word, wanted in self._words[gram]:
                found = _whole(view, places - at, word)
                starts.append(found)
                bits.append(np.full(len(found), wanted))
        if starts:
            place, wants = np.concatenate(starts), np.concatenate(bits)
            order = np.argsort(place, kind="stable")
            yield from zip(place[order].tolist(), wants[order].tolist(), strict=True)

    def _candidates(self, block: bytes) -> dict[int, np.ndarray[Any, Any]]:
        """The places of each gram that occurs."""
        places, grams = [], []
        for start in range(0, len(block), _CHUNK_BYTES):
            for offset in range(start, min(start + _GRAM, len(block))):
                count = (min(start + _CHUNK_BYTES + _GRAM - 1, len(block)) - offset) // _GRAM
                windows = np.frombuffer(block, dtype="<u4", count=max(0, count), offset=offset)
                # No hash lies beyond the table; mode="clip" only spares the check for it.
                found = np.flatnonzero(self._table.take(_hash(windows), mode="clip"))
                if len(found):
                    places.append(found * _GRAM + offset)
                    grams.append(windows[found])
        if not places:
            return {}
        place, gram = np.concatenate(places), np.concatenate(grams)
        order = np.argsort(gram, kind="stable")
        place, gram = place[order], gram[order]
        known, first = np.unique(gram, return_index=True)
        parts = zip(known.tolist(), np.split(place, first[1:]), strict=True)
        return {one: part for one, part in parts if one in self._words}


def _whole(
    view: np.ndarray[Any, Any], starts: np.ndarray[Any, Any], word: bytes
) -> np.ndarray[Any, Any]:
    """Those of `starts` where the whole word is."""
    starts = starts[(starts >= 0) & (starts <= len(view) - len(word))]
    for at, byte in enumerate(word):
        if not len(starts):
            break
        starts = starts[view[starts + at] == byte]
    return starts


def _hash(windows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    hashes = windows * _MULTIPLIER
    hashes >>= np.uint32(32 - _HASH_BITS)
    return hashes


def _rarest(word: bytes) -> int:
    """Where the four bytes of the word begin that text holds least often."""

    def commonness(at: int) -> int:
        return sum(
            len(_COMMON) - _COMMON.index(byte) if byte in _COMMON else 0
            for byte in word[at : at + _GRAM]
        )

    return min(range(len(word) - _GRAM + 1), key=commonness)
