"""The stacks of a job folded: equal ones together, the odd one out first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from oncall.core.nodeset import fold_hosts, named_ranks
from oncall.core.printable import clean
from oncall.evidence.incident import Incident


@dataclass(frozen=True)
class StackGroup:
    """Processes whose main threads have equal stacks. `nodes` and `pids` are those known."""

    who: str
    count: int
    activity: str
    frame: str
    frames: tuple[str, ...]
    odd: bool
    moved: bool
    nodes: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()


@dataclass(frozen=True)
class FoldedStacks:
    """All processes, and the groups of equal stacks: those that the others wait for first."""

    job: str
    processes: int
    groups: tuple[StackGroup, ...]
    looks: int

    @property
    def headline(self) -> str:
        """`38 of 64 ranks in backward; rank 12 alone in data loader: _try_get_data`."""
        by_activity: dict[str, int] = defaultdict(int)
        odd = [group for group in self.groups if group.odd]
        for group in self.groups:
            if not group.odd:
                by_activity[group.activity] += group.count
        common = sorted(by_activity.items(), key=lambda one: (-one[1], one[0]))
        what = (
            "ranks" if all(group.who.startswith("rank") for group in self.groups) else "processes"
        )
        parts = [
            f"{count} of {self.processes} {what} in {activity}"
            if not n
            else f"{count} in {activity}"
            for n, (activity, count) in enumerate(common)
        ]
        return "; ".join([*(_alone(group) for group in odd), ", ".join(parts)]).strip("; ")


def _alone(group: StackGroup) -> str:
    alone = " alone" if group.count == 1 else ""
    return f"{group.who}{alone} in {group.activity}: {group.frame}"


def folded(incident: Incident) -> FoldedStacks:
    """The main threads of one incident, folded. Raises MissingEvidence without stacks."""
    incident.require(["main_threads", "odd_stacks"])
    con = incident.con
    odd = {process for (process,) in con.execute("SELECT process FROM odd_stacks").fetchall()}
    rows = con.execute(
        "SELECT process, rank, node, pid, activity, frame, frames, looks, coalesce(moved, false), "
        "job FROM main_threads ORDER BY rank NULLS LAST, node, pid"
    ).fetchall()
    alike: dict[tuple[object, ...], list[tuple[object, ...]]] = defaultdict(list)
    for row in rows:
        alike[row[0] in odd, row[4], tuple(row[6])].append(row)
    groups = [_group(is_odd, members) for (is_odd, *_), members in alike.items()]
    groups.sort(key=lambda group: (not group.odd, -group.count, group.who))
    looks = max((row[7] for row in rows), default=0)
    return FoldedStacks(rows[0][9] if rows else "", len(rows), tuple(groups), looks)


def _group(is_odd: object, members: Sequence[tuple[object, ...]]) -> StackGroup:
    _, _, _, _, activity, frame, frames, *_ = members[0]
    nodes = sorted({str(member[2]) for member in members if member[2] is not None})
    return StackGroup(
        who=_who(members),
        count=len(members),
        activity=str(activity),
        frame=clean(str(frame)),
        frames=tuple(clean(one) for one in frames),  # type: ignore[attr-defined]
        odd=bool(is_odd),
        moved=any(member[8] for member in members),
        nodes=tuple(nodes),
        pids=tuple(int(str(member[3])) for member in members if member[3] is not None),
    )


def _who(members: Sequence[tuple[object, ...]]) -> str:
    ranks = [member[1] for member in members if isinstance(member[1], int)]
    if len(ranks) == len(members):
        return named_ranks(ranks)
    return clean(str(members[0][0])) if len(members) == 1 else f"{len(members)} processes"


def where(group: StackGroup) -> str:
    """The hosts of a group, folded, and its process where it is one; else known by its name."""
    if group.count == 1 and not group.who.startswith("rank"):
        return ""
    hosts = fold_hosts(group.nodes) if group.nodes else ""
    return f"{hosts} process {group.pids[0]}".strip() if len(group.pids) == 1 else hosts
