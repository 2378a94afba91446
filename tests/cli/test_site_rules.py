"""The site's rulebooks in `oncall diagnose`: they count and are named; broken ones cost nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from oncall.cli.main import main
from oncall.console.recording import Recording
from oncall.console.replay import Replay
from oncall.console.rulebook_queries import (
    GetRulebookText,
    SaveRulebook,
)
from oncall.console.rulebook_store import RulebookStore
from oncall.core.units import NS_PER_S
from oncall.render.contract import schema
from oncall.rules.language.load import shipped_folder
from oncall_lab import TrainingFault, TrainingScenario, simulate, write

HANG = (shipped_folder() / "hang.yaml").read_text()
PATIENT = HANG.replace(
    "{of: halted.hang_after}", "{of: halted.hang_after, value: 5 h, why: patience}"
)

Diagnose = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose rank 5 hangs."""
    folder = tmp_path_factory.mktemp("hang")
    fault = TrainingFault("H1", (5,), at_ns=30 * NS_PER_S)
    incident, truth = simulate(
        TrainingScenario(duration_ns=60 * NS_PER_S, pp=1, dp=8, faults=(fault,))
    )
    with incident:
        write(incident, truth, folder)
    return folder / "evidence.oncall"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the site's rulebooks, empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "oncall" / "rules"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def diagnose(
    evidence: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Diagnose:
    """`oncall diagnose EVIDENCE ARGUMENTS`: exit code, output, errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["oncall", "diagnose", str(evidence), *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        shown = capsys.readouterr()
        return int(left.value.code or 0), shown.out, shown.err

    return run


def test_what_was_saved_in_the_console_counts_the_next_day(
    site: Path, evidence: Path, diagnose: Diagnose
) -> None:
    assert diagnose()[0] == 1
    session = Replay(Recording([evidence]), RulebookStore(site=site))
    session.ask(GetRulebookText("hang"))
    path = session.ask(SaveRulebook("hang", PATIENT))
    session.close()
    assert path == site / "hang.yaml"
    assert verdicts(diagnose) == ["STANDSTILL"]  # a wait of half a minute may end, the site says
    assert verdicts(diagnose, "--no-site-rules") == ["H1"]


def verdicts(diagnose: Diagnose, *arguments: str) -> list[str]:
    document = json.loads(diagnose("--format", "json", *arguments)[1])
    return [finding["verdict"] for finding in document["findings"]]


def test_the_documents_name_the_sites_rulebooks(site: Path, diagnose: Diagnose) -> None:
    (site / "ours.yaml").write_text("rulebook: hang\noverride: {params: {hang_after: 6 min}}")
    document = json.loads(diagnose("--format", "json")[1])
    jsonschema.validate(document, schema())
    assert document["site_rulebooks"] == {"hang": str(site / "ours.yaml")}
    assert "hang (site), slow" in diagnose("--format", "markdown")[1]
    assert not json.loads(diagnose("--format", "json", "--no-site-rules")[1])["site_rulebooks"]


@pytest.mark.parametrize(
    "text",
    ["facts: [", HANG.replace("SELECT", "SELECT nonsense,", 1)],
    ids=["no YAML", "unknown column"],
)
def test_a_broken_file_is_reported_and_costs_nothing(
    site: Path, diagnose: Diagnose, text: str
) -> None:
    file = site / "hang.yaml"
    file.write_text(text)
    code, out, err = diagnose("--format", "json")
    assert code == 1
    assert f"site rulebook {file} skipped; the shipped hang runs instead" in err
    assert f"{file}:" in err and ": error: " in err
    document = json.loads(out)
    assert [finding["verdict"] for finding in document["findings"]] == ["H1"]
    assert "hang" in document["checked"] and not document["site_rulebooks"]
    reported = [one for one in document["coverage"]["skipped_rules"] if one["set_aside"]]
    assert [one["rule"] for one in reported] == ["hang"] and str(file) in reported[0]["why"]


def test_a_broken_file_does_not_make_the_healthy_doubtful(
    site: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (site / "hang.yaml").write_text("facts: [")
    incident, truth = simulate(TrainingScenario(duration_ns=60 * NS_PER_S, pp=1, dp=8))
    with incident:
        write(incident, truth, tmp_path / "healthy")
    given = str(tmp_path / "healthy" / "evidence.oncall")
    monkeypatch.setattr(sys, "argv", ["oncall", "diagnose", given])
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code and capsys.readouterr().out.startswith("✔ No fault found")


def test_given_on_the_command_line_it_must_be_right(site: Path, diagnose: Diagnose) -> None:
    (site / "hang.yaml").write_text("facts: [")
    code, out, err = diagnose("--no-site-rules", "--rules", str(site))
    assert (code, out) == (2, "") and str(site / "hang.yaml") in err


def test_a_wrong_configuration_is_reported_and_costs_nothing(
    site: Path, diagnose: Diagnose
) -> None:
    file = site.parent / "config.toml"
    file.write_text("[rules]\nfolder = 3\n")
    code, _, err = diagnose()
    assert code == 1 and f"{file}: [rules] folder is text" in err
