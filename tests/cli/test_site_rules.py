"""The site's rulebooks in `oncall diagnose`: they count and are named; broken ones cost nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jsonschema
import pytest

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

from ..command import Done, oncall

HANG = (shipped_folder() / "hang.yaml").read_text()
PATIENT = HANG.replace(
    "{of: halted.hang_after}", "{of: halted.hang_after, value: 5 h, why: patience}"
)

Diagnose = Callable[..., Done]


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
def diagnose(evidence: Path) -> Diagnose:
    """`oncall diagnose EVIDENCE ARGUMENTS`."""
    return partial(oncall, "diagnose", evidence)


def test_what_was_saved_in_the_console_counts_the_next_day(
    site: Path, evidence: Path, diagnose: Diagnose
) -> None:
    assert diagnose().returncode == 1
    session = Replay(Recording([evidence]), RulebookStore(site=site))
    session.ask(GetRulebookText("hang"))
    path = session.ask(SaveRulebook("hang", PATIENT))
    session.close()
    assert path == site / "hang.yaml"
    assert verdicts(diagnose) == ["STANDSTILL"]  # a wait of half a minute may end, the site says
    assert verdicts(diagnose, "--no-site-rules") == ["H1"]


def verdicts(diagnose: Diagnose, *arguments: str) -> list[str]:
    document = json.loads(diagnose("--format", "json", *arguments).stdout)
    return [finding["verdict"] for finding in document["findings"]]


def test_the_documents_name_the_sites_rulebooks(site: Path, diagnose: Diagnose) -> None:
    (site / "ours.yaml").write_text("rulebook: hang\noverride: {params: {hang_after: 6 min}}")
    document = json.loads(diagnose("--format", "json").stdout)
    jsonschema.validate(document, schema())
    assert document["site_rulebooks"] == {"hang": str(site / "ours.yaml")}
    assert "hang (site), slow" in diagnose("--format", "markdown").stdout
    assert not json.loads(diagnose("--format", "json", "--no-site-rules").stdout)["site_rulebooks"]


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
    done = diagnose("--format", "json")
    assert done.returncode == 1
    assert f"site rulebook {file} skipped; the shipped hang runs instead" in done.stderr
    assert f"{file}:" in done.stderr and ": error: " in done.stderr
    document = json.loads(done.stdout)
    assert [finding["verdict"] for finding in document["findings"]] == ["H1"]
    assert "hang" in document["checked"] and not document["site_rulebooks"]
    reported = [one for one in document["coverage"]["skipped_rules"] if one["set_aside"]]
    assert [one["rule"] for one in reported] == ["hang"] and str(file) in reported[0]["why"]


def test_a_broken_file_does_not_make_the_healthy_doubtful(site: Path, tmp_path: Path) -> None:
    (site / "hang.yaml").write_text("facts: [")
    incident, truth = simulate(TrainingScenario(duration_ns=60 * NS_PER_S, pp=1, dp=8))
    with incident:
        write(incident, truth, tmp_path / "healthy")
    done = oncall("diagnose", tmp_path / "healthy" / "evidence.oncall")
    assert done.returncode == 0 and done.stdout.startswith("✔ No fault found")


def test_given_on_the_command_line_it_must_be_right(site: Path, diagnose: Diagnose) -> None:
    (site / "hang.yaml").write_text("facts: [")
    done = diagnose("--no-site-rules", "--rules", site)
    assert (done.returncode, done.stdout) == (2, "") and str(site / "hang.yaml") in done.stderr


def test_a_wrong_configuration_is_reported_and_costs_nothing(
    site: Path, diagnose: Diagnose
) -> None:
    file = site.parent / "config.toml"
    file.write_text("[rules]\nfolder = 3\n")
    done = diagnose()
    assert done.returncode == 1 and f"{file}: [rules] folder is text" in done.stderr
