"""Process groups: which communicator a rank means, and who its members are.

A group's name and its `pg_id` are local to a rank; its description and its members are not.
Where a dump does not list members (gloo), they are inferred from who carries the group's entries.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from oncall.core.errors import BadInput
from oncall.importers.documents import parse_json, scalars

DEFAULT_GROUP = "default_pg"
_UNDESCRIBED = "undefined"  # what PyTorch writes where `new_group` was given no description
MOST_RANKS = 1_000_000
# Members of all groups that one recording names: 16,384 ranks in 100 groups with every one of them.
# A few bytes can name a million ranks.
MOST_MEMBERS = 2_000_000


@dataclass(frozen=True)
class Group:
    """A process group as one rank knows it.

    `members` are global ranks in group order, empty if the dump does not list them. `ordinal`
    tells apart groups that share description and members: 0 for the first one created. `sure` is
    false where members were inferred and ranks are left that may belong here too.
    """

    name: str
    desc: str
    members: tuple[int, ...] = ()
    ordinal: int = 0
    sure: bool = True

    def __hash__(self) -> int:
        # Not the members: a group of thousands is looked up once for every rank that has it.
        return hash((self.name, self.desc, len(self.members), self.ordinal))

    @property
    def is_default(self) -> bool:
        return self.desc == DEFAULT_GROUP


def listed_groups(pg_config: Mapping[str, Any]) -> list[Group]:
    """The groups of a rank that `pg_config` lists with their members, in order of creation."""
    groups = []
    named = 0
    for key, config in pg_config.items():
        members = _members(config.get("ranks"))
        named += len(members)
        if named > MOST_MEMBERS:
            raise ValueError(f"process groups of more than {MOST_MEMBERS:,} members in all")
        if members:
            scalars((config.get("name"), config.get("desc")))
            name, desc = str(config.get("name", key)), str(config.get("desc", ""))
            groups.append(Group(name, desc, members))
    return number_twins(sorted(groups, key=lambda group: _creation(group.name)))


def number_twins(groups: Iterable[Group]) -> list[Group]:
    """The same groups, those that repeat a description and members numbered in the order given."""
    twins: dict[tuple[str, tuple[int, ...]], list[Group]] = defaultdict(list)
    numbered = []
    for group in groups:
        before = twins[group.desc or group.name, group.members]
        before.append(replace(group, ordinal=len(before)) if before else group)
        numbered.append(before[-1])
    return numbered


def communicator(group: Group) -> int:
    """A stable 64-bit identity: equal on every member, whatever each calls the group."""
    members = ",".join(map(str, sorted(group.members)))
    text = f"{group.desc or group.name}\0{members}" + (f"\0{group.ordinal}" * bool(group.ordinal))
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


def groups_by_pg_id(
    pg_ids: Iterable[int], listed: Sequence[Group], seen: Mapping[int, Group]
) -> dict[int, Group]:
    """Which group each rank-local `pg_id` is; `seen` pairs come from entries and always hold.

    Both `pg_id` and a numeric name count up as groups are created, ids from 0. So, if the newest
    id, or their number, shows that each group has one, their orders pair them; a group that was
    never used has no status. A pairing that contradicts an entry is not used.
    """
    ids = sorted(pg_ids)
    if ids and all(group.name.isdecimal() for group in listed):
        pairings = [dict(enumerate(listed))] if ids[-1] + 1 == len(listed) else []
        pairings += [dict(zip(ids, listed, strict=True))] if len(ids) == len(listed) else []
        for paired in pairings:
            if all(paired.get(pg_id) == group for pg_id, group in seen.items()):
                return paired
    return dict(seen)


def infer_members(
    carriers: Mapping[Group, Iterable[int]], sizes: Mapping[Group, int], ranks: Iterable[int]
) -> dict[Group, Group]:
    """Each group that no dump lists, with its members: the ranks whose entries carry it.

    `sizes` holds group sizes that shapes prove (an all-gather's output over its input); `ranks`
    are those that left a dump. The default group is every rank, and siblings that share out all
    ranks are of one size: so the last ranks are known to exist where they left no dump. A rank
    without entries joins another group only where it must: one sibling alone is short.
    """
    unlisted = {group: set(carried) for group, carried in carriers.items() if not group.members}
    dumped = set(ranks)
    siblings: dict[str, list[Group]] = defaultdict(list)
    for group in unlisted:
        if group.desc and not group.is_default:
            siblings[group.desc].append(group)
    whole = [sizes.get(group, 0) for group in unlisted if group.is_default]
    world = max([max(dumped, default=-1) + 1, *whole])
    if not any(whole):
        shared = [_shared_out(unlisted, sizes, found, dumped) for found in siblings.values()]
        world = max([world, *shared])
    if world * sum(group.is_default for group in unlisted) > MOST_MEMBERS:
        raise BadInput(
            "the recordings", f"name more than {MOST_MEMBERS:,} members of groups; two jobs mixed?"
        )
    everyone = set(range(world))
    unsure: set[Group] = set()
    for groups in siblings.values():
        size = max(max(len(unlisted[group]), sizes.get(group, 0)) for group in groups)
        _complete([unlisted[group] for group in groups], size, everyone)
        if everyone.difference(*(unlisted[group] for group in groups)):
            unsure.update(groups)
    ordered = sorted(unlisted, key=lambda group: _creation(group.name))
    known = [
        replace(
            group,
            members=tuple(sorted(everyone if group.is_default else unlisted[group])),
            sure=group not in unsure,
        )
        for group in ordered
    ]
    return dict(zip(ordered, number_twins(known), strict=True))


def _shared_out(
    unlisted: Mapping[Group, set[int]],
    sizes: Mapping[Group, int],
    siblings: Sequence[Group],
    dumped: set[int],
) -> int:
    """How many ranks siblings of one size have, where each rank with a dump is in one of them; else
    0. Groups that nobody described are no siblings: these may be of any size."""
    members = [unlisted[group] for group in siblings]
    one_each = sum(map(len, members)) == len(dumped) and set().union(*members) == dumped
    if not one_each or siblings[0].desc == _UNDESCRIBED:
        return 0
    return len(siblings) * max(*map(len, members), *(sizes.get(group, 0) for group in siblings), 0)


def _complete(siblings: Sequence[set[int]], size: int, everyone: set[int]) -> None:
    """Give the ranks that no sibling has to the one that is short of exactly them."""
    placed = set().union(*siblings)
    short = [members for members in siblings if len(members) < size]
    disjoint = len(placed) == sum(map(len, siblings))
    if disjoint and len(short) == 1 and len(siblings) * size == len(everyone):
        short[0] |= everyone - placed


def _creation(name: str) -> tuple[int, int, str]:
    """Sort key: groups are numbered as they are created; hashed names come last, in their order."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


def _members(ranks: Any) -> tuple[int, ...]:
    if isinstance(ranks, str):
        return _parse_members(ranks)
    return _checked(ranks or ())


@lru_cache(maxsize=4096)
def _parse_members(text: str) -> tuple[int, ...]:
    return _checked(parse_json(text.encode("utf-8", "replace")))


def _checked(ranks: Iterable[Any]) -> tuple[int, ...]:
    if isinstance(ranks, Sequence) and len(ranks) > MOST_RANKS:
        raise ValueError("a process group with impossible ranks")
    members = tuple(map(int, ranks))
    if members and not 0 <= min(members) <= max(members) < MOST_RANKS:
        raise ValueError("a process group with impossible ranks")
    return members
