"""Metrics of xpu_timer: who hangs, and who of few does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose


def metrics(*hung: int) -> str:
    return "# TYPE XPU_TIMER_COMMON_HANG gauge\n" + "".join(
        f'XPU_TIMER_COMMON_HANG{{ip="10.0.0.{rank // 4}",job_name="j",local_rank="{rank % 4}",'
        f'pod_name="p",rank="{rank}"}} {int(rank in hung)}\n'
        for rank in range(8)
    )


@pytest.mark.parametrize(
    ("hung", "verdict", "ranks"),
    [
        ((), None, []),
        (tuple(range(8)), "ALL_WAITING", []),
        ((0, 1, 2, 3, 4, 6, 7), "NOT_JOINED", [5]),
    ],
)
def test_who_hangs(
    tmp_path: Path, hung: tuple[int, ...], verdict: str | None, ranks: list[int]
) -> None:
    (tmp_path / "metrics.txt").write_text(metrics(*hung))
    with Incident.empty() as incident:
        load([tmp_path / "metrics.txt"], incident)
        faults = diagnose(incident, load_rulebooks([shipped_folder()])).faults
    assert [fault.verdict for fault in faults] == ([verdict] if verdict else [])
    assert [one.where.get("rank") for fault in faults for one in fault.blame] == ranks
