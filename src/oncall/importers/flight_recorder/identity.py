"""Are two folders of dumps of one job: the same dumps twice (pickle, JSON), or parts of a set?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oncall.core.errors import Unreadable
from oncall.importers.flight_recorder.batch import MALFORMED, rank_in_name
from oncall.importers.flight_recorder.file import load_dump
from oncall.importers.flight_recorder.groups import Group, listed_groups

_MOST_SAMPLES = 64
_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True)
class Identity:
    """What tells one set of dumps from another. `marks` are (rank, record_id, time_created_ns)."""

    ranks: frozenset[int]
    groups: frozenset[Group]
    marks: frozenset[tuple[int, int, int]]
    entries: int
    pickled: bool

    @property
    def worth(self) -> tuple[int, bool]:
        """Of two copies the one with more to read is better, then a pickle, which has frames."""
        return self.entries, self.pickled


def identify(paths: Sequence[Path]) -> Identity:
    """The identity of a set of dumps, from its lowest ranks; an unreadable file says nothing."""
    ranks = {rank: path for path in paths if (rank := rank_in_name(str(path))) is not None}
    groups: set[Group] = set()
    marks: set[tuple[int, int, int]] = set()
    entries = 0
    pickled = False
    for rank in sorted(ranks)[:_MOST_SAMPLES]:
        with suppress(Unreadable, *MALFORMED):
            dump = load_dump(ranks[rank])
            rows = dump.rows
            marks |= {
                (rank, record_id, at_ns)
                for record_id, at_ns in zip(
                    rows.record_id.tolist(), rows.created_ns.tolist(), strict=True
                )
            }
            groups |= set(listed_groups(dump.head.get("pg_config") or {}))
            entries += len(rows)
            pickled |= dump.pickled
    return Identity(frozenset(ranks), frozenset(groups), frozenset(marks), entries, pickled)


def relate(one: Identity, other: Identity) -> Literal["copy", "part"] | None:
    """How two sets belong together: as copies of the same dumps, as parts of one job, or not."""
    if one.ranks & other.ranks:
        silent = not one.marks and not other.marks
        same = one.marks & other.marks or (silent and one.groups == other.groups)
        return "copy" if same else None
    return "part" if _world(one) == _world(other) and _together(one, other) else None


def _world(identity: Identity) -> tuple[int, ...]:
    return next((group.members for group in identity.groups if group.is_default), ())


def _together(one: Identity, other: Identity) -> bool:
    """Whether the operations of both are of the same hour, give or take one."""
    times = [[time for _, _, time in identity.marks if time] for identity in (one, other)]
    if not all(times):
        return bool(_world(one))
    first, second = times
    return max(min(first), min(second)) - min(max(first), max(second)) < _HOUR_NS
