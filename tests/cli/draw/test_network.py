"""`oncall draw waiting|network|provenance`: pictures by the real command."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall_lab.network import NetworkFault, NetworkScenario, simulate_network


@pytest.fixture(scope="module")
def contended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "contended.oncall"
    scenario = NetworkScenario(
        step_bytes=20_000_000, faults=(NetworkFault("PFC_STORM", 1_000_000),), seed=2
    )
    incident, _ = simulate_network(scenario)
    with incident:
        incident.save(path)
    return path


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("kind", "reported"),
    [
        ("waiting", "Critical path; each step waits for the one above it:"),
        ("network", "sends PFC pauses without a queue"),
        ("provenance", "Ports that delayed step"),
    ],
)
def test_each_is_drawn_as_text_and_as_a_picture(
    contended: Path, tmp_path: Path, kind: str, reported: str
) -> None:
    code, text = run("draw", kind, contended)
    assert code == 0 and reported in text and max(map(len, text.splitlines())) <= 80
    picture = tmp_path / f"{kind}.svg"
    assert run("draw", kind, contended, "--output", picture) == (0, f"{picture}\n")
    assert picture.read_text().startswith("<svg ")


def test_a_collective_is_chosen_by_hash_and_number(contended: Path) -> None:
    code, text = run("draw", "waiting", contended, "--seq", "0")
    comm = text.split()[3].rstrip(":")
    assert code == 0
    assert run("draw", "waiting", contended, "--comm", comm) == (0, text)
    code, _ = run("draw", "waiting", contended, "--comm", "0x1")
    assert code == 2
    assert run("draw", "waiting", contended, "--comm", "ring")[0] == 2


@pytest.mark.slow
def test_diagnose_explains_a_storm_with_the_way_of_its_pauses(contended: Path) -> None:
    code, text = run("diagnose", contended, "--explain", "--no-site-rules")
    assert code == 1
    assert "Network\n" in text and "tier 1" in text and "▶ rank" in text
