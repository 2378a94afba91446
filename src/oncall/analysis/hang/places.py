"""The nodes of the wait-for graph: ranks point at the operations that they are blocked in, and
operations at the members that hold them up.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Place:
    """An operation that a rank is blocked in.

    `ends` names the ranks of a Send or Recv: one if unmatched, both if matched. Matched sides are
    one place whatever number each gave it, so there `number` is 0 and `seq` only for show.
    """

    comm: int
    kind: str
    number: int
    ends: tuple[int, ...] = ()
    seq: int = field(default=0, compare=False)


Node = int | Place  # a rank, or the operation it is blocked in
Edges = dict[Node, list[Node]]
