"""What `:` can go to in a snapshot: words to complete, and why something is not there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncall.core.nodeset import fold_hosts, fold_ranks
from oncall.core.printable import short
from oncall.tui.shell.goto import Target

if TYPE_CHECKING:
    from oncall.views.snapshot import Snapshot

_MOST_LISTED = 60  # characters of the ranks or nodes there are


def places(snapshot: Snapshot | None, jobs: Sequence[str] = ()) -> list[str]:
    """Lines of `:` in the order in which they are suggested: findings, whom they name, the rest."""
    found = [f"job {job}" for job in jobs]
    if snapshot is None:
        return found
    findings = snapshot.diagnosis.findings
    blamed = [one.where for finding in findings for one in finding.blame]
    ranks = [where["rank"] for where in blamed if where.get("rank") is not None]
    nodes = [str(where["node"]) for where in blamed if where.get("node")]
    return list(
        dict.fromkeys(
            (
                *(f"finding {finding.id}" for finding in findings),
                *(
                    f"rank {rank}"
                    for rank in (*ranks, *snapshot.ranks.rank[:_MOST_LISTED].tolist())
                ),
                *(f"node {short(node)}" for node in (*nodes, *snapshot.ranks.node) if node),
                *(f"comm {one.comm:#x}" for one in snapshot.communicators),
                *(f"rule {name}" for name in snapshot.diagnosis.checked),
                *found,
                "iteration ",
                "time ",
                "quit",
            )
        )
    )


def why_not_there(target: Target, snapshot: Snapshot) -> str | None:
    """Why a snapshot does not have it, with what it has; None if it does, or nobody knows yet."""
    ranks = snapshot.ranks
    if target.kind == "rank" and len(ranks) and target.value not in ranks.rank:
        known = _cut(fold_ranks(ranks.rank.tolist()))
        return f"there is no rank {target.value}; the ranks are {known}"
    if target.kind == "node":
        nodes = {node for node in ranks.node if node}
        if nodes and target.value not in nodes:
            return f"no rank runs on {target.value}; the nodes are {_cut(fold_hosts(nodes))}"
    return None


def _cut(folded: str) -> str:
    if len(folded) <= _MOST_LISTED:
        return folded
    return folded[: folded.rfind(",", 0, _MOST_LISTED)] + ", ..."
