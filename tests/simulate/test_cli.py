"""`oncall simulate`: two files and one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncall.cli.simulate import simulate
from oncall.errors import BadInput, UsageError
from oncall.evidence.incident import Incident

SCENARIO = """\
tp: 2
pp: 1
duration: 20 s
faults:
  - {fault: H1, rank: 5, at: 10 s}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "stop.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def test_evidence_and_truth_are_written_apart(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    simulate(scenario, out)
    printed = capsys.readouterr()
    assert printed.err == "" and printed.out.count("\n") == 1
    assert "8 ranks" in printed.out and "H1" in printed.out
    assert sorted(path.name for path in out.iterdir()) == ["evidence.oncall", "truth.json"]
    truth = json.loads((out / "truth.json").read_text(encoding="utf-8"))
    assert truth["healthy"] is False
    assert truth["faults"][0]["kind"] == "H1" and truth["faults"][0]["ranks"] == [5]
    with Incident.open(out / "evidence.oncall") as incident:
        assert incident.rows("ops") > 100


def test_the_seed_can_be_given(scenario: Path, tmp_path: Path) -> None:
    def ops(folder: str, seed: int | None) -> list[tuple[object, ...]]:
        simulate(scenario, tmp_path / folder, seed)
        with Incident.open(tmp_path / folder / "evidence.oncall") as incident:
            return incident.con.execute("FROM ops ORDER BY ALL").fetchall()

    assert ops("a", 3) == ops("b", 3) != ops("c", None)


def test_what_cannot_be_done_is_said(scenario: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no\.yaml"):
        simulate(tmp_path / "no.yaml", tmp_path)
    with pytest.raises(UsageError, match="cannot"):
        simulate(scenario, scenario / "below a file")
