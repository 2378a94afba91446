"""What is packaged for `oncall watch`: its options and settings exist, its metrics are written."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ruamel.yaml import YAML
from typer.testing import CliRunner

from oncall.cli.commands import app
from oncall.core.diagnosis import Coverage, Diagnosis
from oncall.watch import metrics
from oncall.watch.course import Open
from oncall.watch.settings import read_watch_settings

PACKAGING = Path(__file__).parents[2] / "packaging"


def test_the_deployment_gives_options_that_exist(tmp_path: Path) -> None:
    text = (PACKAGING / "kubernetes" / "oncall-watch.yaml").read_text()
    documents = {one["kind"]: one for one in YAML(typ="safe").load_all(text)}
    assert set(documents) == {"ConfigMap", "PersistentVolumeClaim", "Deployment"}
    deployment = documents["Deployment"]["spec"]
    assert deployment["replicas"] == 1 and deployment["strategy"]["type"] == "Recreate"
    (container,) = deployment["template"]["spec"]["containers"]
    command, *options = container["args"]
    shown = CliRunner().invoke(app, [command, "--help"]).output
    assert all(option.partition("=")[0] in shown for option in options)
    settings = tmp_path / "config.toml"
    config = documents["ConfigMap"]["data"]["config.toml"]
    settings.write_text(re.sub(r"\[watch\.notify\.slack\]\n.*\n.*\n", "", config))
    read = read_watch_settings(settings)
    assert read.metrics == "0.0.0.0:9469" and "alertmanager" in read.notify


def test_the_dashboard_shows_metrics_that_exist() -> None:
    board = json.loads((PACKAGING / "grafana" / "oncall-watch.json").read_text())
    opened = Open("i", 0, "critical", 1, 0, ())
    diagnosis = Diagnosis("llama", None, None, Coverage(1, 1, 8, 8), ())
    text = metrics.exposition(metrics.Seen("llama", diagnosis=diagnosis, incident=opened))
    written = set(re.findall(r"# TYPE (oncall_\w+)", text))
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert set(re.findall(r"oncall_\w+", target["expr"])) <= written
    assert "oncall_finding" in written
