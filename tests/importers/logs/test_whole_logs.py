"""Whole logs, as people paste them: what failed, and who is named for it.

`whole/*.txt` hold one log after another, written for this test in the forms that programs print:
`=== NAME | VERDICT | WHOM` and its lines; `-` is no
finding. Whom is empty where nobody may be named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from oncall.core.diagnosis import Finding
from oncall.evidence.incident import Incident
from oncall.importers import detect
from oncall.rules.engine import engine
from oncall.rules.language.load import load_rulebooks, shipped_folder

WHOLE = Path(__file__).parent / "whole"


def logs_of(name: str) -> list[tuple[str, str, str, str]]:
    """Each log of a file: its name, verdict, whom, text."""
    found = []
    for part in re.split(r"^=== ", (WHOLE / name).read_text(), flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        called, verdict, whom = (field.strip() for field in head.split("|"))
        found.append((called, verdict, whom, text))
    return found


FAULTS, HEALTHY = logs_of("faults.txt"), logs_of("healthy.txt")


def whom(finding: Finding) -> str:
    """Ranks, else GPUs, else nodes that a finding blames."""
    for what in ("rank", "gpu", "node"):
        named = {str(one.where[what]) for one in finding.blame if one.where.get(what) is not None}
        if named:
            return f"{what}s {','.join(sorted(named))}"
    return ""


@pytest.fixture(scope="module")
def headlines(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[str, str]]:
    """The first finding of every log, each a job of its own in one incident: rules run once."""
    folder = tmp_path_factory.mktemp("logs")
    every = load_rulebooks([shipped_folder()])
    of_logs = [one for one in every if one.name == "faults"]
    first: dict[str, tuple[str, str]] = {}
    with Incident.empty() as incident:
        for name, _, _, text in (*FAULTS, *HEALTHY):
            path = folder / name / "job.log"
            path.parent.mkdir()
            path.write_text(text)
            detect.load([path], incident, name)
        for one in engine.run(incident, of_logs).findings:
            if one.severity != "info":
                first.setdefault(str(one.case["job"]), (one.verdict, whom(one)))
    return first


@pytest.mark.parametrize(
    ("name", "verdict", "named"),
    [fields for *fields, _ in FAULTS],
    ids=[name for name, *_ in FAULTS],
)
def test_what_a_log_shows(
    name: str, verdict: str, named: str, headlines: Mapping[str, tuple[str, str]]
) -> None:
    assert headlines.get(name) == (verdict, named)


@pytest.mark.parametrize("name", [name for name, *_ in HEALTHY])
def test_a_noisy_log_of_a_healthy_job_raises_no_alarm(
    name: str, headlines: Mapping[str, tuple[str, str]]
) -> None:
    assert name not in headlines
