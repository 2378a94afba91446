"""What shows a cause: the report's story and advice follow it."""

from __future__ import annotations

from typing import Any

import pytest

from oncall.core.diagnosis import Finding
from oncall.evidence import Incident
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

from .jobs import layers, no_offset
from .test_host_delays import stalls
from .test_lateness import even, played

NODES = [f"gpu{rank:02}" for rank in range(8)]


def said(columns: dict[str, Any], nodes: list[str] | None = None) -> Finding:
    """The first finding of the rulebook slow."""
    with Incident.empty() as incident:
        incident.append("ops", columns)
        if nodes:
            ranks = list(range(len(nodes)))
            incident.append("ranks", {"job": "j", "rank": ranks, "node": nodes, "pid": ranks})
        books = [book for book in load_rulebooks([shipped_folder()]) if book.name == "slow"]
        return diagnose(incident, books).findings[0]


def story(finding: Finding) -> str:
    return " ".join(step.say for step in finding.story)


def test_a_host_that_stalls_is_looked_at_by_its_process() -> None:
    columns = played(even, overlaps=True, timed=False, pause=stalls((4, 4), (9, 4)))
    finding = said(columns, NODES)
    assert (finding.verdict, finding.title) == ("S1", "Host-side delay")
    assert "Rank 4 made calls later than peers" in story(finding)
    assert "on gpu04: `ssh gpu04 py-spy dump --pid 4`" in finding.next[0]
    assert not any("nvidia-smi" in step for step in finding.next)


def test_a_rank_that_others_wait_for_is_looked_at_by_its_gpu() -> None:
    columns = played(
        lambda iteration, rank: even(iteration, rank) * (1.6 if rank == 5 else 1), overlaps=True
    )
    finding = said(columns)
    assert (finding.verdict, finding.title) == ("S1", "Slow computation")
    assert "The others waited for rank 5 in" in story(finding)
    assert "nvidia-smi" in finding.next[0]


def test_a_replay_is_called_one() -> None:
    def work(iteration: int, rank: int, layer: int) -> int:
        return 10 + 0 * iteration * layer + (9 if rank == 2 else 0)

    columns = layers(work, lambda *_: 1, 8, timed=True, clock=no_offset)
    assert "Replayed without this delay, 6 of 6 iterations" in story(said(columns))


@pytest.mark.parametrize(
    ("groups", "title", "confidence"),
    [
        ([(1, tuple(range(8)))], "Slow communication, not located", 0.3),
        ([(at, (2 * at, 2 * at + 1)) for at in range(4)], "Slow communication", 0.5),
    ],
)
def test_one_of_many_is_not_located(
    groups: list[tuple[int, tuple[int, ...]]], title: str, confidence: float
) -> None:
    """The transfers of the last group take longer from the fifth iteration on."""
    columns = played(
        even, [(comm + 1, members) for comm, members in groups], overlaps=False,
        transfer=lambda iteration, comm: 15 if comm == groups[-1][0] + 1 and iteration > 4 else 1,
    )  # fmt: skip
    finding = said(columns)
    assert (finding.verdict, finding.title) == ("S2", title)
    assert [reason.value for reason in finding.reasons if reason.name == "tie"] == [confidence]
    assert "nothing shows whose link it is" in story(finding)
    assert "oncall probe HOSTS" in finding.next[0]
