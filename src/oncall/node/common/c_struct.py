"""Structs of C as numpy dtypes, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

_Field = tuple[str, DTypeLike] | tuple[str, DTypeLike, int]  # name, type[, alignment in bytes]


def c_struct(*fields: _Field, size: int) -> np.dtype[np.void]:
    """A dtype laid out as C lays out a struct of `size` bytes."""
    names, formats, offsets = [], [], []
    at = 0
    for name, written, *wanted in fields:
        kind = np.dtype(written)
        alignment = wanted[0] if wanted else kind.base.alignment
        at = -(-at // alignment) * alignment
        names.append(name)
        formats.append(kind)
        offsets.append(at)
        at += kind.itemsize
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def each(names: str, kind: DTypeLike) -> Sequence[tuple[str, DTypeLike]]:
    """Fields of one type, their names between blanks."""
    return [(name, kind) for name in names.split()]
