"""The door to the lab, and what it says where the lab is not installed."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from oncall import __version__
from oncall.core.errors import UsageError
from oncall.lab import simulate_file, simulated_evidence
from oncall.rules.authoring.testing import run_tests_of
from oncall.rules.language.load import load_file

ROOT = Path(__file__).parents[1]


@pytest.fixture
def no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oncall_lab", None)


@pytest.mark.usefixtures("no_lab")
def test_what_to_install_is_said(tmp_path: Path) -> None:
    for simulate in (
        lambda: simulated_evidence({"tp": 2}),
        lambda: simulate_file(tmp_path / "a.yaml", tmp_path, seed=None, shards=False),
    ):
        with pytest.raises(UsageError, match=r"pip install ./lab in a checkout"):
            simulate()


TESTS = """
rulebook: hang
tests:
  - {name: rows, given: {}, expect: {verdict: skipped}}
  - name: simulated
    simulate: {tp: 2, pp: 1, dp: 2, duration: 5 s, micro_batches: 1}
    expect: {verdict: none}
"""


@pytest.mark.usefixtures("no_lab")
def test_rule_tests_of_rows_run_without_it() -> None:
    hang = load_file(ROOT / "rulebooks/hang.yaml")
    rows, simulated = run_tests_of(hang, TESTS, "hang.test.yaml")
    assert rows.passed
    assert "pip install ./lab in a checkout" in simulated.report


def test_a_simulated_cluster_is_evidence_of_a_rule_test() -> None:
    hang = load_file(ROOT / "rulebooks/hang.yaml")
    assert [one.report for one in run_tests_of(hang, TESTS, "hang.test.yaml")] == ["", ""]


def test_each_needs_the_other_as_it_is() -> None:
    product = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lab = tomllib.loads((ROOT / "lab/pyproject.toml").read_text())["project"]
    assert product["version"] == lab["version"]
    assert product["optional-dependencies"]["lab"] == [f"oncall-lab=={lab['version']}"]
    assert f"oncall-console=={product['version']}" in lab["dependencies"]


def test_one_version_is_named_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == __version__
    for path in ("helm/oncall/Chart.yaml", "helm/oncall/values.yaml", "container/Containerfile",
                 "kubernetes/collector.yaml", "kubernetes/oncall-watch.yaml"):  # fmt: skip
        named = re.findall(r"(?:oncall:|(?:version|appVersion): )(\d+\.\d+\.\d+)",
                           (ROOT / "packaging" / path).read_text())  # fmt: skip
        assert set(named) == {version}, path
