"""Recordings of the published simulator with what was injected: found, and nobody else blamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncall.core.diagnosis import Diagnosis
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.rules.language.load import load_file, shipped_folder
from oncall.use_case.diagnose import diagnose

RECORDINGS = Path(__file__).parents[2].parent / "shared" / "data" / "vedrfolnir"
VERDICTS = {
    "healthy": set[str](),
    "flow_contention": {"CONTENTION"},
    "incast": {"INCAST"},
    "pfc_storm": {"PFC_STORM"},
    "pfc_backpressure": {"PFC_BACKPRESSURE"},
}
CASES = sorted(path.parent for path in RECORDINGS.glob("*/truth.json"))


def judged(folder: Path) -> Diagnosis:
    books = [load_file(shipped_folder() / "congestion.yaml")]
    with Incident.empty() as incident:
        load([folder], incident)
        return diagnose(incident, books)


def blamed(diagnosis: Diagnosis, kind: str) -> set[Any]:
    found = (blame for finding in diagnosis.findings for blame in finding.blame)
    return {blame.where[kind] for blame in found if blame.kind == kind}


@pytest.mark.skipif(not CASES, reason=f"no recordings in {RECORDINGS}")
@pytest.mark.parametrize("folder", CASES, ids=lambda path: path.name)
def test_the_kind_and_the_culprits_are_right(folder: Path) -> None:
    truth = json.loads((folder / "truth.json").read_text())
    diagnosis = judged(folder)
    assert {finding.verdict for finding in diagnosis.findings} == VERDICTS[truth["kind"]]
    culprits = {
        f"{flow['src']}->{flow['dst']}"
        for flow in truth["observed_background"]
        if flow["ports_shared_with_cc_in_telemetry"] or "root_host" in truth
    }
    assert blamed(diagnosis, "flow") == culprits
    if truth["storm"]:
        assert blamed(diagnosis, "port") == {truth["injecting_port"]}
    if "root_host" in truth:
        hosts = {
            blame.where.get("node")
            for finding in diagnosis.findings
            for blame in finding.blame
            if blame.kind == "port"
        }
        assert hosts == {f"host{truth['root_host']}"}


@pytest.mark.skipif(not CASES, reason=f"no recordings in {RECORDINGS}")
def test_a_recording_in_three_folders_with_two_flows_of_different_times() -> None:
    diagnosis = judged(RECORDINGS / "ring_allreduce_e1")
    assert [finding.verdict for finding in diagnosis.findings] == ["CONTENTION"]
    assert blamed(diagnosis, "flow") == {"12->15", "14->18"}
