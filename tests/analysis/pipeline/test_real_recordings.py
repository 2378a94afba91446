"""Real recordings with known truth; skipped where they are not at hand."""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path

import pytest

from oncall.evidence import Incident
from oncall.importers.megatrace import importer as megatrace
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

DATA = Path(__file__).parents[4] / "shared" / "data"
MEGATRACE = DATA / "megatrace" / "log_rank2_slow.tar.xz"
SLOW_FROM_NS, SLOW_UNTIL_NS = (1_755_590_104 + 67) * 10**9, (1_755_590_104 + 101) * 10**9


@pytest.mark.skipif(not MEGATRACE.exists(), reason="the recording is not at hand")
def test_the_rank_that_interference_slowed_is_found_with_its_stage(tmp_path: Path) -> None:
    with lzma.open(MEGATRACE) as packed, tarfile.open(fileobj=packed) as archive:
        archive.extractall(tmp_path)
    with Incident.empty() as incident:
        megatrace.read(sorted(tmp_path.rglob("*.log")), incident, "j")
        found = diagnose(incident, load_rulebooks([shipped_folder()])).faults
        slow = incident.con.execute(
            """SELECT DISTINCT rank, stage FROM slow_stages
            WHERE started_ns BETWEEN ? AND ?""",
            [SLOW_FROM_NS, SLOW_UNTIL_NS],
        ).fetchall()
    assert slow == [(2, 1)]
    assert {blamed.where["rank"] for finding in found for blamed in finding.blame} == {2}
    (stage,) = (finding for finding in found if finding.rulebook == "stages")
    (root,) = (finding for finding in found if finding.explained_by is None)
    assert (stage.verdict, stage.explained_by) == ("STAGE_SLOW", root.id)
    assert [(blame.where["rank"], blame.where["stage"]) for blame in stage.blame] == [(2, 1)]
    assert stage.at_ns is not None and SLOW_FROM_NS <= stage.at_ns < SLOW_UNTIL_NS
