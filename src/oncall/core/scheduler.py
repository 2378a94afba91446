"""The scheduler that placed a job, and what to type to keep a bad node from the next one.

Nothing here is ever run: whether a node leaves service is a person's decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from oncall.core.diagnosis import Finding
from oncall.core.nodeset import fold_hosts
from oncall.core.printable import typed

# A fault on more nodes than these is rarely one of the nodes themselves.
MOST_NODES = 8
_OF_NODE = ("host", "network")
_BLAMED = ("node", "gpu", "nic")


@dataclass(frozen=True)
class Scheduler:
    """Slurm or Kubernetes. `node_of`: the scheduler's name of a node, by the name that the evidence
    has (a pod's), where they differ. `of_others`: nodes that are not in `node_of` have no known
    name there."""

    kind: Literal["slurm", "kubernetes"]
    node_of: Mapping[str, str] = field(default_factory=dict)

    def named(self, host_of: Mapping[str, str]) -> Scheduler:
        """The same, also for nodes that report another name than the host (node -> host)."""
        more = {node: self.node_of[host] for node, host in host_of.items() if host in self.node_of}
        return replace(self, node_of={**self.node_of, **more})

    def _name(self, node: str) -> str | None:
        """The scheduler's name of a node; None if it is not known."""
        if self.kind == "slurm" or node in self.node_of.values():
            return node
        return self.node_of.get(node) or None


def with_removal(findings: Sequence[Finding], scheduler: Scheduler) -> tuple[Finding, ...]:
    """The findings, those that blame nodes with the command that takes these out of service."""
    return tuple(
        replace(one, next=(*one.next, *_removal(one, scheduler))) if _is_of_nodes(one) else one
        for one in findings
    )


def _is_of_nodes(finding: Finding) -> bool:
    if finding.explained_by is not None or finding.severity == "info":
        return False
    return finding.fault_class in _OF_NODE or any(one.kind in _BLAMED for one in finding.blame)


def _removal(finding: Finding, scheduler: Scheduler) -> tuple[str, ...]:
    blamed = {one.where.get("node") for one in finding.blame}
    names = {scheduler._name(node) for node in blamed if isinstance(node, str)}
    nodes = sorted(name for name in names if name)
    if not nodes or len(nodes) > MOST_NODES:
        return ()
    folded = fold_hosts(nodes)
    if scheduler.kind == "kubernetes":
        cordon = typed("kubectl cordon {node}", node=nodes[0])
        if len(nodes) > 1:
            cordon = "; ".join(typed("kubectl cordon {node}", node=one) for one in nodes)
        return (f"Keep new pods off {folded} if the fault is confirmed: `{cordon}`",)
    drain = typed(
        "scontrol update nodename={nodes} state=drain reason={reason}",
        nodes=folded,
        reason=f"oncall: {finding.rulebook} {finding.verdict}",
    )
    exclude = typed("sbatch --exclude={nodes} JOB_SCRIPT", nodes=folded)
    return (
        f"Take {folded} out of service after its jobs if the fault is confirmed: `{drain}`",
        f"Or start the job again without it: `{exclude}`",
    )
