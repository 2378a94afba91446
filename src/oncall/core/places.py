"""Where things are: job > node > GPU, NIC > rank; groups and stages by their ranks.

A component is what it takes part in: the ranks that use it, and hosts without a known rank by their
names. Two components contain one another if these sets do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from oncall.core.diagnosis import Component, Finding

Cells = frozenset[int | str]  # ranks, and names of hosts that no rank is known of
NOWHERE: Cells = frozenset()
_ADDRESS = re.compile(r"\d+[.]\d+[.]\d+[.]\d+")


@dataclass(frozen=True)
class Places:
    """The ranks of a job by where they run, by short names, and what they take part in."""

    by_node: Mapping[str, Cells] = field(default_factory=dict)
    by_gpu: Mapping[tuple[str, Any], Cells] = field(default_factory=dict)
    by_nic: Mapping[tuple[str, Any], Cells] = field(default_factory=dict)
    by_comm: Mapping[str, Cells] = field(default_factory=dict)
    by_stage: Mapping[int, Cells] = field(default_factory=dict)

    @cached_property
    def ranks(self) -> int:
        """How many ranks the job is known to have."""
        return len(frozenset().union(*self.by_node.values(), *self.by_comm.values()))

    def cells(self, finding: Finding, on: Component | None) -> Cells:
        """What a finding is about; nothing if that is unknown, or the whole job.

        `on` is the component that counts where rows name a rank with its GPU, NIC, node and group.
        """
        if on == "job":
            return NOWHERE
        rows = [one.where for one in finding.blame] or [finding.case]
        found = frozenset[int | str]().union(*(self._of(where, on) for where in rows))
        everybody = self.ranks > 1 and sum(isinstance(one, int) for one in found) >= self.ranks
        return NOWHERE if everybody else found

    def nodes(self, finding: Finding) -> frozenset[str]:
        """The hosts that a finding names, by themselves or by their ranks."""
        named = [str(one.where["node"]) for one in finding.blame if one.where.get("node")]
        ranks = self.cells(finding, None)
        named += [name for name, of in self.by_node.items() if ranks and ranks & of]
        return frozenset(map(host, named))

    def _of(self, where: Mapping[str, Any], on: Component | None) -> Cells:
        rank, node = where.get("rank"), host(str(where.get("node") or ""))
        wider: Iterable[tuple[bool, Cells]] = (
            (on == "node", self.by_node.get(node, NOWHERE)),
            (on == "nic", self.by_nic.get((node, where.get("nic")), NOWHERE)),
            (on == "gpu", self.by_gpu.get((node, where.get("gpu")), NOWHERE)),
            (on == "group", self.by_comm.get(str(where.get("comm")), NOWHERE)),
            (rank is not None, frozenset({rank}) if rank is not None else NOWHERE),
            (bool(where.get("ranks")), frozenset(where.get("ranks") or ())),
            (where.get("gpu") is not None, self.by_gpu.get((node, where.get("gpu")), NOWHERE)),
            (where.get("nic") is not None, self.by_nic.get((node, where.get("nic")), NOWHERE)),
            (bool(node), self.by_node.get(node, frozenset({node}))),
            (where.get("stage") is not None, self.by_stage.get(where.get("stage", -1), NOWHERE)),
            (where.get("comm") is not None, self.by_comm.get(str(where.get("comm")), NOWHERE)),
        )
        return next((cells for applies, cells in wider if applies and cells), NOWHERE)


def host(name: str) -> str:
    """The short name: `gpu017.site` is `gpu017`. An address stays what it is."""
    return name if _ADDRESS.fullmatch(name) else name.lower().partition(".")[0]


def contain(one: Cells, other: Cells) -> bool:
    """Whether one component contains the other. What is nowhere in particular is everywhere; a set
    that evidence cannot tell apart contains what it shares half of itself with."""
    if not one or not other:
        return True
    return 2 * len(one & other) >= min(len(one), len(other))
