"""`oncall diagnose --follow`: an answer, and again when it is another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.findings import finding

from oncall.cli import diagnose as module
from oncall.cli.diagnose import followed_log
from oncall.core.diagnosis import Coverage, Diagnosis
from oncall.core.errors import BadInput, ExitCode, UsageError


def diagnosis(found: bool) -> Diagnosis:
    coverage = Coverage(nodes=1, answered=1, ranks=1, ranks_seen=1)
    findings = (finding(title="failed"),) if found else ()
    return Diagnosis("job", None, None, coverage, findings, checked=("logs",))


def test_an_answer_is_printed_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.log"
    path.write_text("a\n")
    answers = iter([None, False, False, True])

    def answer(copy: str) -> tuple[Diagnosis, str]:
        found = next(answers)
        if found is None:
            raise BadInput(copy, "not a recording")
        return diagnosis(found), f"fault: {found}\n"

    def sleep(_: float) -> None:
        if path.stat().st_size > 6:
            raise KeyboardInterrupt
        with path.open("a") as file:
            file.write("b\n")

    monkeypatch.setattr(module.time, "sleep", sleep)
    assert followed_log([str(path)], answer) == ExitCode.FINDING
    assert capsys.readouterr().out == "fault: False\nfault: True\n"


@pytest.mark.parametrize("paths", [[], ["-"], ["a", "b"], ["."]])
def test_one_file_can_be_followed(paths: list[str]) -> None:
    with pytest.raises(UsageError, match="one growing log"):
        followed_log(paths, lambda path: pytest.fail(path))
