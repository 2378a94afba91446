"""`oncall draw stages`: timelines and graphs by the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 2 of two pipelines of two stages delays a forward of iteration 3."""
    fault = PipelineFault("delay", rank=2, iteration=3, micro_batch=1, delay_ns=300_000_000)
    scenario = PipelineScenario(
        tp=1, pp=2, dp=2, micro_batches=4, iterations=5, recorder="tasks", faults=(fault,)
    )
    path = tmp_path_factory.mktemp("stages") / "slow.oncall"
    incident, _ = simulate_pipeline(scenario)
    with incident:
        incident.save(path)
    return path


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.output


def test_the_slow_iteration_is_drawn_with_its_culprit(slow: Path) -> None:
    code, output = run("draw", "stages", slow)
    assert code == 0
    assert output.startswith("Iteration 3, pipeline 0 of 0-1:")
    assert [line.split()[2:5] for line in output.splitlines() if line.startswith("▶ stage")] == [
        ["1", "rank", "2"]
    ]
    assert max(map(len, output.splitlines())) <= 80


def test_pictures_and_graphs_are_written(slow: Path, tmp_path: Path) -> None:
    for name, beginning in (
        ("x.svg", "<svg "),
        ("x.dot", "digraph"),
        ("x.json", "{"),
    ):
        code, output = run("draw", "stages", slow, "-o", tmp_path / name)
        assert (code, output.strip()) == (0, str(tmp_path / name))
        assert (tmp_path / name).read_text().startswith(beginning)
    assert json.loads((tmp_path / "x.json").read_text())["iteration"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--iteration", "99"], "no iteration 99; iterations are 0 to 4"),
        (["--pipeline", "7"], "has no pipeline 7"),
        (["-o", "x.pdf"], "must end in .svg or .png or .dot or .json"),
        (["-o", "x.trace.json"], "`oncall export perfetto` writes all iterations now"),
    ],
)
def test_what_cannot_be_drawn_is_refused(slow: Path, options: list[str], message: str) -> None:
    code, output = run("draw", "stages", slow, *options)
    assert code == 2
    assert message in output
