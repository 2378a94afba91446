"""What is said of recordings of real jobs with known truth; skipped where they are not at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose
from oncall.views import words

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.mark.parametrize(
    ("folder", "roots"),
    [
        ("flight_recorder/healthy/pickle", []),
        ("flight_recorder/h2_wrong_op/json", [("H2", [1])]),
        ("nvrx/gpu_error_2nd", [("H1", [9, 14])]),
        ("flight_recorder_torch/ddp_eval", []),
        ("flight_recorder_torch/ddp_healthy", []),
        ("flight_recorder_torch/ddp_loader_host", [("S1", [2, 3])]),
        ("flight_recorder_torch/ddp_not_entered", [("H1", [2])]),
        ("flight_recorder_torch/ddp_slow", [("S1", [1])]),
    ],
)
def test_verdicts(folder: str, roots: list[tuple[str, list[int]]]) -> None:
    if not (SHARED / folder).is_dir():
        pytest.skip(f"no recordings at {SHARED / folder}")
    with Incident.empty() as incident:
        load([SHARED / folder], incident, "job")
        found = diagnose(incident, load_rulebooks([shipped_folder()])).findings
    assert [
        (finding.verdict, [blame.where["rank"] for blame in finding.blame])
        for finding in found
        if finding.explained_by is None and finding.severity != "info"
    ] == roots


def test_whom_to_look_at_in_a_job_of_a_tenth_of_a_second() -> None:
    """Twelve iterations of gloo, which records no times but that of calls: it may have stopped."""
    folder = SHARED / "flight_recorder" / "h1_not_entered" / "pickle"
    if not folder.is_dir():
        pytest.skip(f"no recordings at {folder}")
    with Incident.empty() as incident:
        load([folder], incident, "job")
        diagnosis = diagnose(incident, load_rulebooks([shipped_folder()]))
    assert not [one for one in diagnosis.findings if one.verdict.startswith("H")]
    assert words.doubt(diagnosis).startswith("most likely rank 2: ")
