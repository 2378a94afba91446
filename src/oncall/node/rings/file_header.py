"""What a file of the hooks says of itself, and whether it can be read at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from oncall.core.errors import BadInput

_MOST_RANKS = 1 << 20
# Slots of a part.
_MOST = {
    "communicators": 1 << 16,  # records name them in 16 bits
    "transfers": 1 << 16,  # sixteen times those of our hooks; all are read at once
    "records": 1 << 24,
    "queue pairs": 1 << 16,
    "requests": 1 << 24,
}


@dataclass(frozen=True)
class FileHeader:
    """Whose file it is. Unknown numbers of a launcher are None.

    `pid` is the process's own number of itself, which in a container is not the host's. Instants
    are Unix time in ns; a monotonic time of a record plus `realtime_offset_ns` is one too.
    """

    job: str
    node: str
    rank: int | None
    world_size: int | None
    hook_version: str
    pid: int
    process_started_ns: int
    process_start_ticks: int
    anchor_monotonic_ns: int
    anchor_realtime_ns: int

    @property
    def realtime_offset_ns(self) -> int:
        """Unix time less CLOCK_MONOTONIC, as the process saw them when it opened its file."""
        return self.anchor_realtime_ns - self.anchor_monotonic_ns


H = TypeVar("H", bound=FileHeader)


@dataclass(frozen=True)
class Layout:
    """How files of one kind, called `what`, lie: the struct of the header, then parts of slots,
    each under the name of one slot. The last part is a ring of records."""

    what: str
    magic: int
    version: int
    header: np.dtype[np.void]
    parts: Mapping[str, np.dtype[np.void]]

    @property
    def record(self) -> np.dtype[np.void]:
        """A slot of the last part."""
        return list(self.parts.values())[-1]

    def places(self, header: FileHeader) -> list[tuple[int, int]]:
        """Of each part, how many slots it has and where in the file they begin."""
        return [
            (getattr(header, f"{one}_slots"), getattr(header, f"{one}s_at")) for one in self.parts
        ]

    def read(self, place: str, head: bytes, file_bytes: int, kind: type[H]) -> H:
        """The header in the first bytes of a file of `file_bytes`.

        Raises BadInput if the file is none of this kind, is one of another layout, or cannot be
        whole.
        """
        if len(head) < self.header.itemsize:
            raise BadInput(place, f"not a {self.what}, or a truncated one: only {file_bytes} bytes")
        found = np.frombuffer(head, self.header, 1)[0]
        if found["magic"] != self.magic:
            raise BadInput(place, f"not a {self.what} of oncall's hooks")
        if found["layout_version"] != self.version:
            raise BadInput(
                place,
                f"a {self.what} of layout {found['layout_version']}, and this oncall reads layout "
                f"{self.version}: the job's hooks and the collector are of different versions",
            )
        for name, struct in {"header": self.header, **self.parts}.items():
            size = found[f"{name}_bytes"]
            if size != struct.itemsize:
                raise BadInput(place, f"damaged: {name}_bytes is {size}, not {struct.itemsize}")
        header = kind(
            **{one.name: _BY_TYPE[str(one.type)](found[one.name]) for one in fields(kind)}
        )
        self._check_places(place, header, file_bytes)
        _check_rank(place, header.rank, header.world_size)
        return header

    def _check_places(self, place: str, header: FileHeader, file_bytes: int) -> None:
        """Whether the parts lie one after the other, and within the file. Raises BadInput."""
        end = self.header.itemsize
        for (one, kind), (slots, start) in zip(
            self.parts.items(), self.places(header), strict=True
        ):
            name = f"{one}s".replace("_", " ")
            if not 0 < slots <= _MOST[name]:
                raise BadInput(place, f"damaged: {slots} slots of {name}")
            if start < end or start % kind.itemsize:
                raise BadInput(place, f"damaged: {name} at byte {start}")
            end = start + slots * kind.itemsize
            if end > file_bytes:
                raise BadInput(
                    place, f"truncated: {name} end at byte {end}, the file has {file_bytes} bytes"
                )
        if slots & (slots - 1):
            raise BadInput(place, f"damaged: {slots} {name} is not a power of two")


def _text(field: np.bytes_) -> str:
    """A job's own words: what cannot be printed could steer a terminal, and no console could ask
    for a job by such a name."""
    text = bytes(field).split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _known(number: np.int32) -> int | None:
    return None if number < 0 else int(number)


_BY_TYPE: dict[str, Callable[[Any], Any]] = {"str": _text, "int | None": _known, "int": int}


def _check_rank(place: str, rank: int | None, world_size: int | None) -> None:
    """A rank that no such job has would blame, or hide, whoever it names. Raises BadInput."""
    ranks = world_size or _MOST_RANKS
    if ranks > _MOST_RANKS:
        raise BadInput(place, f"forged or damaged: a world of {ranks} ranks")
    if rank is not None and rank >= ranks:
        raise BadInput(
            place,
            f"forged or damaged, or RANK and WORLD_SIZE come from different launchers: "
            f"rank {rank} of a world of {ranks}",
        )
